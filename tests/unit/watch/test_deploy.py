"""The rules of announced deploys."""

from typing import Any

import pytest

from holdfast import Conflict, InvalidValue, NotFound, Zone
from holdfast.telemetry import Deployment
from holdfast.watch.deploy import AnnouncedDeploy, build_deploy, choose_end, choose_open_deploy

NOW = 1_700_000_000.0


def build(deploy_id: str = "one", zone: str | None = "use1-az1", **more: Any) -> AnnouncedDeploy:
    return build_deploy(deploy_id, more.pop("workload", "shop"), zone, **{"now": NOW, "by": "ci", **more})


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ({}, 0, 900),
        ({"seconds": 60.0}, 0, 60),
        ({"seconds": 3600.0}, 0, 3600),
        ({"at": NOW - 300}, -300, 600),
        ({"at": NOW + 3}, 3, 903),
    ],
)
def test_a_deploy_begins_now_and_expires_after_15_minutes_unless_told_otherwise(
    given: dict[str, Any], start: float, end: float
) -> None:
    deploy = build(**given)
    assert deploy.to_deployment() == Deployment(Zone("use1-az1"), NOW + start, NOW + end)
    assert deploy.is_running(NOW)
    assert not deploy.is_running(NOW + end)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"seconds": 3601.0}, "a deploy of 3601 s: expected 1 s to 1 hour"),
        ({"seconds": 0.5}, "a deploy of 0.5 s"),
        ({"at": NOW + 60}, "the deploy begins 60 s in the future"),
        ({"at": float("nan")}, "in the future"),
        ({"at": NOW - 900}, "has expired before it was announced"),
        ({"zone": "us-east-1a"}, "us-east-1a is the name of a zone"),
        ({"workload": "a b"}, "workload 'a b'"),
        ({"by": "x" * 201}, "by: expected one line of at most 200 characters"),
        ({"note": "two\nlines"}, "note: expected one line of at most 500 characters"),
        ({"deploy_id": "a/b"}, "id 'a/b': expected 1 to 64 letters"),
    ],
)
def test_a_wrong_announcement_is_refused_with_the_reason(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        build(**given)


@pytest.mark.parametrize(
    ("now", "at", "end"),
    [(100, None, 100), (-50, None, 0), (5000, None, 900), (100, 90, 90), (100, 0, 0), (5000, 4000, 900)],
)
def test_a_deploy_ends_now_or_when_told_but_not_before_it_began_or_after_it_expired(
    now: float, at: float | None, end: float
) -> None:
    assert choose_end(build(), NOW + now, None if at is None else NOW + at) == NOW + end


@pytest.mark.parametrize(
    ("at", "problem"), [(-10, "deploy one would end 10 s before it began"), (160, "deploy one ends 60 s in the future")]
)
def test_a_deploy_cannot_end_before_it_began_or_in_the_future(at: float, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        choose_end(build(), NOW + 100, NOW + at)


def test_only_a_single_running_deploy_can_be_ended_without_its_id() -> None:
    one, two = build(), build("two")
    assert choose_open_deploy([one], "shop", one.zone) is one
    with pytest.raises(NotFound, match="no deploy of zone use1-az1 of shop is running"):
        choose_open_deploy([], "shop", one.zone)
    with pytest.raises(Conflict, match="2 deploys of all zones of shop are running: name one by its id, one, two"):
        choose_open_deploy([one, two], "shop", None)
