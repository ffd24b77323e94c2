"""Zonal shifts of AWS ARC, on a server with its model: what is started, recognized, renewed and cancelled."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.evacuate.action import Action, ChangeState, PlannedChange, Resource, Target, Unmovable
from holdfast.evacuate.actions.zonal_shift import Account, ZonalShift, build_comment
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.runner import Report, Runner
from holdfast.simulate.aws.arc import Arc, ArcError, ReplyLost, serve
from holdfast.testing import FakeClock
from holdfast.testing.evacuation import DeletableActionConformance
from tests.unit.evacuate.fleet import OTHER, ZONE

BALANCER = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/app/shop/1"
GROUP = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:1:autoScalingGroupName/shop"
CLUSTER = "arn:aws:eks:us-east-1:123456789012:cluster/shop"
TARGET = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")


@pytest.fixture
def arc() -> Arc:
    found = Arc(FakeClock())
    for arn in (BALANCER, GROUP, CLUSTER):
        found.add(arn, ZONE, OTHER)
    found.add(f"{CLUSTER}-elsewhere", OTHER)
    return found


@pytest.fixture
def action(arc: Arc, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZonalShift]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    options = {"region": "us-east-1", "max_attempts": 1}
    with serve(arc) as url, AwsSession(AwsOptions(endpoint_url=url, **options)) as session:  # type: ignore[arg-type]
        yield ZonalShift([Account(session, "123456789012", "us-east-1")])


class TestConformance(DeletableActionConformance):
    """Overrides its fixture by that of this module."""

    @pytest.fixture
    def action(self, action: ZonalShift) -> Action:
        return action

    @pytest.fixture(autouse=True)
    def keep_arc(self, arc: Arc) -> None:
        self.arc = arc

    def delete(self, resource: Resource) -> None:
        del self.arc.resources[resource.id]


@pytest.fixture
def runner(arc: Arc, action: ZonalShift) -> Runner:
    return Runner({"zonal-shift": action}, MemoryJournal(), arc.clock)


def evacuate(runner: Runner) -> Report:
    return runner.start(runner.plan(TARGET), by="me@here")


def states(report: Report) -> dict[str, EntryState]:
    return {each.resource: each.state for each in report.entries}


def fail_once(name: str, error: Callable[[], Exception]) -> Callable[[str], None]:
    """Return faults that let the first call of one operation fail."""
    left = [name]

    def fail(operation: str) -> None:
        if operation in left:
            left.remove(operation)
            raise error()

    return fail


def throttle() -> Exception:
    return ArcError("ThrottlingException", "slow down")


def test_everything_in_the_zone_is_shifted_and_brought_back(arc: Arc, runner: Runner) -> None:
    arc.page = 1
    plan = runner.plan(TARGET)
    assert [(each.resource.type, each.description) for each in plan.changes["zonal-shift"]] == [
        ("auto-scaling-group", "start a zonal shift away from use1-az1 for 12h"),
        ("eks-cluster", "start a zonal shift away from use1-az1 for 12h"),
        ("load-balancer", "start a zonal shift away from use1-az1 for 12h"),
    ]
    assert states(runner.start(plan, by="me@here")) == dict.fromkeys((BALANCER, GROUP, CLUSTER), EntryState.APPLIED)
    for shift in arc.shifts:
        assert (shift.comment, shift.zone, shift.expiry) == (
            "hf-1 holdfast requests fail",
            ZONE,
            arc.clock.wall() + 12 * 3600,
        )
    assert runner.restore("hf-1").problems == []
    assert [each.status for each in arc.shifts] == ["CANCELED"] * 3


@pytest.mark.parametrize("operation", ["StartZonalShift", "GetManagedResource", "CancelZonalShift"])
@pytest.mark.parametrize("error", [throttle, ReplyLost])
def test_lost_replies_and_throttling_start_no_second_shift(
    arc: Arc, runner: Runner, operation: str, error: Callable[[], Exception]
) -> None:
    arc.faults = fail_once(operation, error)
    assert set(states(evacuate(runner)).values()) == {EntryState.APPLIED}
    assert len(arc.shifts) == 3
    assert runner.restore("hf-1").problems == []
    assert [each.status for each in arc.shifts] == ["CANCELED"] * 3


def test_shifts_of_others_are_never_cancelled_or_renewed(arc: Arc, runner: Runner) -> None:
    colleague = arc.start_shift(BALANCER, ZONE, "I am on it")
    report = evacuate(runner)
    assert states(report)[BALANCER] is EntryState.FOUND
    assert "I am on it" in next(each.note for each in report.entries if each.resource == BALANCER)
    runner.renew("hf-1")
    assert states(runner.restore("hf-1"))[BALANCER] is EntryState.FOUND
    assert (colleague.status, colleague.expiry) == ("ACTIVE", colleague.start + 3600)


def test_a_shift_that_somebody_replaced_meanwhile_is_kept(arc: Arc, runner: Runner) -> None:
    evacuate(runner)
    ours = arc.get_active(GROUP)
    assert ours is not None
    ours.status = "CANCELED"
    theirs = arc.start_shift(GROUP, OTHER, "the other zone is worse")
    del arc.resources[CLUSTER]
    found = runner.restore("hf-1")
    assert states(found) == {
        BALANCER: EntryState.RESTORED,
        GROUP: EntryState.KEPT,
        CLUSTER: EntryState.KEPT,
    }
    assert theirs.status == "ACTIVE"


def test_a_shift_away_from_another_zone_is_a_sign_and_is_not_replaced(arc: Arc, action: ZonalShift) -> None:
    arc.start_shift(BALANCER, OTHER, "az2 fails")
    found = action.discover(TARGET)
    assert [(each.zone, each.source) for each in found.other_evacuations] == [
        (OTHER, "a zonal shift of 1 ('az2 fails')")
    ]
    (balancer,) = (each for each in found.resources if each.id == BALANCER)
    planned = action.plan(balancer, TARGET)
    assert isinstance(planned, Unmovable)
    assert "shifted it away from use1-az2" in planned.reason


def test_an_autoshift_elsewhere_is_a_sign_and_a_practice_run_is_not(arc: Arc, action: ZonalShift) -> None:
    arc.resources[GROUP].autoshift = OTHER
    arc.start_shift(CLUSTER, OTHER, "practice", type="PRACTICE_RUN")
    found = action.discover(TARGET)
    assert [(each.zone, each.source) for each in found.other_evacuations] == [(OTHER, "an autoshift of AWS")]
    (cluster,) = (each for each in found.resources if each.id == CLUSTER)
    planned = action.plan(cluster, TARGET)
    assert isinstance(planned, PlannedChange)
    assert planned.side_effects == ["ends a practice run, which counts as interrupted"]


def test_an_account_that_cannot_be_read_is_reported(arc: Arc, action: ZonalShift) -> None:
    arc.faults = fail_once("ListManagedResources", lambda: ArcError("AccessDeniedException", "no"))
    found = action.discover(TARGET)
    assert [each.scope for each in found.unreadable] == ["123456789012 us-east-1"]
    assert found.resources == []


def test_a_renewed_shift_expires_later_and_one_that_is_not_ends(arc: Arc, runner: Runner) -> None:
    evacuate(runner)
    arc.clock.sleep(11 * 3600)
    runner.renew("hf-1")
    arc.clock.sleep(2 * 3600)
    assert {each.status for each in arc.shifts} == {"ACTIVE"}
    assert {each.state for each in runner.verify("hf-1").values()} == {ChangeState.APPLIED}
    arc.clock.sleep(11 * 3600)
    assert {each.state for each in runner.verify("hf-1").values()} == {ChangeState.ABSENT}
    assert set(states(runner.restore("hf-1")).values()) == {EntryState.RESTORED}


def test_a_resource_with_one_zone_stays(arc: Arc, runner: Runner) -> None:
    arc.add(f"{CLUSTER}-single", ZONE)
    plan = runner.plan(TARGET)
    assert [(each.resource.name, each.reason) for each in plan.unmovable] == [("shop-single", "it has no other zone")]


def test_a_comment_is_never_too_long() -> None:
    assert len(build_comment(Target(zone=ZONE, run="hf-1", reason="x" * 500))) == 128
    assert build_comment(Target(zone=ZONE, run="hf-1")) == "hf-1 holdfast"
