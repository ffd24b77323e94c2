"""The action `capacity` on simulated groups and services: holds, what others change, measurements, and scale-out."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import msgspec
import pytest

from holdfast import Zone
from holdfast.evacuate.action import (
    ACTIONS,
    HOLD_STAGE,
    RESTORE_HOLD_STAGE,
    SCALE_OUT_STAGE,
    Action,
    Discovery,
    Reading,
    Resource,
    Target,
)
from holdfast.evacuate.actions.capacity.action import Capacity, CapacityOptions
from holdfast.evacuate.actions.capacity.schedules import is_due
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.capacity import ServiceCapacity
from holdfast.evacuate.guards import GuardName, Situation, check_guards
from holdfast.evacuate.journal import Entry, EntryState, RecordedRuns
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Plan, Report
from holdfast.evacuate.runner import Runner
from holdfast.evacuate.selection import Selection
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from holdfast.testing.evacuation import DeletableActionConformance
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, ZONE, Killed

THIRD = Zone("use1-az3")
EVEN = {ZONE: 2, OTHER: 2, THIRD: 2}
TARGET = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")
SCALABLE = "service/main/cart"
NOT_SUSPENDED = {
    "DynamicScalingInSuspended": False,
    "DynamicScalingOutSuspended": False,
    "ScheduledScalingSuspended": False,
}
HELD = NOT_SUSPENDED | {"DynamicScalingInSuspended": True}
LABEL = "app/front/1/targetgroup/shop/2"


class Shop:
    """A group of six instances and an ECS service of six tasks, in three zones."""

    def __init__(self, region: SimulatedRegion) -> None:
        self.region = region
        self.group = region.groups.add("shop", EVEN, min_size=1, max_size=12)
        self.service = region.ecs.add("main", "cart", desired=6)
        self.target = region.scaling.add(SCALABLE, 2, 12)

    @property
    def sizes(self) -> tuple[int, int, Mapping[str, bool]]:
        """The smallest sizes of group and service, and the suspended state of the service."""
        return (self.region.groups.get(self.group).min_size, self.target.min_capacity, self.target.suspended)

    def track_requests(self, per_target: float, peak: float) -> None:
        """Let a policy of the group track requests, of which there were `peak` in a minute an hour ago."""
        specification = {"PredefinedMetricType": "ALBRequestCountPerTarget", "ResourceLabel": LABEL}
        configuration = {"TargetValue": per_target, "PredefinedMetricSpecification": specification}
        policy = {"PolicyType": "TargetTrackingScaling", "TargetTrackingConfiguration": configuration}
        self.region.groups.get(self.group).policies.append(policy)
        dimensions = {"LoadBalancer": "app/front/1", "TargetGroup": "targetgroup/shop/2"}
        self.record("AWS/ApplicationELB", "RequestCount", "Sum", dimensions, peak)

    def record(self, namespace: str, name: str, statistic: str, dimensions: Mapping[str, str], value: float) -> None:
        """Record a value of a metric, an hour ago."""
        now = self.region.arc.clock.wall()
        self.region.metrics.add(namespace, name, statistic, dimensions, {now - now % 60 - 3600: value})


BEFORE = (1, 2, NOT_SUSPENDED)


@pytest.fixture
def shop(region: SimulatedRegion) -> Shop:
    return Shop(region)


@pytest.fixture
def action(cloud: Cloud, region: SimulatedRegion, shop: Shop) -> Capacity:
    return Capacity(cloud.open({"the default account": ACCOUNT}), region.arc.clock)


@pytest.fixture
def growing(cloud: Cloud, region: SimulatedRegion, shop: Shop) -> Capacity:
    """The action that scales out first."""
    return Capacity(cloud.open({"the default account": ACCOUNT}), region.arc.clock, scale_out_first=True)


@pytest.fixture
def runner(region: SimulatedRegion, action: Capacity) -> Runner:
    return Runner({"capacity": action}, MemoryJournal(), region.arc.clock)


class TestGroups(DeletableActionConformance):
    """The contract, with groups."""

    @pytest.fixture
    def action(self, region: SimulatedRegion, action: Capacity) -> Action:
        self.region = region
        region.groups.add("cart", EVEN)
        region.scaling.targets.clear()
        return action

    def delete(self, resource: Resource) -> None:
        self.region.remove(resource.id.removesuffix("#capacity"))


class TestServices(DeletableActionConformance):
    """The contract, with ECS services."""

    @pytest.fixture
    def action(self, region: SimulatedRegion, shop: Shop, action: Capacity) -> Action:
        self.region = region
        region.remove(shop.group)
        region.ecs.add("main", "search", desired=6)
        region.scaling.add("service/main/search", 2, 12)
        return action

    def delete(self, resource: Resource) -> None:
        del self.region.scaling.targets[f"service/main/{resource.name}"]


class TestGrowingServices(TestServices):
    """The contract, with services that are scaled out first, so that a change has two parts."""

    @pytest.fixture
    def action(self, region: SimulatedRegion, shop: Shop, growing: Capacity) -> Action:
        self.region = region
        region.remove(shop.group)
        region.ecs.add("main", "search", desired=6)
        region.scaling.add("service/main/search", 2, 12)
        return growing


def evacuate(runner: Runner, planned: Plan | None = None) -> Report:
    used = planned or runner.plan(TARGET)
    return runner.evacuate(runner.begin(used, by="me@here"), used)


def restore(runner: Runner) -> Report:
    return runner.restore(runner.claim("hf-1"))


def states(report: Report) -> dict[str, EntryState]:
    return {each.name: each.state for each in report.entries}


def notes(report: Report) -> dict[str, str]:
    return {each.name: each.note for each in report.entries}


def measure(action: Capacity, name: str = "shop") -> ServiceCapacity:
    (found,) = (each for each in action.discover(TARGET).capacities if each.name == name)
    return found


def ask_guard(found: Discovery) -> str:
    """Return whether the guard `capacity` passes, and its finding."""
    situation = Situation(
        zone=ZONE,
        workload="shop",
        zones=EVEN,
        now=0.0,
        states={},
        runs=RecordedRuns(0, ()),
        discoveries={"capacity": found},
        verdict=None,
    )
    (answer,) = (each for each in check_guards(situation, {}) if each.name is GuardName.CAPACITY)
    return f"{'passes' if answer.passed else 'refuses'}: {answer.finding}"


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


def contend() -> Exception:
    return ServiceError("ResourceContention")


def scale() -> Exception:
    return ServiceError("ScalingActivityInProgress")


def update() -> Exception:
    return ServiceError("ConcurrentUpdateException")


# Holds


def test_sizes_are_held_and_released(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    """Every page of a list has one item."""
    region.page_size = 1
    planned = runner.plan(TARGET)
    assert [(each.resource.type, each.resource.id, each.description) for each in planned.changes["capacity"]] == [
        ("capacity-hold", f"{shop.group}#capacity", "raise MinSize from 1 to 6, until use1-az1 is restored"),
        ("capacity-hold", f"{shop.service}#capacity", "suspend scale-in by policies, until use1-az1 is restored"),
    ]
    assert states(evacuate(runner, planned)) == {"shop": EntryState.APPLIED, "cart": EntryState.APPLIED}
    assert shop.sizes == (6, 2, HELD)
    assert runner.plan(TARGET).changes["capacity"] == []
    assert restore(runner).problems == []
    assert shop.sizes == BEFORE


def test_only_sizes_that_can_shrink_in_the_zone_are_held(region: SimulatedRegion, shop: Shop, action: Capacity) -> None:
    region.groups.add("full", EVEN, min_size=6)
    region.groups.add("elsewhere", {OTHER: 2, THIRD: 2})
    region.groups.add("nodes", EVEN, tags={"eks:nodegroup-name": "nodes"})
    region.groups.add("ending", EVEN, details={"Status": "Delete in progress"})
    moved = region.groups.get(region.groups.add("moved", {OTHER: 1, THIRD: 1}))
    moved.suspended.add("Terminate")
    moved.launch("us-east-1a", ready_at=0.0).health = "Unhealthy"
    region.ecs.add("main", "fixed", desired=3)
    region.ecs.add("main", "suspended", desired=3)
    region.scaling.add("service/main/suspended", 1, 9, DynamicScalingInSuspended=True)
    region.ecs.add("main", "away", OTHER, THIRD, desired=3)
    region.scaling.add("service/main/away", 1, 9)
    found = action.discover(TARGET)
    assert [each.name for each in found.resources] == ["shop", "moved", "cart"]
    assert sorted(each.name for each in found.capacities) == [
        *("cart", "fixed", "full", "moved", "nodes", "shop", "suspended")
    ]


GROUP_CALLS, SERVICE_CALLS = (
    ("DescribeAutoScalingGroups", "UpdateAutoScalingGroup"),
    ("DescribeScalableTargets", "RegisterScalableTarget"),
)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        *((operation, error) for operation in GROUP_CALLS for error in (throttle, ReplyLost, contend)),
        *((operation, error) for operation in SERVICE_CALLS for error in (throttle, ReplyLost, update)),
        ("UpdateAutoScalingGroup", scale),
    ],
)
def test_lost_replies_throttling_and_other_changes_under_way_are_waited_for(
    region: SimulatedRegion, shop: Shop, runner: Runner, operation: str, error: Callable[[], Exception]
) -> None:
    planned = runner.plan(TARGET)
    region.calls.clear()
    region.faults = fail_once(operation, error)
    assert set(states(evacuate(runner, planned)).values()) == {EntryState.APPLIED}
    assert shop.sizes == (6, 2, HELD)
    refused = error is not ReplyLost
    assert region.calls.count("UpdateAutoScalingGroup") == 1 + (refused and operation == "UpdateAutoScalingGroup")
    assert region.calls.count("RegisterScalableTarget") == 1 + (refused and operation == "RegisterScalableTarget")
    region.faults = fail_once(operation, error)
    assert restore(runner).problems == []
    assert shop.sizes == BEFORE


def test_values_that_others_set_meanwhile_are_kept(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    run = evacuate(runner).run
    region.groups.get(shop.group).min_size = 4
    shop.target.suspended["DynamicScalingOutSuspended"] = True
    (lapsed,) = runner.renew(run)
    assert (
        lapsed.note
        == "MinSize is 4: another person or tool changed it. Holdfast had set 6; before the evacuation it was 1"
    )
    report = restore(runner)
    assert states(report) == {"shop": EntryState.KEPT, "cart": EntryState.RESTORED}
    assert "MinSize is 4: another person or tool changed it" in notes(report)["shop"]
    assert shop.sizes == (4, 2, NOT_SUSPENDED | {"DynamicScalingOutSuspended": True})


def test_a_hold_that_others_set_is_not_released(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    planned = runner.plan(TARGET)
    region.groups.get(shop.group).min_size = 6
    shop.target.suspended = dict(HELD)
    assert set(states(evacuate(runner, planned)).values()) == {EntryState.FOUND}
    restore(runner)
    assert shop.sizes == (6, 2, HELD)


def test_a_size_that_others_changed_before_is_not_overwritten(
    region: SimulatedRegion, shop: Shop, runner: Runner
) -> None:
    planned = runner.plan(TARGET)
    region.groups.get(shop.group).min_size = 3
    assert states(evacuate(runner, planned))["shop"] is EntryState.FAILED
    assert region.groups.get(shop.group).min_size == 3


@pytest.mark.parametrize("is_restore", [False, True])
def test_resources_that_are_deleted_just_before_a_write_are_gone_and_stay_so(
    region: SimulatedRegion, shop: Shop, runner: Runner, is_restore: bool
) -> None:
    planned = runner.plan(TARGET)
    if is_restore:
        evacuate(runner, planned)

    def delete(operation: str) -> None:
        if operation == "UpdateAutoScalingGroup":
            region.remove(shop.group)
        if operation == "RegisterScalableTarget":
            region.scaling.targets.clear()

    region.faults = delete
    report = restore(runner) if is_restore else evacuate(runner, planned)
    assert set(states(report).values()) == {EntryState.KEPT if is_restore else EntryState.FAILED}
    assert notes(report) == {"shop": "shop was deleted", "cart": f"{SCALABLE} is not a scalable target any more"}
    assert region.scaling.targets == {}


def test_a_refused_size_is_reported(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    planned = runner.plan(TARGET)
    region.groups.get(shop.group).max_size = 5
    report = evacuate(runner, planned)
    assert states(report)["shop"] is EntryState.FAILED
    assert notes(report)["shop"].startswith("AWS refused UpdateAutoScalingGroup: Desired capacity")


class DyingCapacity(Capacity):
    """Dies after each write, before the outcome is recorded."""

    def apply(self, entry: Entry) -> None:
        super().apply(entry)
        raise Killed

    def restore(self, entry: Entry, reading: Reading) -> None:
        super().restore(entry, reading)
        raise Killed


@pytest.mark.parametrize("scale_out_first", [False, True])
def test_a_run_that_is_killed_after_a_write_is_restored_exactly(
    cloud: Cloud, region: SimulatedRegion, shop: Shop, scale_out_first: bool
) -> None:
    clock, journal, accounts = region.arc.clock, MemoryJournal(), cloud.open({"the default account": ACCOUNT})
    dying, living = (
        Runner({"capacity": kind(accounts, clock, scale_out_first=scale_out_first)}, journal, clock)
        for kind in (DyingCapacity, Capacity)
    )
    with pytest.raises(Killed):
        evacuate(dying)
    assert shop.sizes != BEFORE
    clock.sleep(120)
    with pytest.raises(Killed):
        restore(dying)
    clock.sleep(120)
    assert restore(living).problems == []
    assert shop.sizes == BEFORE


# Scheduled actions


def at(hours: float, clock: Any, **fields: Any) -> dict[str, Any]:
    return {"StartTime": clock.wall() + 3600 * hours, **fields}


def test_scheduled_actions_that_lower_a_size_within_a_day_are_side_effects(
    region: SimulatedRegion, shop: Shop, runner: Runner
) -> None:
    clock, group = region.arc.clock, region.groups.get(shop.group)
    group.scheduled_actions = [
        {"ScheduledActionName": "night", **at(2, clock, MinSize=2, DesiredCapacity=5)},
        {"ScheduledActionName": "weekly", **at(-100, clock, DesiredCapacity=1, Recurrence="0 20 * * 5")},
        {"ScheduledActionName": "tomorrow", **at(25, clock, MinSize=1)},
        {"ScheduledActionName": "morning", **at(3, clock, MinSize=9, DesiredCapacity=9)},
        {"ScheduledActionName": "past", **at(-1, clock, MinSize=1)},
        {"ScheduledActionName": "ended", **at(-9, clock, MinSize=1, Recurrence="@daily", EndTime=clock.wall() - 60)},
    ]
    region.scaling.schedule(SCALABLE, "rate(1 day)", {"MinCapacity": 9, "MaxCapacity": 12})
    region.scaling.schedule(SCALABLE, "rate(6 hours)", {"MinCapacity": 1})
    region.scaling.schedule(SCALABLE, "cron(0 20 * * ? *)", {"MaxCapacity": 3})
    region.scaling.schedule(SCALABLE, "rate(6 hours)", {"MaxCapacity": 3}, EndTime=clock.wall() - 60)
    region.scaling.schedule("service/main/other", "rate(6 hours)", {"MaxCapacity": 3})
    effects = {each.resource.name: list(each.side_effects) for each in runner.plan(TARGET).changes["capacity"]}
    assert [each.partition(" within")[0] for each in effects["shop"]] == [
        "the scheduled action night (once) sets MinSize 2 and DesiredCapacity 5",
        "the scheduled action weekly (0 20 * * 5) sets DesiredCapacity 1",
    ]
    assert effects["shop"][0].endswith(
        "aws autoscaling suspend-processes --auto-scaling-group-name shop --scaling-processes ScheduledActions "
        "--region us-east-1"
    )
    assert [each.partition(" within")[0] for each in effects["cart"]] == [
        "the scheduled action action-1 (rate(6 hours)) sets MinCapacity 1",
        "the scheduled action action-2 (cron(0 20 * * ? *)) sets MaxCapacity 3",
    ]
    assert effects["cart"][0].endswith(
        "aws application-autoscaling register-scalable-target --service-namespace ecs --resource-id service/main/cart "
        "--scalable-dimension ecs:service:DesiredCount --suspended-state DynamicScalingInSuspended=true,"
        "DynamicScalingOutSuspended=false,ScheduledScalingSuspended=true --region us-east-1"
    )
    group.suspended.add("ScheduledActions")
    shop.target.suspended["ScheduledScalingSuspended"] = True
    assert [list(each.side_effects) for each in runner.plan(TARGET).changes["capacity"]] == [[], []]


FRIDAY = datetime(2026, 5, 1, 12, tzinfo=UTC)
SCHEDULES = {
    "at(2026-05-02T11:59:00)": True,
    "at(2026-05-02T12:01:00)": False,
    "at(2026-05-01T11:59:00)": False,
    "rate(5 minutes)": True,
    "rate(1 day)": True,
    "rate(3 days)": False,
    "cron(0 20 * * ? *)": True,
    "cron(0/15 20-22 * * ? *)": True,
    "cron(0 20 ? * SAT,SUN *)": False,
    "cron(0 8 ? * SAT,SUN *)": True,
    "cron(0 20 ? * MON-FRI *)": True,
    "cron(0 20 ? * 2 *)": False,
    "cron(0 20 15 * ? *)": False,
    "cron(0 20 L * ? *)": True,
    "cron(0 20 * JUN ? *)": False,
    "cron(0 20 * MAY ? 2027)": False,
}


def test_schedules_are_due_within_a_day() -> None:
    anchor = FRIDAY - timedelta(days=1)
    assert {each: is_due(each, "UTC", anchor, FRIDAY) for each in SCHEDULES} == SCHEDULES
    assert not is_due("at(2026-05-01T13:30:00)", "Europe/Berlin", anchor, FRIDAY)
    assert is_due("at(2026-05-01T13:30:00)", "UTC", anchor, FRIDAY)


@pytest.mark.parametrize("wrong", [{"Schedule": "cron(0 20)"}, {"Schedule": "daily"}, {"Timezone": "Moon/Sea"}])
def test_a_schedule_that_is_not_understood_counts_as_due(
    region: SimulatedRegion, action: Capacity, wrong: Mapping[str, str]
) -> None:
    region.scaling.schedule(SCALABLE, "at(2000-01-01T00:00:00)", {"MaxCapacity": 3}, **wrong)
    effects = [each.details["effects"] for each in action.discover(TARGET).resources if each.name == "cart"]
    assert len(effects[0]) == 1


# Measurements


def test_healthy_units_are_counted_in_all_zones_of_a_group(
    region: SimulatedRegion, shop: Shop, action: Capacity
) -> None:
    group = region.groups.get(region.groups.add("mixed", {ZONE: 2, OTHER: 3, THIRD: 0}, desired=9))
    group.suspended |= {"Launch", "Terminate", "AZRebalance"}
    for instance in group.instances:
        instance.weight = "3"
    group.instances[2].health = "Unhealthy"
    group.instances[3].state = "Standby"
    assert measure(action, "mixed").by_zone == {ZONE: 6, OTHER: 3, THIRD: 0}
    region.ecs.add("main", "search", tasks={ZONE: 3, OTHER: 1, THIRD: 0})
    assert measure(action, "search").by_zone == {ZONE: 3, OTHER: 1, THIRD: 0}


@pytest.mark.parametrize(
    ("kind", "group_setting", "is_on"),
    [
        ("application", "", True),
        ("application", "false", False),
        ("network", "", False),
        ("network", "true", True),
    ],
)
def test_traffic_is_spread_over_zones_if_balancer_and_target_group_say_so(
    region: SimulatedRegion, shop: Shop, action: Capacity, kind: str, group_setting: str, is_on: bool
) -> None:
    balancer = region.add(kind, "front")
    target_group = region.balancers.add_target_group("shop", balancer, cross_zone=group_setting)
    region.groups.get(shop.group).target_groups = [target_group]
    balancers = [{"targetGroupArn": target_group}, {"loadBalancerName": "classic"}]
    region.ecs.services[shop.service].details["loadBalancers"] = balancers
    assert [measure(action, each).is_cross_zone for each in ("shop", "cart")] == [is_on, is_on]
    region.balancers.target_groups.clear()
    assert measure(action).is_cross_zone


def test_needs_follow_from_policies_and_metrics(region: SimulatedRegion, shop: Shop, action: Capacity) -> None:
    """The group needs 3000 / 1000 instances. The service had 50 % of nine tasks, and may have 75 %: six tasks.

    Every task has sent one sample of its CPU.
    """
    shop.track_requests(1000.0, 3000.0)
    region.scaling.add_policy(SCALABLE, "ECSServiceAverageCPUUtilization", 75.0)
    dimensions = {"ClusterName": "main", "ServiceName": "cart"}
    shop.record("AWS/ECS", "CPUUtilization", "Average", dimensions, 50.0)
    shop.record("AWS/ECS", "CPUUtilization", "SampleCount", dimensions, 9.0)
    assert (measure(action).need, measure(action).is_weak) == (3.0, False)
    assert (measure(action, "cart").need, measure(action, "cart").is_weak) == (6.0, False)
    assert ask_guard(action.discover(TARGET)) == (
        "refuses: cart has 4 healthy units in the other zones, and needs 6.6 with the margin of 10 % (50 % CPU of 9 "
        "tasks at the highest load of 7 days, of which 0.0 have data, and a target of 75 %)"
    )


def test_past_sizes_are_used_if_a_group_records_them(region: SimulatedRegion, shop: Shop, action: Capacity) -> None:
    """40 % of 9 instances is the load of 6 instances at 60 %, whatever the size is now."""
    group = region.groups.get(shop.group)
    group.details["EnabledMetrics"] = [{"Metric": each} for each in ("GroupInServiceInstances", "GroupDesiredCapacity")]
    dimensions = {"AutoScalingGroupName": "shop"}
    shop.record("AWS/AutoScaling", "GroupDesiredCapacity", "Maximum", dimensions, 11.0)
    assert measure(action).need == 11.0
    shop.record("AWS/AutoScaling", "GroupInServiceInstances", "Maximum", dimensions, 9.0)
    shop.record("AWS/EC2", "CPUUtilization", "Average", dimensions, 40.0)
    assert measure(action).need == pytest.approx(6.0)
    assert measure(action).is_weak


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("GetMetricData", "1 call of CloudWatch failed"),
        ("DescribePolicies", "policies of groups cannot be read"),
        ("DescribeScalingPolicies", "policies of ECS services cannot be read"),
        ("DescribeSubnets", "subnets, and so their free IP addresses, cannot be read"),
        ("DescribeTargetGroupAttributes", "cross-zone load balancing of shop cannot be read, and is assumed to be off"),
        ("DescribeScheduledActions", "scheduled actions of groups cannot be read"),
    ],
)
def test_a_missing_permission_makes_the_answer_weaker_but_refuses_nothing(
    region: SimulatedRegion, shop: Shop, action: Capacity, operation: str, message: str
) -> None:
    region.groups.get(shop.group).target_groups = [region.balancers.add_target_group("shop")]
    region.faults = fail_once(operation, deny)
    found = action.discover(TARGET)
    (note,) = found.notes
    assert note.startswith(f"the default account in us-east-1: {message}")
    assert [each.name for each in found.resources] == ["shop", "cart"]
    assert found.unreadable == []
    assert measure(action).is_cross_zone
    if operation == "DescribeTargetGroupAttributes":
        assert not found.capacities[0].is_cross_zone


# Scale-out


def test_capacity_is_added_before_traffic_is_moved(
    cloud: Cloud, region: SimulatedRegion, shop: Shop, growing: Capacity
) -> None:
    """The group needs 4.4 instances, and 4.84 with the margin: five of eight are in the other zones.

    The service needs its six tasks, and 6.6 with the margin: seven of eleven are in the other zones.
    """
    shop.track_requests(1000.0, 4400.0)
    region.add("application", "front")
    shift = ZonalShift(cloud.open({"the default account": ACCOUNT}))
    runner = Runner({"capacity": growing, "zonal-shift": shift}, MemoryJournal(), region.arc.clock)
    planned = runner.plan(TARGET)
    measured = {each.name: (each.added, each.limit) for each in planned.discoveries["capacity"].capacities}
    assert measured == {"shop": (1, ""), "cart": (3, "")}
    assert ask_guard(planned.discoveries["capacity"]).startswith("passes")
    assert [(each.description, list(each.side_effects)) for each in planned.changes["capacity"]] == [
        (
            "raise MinSize from 1 to 8, until use1-az1 is restored",
            ["starts 1 more instances in the other zones before traffic is moved"],
        ),
        (
            "raise MinCapacity from 2 to 11, and suspend scale-in by policies, until use1-az1 is restored",
            [
                "starts 3 more tasks in the other zones before traffic is moved",
                "no scaling policy removes them after a restore: set its desired size back by hand",
            ],
        ),
    ]
    assert set(states(evacuate(runner, planned)).values()) == {EntryState.APPLIED}
    counts = region.groups.count_instances(shop.group)
    assert counts[OTHER] + counts[THIRD] >= 5
    assert shop.sizes == (8, 11, HELD)
    order = [each for each in region.calls if each in ("UpdateAutoScalingGroup", "StartZonalShift")]
    assert order == ["UpdateAutoScalingGroup", "StartZonalShift"]
    report = restore(runner)
    assert report.problems == []
    assert shop.sizes == BEFORE
    (note,) = {each.note for each in report.entries if each.note}  # a policy lowers the size of the group
    assert note == (
        "its desired size is 11, and was 6 before the evacuation. No scaling policy lowers it: set it by hand: "
        "aws ecs update-service --cluster main --service cart --desired-count 6 --region us-east-1"
    )


def test_traffic_stays_if_capacity_does_not_come(
    cloud: Cloud, region: SimulatedRegion, shop: Shop, growing: Capacity
) -> None:
    region.groups.get(shop.group).launch_seconds = 10_000.0
    region.add("application", "front")
    shift = ZonalShift(cloud.open({"the default account": ACCOUNT}))
    runner = Runner({"capacity": growing, "zonal-shift": shift}, MemoryJournal(), region.arc.clock)
    report = evacuate(runner)
    assert states(report) == {"shop": EntryState.INTENDED, "cart": EntryState.APPLIED, "front": EntryState.FAILED}
    assert notes(report)["front"].startswith("not changed, because shop has not enough capacity in the other zones yet")
    assert "not complete after 600 s: 4 of 7 healthy units in the other zones" in notes(report)["shop"]
    assert region.arc.shifts == []
    restore(runner)
    assert shop.sizes == BEFORE


@pytest.mark.parametrize(
    ("max_size", "free", "added", "limit"),
    [
        (12, 251, 1, ""),
        (7, 251, 0, "MaxSize 7"),
        (6, 251, 0, "MaxSize 6"),
        (12, 0, 0, "0 free IP addresses in other zones"),
    ],
)
def test_scale_out_is_bounded_by_maximum_and_addresses(
    region: SimulatedRegion, shop: Shop, growing: Capacity, max_size: int, free: int, added: int, limit: str
) -> None:
    shop.track_requests(1000.0, 4400.0)
    region.groups.get(shop.group).max_size = max_size
    region.free_addresses = dict.fromkeys(region.subnets, free)
    found = measure(growing)
    assert (found.added, found.limit) == (added, limit)
    if limit:
        assert f": {limit})" in ask_guard(growing.discover(TARGET))


@pytest.mark.parametrize("is_changed", [False, True])
def test_units_that_no_policy_removes_are_removed_by_a_restore(
    region: SimulatedRegion, shop: Shop, growing: Capacity, is_changed: bool
) -> None:
    """Unless others have changed the desired size meanwhile."""
    runner = Runner({"capacity": growing}, MemoryJournal(), region.arc.clock)
    evacuate(runner)
    group = region.groups.get(shop.group)
    assert group.desired > 6
    if is_changed:
        group.desired = 12
    report = restore(runner)
    assert (group.min_size, group.desired) == (1, 12 if is_changed else 6)
    assert ("its desired size is 12, and was 6" in notes(report)["shop"]) == is_changed


@pytest.mark.parametrize(
    ("used", "types", "added", "limit"),
    [
        (1146.0, {"m7g.large"}, 1, ""),  # 6 vCPUs are free, and two more instances need 4
        (1149.0, {"m7g.large"}, 0, "a quota of 1,152 vCPUs, of which 1,149 are used"),
        (1146.0, {"m7g.large", "m7g.xlarge"}, 0, "a quota of 1,152 vCPUs, of which 1,146 are used"),
        (1152.0, {"p5.large"}, 1, ""),  # another quota
        (None, {"m7g.large"}, 1, ""),  # AWS has not recorded its use
    ],
)
def test_instances_are_added_only_within_the_quota(
    region: SimulatedRegion, shop: Shop, growing: Capacity, used: float | None, types: set[str], added: int, limit: str
) -> None:
    """Six instances become eight, in three zones."""
    shop.track_requests(1000.0, 4400.0)
    if used is not None:
        region.set_used_vcpus("ec2", used)
    for each, name in zip(region.groups.get(shop.group).instances, cycle(sorted(types)), strict=False):
        each.type = name
    found = measure(growing)
    assert (found.added, found.limit) == (added, limit)


def test_services_share_the_quota_of_tasks(region: SimulatedRegion, shop: Shop, growing: Capacity) -> None:
    """Each service needs five more tasks, of half a vCPU: eleven instead of six."""
    region.ecs.task_cpu = "512"
    region.set_used_vcpus("fargate", 996.5)
    assert measure(growing, "cart").added == 3
    region.ecs.add("main", "search", desired=6)
    region.scaling.add("service/main/search", 2, 12)
    found = {each.name: each.limit for each in growing.discover(TARGET).capacities if each.type == "ecs-service"}
    assert found == {"cart": "", "search": "a quota of 1,000 vCPUs, of which 999 are used"}


@pytest.mark.parametrize("operation", ["GetServiceQuota", "DescribeInstanceTypes"])
def test_a_quota_that_cannot_be_read_is_a_note(
    region: SimulatedRegion, shop: Shop, growing: Capacity, operation: str
) -> None:
    def refuse(name: str) -> None:
        if name == operation:
            raise ServiceError(Refusal.DENIED)

    shop.track_requests(1000.0, 4400.0)
    region.set_used_vcpus("ec2", 1152.0)
    region.faults = refuse
    found = growing.discover(TARGET)
    assert next(each for each in found.capacities if each.name == "shop").added == 1
    assert any("vCPU quotas cannot be read, so they do not limit `scale_out_first`" in each for each in found.notes)


def test_without_cross_zone_traffic_every_zone_gets_what_it_needs(
    region: SimulatedRegion, shop: Shop, growing: Capacity
) -> None:
    """Each of two zones must carry 2.42 instances, so three: nine in all, and one more in each of the two."""
    shop.track_requests(1000.0, 4400.0)
    target_group = region.balancers.add_target_group("shop", region.add("network", "front"))
    region.groups.get(shop.group).target_groups = [target_group]
    assert measure(growing).added == 2
    third = next(each for each, name in region.subnets.items() if region.zones[name] == THIRD)
    region.free_addresses = {third: 0}
    found = measure(growing)
    assert (found.added, found.limit) == (0, "251 free IP addresses in other zones")


def test_a_service_that_nothing_scales_says_so(region: SimulatedRegion, shop: Shop, growing: Capacity) -> None:
    region.scaling.targets.clear()
    assert measure(growing, "cart").limit == "it has no scalable target"
    region.groups.add("nodes", EVEN, tags={"eks:nodegroup-name": "nodes"})
    assert measure(growing, "nodes").limit == "another service of AWS manages its size"


def test_parts_of_a_scaled_service_that_others_changed_are_kept(
    region: SimulatedRegion, shop: Shop, growing: Capacity
) -> None:
    runner = Runner({"capacity": growing}, MemoryJournal(), region.arc.clock)
    evacuate(runner)
    shop.target.min_capacity = 9
    report = restore(runner)
    assert states(report) == {"shop": EntryState.RESTORED, "cart": EntryState.KEPT}
    assert (
        notes(report)["cart"]
        == "MinCapacity is 9: another person or tool changed it. Holdfast had set 11; before the evacuation it was 2"
    )
    assert shop.sizes == (1, 9, NOT_SUSPENDED)


# Accounts and selections


REQUIRED = (
    *("GetCallerIdentity", "DescribeAutoScalingGroups", "ListTasks", "DescribeScalableTargets"),
    "DescribeAvailabilityZones",
)


@pytest.mark.parametrize("operation", REQUIRED)
def test_an_account_that_cannot_be_read_is_reported(
    region: SimulatedRegion, shop: Shop, action: Capacity, operation: str
) -> None:
    region.faults = fail_once(operation, deny)
    found = action.discover(TARGET)
    assert [each.scope for each in found.unreadable] == ["the default account in us-east-1"]
    assert operation in found.unreadable[0].reason
    assert (found.resources, found.capacities) == ([], [])


def test_an_account_that_is_configured_twice_counts_once(cloud: Cloud, region: SimulatedRegion, shop: Shop) -> None:
    action = Capacity(cloud.open({"ours": ACCOUNT, "ours as well": ACCOUNT}), region.arc.clock)
    found = action.discover(TARGET)
    assert [each.name for each in found.resources] == [each.name for each in found.capacities] == ["shop", "cart"]


def test_capacity_is_chosen_by_tags_and_names(region: SimulatedRegion, shop: Shop, runner: Runner) -> None:
    region.groups.add("shop-admin", EVEN, tags={"team": "a"})
    tagged = runner.plan(msgspec.structs.replace(TARGET, selection=Selection(tags={"team": "a"})))
    named = runner.plan(msgspec.structs.replace(TARGET, selection=Selection(names=("*-admin",))))
    for plan in (tagged, named):
        assert [each.resource.name for each in plan.changes["capacity"]] == ["shop-admin"]
        measured = {each.name for each in plan.discoveries["capacity"].capacities}
        assert measured == {"shop", "shop-admin", "cart"}, "a balancer that is moved alone sends traffic to all of them"
    for scope in (Selection(tags={"team": "a"}), Selection(names=("*-admin",))):
        plan = runner.plan(msgspec.structs.replace(TARGET, selection=scope, scope=scope))
        assert [each.name for each in plan.discoveries["capacity"].capacities] == ["shop-admin"], "of the workload"


# The rest


def test_all_calls_are_among_the_permissions(region: SimulatedRegion, shop: Shop, growing: Capacity) -> None:
    balancer = region.add("network", "front")
    region.groups.get(shop.group).target_groups = [region.balancers.add_target_group("shop", balancer)]
    for service in ("ec2", "fargate"):
        region.set_used_vcpus(service, 10.0)
    runner = Runner({"capacity": growing}, MemoryJournal(), region.arc.clock)
    target = msgspec.structs.replace(TARGET, selection=Selection(tags={"team": "a"}))
    runner.plan(target)
    evacuate(runner)
    restore(runner)
    allowed = {each.partition(":")[2] for each in ACTIONS.get("capacity").permissions}
    assert set(region.calls) - {"GetCallerIdentity"} == allowed


def test_the_action_is_registered_with_options(action: Capacity, growing: Capacity) -> None:
    assert ACTIONS.get("capacity").options_type is CapacityOptions
    wanted = CapacityOptions(lookback_days=14, scale_out_first=True)
    assert msgspec.convert({"lookback_days": 14, "scale_out_first": True}, CapacityOptions) == wanted
    for wrong in ({"lookback_days": 15}, {"lookback_days": 0}, {"margin": 3}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, CapacityOptions)
    assert (action.evacuation_stage, action.restoration_stage) == (HOLD_STAGE, RESTORE_HOLD_STAGE)
    assert (growing.evacuation_stage, growing.restoration_stage) == (SCALE_OUT_STAGE, RESTORE_HOLD_STAGE)
    assert "ignore_changes = [min_size" in ACTIONS.get("capacity").terraform


def test_the_module_is_imported_without_boto3() -> None:
    code = (
        "import sys; sys.modules.update(boto3=None, botocore=None); "
        "from holdfast.evacuate.action import ACTIONS; ACTIONS.get('capacity')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
