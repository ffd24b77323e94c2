"""A plan shows the steps of a run with their times, by the rules and waits of the state machine."""

import math

import pytest

from holdfast import InvalidValue
from holdfast.aurora.plan import Plan, Prices, compute_saving, format_duration, plan_run
from tests.unit.aurora.samples import NEW, READER, SCALED, WRITER, build_cluster, change


def summarize(plan: Plan) -> list[tuple[float, str]]:
    return [(each.at, each.state) for each in plan.steps]


def test_a_plain_run_with_one_autoscaling_reader_takes_65_minutes() -> None:
    plan = plan_run(build_cluster(), (NEW,))
    assert summarize(plan) == [
        (0, "EvaluateClusterState"),
        (0, "ScaleDedicatedReader"),
        *((at, "CheckDedicatedReaderStatus") for at in (60, 660, 1260)),
        (1260, "FailoverToDedicatedReader"),
        (1380, "CheckFailoverStatus"),
        (1380, "ScaleOldWriter"),
        *((at, "CheckOldWriterStatus") for at in (1440, 2040, 2640)),
        (2640, "ScaleAutoScalingReader"),
        *((at, "CheckAutoScalingReaderStatus") for at in (2700, 3300, 3900)),
        (3900, "FinalVerification"),
        (3900, "SendCompletionNotification"),
    ]
    assert (plan.seconds, plan.changed_count, plan.is_complete) == (3900, 3, True)
    assert (
        plan.steps[1].text
        == "modify shop-reader-dedicated: shop-reader-dedicated has db.r6g.large, and gets db.t4g.medium"
    )
    assert plan.steps[4].text == "shop-reader-dedicated is available with db.t4g.medium"
    assert plan.steps[7].text.startswith("modify shop-writer")


def test_steps_that_are_done_take_no_time_and_need_no_failover() -> None:
    cluster = change(change(build_cluster(), WRITER.id, instance_class=NEW), READER.id, instance_class=NEW)
    plan = plan_run(cluster, (NEW,), 30.0)
    assert summarize(plan)[1:4] == [(0, "ScaleDedicatedReader"), (0, "ScaleOldWriter"), (0, "ScaleAutoScalingReader")]
    assert (plan.seconds, plan.changed_count) == (60, 1)
    assert plan.steps[1].text.endswith("nothing to do")


def test_a_plan_ends_where_the_run_would_wait_or_fail() -> None:
    busy = plan_run(change(build_cluster(), SCALED.id, status="backing-up"), (NEW,), 30.0)
    assert [each.text for each in busy.steps[-2:]] == [
        "shop-reader-as-1 is backing-up: it cannot be modified now",
        "the run fails if shop-reader-as-1 needs longer than 51 minutes",
    ]
    slow = plan_run(build_cluster(), (NEW,), 4000.0)
    assert slow.steps[2].text == "not ready yet, check again in 10 minutes"
    assert slow.steps[-1].text == "the run fails here: shop-reader-dedicated needs longer than 51 minutes"
    assert summarize(slow)[-2:] == [(3060, "CheckDedicatedReaderStatus"), (3060, "DedicatedReaderStatusError")]
    assert not busy.is_complete
    assert not slow.is_complete
    stopped = plan_run(build_cluster(status="stopped"), (NEW,))
    assert [each.text for each in stopped.steps] == ["cluster shop-cluster is stopped: start it first"]


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_a_modification_takes_a_finite_time(seconds: float) -> None:
    with pytest.raises(InvalidValue, match=r"modification_seconds is .*: expected 0 or more"):
        plan_run(build_cluster(READER), (NEW,), seconds)


def test_the_saving_is_that_of_the_small_hours_minus_the_network() -> None:
    saving = compute_saving(Prices(old=0.313, new=0.113, hours=12, network=100.0), 3)
    assert saving.by_instances == pytest.approx(0.2 * 12 * 365 / 12 * 3)
    assert saving.total == pytest.approx(saving.by_instances - 100.0)


def test_ten_minutes_are_billed_at_least() -> None:
    saving = compute_saving(Prices(old=0.5, new=0.25, hours=1 / 12), 1)
    assert saving.total == pytest.approx(0.0)


@pytest.mark.parametrize(("old", "hours"), [(-1.0, 1.0), (math.nan, 1.0), (1.0, 0.0), (1.0, 25.0), (1.0, math.nan)])
def test_prices_are_checked(old: float, hours: float) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        Prices(old=old, new=0.1, hours=hours)


def test_durations_are_readable() -> None:
    assert [format_duration(seconds) for seconds in (3900.4, 59, 74 * 3600)] == ["1:05:00", "0:00:59", "74:00:00"]
