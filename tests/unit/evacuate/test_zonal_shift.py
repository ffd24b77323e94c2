"""Zonal shifts of AWS ARC, on a server with its model: what is started, recognized, renewed and cancelled."""

import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import Conflict, EngineError, NotAllowed, NotFound
from holdfast.evacuate.action import ACTIONS, Action, ChangeState, PlannedChange, Resource, Target, Unmovable
from holdfast.evacuate.actions.zonal_shift import ZonalShift, ZonalShiftOptions, build_comment
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Plan, Report
from holdfast.evacuate.runner import Runner
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from holdfast.testing import FakeClock
from holdfast.testing.evacuation import DeletableActionConformance
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, ZONE

SECOND = "210987654321"
TARGET = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")


class Shop:
    """A balancer, a group and a cluster in two zones, and a cluster that is in the other zone only."""

    def __init__(self, region: SimulatedRegion) -> None:
        self.balancer = region.add("application", "shop", ZONE, OTHER)
        self.group = region.add("group", "shop", ZONE, OTHER)
        self.cluster = region.add("cluster", "shop", ZONE, OTHER)
        region.add("cluster", "elsewhere", OTHER)
        self.arns = {self.balancer, self.group, self.cluster}


@pytest.fixture
def shop(region: SimulatedRegion) -> Shop:
    return Shop(region)


@pytest.fixture
def action(cloud: Cloud, shop: Shop) -> ZonalShift:
    return ZonalShift(cloud.open({"the default account": ACCOUNT}))


@pytest.fixture
def runner(region: SimulatedRegion, action: ZonalShift) -> Runner:
    return Runner({"zonal-shift": action}, MemoryJournal(), region.arc.clock)


class TestConformance(DeletableActionConformance):
    """Overrides its fixture by that of this module."""

    @pytest.fixture
    def action(self, action: ZonalShift) -> Action:
        return action

    @pytest.fixture(autouse=True)
    def keep_region(self, region: SimulatedRegion) -> None:
        self.region = region

    def delete(self, resource: Resource) -> None:
        self.region.remove(resource.id)


def evacuate(runner: Runner, planned: Plan | None = None) -> Report:
    used = planned or runner.plan(TARGET)
    return runner.evacuate(runner.begin(used, by="me@here"), used)


def restore(runner: Runner) -> Report:
    return runner.restore(runner.claim("hf-1"))


def states(report: Report) -> dict[str, EntryState]:
    return {each.resource: each.state for each in report.entries}


def find(action: ZonalShift, arn: str) -> Resource:
    (found,) = (each for each in action.discover(TARGET).resources if each.id == arn)
    return found


def plan(action: ZonalShift, arn: str, target: Target = TARGET) -> PlannedChange:
    planned = action.plan(find(action, arn), target)
    assert isinstance(planned, PlannedChange)
    return planned


def build_entry(
    action: ZonalShift, arn: str, state: EntryState = EntryState.INTENDED, target: Target = TARGET
) -> Entry:
    change = plan(action, arn, target).change
    return Entry(zone=ZONE, resource=arn, type="", action="", run="hf-1", number=1, state=state, at=0, change=change)


def fail_once(name: str, error: Callable[[], Exception]) -> Callable[[str], None]:
    """Return faults that let the first call of one operation fail."""
    left = [name]

    def fail(operation: str) -> None:
        if operation in left:
            left.remove(operation)
            raise error()

    return fail


def throttle() -> Exception:
    return ServiceError(Refusal.THROTTLED)


def deny() -> Exception:
    return ServiceError(Refusal.DENIED)


def test_everything_in_the_zone_is_shifted_and_brought_back(
    region: SimulatedRegion, shop: Shop, runner: Runner
) -> None:
    """Every page of a list has one item."""
    region.page_size = 1
    planned = runner.plan(TARGET)
    assert [(each.resource.type, each.description) for each in planned.changes["zonal-shift"]] == [
        ("auto-scaling-group", "start a zonal shift away from use1-az1 for 12h"),
        ("eks-cluster", "start a zonal shift away from use1-az1 for 12h"),
        ("load-balancer", "start a zonal shift away from use1-az1 for 12h"),
    ]
    assert {(each.resource.account, each.resource.region) for each in planned.changes["zonal-shift"]} == {
        (ACCOUNT, "us-east-1")
    }
    (note,) = planned.notes
    assert note.startswith("WARNING: shop has no `workload.resources` in the settings")
    assert states(evacuate(runner, planned)) == dict.fromkeys(shop.arns, EntryState.APPLIED)
    for shift in region.arc.shifts:
        assert (shift.comment, shift.zone, shift.expiry) == (
            "hf-1 holdfast requests fail",
            ZONE,
            region.arc.clock.wall() + 12 * 3600,
        )
    assert restore(runner).problems == []
    assert [each.status for each in region.arc.shifts] == ["CANCELED"] * 3


@pytest.mark.parametrize("operation", ["StartZonalShift", "GetManagedResource", "CancelZonalShift"])
@pytest.mark.parametrize("error", [throttle, ReplyLost])
def test_lost_replies_and_throttling_start_no_second_shift(
    region: SimulatedRegion, runner: Runner, operation: str, error: Callable[[], Exception]
) -> None:
    region.faults = fail_once(operation, error)
    assert set(states(evacuate(runner)).values()) == {EntryState.APPLIED}
    assert len(region.arc.shifts) == 3
    assert restore(runner).problems == []
    assert [each.status for each in region.arc.shifts] == ["CANCELED"] * 3


def test_side_effects_are_those_of_the_type(region: SimulatedRegion, shop: Shop, action: ZonalShift) -> None:
    network = region.add("network", "gate", ZONE, OTHER)
    found = {each: list(plan(action, each).side_effects) for each in (*shop.arns, network)}
    assert len(found[shop.balancer]) == 2
    assert "Network Load Balancer" in found[shop.balancer][1]
    assert found[network] == found[shop.balancer][:1]
    assert "new instances start in other zones" in found[shop.group][0]
    assert "cordoned" in found[shop.cluster][0]


# Shifts of others


def test_shifts_of_others_are_never_cancelled_or_renewed(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    colleague = region.arc.start_shift(shop.balancer, ZONE, "I am on it")
    report = evacuate(runner)
    assert states(report)[shop.balancer] is EntryState.FOUND
    assert "I am on it" in next(each.note for each in report.entries if each.resource == shop.balancer)
    runner.renew(report.run)
    assert states(restore(runner))[shop.balancer] is EntryState.FOUND
    assert (colleague.status, colleague.expiry) == ("ACTIVE", colleague.start + 3600)


def test_a_shift_that_others_replaced_meanwhile_is_kept(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    evacuate(runner)
    ours = region.arc.get_active(shop.group)
    assert ours is not None
    ours.status = "CANCELED"
    theirs = region.arc.start_shift(shop.group, OTHER, "the other zone is worse")
    region.remove(shop.cluster)
    assert states(restore(runner)) == {
        shop.balancer: EntryState.RESTORED,
        shop.group: EntryState.KEPT,
        shop.cluster: EntryState.KEPT,
    }
    assert theirs.status == "ACTIVE"


def test_a_shift_away_from_another_zone_is_a_sign_and_is_not_replaced(
    region: SimulatedRegion, shop: Shop, action: ZonalShift
) -> None:
    entry = build_entry(action, shop.balancer)
    forced = build_entry(action, shop.balancer, target=replace(TARGET, allows_second_zone=True))
    region.arc.start_shift(shop.balancer, OTHER, "az2 fails")
    found = action.discover(TARGET)
    assert [(each.zone, each.source) for each in found.other_evacuations] == [
        (OTHER, "a zonal shift of shop ('az2 fails')")
    ]
    planned = action.plan(find(action, shop.balancer), TARGET)
    assert isinstance(planned, Unmovable)
    assert "shifted it away from use1-az2" in planned.reason
    reading = action.read(entry)
    assert (reading.state, reading.other_zone) == (ChangeState.DIFFERENT, OTHER)
    reading = action.read(forced)
    assert (reading.state, reading.other_zone) == (ChangeState.DIFFERENT, None)
    with pytest.raises(Conflict, match="it has another zonal shift already"):
        action.apply(entry)


def test_an_autoshift_elsewhere_is_a_sign_and_stops_a_run(
    region: SimulatedRegion, shop: Shop, action: ZonalShift, runner: Runner
) -> None:
    entry = build_entry(action, shop.group)
    planned = runner.plan(TARGET)
    region.arc.resources[shop.group].autoshift = OTHER
    found = action.discover(TARGET)
    assert [(each.zone, each.source) for each in found.other_evacuations] == [(OTHER, "an autoshift of AWS")]
    reading = action.read(entry)
    assert (reading.state, reading.other_zone) == (ChangeState.DIFFERENT, OTHER)
    forced = replace(entry, change={**entry.change, "force": True})
    assert action.read(forced).state is ChangeState.ABSENT
    assert action.read(replace(entry, state=EntryState.RESTORING)).state is ChangeState.ABSENT
    report = evacuate(runner, planned)  # the autoshift began after the plan
    assert states(report)[shop.group] is EntryState.FAILED
    assert region.arc.get_active(shop.group) is None


def test_an_autoshift_away_from_the_same_zone_is_overridden(
    region: SimulatedRegion, shop: Shop, action: ZonalShift
) -> None:
    region.arc.resources[shop.cluster].autoshift = ZONE
    assert "takes precedence over the autoshift" in plan(action, shop.cluster).side_effects[0]
    entry = build_entry(action, shop.cluster)
    assert action.read(entry).state is ChangeState.ABSENT
    action.apply(entry)
    assert action.read(entry).state is ChangeState.APPLIED


@pytest.mark.parametrize(
    ("kind", "name"), [("PRACTICE_RUN", "a practice run"), ("FIS_EXPERIMENT", "an experiment of FIS")]
)
def test_a_test_of_aws_is_no_sign_and_is_ended(
    region: SimulatedRegion, shop: Shop, action: ZonalShift, kind: str, name: str
) -> None:
    test = region.arc.start_shift(shop.cluster, OTHER, "practice", type=kind)
    assert action.discover(TARGET).other_evacuations == []
    assert plan(action, shop.cluster).side_effects[0] == f"ends {name}, which counts as interrupted"
    entry = build_entry(action, shop.cluster)
    assert action.read(entry).state is ChangeState.ABSENT
    action.apply(entry)
    assert (action.read(entry).state, test.status) == (ChangeState.APPLIED, "CANCELED")


# Expiry


def test_a_renewed_shift_expires_later_and_one_that_is_not_ends(region: SimulatedRegion, runner: Runner) -> None:
    run = evacuate(runner).run
    region.arc.clock.sleep(11 * 3600)
    assert runner.renew(run) == []
    region.arc.clock.sleep(2 * 3600)
    assert {each.status for each in region.arc.shifts} == {"ACTIVE"}
    assert {each.state for each in runner.verify(run).values()} == {ChangeState.APPLIED}
    region.arc.clock.sleep(11 * 3600)
    assert {each.state for each in runner.verify(run).values()} == {ChangeState.ABSENT}
    assert set(states(restore(runner)).values()) == {EntryState.RESTORED}


def test_a_shift_that_others_cancelled_is_not_ours_to_start_again(
    region: SimulatedRegion, runner: Runner, shop: Shop
) -> None:
    run = evacuate(runner).run
    region.page_size = 1
    for _ in range(3):  # more pages of shifts that were cancelled
        region.arc.start_shift(shop.group, ZONE, "older").status = "CANCELED"
    ours = region.arc.get_active(shop.group)
    assert ours is not None
    ours.status = "CANCELED"
    assert runner.verify(run)[shop.group].state is ChangeState.DIFFERENT
    (lapsed,) = runner.renew(run)
    assert lapsed.resource == shop.group
    assert lapsed.note.startswith("others have cancelled the zonal shift of this run. The first `holdfast zone resume`")
    assert set(states(restore(runner)).values()) == {EntryState.RESTORED}


@pytest.mark.parametrize(("status", "message"), [("EXPIRED", "has ended"), ("CANCELED", "others have cancelled")])
def test_a_shift_that_ends_just_before_it_is_renewed_is_a_conflict(
    region: SimulatedRegion, shop: Shop, action: ZonalShift, status: str, message: str
) -> None:
    entry = build_entry(action, shop.group)
    action.apply(entry)
    reading = action.read(entry)
    region.arc.shifts[0].status = status
    with pytest.raises(Conflict, match=message):
        action.renew(replace(entry, record=reading.record), reading)
    with pytest.raises(Conflict, match="has ended"):
        action.restore(entry, reading)


# Refusals


def test_a_zone_that_arc_does_not_accept_is_explained(shop: Shop, action: ZonalShift) -> None:
    entry = build_entry(action, shop.group)
    with pytest.raises(EngineError, match="check in which zones it is"):
        action.apply(replace(entry, change={**entry.change, "zone": "use1-az9"}))


def test_a_deleted_resource_is_gone_and_cannot_be_shifted(
    region: SimulatedRegion, shop: Shop, action: ZonalShift
) -> None:
    entry = build_entry(action, shop.group)
    region.remove(shop.group)
    assert "zonal shift is not enabled" in action.read(entry).note
    with pytest.raises(NotFound, match="deleted"):
        action.apply(entry)


def test_a_resource_with_one_zone_stays(region: SimulatedRegion, runner: Runner) -> None:
    region.add("cluster", "single", ZONE)
    planned = runner.plan(TARGET)
    assert [(each.resource.name, each.reason) for each in planned.unmovable] == [("single", "it has no other zone")]


# Accounts


@pytest.mark.parametrize("operation", ["GetCallerIdentity", "ListManagedResources", "ListAutoshifts"])
@pytest.mark.parametrize("error", [deny, throttle, ReplyLost])
def test_an_account_that_cannot_be_read_is_reported(
    region: SimulatedRegion, action: ZonalShift, operation: str, error: Callable[[], Exception]
) -> None:
    region.faults = fail_once(operation, error)
    found = action.discover(TARGET)
    assert [each.scope for each in found.unreadable] == ["the default account in us-east-1"]
    assert operation in found.unreadable[0].reason
    assert (found.resources, found.unmovable) == ([], [])


def test_an_account_in_which_the_region_is_disabled_is_reported(region: SimulatedRegion, action: ZonalShift) -> None:
    """Not every refusal of STS is one that all services have."""
    region.faults = fail_once("GetCallerIdentity", lambda: ServiceError("RegionDisabledException"))
    (found,) = action.discover(TARGET).unreadable
    assert "AWS refused GetCallerIdentity" in found.reason


@pytest.fixture
def second(cloud: Cloud) -> SimulatedRegion:
    """Another account, which calls the zones by other names."""
    cloud.regions.append(SimulatedRegion(FakeClock(), [OTHER, ZONE], account=SECOND))
    return cloud.regions[1]


def test_all_accounts_are_evacuated(cloud: Cloud, region: SimulatedRegion, shop: Shop, second: SimulatedRegion) -> None:
    theirs = second.add("network", "gate")
    action = ZonalShift(cloud.open({"ours": ACCOUNT, "theirs": SECOND, "ours as well": ACCOUNT}))
    runner = Runner({"zonal-shift": action}, MemoryJournal(), region.arc.clock)
    report = evacuate(runner)
    assert sorted(states(report)) == sorted({*shop.arns, theirs})
    assert {each.state for each in report.entries} == {EntryState.APPLIED}
    assert second.arc.get_active(theirs) is not None
    assert restore(runner).problems == []


def test_an_account_that_cannot_be_read_hides_no_other(cloud: Cloud, region: SimulatedRegion, shop: Shop) -> None:
    """The credentials of the first account do not work."""
    action = ZonalShift(cloud.open({"theirs": SECOND, "ours": ACCOUNT}))
    found = action.discover(TARGET)
    assert {each.id for each in found.resources} == shop.arns
    assert [each.scope for each in found.unreadable] == ["theirs in us-east-1"]
    entry = build_entry(action, shop.group)
    action.apply(entry)
    assert action.read(entry).state is ChangeState.APPLIED
    with pytest.raises(NotAllowed, match="does not know the credentials"):
        action.read(replace(entry, resource=entry.resource.replace(ACCOUNT, SECOND)))


def test_an_operator_with_other_profiles_restores(cloud: Cloud, region: SimulatedRegion, shop: Shop) -> None:
    journal = MemoryJournal()
    actions = [ZonalShift(cloud.open({name: ACCOUNT})) for name in ("profile of Ann", "profile of Ben")]
    ann, ben = (Runner({"zonal-shift": each}, journal, region.arc.clock) for each in actions)
    evacuate(ann)
    assert restore(ben).problems == []
    assert {each.status for each in region.arc.shifts} == {"CANCELED"}
    elsewhere = ZonalShift(cloud.open({}))
    with pytest.raises(NotFound, match=rf"in account {ACCOUNT}, .*evacuation\.account"):
        elsewhere.read(build_entry(actions[0], shop.group))


@pytest.mark.parametrize(("name", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_all_partitions_are_understood(cloud: Cloud, name: str, partition: str) -> None:
    cloud.regions.append(SimulatedRegion(FakeClock(), [ZONE, OTHER], region=name))
    arn = cloud.regions[1].add("group", "shop")
    assert arn.startswith(f"arn:{partition}:autoscaling:{name}:{ACCOUNT}:")
    action = ZonalShift(cloud.open({"ours": ACCOUNT}, name))
    resource = find(action, arn)
    assert (resource.type, resource.account, resource.region) == ("auto-scaling-group", ACCOUNT, name)
    entry = build_entry(action, arn)
    action.apply(entry)
    assert action.read(entry).state is ChangeState.APPLIED


# The rest


def test_a_comment_is_never_too_long() -> None:
    assert len(build_comment(Target(zone=ZONE, run="hf-1", reason="x" * 500))) == 128
    assert build_comment(Target(zone=ZONE, run="hf-1")) == "hf-1 holdfast"


def test_the_action_is_registered_with_options() -> None:
    kind = ACTIONS.get("zonal-shift")
    assert kind.options_type is ZonalShiftOptions
    assert msgspec.convert({"hours": 3}, ZonalShiftOptions) == ZonalShiftOptions(hours=3)
    for wrong in ({"hours": 73}, {"hours": 0}, {"minutes": 3}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, ZonalShiftOptions)
    assert "arc-zonal-shift:StartZonalShift" in kind.permissions
    assert "enable_zonal_shift = true" in kind.terraform


def test_the_module_is_imported_without_boto3() -> None:
    code = (
        "import sys; sys.modules.update(boto3=None, botocore=None); "
        "from holdfast.evacuate.action import ACTIONS; ACTIONS.get('zonal-shift')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
