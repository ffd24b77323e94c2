"""Auto Scaling groups on a simulated AWS: subnets that are removed and added again, and groups that stay."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import EngineError, EngineUnavailable, NotFound, Zone
from holdfast.evacuate.action import ACTIONS, Action, ChangeState, PlannedChange, Reading, Resource, Target
from holdfast.evacuate.actions.auto_scaling_groups.action import AutoScalingGroups, AutoScalingGroupsOptions
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.journal import CLAIM_SECONDS, Entry, EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Plan, Report
from holdfast.evacuate.runner import Runner
from holdfast.evacuate.selection import Selection
from holdfast.evacuate.zonal_traffic import _has_left
from holdfast.simulate.aws.balancers import CROSS_ZONE
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.group_instances import Group
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from holdfast.testing import FakeClock
from holdfast.testing.evacuation import DeletableActionConformance
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, ZONE, Killed
from tests.unit.evacuate.test_zonal_shift import deny, fail_once, states, throttle

THIRD = Zone("use1-az3")
NAME = "auto-scaling-groups"
TARGET = Target(zone=ZONE, run="hf-1", reason="requests fail")
SECOND = "210987654321"


class Shop:
    """Two groups in three zones, with two instances in each, and a group that is in the other zones only."""

    def __init__(self, region: SimulatedRegion) -> None:
        self.region = region
        self.arn = region.groups.add("shop", {ZONE: 2, OTHER: 2, THIRD: 2}, max_size=12)
        self.second = region.groups.add("mail", {ZONE: 2, OTHER: 2, THIRD: 2}, max_size=12)
        region.groups.add("elsewhere", {OTHER: 2, THIRD: 2})
        self.before = list(self.group.subnets)
        self.arns = {self.arn, self.second}

    @property
    def group(self) -> Group:
        return self.region.groups.get(self.arn)

    def count(self) -> dict[Zone, int]:
        return self.region.groups.count_instances(self.arn)


@pytest.fixture
def shop(region: SimulatedRegion) -> Shop:
    return Shop(region)


@pytest.fixture
def action(cloud: Cloud) -> AutoScalingGroups:
    return AutoScalingGroups(cloud.open({"the default account": ACCOUNT}))


@pytest.fixture
def runner(region: SimulatedRegion, action: AutoScalingGroups) -> Runner:
    return Runner({NAME: action}, MemoryJournal(), region.arc.clock)


class TestConformance(DeletableActionConformance):
    """Overrides its fixture by that of this module."""

    @pytest.fixture
    def action(self, action: AutoScalingGroups, shop: Shop) -> Action:
        self.region = shop.region
        return action

    def delete(self, resource: Resource) -> None:
        self.region.remove(resource.id)


def evacuate(runner: Runner, planned: Plan | None = None) -> Report:
    used = planned or runner.plan(TARGET)
    return runner.evacuate(runner.begin(used, by="me@here"), used)


def restore(runner: Runner) -> Report:
    return runner.restore(runner.claim("hf-1"))


def plan(action: AutoScalingGroups, arn: str, target: Target = TARGET) -> PlannedChange:
    (found,) = (each for each in action.discover(target).resources if each.id == arn)
    planned = action.plan(found, target)
    assert isinstance(planned, PlannedChange)
    return planned


def build_entry(action: AutoScalingGroups, arn: str, state: EntryState = EntryState.INTENDED) -> Entry:
    change = plan(action, arn).change
    return Entry(zone=ZONE, resource=arn, type="", action=NAME, run="hf-1", number=1, state=state, at=0, change=change)


def get_note(report: Report, arn: str) -> str:
    return next(each.note for each in report.entries if each.resource == arn)


# Evacuate and restore


def test_instances_leave_the_zone_and_come_back_before_the_restore_ends(
    region: SimulatedRegion, shop: Shop, runner: Runner
) -> None:
    """Every page of a list has one item."""
    region.page_size = 1
    planned = runner.plan(TARGET)
    assert {each.resource.id for each in planned.changes[NAME]} == shop.arns
    assert planned.changes[NAME][0].description == (
        f"remove {shop.before[0]} in use1-az1 from its subnets; 2 in other zones remain"
    )
    assert states(evacuate(runner, planned)) == dict.fromkeys(shop.arns, EntryState.APPLIED)
    assert (shop.group.subnets, shop.count()[ZONE]) == (shop.before[1:], 2), "the runner does not wait for instances"
    region.arc.clock.sleep(60)
    assert shop.count() == {OTHER: 3, THIRD: 3}
    began = region.arc.clock.monotonic()
    assert states(restore(runner)) == dict.fromkeys(shop.arns, EntryState.RESTORED)
    assert region.arc.clock.monotonic() - began >= 60
    assert (shop.group.subnets, shop.count()[ZONE]) == (shop.before, 2)


def refuse_as_busy() -> Exception:
    return ServiceError("ResourceContention")


def refuse_as_active() -> Exception:
    return ServiceError("ScalingActivityInProgress")


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        *(
            (each, error)
            for each in ("UpdateAutoScalingGroup", "DescribeAutoScalingGroups")
            for error in (throttle, ReplyLost)
        ),
        ("UpdateAutoScalingGroup", refuse_as_busy),
        ("UpdateAutoScalingGroup", refuse_as_active),
        ("DescribeAutoScalingGroups", refuse_as_busy),
        ("DescribeSubnets", throttle),
        ("DescribeSubnets", ReplyLost),
    ],
)
def test_lost_replies_and_refusals_that_end_by_themselves_change_nothing_in_the_end(
    region: SimulatedRegion, shop: Shop, runner: Runner, operation: str, error: Callable[[], Exception]
) -> None:
    planned = runner.plan(TARGET)
    region.faults = fail_once(operation, error)
    assert set(states(evacuate(runner, planned)).values()) == {EntryState.APPLIED}
    assert shop.group.subnets == shop.before[1:]
    region.faults = fail_once(operation, error)
    assert restore(runner).problems == []
    assert shop.group.subnets == shop.before
    is_refused = operation == "UpdateAutoScalingGroup" and error is not ReplyLost
    assert region.calls.count("UpdateAutoScalingGroup") == 4 + 2 * is_refused, "no write is repeated blindly"


@pytest.mark.parametrize("error", [refuse_as_busy, refuse_as_active])
def test_a_group_that_changes_just_now_may_be_tried_again_at_once(
    region: SimulatedRegion, shop: Shop, action: AutoScalingGroups, error: Callable[[], Exception]
) -> None:
    entry = build_entry(action, shop.arn)
    region.faults = fail_once("UpdateAutoScalingGroup", error)
    with pytest.raises(EngineUnavailable):
        action.apply(entry)
    assert shop.group.subnets == shop.before


class KilledAction(AutoScalingGroups):
    """Kills its process before or after the first write of a kind."""

    kill_at = ""

    def apply(self, entry: Entry) -> None:
        self._die("before apply")
        super().apply(entry)
        self._die("after apply")

    def restore(self, entry: Entry, reading: Reading) -> None:
        self._die("before restore")
        super().restore(entry, reading)
        self._die("after restore")

    def _die(self, moment: str) -> None:
        if moment == self.kill_at:
            self.kill_at = ""
            raise Killed


@pytest.mark.parametrize("moment", ["before apply", "after apply", "before restore", "after restore"])
def test_after_a_kill_the_journal_brings_back_exactly_the_former_subnets(
    cloud: Cloud, region: SimulatedRegion, shop: Shop, moment: str
) -> None:
    journal, clock = MemoryJournal(), region.arc.clock
    action = KilledAction(cloud.open({"ours": ACCOUNT}))
    runner = Runner({NAME: action}, journal, clock)
    action.kill_at = moment
    with pytest.raises(Killed):
        _ = evacuate(runner), restore(runner)
    clock.sleep(CLAIM_SECONDS)
    report = restore(Runner({NAME: action}, journal, clock))
    assert (report.run.is_open, report.problems) == (False, [])
    assert {tuple(region.groups.get(each).subnets) for each in shop.arns} == {tuple(shop.before)}


# Changes of others


def test_a_change_that_others_made_before_is_found_and_stays(shop: Shop, runner: Runner) -> None:
    planned = runner.plan(TARGET)
    shop.group.subnets = shop.before[1:]
    assert states(evacuate(runner, planned)) == {shop.arn: EntryState.FOUND, shop.second: EntryState.APPLIED}
    restore(runner)
    assert shop.group.subnets == shop.before[1:]


@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        (["new", "b", "c"], ["new", "b", "c", "a"]),
        (["c"], ["c", "a"]),
        (["c", "b"], ["a", "b", "c"]),
        (["a", "new"], ["a", "new"]),
        (["b", "c", "a"], ["b", "c", "a"]),
    ],
)
def test_subnets_that_others_changed_meanwhile_are_kept(
    region: SimulatedRegion, shop: Shop, runner: Runner, meanwhile: list[str], expected: list[str]
) -> None:
    names = dict(zip(("a", "b", "c", "new"), [*shop.before, "subnet-new"], strict=True))
    region.subnets["subnet-new"] = "us-east-1b"
    evacuate(runner)
    shop.group.subnets = [names[each] for each in meanwhile]
    assert states(restore(runner))[shop.arn] is EntryState.RESTORED
    assert shop.group.subnets == [names[each] for each in expected]


def test_a_group_that_others_moved_into_the_zone_is_not_emptied(
    shop: Shop, runner: Runner, action: AutoScalingGroups
) -> None:
    planned, entry = runner.plan(TARGET), build_entry(action, shop.arn)
    shop.group.subnets = shop.before[:1]
    report = evacuate(runner, planned)
    assert states(report)[shop.arn] is EntryState.FAILED
    assert get_note(report, shop.arn) == "others have removed its subnets in the other zones"
    with pytest.raises(EngineError, match="keeps its subnets"):
        action.apply(entry)
    assert shop.group.subnets == shop.before[:1]


def test_a_deleted_subnet_is_reported_and_others_are_added(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    region.subnets["subnet-second"] = "us-east-1a"
    shop.group.subnets.append("subnet-second")
    evacuate(runner)
    del region.subnets[shop.before[0]]
    report = restore(runner)
    assert states(report) == dict.fromkeys(shop.arns, EntryState.RESTORED)
    note = f"{shop.before[0]} cannot be added again: deleted, or in another VPC now"
    assert {get_note(report, each) for each in shop.arns} == {note}
    assert shop.group.subnets == [*shop.before[1:], "subnet-second"]


def test_a_group_that_is_deleted_is_reported(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    evacuate(runner)
    region.remove(shop.arn)
    region.groups.add("shop", {OTHER: 1, THIRD: 1})  # another group with the same name
    region.groups.get(shop.second).details["Status"] = "Delete in progress"
    report = restore(runner)
    assert states(report) == dict.fromkeys(shop.arns, EntryState.KEPT)
    assert get_note(report, shop.arn) == "the group was deleted"
    assert get_note(report, shop.second) == "the group is being deleted (Delete in progress)"


def test_a_group_that_is_deleted_just_before_the_write_is_refused(
    region: SimulatedRegion, shop: Shop, action: AutoScalingGroups
) -> None:
    entry = build_entry(action, shop.arn)
    region.remove(shop.arn)
    with pytest.raises(EngineError, match="shop was deleted"):
        action.apply(entry)
    foreign = replace(entry, resource=entry.resource.replace(ACCOUNT, SECOND))
    with pytest.raises(NotFound, match=r"add it as \[\[evacuation.account\]\]"):
        action.read(foreign)


def test_a_refusal_of_aws_is_passed_on(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    planned = runner.plan(TARGET)
    del region.subnets[shop.before[1]]  # AWS refuses a list with a subnet that does not exist
    report = evacuate(runner, planned)
    assert set(states(report).values()) == {EntryState.FAILED}
    assert "AWS refused UpdateAutoScalingGroup: The subnet ID" in get_note(report, shop.arn)


# Waiting for capacity


def leave_as_it_is(_: Group) -> None:
    """Change nothing."""


def make_unhealthy(group: Group) -> None:
    group.instances[0].health = "Unhealthy"


def shrink(group: Group) -> None:
    group.desired = 4
    make_unhealthy(group)


def make_heavy(group: Group) -> None:
    make_unhealthy(group)
    group.instances[1].weight = "2"


def suspend(process: str) -> Callable[[Group], None]:
    def change(group: Group) -> None:
        make_unhealthy(group)
        group.suspended.add(process)

    return change


@pytest.mark.parametrize(
    ("change", "is_effective", "note"),
    [
        (leave_as_it_is, True, ""),
        (make_unhealthy, False, "1 of 2 healthy units in the zone"),
        (shrink, True, ""),
        (make_heavy, True, ""),
        (suspend("AZRebalance"), True, "because AZRebalance is suspended"),
        (suspend("Launch"), True, "because Launch is suspended"),
        (suspend("HealthCheck"), False, "1 of 2 healthy units in the zone"),
    ],
)
def test_a_restore_waits_for_healthy_capacity_in_the_zone(
    shop: Shop, action: AutoScalingGroups, change: Callable[[Group], None], is_effective: bool, note: str
) -> None:
    """Of the two instances that the zone had, one or two must be healthy, as the group now wants six or four."""
    entry = build_entry(action, shop.arn, EntryState.RESTORING)
    change(shop.group)
    reading = action.read(entry)
    assert (reading.state, reading.is_effective) == (ChangeState.ABSENT, is_effective)
    assert reading.note.endswith(note)
    assert bool(reading.note) == bool(note)


def test_traffic_does_not_return_to_a_zone_without_capacity(cloud: Cloud, region: SimulatedRegion, shop: Shop) -> None:
    balancer = region.add("application", "shop")
    accounts = cloud.open({"ours": ACCOUNT})
    actions: dict[str, Action] = {"zonal-shift": ZonalShift(accounts), NAME: AutoScalingGroups(accounts)}
    runner = Runner(actions, MemoryJournal(), region.arc.clock)
    evacuate(runner)
    region.arc.clock.sleep(60)
    shop.group.launch_seconds = 1e6
    report = restore(runner)
    assert states(report) == {
        balancer: EntryState.APPLIED,
        shop.arn: EntryState.RESTORING,
        shop.second: EntryState.RESTORED,
    }
    assert "is not complete after 900 s" in get_note(report, shop.arn)
    assert region.arc.get_active(balancer) is not None


# Groups that stay


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"instances": {ZONE: 1}}, "it has no subnet in another zone"),
        ({"subnets": ()}, "it has names of zones instead of subnets, and only subnets can be removed"),
        ({"is_enabled": True}, "zonal shift is enabled for it, so only the action `zonal-shift` moves it"),
        ({"details": {"Status": "Delete in progress"}}, "it is being deleted (Delete in progress)"),
        ({"tags": {"eks:nodegroup-name": "workers"}}, None),
        ({"instances": {OTHER: 1, THIRD: 1}}, None),
        ({"instances": {OTHER: 1, THIRD: 1}, "subnets": ()}, None),
    ],
)
def test_groups_that_cannot_be_moved_are_listed_for_people(
    region: SimulatedRegion, action: AutoScalingGroups, options: dict[str, Any], reason: str | None
) -> None:
    arn = region.groups.add("shop", **{"instances": {ZONE: 1, OTHER: 1}, **options})
    found = action.discover(TARGET)
    assert found.resources == []
    assert [(each.resource.id, each.reason) for each in found.unmovable] == ([] if reason is None else [(arn, reason)])
    assert action.discover(replace(TARGET, lists_unmovable=False)).unmovable == []


def test_a_group_with_zonal_shift_is_moved_by_that_action_alone(cloud: Cloud, region: SimulatedRegion) -> None:
    arn = region.groups.add("shop", {ZONE: 1, OTHER: 1}, is_enabled=True)
    accounts = cloud.open({"ours": ACCOUNT})
    actions: dict[str, Action] = {"zonal-shift": ZonalShift(accounts), NAME: AutoScalingGroups(accounts)}
    planned = Runner(actions, MemoryJournal(), region.arc.clock).plan(TARGET)
    assert {name: [each.resource.id for each in changes] for name, changes in planned.changes.items()} == {
        "zonal-shift": [arn],
        NAME: [],
    }
    assert planned.unmovable == []


# Balancers without cross-zone load balancing


@pytest.mark.parametrize(
    ("kind", "balancer_value", "cross_zone", "minimum", "is_enabled", "expected"),
    [
        ("application", "", "", "1", False, ""),
        ("application", "", "true", "1", False, ""),
        ("application", "", "false", "1", False, "stays"),
        ("application", "", "false", "1", True, "shifted"),
        ("application", "", "false", "2", False, "taken out"),
        ("application", "", "false", "2", True, "taken out"),
        ("application", "", "false", "off", False, "stays"),
        ("network", "", "", "1", False, "stays"),
        ("network", "", "", "1", True, "shifted"),
        ("network", "", "true", "1", False, ""),
        ("network", "true", "", "1", False, ""),
        ("network", "true", "false", "1", False, "stays"),
        ("network", "", "", "3", False, "taken out"),
        ("gateway", "", "", "1", False, "stays"),
    ],
)
def test_instances_behind_a_balancer_leave_only_after_its_traffic(
    region: SimulatedRegion,
    action: AutoScalingGroups,
    kind: str,
    balancer_value: str,
    cross_zone: str,
    minimum: str,
    is_enabled: bool,
    expected: str,
) -> None:
    balancer = region.add(kind, "gate", is_enabled=is_enabled)
    if balancer_value:
        region.balancers.set_attribute(balancer, CROSS_ZONE, balancer_value)
    arn = region.balancers.add_target_group("web", balancer, cross_zone=cross_zone, minimum_healthy=minimum)
    group = region.groups.add("shop", {ZONE: 2, OTHER: 2}, target_groups=[arn])
    found = action.discover(TARGET)
    if expected == "stays":
        (unmovable,) = found.unmovable
        assert (found.resources, unmovable.resource.id) == ([], group)
        assert unmovable.reason == (
            "cross-zone load balancing of its target group web is off, so its last targets in use1-az1 would get all "
            "traffic of the zone; and zonal shift is not enabled for gate"
        )
        modify_balancer = f"aws elbv2 modify-load-balancer-attributes --load-balancer-arn {balancer}"
        modify_group = f"aws elbv2 modify-target-group-attributes --target-group-arn {arn}"
        minimum_key = "target_group_health.dns_failover.minimum_healthy_targets.count"
        commands = [
            f"enable zonal shift of gate: {modify_balancer} --attributes Key=zonal_shift.config.enabled,Value=true",
            f"let the balancer take the zone out of DNS: {modify_group} --attributes Key={minimum_key},Value=2",
        ]
        shown = [f"{each} --region us-east-1" for each in commands]
        assert unmovable.remedy == "; or ".join(shown[1:] if kind == "gateway" else shown)
        return
    planned = plan(action, group)
    condition = {
        "": "",
        "shifted": "cross-zone load balancing of web is off: the action `zonal-shift` must move gate first",
        "taken out": "cross-zone load balancing of web is off: its balancer takes the zone out of DNS when fewer than "
        f"{minimum} targets there are healthy",
    }[expected]
    assert list(planned.side_effects[1:]) == ([condition] if condition else [])
    assert planned.change["shifted_first"] == ([balancer] if expected == "shifted" else [])
    assert (found.unmovable, found.notes) == ([], [])


def test_every_balancer_and_target_group_is_read_once(region: SimulatedRegion, action: AutoScalingGroups) -> None:
    """AWS allows about ten such calls in a second."""
    balancer = region.add("network", "gate")
    for number in range(30):
        arn = region.balancers.add_target_group(f"web-{number}", balancer)
        region.groups.add(f"shop-{number}", {ZONE: 2, OTHER: 2}, target_groups=[arn])
    region.calls.clear()
    assert len(action.discover(TARGET).resources) == 30
    read = Counter(name for name in region.calls if "Target" in name or "LoadBalancer" in name)
    expected = {"DescribeTargetGroups": 1, "DescribeTargetGroupAttributes": 30, "DescribeLoadBalancerAttributes": 1}
    assert read == expected


def test_all_groups_of_a_target_group_count(region: SimulatedRegion, action: AutoScalingGroups) -> None:
    arn = region.balancers.add_target_group("web", region.add("network", "gate", is_enabled=False), minimum_healthy="2")
    source = {"TrafficSources": [{"Identifier": arn, "Type": "elbv2"}]}
    first = region.groups.add("shop", {ZONE: 2, OTHER: 2}, target_groups=[arn])
    assert [each.id for each in action.discover(TARGET).resources] == [first]
    second = region.groups.add("mail", {ZONE: 1, OTHER: 1}, details=source)
    found = action.discover(TARGET)
    assert ({each.resource.id for each in found.unmovable}, found.resources) == ({first, second}, [])
    assert {each.remedy.rpartition("Value=")[2] for each in found.unmovable} == {"3 --region us-east-1"}


def test_groups_without_instances_in_the_zone_and_deleted_target_groups_are_no_obstacle(
    region: SimulatedRegion, action: AutoScalingGroups
) -> None:
    arn = region.balancers.add_target_group("web", region.add("network", "gate", is_enabled=False))
    group = region.groups.add("shop", {ZONE: 0, OTHER: 1}, target_groups=[arn])
    planned = plan(action, group)
    assert (list(planned.side_effects), planned.change["instances"]) == ([], 0)
    group = region.groups.add("mail", {ZONE: 1, OTHER: 1}, target_groups=[f"{arn}0"])
    assert plan(action, group).change["shifted_first"] == []


@pytest.mark.parametrize(
    ("selection", "is_shifted"),
    [
        (Selection(types=("auto-scaling-group",)), False),
        (Selection(names=("sh*",)), False),
        (Selection(tags={"team": "shop"}), False),
        (Selection(tags={"team": "shop"}), True),
        (Selection(names=("sh*", "gate")), None),
    ],
)
def test_a_balancer_that_is_not_chosen_keeps_the_group_in_the_zone(
    region: SimulatedRegion, action: AutoScalingGroups, selection: Selection, is_shifted: bool | None
) -> None:
    """Unless the balancer has left the zone already."""
    balancer = region.add("network", "gate")
    arn = region.balancers.add_target_group("web", balancer)
    group = region.groups.add("shop", {ZONE: 1, OTHER: 1, THIRD: 4}, target_groups=[arn], tags={"team": "shop"})
    region.groups.get(group).target_groups.append(region.balancers.add_target_group("unused"))
    # A second instance in the zone: for a single instance, the default minimum of one target would suffice.
    region.groups.get(group).launch("us-east-1a", ready_at=0.0)
    if is_shifted:
        region.arc.start_shift(balancer, ZONE, "ours")
    found = action.discover(replace(TARGET, selection=selection))
    if is_shifted is False:
        (unmovable,) = found.unmovable
        assert unmovable.reason.endswith("gate is not chosen for this evacuation")
        assert unmovable.remedy.startswith("choose the load balancer gate as well (--type, --name, --tag or")
    else:
        assert [each.id for each in found.resources] == [group]


@pytest.mark.parametrize(
    "operation",
    [
        "DescribeTargetGroups",
        "DescribeTargetGroupAttributes",
        "DescribeLoadBalancerAttributes",
        "ListManagedResources",
    ],
)
@pytest.mark.parametrize("refusal", [Refusal.DENIED, Refusal.INVALID, Refusal.THROTTLED])
def test_a_group_whose_balancers_cannot_be_read_stays(
    region: SimulatedRegion, action: AutoScalingGroups, operation: str, refusal: Refusal
) -> None:
    arn = region.balancers.add_target_group("web", region.add("network", "gate"))
    behind = region.groups.add("shop", {ZONE: 2, OTHER: 2}, target_groups=[arn])
    alone = region.groups.add("worker", {ZONE: 2, OTHER: 2})

    def refuse(name: str) -> None:
        if name == operation:
            raise ServiceError(refusal)

    region.faults = refuse
    found = action.discover(TARGET)
    assert [each.id for each in found.resources] == [alone]
    (unmovable,) = found.unmovable
    assert (unmovable.resource.id, found.unreadable) == (behind, [])
    assert "its target groups could not be read: without cross-zone load balancing" in unmovable.reason
    (note,) = found.notes
    assert "target groups or their balancers cannot be read, so groups behind them stay" in note


def test_a_balancer_whose_weights_are_unknown_has_not_left_the_zone() -> None:
    items: list[dict[str, Any]] = [{}, {"appliedWeights": {ZONE: 1.0}}, {"appliedWeights": {}}]
    assert [_has_left(each, ZONE) for each in items] == [False, False, True]


def test_a_group_that_others_have_moved_to_another_vpc_is_left_there(
    region: SimulatedRegion, shop: Shop, runner: Runner
) -> None:
    """AWS would refuse to add the old subnets, again and again."""
    evacuate(runner)
    region.subnets["subnet-new"] = "us-east-1b"
    region.vpcs["subnet-new"] = "vpc-new"
    region.groups.get(shop.arn).subnets[:] = ["subnet-new"]
    report = restore(runner)
    assert states(report)[shop.arn] is EntryState.RESTORED
    assert "cannot be added again: deleted, or in another VPC now" in get_note(report, shop.arn)
    assert region.groups.get(shop.arn).subnets == ["subnet-new"]


@pytest.mark.parametrize("is_denied", [False, True])
def test_a_group_follows_its_balancer_and_stays_if_the_shift_failed(
    cloud: Cloud, region: SimulatedRegion, is_denied: bool
) -> None:
    balancer = region.add("network", "gate")
    arn = region.balancers.add_target_group("web", balancer)
    group = region.groups.add("shop", {ZONE: 2, OTHER: 2}, target_groups=[arn])
    accounts = cloud.open({"ours": ACCOUNT})
    actions: dict[str, Action] = {NAME: AutoScalingGroups(accounts), "zonal-shift": ZonalShift(accounts)}
    runner = Runner(actions, MemoryJournal(), region.arc.clock)
    planned = runner.plan(TARGET)
    if is_denied:
        region.faults = fail_once("StartZonalShift", deny)
    report = evacuate(runner, planned)
    state = EntryState.FAILED if is_denied else EntryState.APPLIED
    assert states(report) == {balancer: state, group: state}
    assert ("gate still sends traffic to use1-az1" in get_note(report, group)) == is_denied
    assert len(region.groups.get(group).subnets) == (2 if is_denied else 1)


def test_a_balancer_that_arc_does_not_know_any_more_counts_as_sending_traffic(
    region: SimulatedRegion, action: AutoScalingGroups
) -> None:
    balancer = region.add("network", "gate")
    arn = region.balancers.add_target_group("web", balancer)
    entry = build_entry(action, region.groups.add("shop", {ZONE: 2, OTHER: 2}, target_groups=[arn]))
    region.arc.resources.clear()
    with pytest.raises(EngineError, match="gate still sends traffic"):
        action.apply(entry)


# Plans


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"Operator": {"Principal": "ecs.amazonaws.com"}}, "ecs.amazonaws.com manages it"),
        ({"AvailabilityZoneDistribution": {"CapacityDistributionStrategy": "balanced-only"}}, "is balanced-only"),
        ({"AvailabilityZoneDistribution": {"CapacityDistributionStrategy": "balanced-best-effort"}}, ""),
        ({"WarmPoolConfiguration": {"MinSize": 1}}, "it has a warm pool"),
        ({"MixedInstancesPolicy": {}}, "those in the zone have 2 units"),
        ({"LoadBalancerNames": ["old"]}, "behind the Classic Load Balancer old"),
        ({"SuspendedProcesses": [{"ProcessName": "Launch"}]}, "no instances start in the other zones"),
    ],
)
def test_side_effects_are_those_of_the_group(
    region: SimulatedRegion, action: AutoScalingGroups, details: dict[str, Any], text: str
) -> None:
    planned = plan(action, region.groups.add("shop", {ZONE: 2, OTHER: 2}, max_size=12, details=details))
    assert planned.side_effects[0] == (
        "AWS launches instances in the other zones first, then terminates the 2 instances in the zone; meanwhile the "
        "group may exceed its maximum of 12 by 10 %"
    )
    assert len(planned.side_effects) == 1 + bool(text)
    assert text in planned.side_effects[-1]


@pytest.mark.parametrize(
    ("status", "is_named"),
    [("Pending", True), ("Baking", True), ("RollbackInProgress", True), ("Successful", False), ("Cancelled", False)],
)
def test_an_instance_refresh_under_way_is_named(
    shop: Shop, action: AutoScalingGroups, status: str, is_named: bool
) -> None:
    shop.group.refreshes.append({"InstanceRefreshId": "1", "Status": status})
    effects = plan(action, shop.arn).side_effects
    assert ("an instance refresh is under way, which replaces instances at the same time" in effects) == is_named
    assert len(plan(action, shop.arn, replace(TARGET, lists_unmovable=False)).side_effects) == 1


def test_refreshes_that_cannot_be_read_are_a_note(
    region: SimulatedRegion, shop: Shop, action: AutoScalingGroups
) -> None:
    def refuse(operation: str) -> None:
        if operation == "DescribeInstanceRefreshes":
            raise ServiceError(Refusal.DENIED)

    region.faults = refuse
    found = action.discover(TARGET)
    assert {each.id for each in found.resources} == shop.arns
    (note,) = found.notes
    assert note.startswith("the default account in us-east-1: instance refreshes cannot be read")


def test_the_journal_has_everything_that_a_restore_needs(shop: Shop, action: AutoScalingGroups) -> None:
    shop.group.instances[0].weight = "3"
    assert plan(action, shop.arn).change == {
        "zone": ZONE,
        "name": "shop",
        "removed": shop.before[:1],
        "before": shop.before,
        "instances": 2,
        "units": 4,
        "zone_name": "us-east-1a",
        "shifted_first": [],
    }


def test_zones_are_those_of_each_account(cloud: Cloud) -> None:
    """The same zone has another name in the second account. An account that is named twice counts once."""
    cloud.regions.append(SimulatedRegion(FakeClock(), [THIRD, OTHER, ZONE], account=SECOND))
    arns = [each.groups.add("shop", {ZONE: 2, OTHER: 1}) for each in cloud.regions]
    action = AutoScalingGroups(cloud.open({"ours": ACCOUNT, "theirs": SECOND, "theirs, too": SECOND}))
    found = action.discover(TARGET)
    assert [each.id for each in found.resources] == arns
    changes = [plan(action, each).change for each in arns]
    assert [each["zone_name"] for each in changes] == ["us-east-1a", "us-east-1c"]
    assert [each["instances"] for each in changes] == [2, 2]
    cloud.regions[1].faults = fail_once("DescribeAutoScalingGroups", deny)
    (unreadable, *_) = action.discover(TARGET).unreadable
    assert unreadable.scope.startswith("theirs")


@pytest.mark.parametrize("operation", ["DescribeAutoScalingGroups", "DescribeSubnets", "DescribeAvailabilityZones"])
@pytest.mark.parametrize("refusal", [Refusal.DENIED, Refusal.INVALID, Refusal.THROTTLED])
@pytest.mark.usefixtures("shop")
def test_an_account_that_cannot_be_read_is_reported(
    region: SimulatedRegion, action: AutoScalingGroups, operation: str, refusal: Refusal
) -> None:
    region.faults = fail_once(operation, lambda: ServiceError(refusal, "no"))
    found = action.discover(TARGET)
    assert ([each.scope for each in found.unreadable], found.resources) == (
        ["the default account in us-east-1"],
        [],
    )


def test_groups_are_chosen_by_tag(region: SimulatedRegion, shop: Shop, action: AutoScalingGroups) -> None:
    chosen = region.groups.add("chosen", {ZONE: 1, OTHER: 1}, tags={"team": "shop", "stage": "live"})
    region.groups.add("single", {ZONE: 1}, tags={"team": "mail"})
    found = action.discover(replace(TARGET, selection=Selection(tags={"team": "shop"})))
    assert ([each.id for each in found.resources], found.unmovable) == ([chosen], [])
    assert chosen not in shop.arns


def test_the_action_is_registered_with_its_permissions() -> None:
    kind = ACTIONS.get(NAME)
    assert kind.options_type is AutoScalingGroupsOptions
    assert {"autoscaling:UpdateAutoScalingGroup", "ec2:DescribeSubnets"} <= set(kind.permissions)
    assert list(kind.permissions) == sorted(set(kind.permissions))
    assert "vpc_zone_identifier" in kind.terraform
