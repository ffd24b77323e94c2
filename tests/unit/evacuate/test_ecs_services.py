"""Subnets of ECS services, on a server with the model of ECS: removed, added again, and kept if others changed them."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import EngineError, EngineUnavailable, NotFound
from holdfast.evacuate.action import ACTIONS, Action, ChangeState, PlannedChange, Resource, Unmovable
from holdfast.evacuate.actions.ecs_services.action import EcsServices
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.selection import Selection
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.ecs import ROLLBACK, EcsService
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from holdfast.testing.evacuation import DeletableActionConformance
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, ZONE, Killed
from tests.unit.evacuate.moves import (
    TARGET,
    Moves,
    as_restoring,
    deny,
    fail_once,
    get_entry,
    kill_around,
    list_notes,
    states,
    throttle,
)


@pytest.fixture
def action(cloud: Cloud) -> EcsServices:
    return EcsServices(cloud.open({"the default account": ACCOUNT}))


@pytest.fixture
def moves(region: SimulatedRegion, action: EcsServices) -> Moves:
    return Moves(action, region)


@pytest.fixture
def web(region: SimulatedRegion) -> EcsService:
    """A service in all zones. The first subnet is the only one in ZONE."""
    return region.ecs.services[region.ecs.add("shop", "web")]


class TestConformance(DeletableActionConformance):
    """Overrides its fixture by that of this module."""

    @pytest.fixture
    def action(self, region: SimulatedRegion, action: EcsServices) -> Action:
        self.region = region
        for name in ("cart", "web"):
            region.ecs.add("shop", name)
        return action

    def delete(self, resource: Resource) -> None:
        del self.region.ecs.services[resource.id]


def get_network(service: EcsService) -> dict[str, Any]:
    assert service.network is not None
    return service.network


def get_subnets(service: EcsService) -> list[str]:
    found: list[str] = get_network(service)["subnets"]
    return found


def test_tasks_leave_the_zone_and_come_back(region: SimulatedRegion, web: EcsService, moves: Moves) -> None:
    """The whole network configuration is sent, and only its subnets change."""
    before = get_network(web) | {"assignPublicIp": "ENABLED"}
    web.network = before
    region.ecs.add("shop", "elsewhere", OTHER)
    first = get_subnets(web)[0]
    planned = moves.plan(web.arn)
    assert isinstance(planned, PlannedChange)
    assert planned.description == f"remove {first} in use1-az1 from its subnets; 2 in other zones remain"
    assert (planned.resource.type, planned.resource.name, planned.resource.account) == ("ecs-service", "web", ACCOUNT)
    report = moves.evacuate()
    assert [(each.resource, each.state) for each in report.entries] == [(web.arn, EntryState.APPLIED)]
    assert get_entry(report, web.arn).change["network"] == before
    assert get_network(web) == {**before, "subnets": before["subnets"][1:]}
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    assert region.ecs.count_tasks(web.arn)[ZONE] == 0
    assert moves.restore().problems == []
    assert get_network(web) == before
    assert region.ecs.count_tasks(web.arn)[ZONE] == 2, "a restore waits until the deployment is completed"


@pytest.mark.parametrize("operation", ["UpdateService", "DescribeServices", "DescribeSubnets"])
@pytest.mark.parametrize("error", [throttle, ReplyLost, lambda: ServiceError("ServerException")])
def test_lost_replies_and_throttling_start_no_second_deployment(
    region: SimulatedRegion, web: EcsService, moves: Moves, operation: str, error: Callable[[], Exception]
) -> None:
    before = get_network(web)
    planned = moves.runner.plan(TARGET)
    region.faults = fail_once(operation, error)
    claim = moves.runner.begin(planned, by="me@here")
    assert states(moves.runner.evacuate(claim, planned)) == {EntryState.APPLIED}
    region.faults = fail_once(operation, error)
    assert moves.restore().problems == []
    assert (get_network(web), web.deployed) == (before, 3)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("write", ["apply", "restore"])
def test_after_a_kill_a_restore_returns_the_configuration(
    web: EcsService, moves: Moves, monkeypatch: pytest.MonkeyPatch, write: str, *, is_done: bool, is_resumed: bool
) -> None:
    before = get_network(web)
    if write == "restore":
        moves.evacuate()
    with monkeypatch.context() as patch:
        patch.setattr(moves.action, write, kill_around(getattr(moves.action, write), is_done=is_done))
        with pytest.raises(Killed):
            moves.restore() if write == "restore" else moves.evacuate()
    moves.restart()
    if is_resumed:
        assert states(moves.resume()) == {EntryState.APPLIED}
        moves.restart()
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert get_network(web) == before


# Changes of others


def test_changes_of_others_are_kept(region: SimulatedRegion, web: EcsService, moves: Moves) -> None:
    first, second, third = get_subnets(web)
    region.subnets["subnet-new"] = region.subnets[second]
    moves.evacuate()
    web.network = {**get_network(web), "securityGroups": ["sg-new"], "subnets": [third, "subnet-new"]}
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert get_network(web) == {
        "subnets": [third, "subnet-new", first],
        "securityGroups": ["sg-new"],
        "assignPublicIp": "DISABLED",
    }


def test_a_change_that_others_made_is_not_undone(web: EcsService, moves: Moves) -> None:
    planned = moves.runner.plan(TARGET)
    web.network = {**get_network(web), "subnets": get_subnets(web)[1:]}
    claim = moves.runner.begin(planned, by="me@here")
    assert states(moves.runner.evacuate(claim, planned)) == {EntryState.FOUND}
    moves.restore()
    assert (len(get_subnets(web)), moves.count("UpdateService")) == (2, 0)


def test_a_change_that_others_made_just_before_is_not_written_again(web: EcsService, moves: Moves) -> None:
    entry = moves.build_entry(web.arn)
    whole = get_network(web)
    web.network = {**whole, "subnets": get_subnets(web)[1:]}
    with pytest.raises(EngineUnavailable, match="have just removed the subnets of use1-az1"):
        moves.action.apply(entry)
    reading = moves.action.read(entry)
    web.network = whole
    with pytest.raises(EngineUnavailable, match="have just added the subnets of use1-az1"):
        moves.action.restore(as_restoring(entry), reading)


def test_a_deleted_subnet_is_not_added_again(region: SimulatedRegion, web: EcsService, moves: Moves) -> None:
    first, *others = get_subnets(web)
    region.subnets["subnet-second"] = region.subnets[first]
    web.network = {**get_network(web), "subnets": [first, "subnet-second", *others]}
    moves.evacuate()
    assert get_subnets(web) == others
    del region.subnets[first]
    report = moves.restore()
    assert list_notes(report) == [f"{first} cannot be added again: deleted, or in another VPC now"]
    assert (states(report), get_subnets(web)) == ({EntryState.RESTORED}, [*others, "subnet-second"])


def test_without_any_subnet_left_to_add_a_restore_does_not_wait(
    region: SimulatedRegion, web: EcsService, moves: Moves
) -> None:
    moves.evacuate()
    del region.subnets["subnet-00000000000000000"]
    web.fails = True
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    assert states(moves.restore()) == {EntryState.RESTORED}


def test_subnets_that_others_added_again_are_left_to_a_person(web: EcsService, moves: Moves) -> None:
    """Each removal replaces all tasks. So it is repeated only when an operator resumes twice."""
    before = get_network(web)
    moves.evacuate()
    web.network = before
    report = moves.resume()
    assert states(report) == {EntryState.FAILED}
    assert "others, or a rollback of ECS, have added the subnets of use1-az1 again" in list_notes(report)[0]
    assert moves.count("UpdateService") == 1
    assert states(moves.resume()) == {EntryState.APPLIED}
    assert moves.count("UpdateService") == 2
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert get_network(web) == before


def test_if_others_added_some_of_the_subnets_the_rest_is_still_restored(
    region: SimulatedRegion, web: EcsService, moves: Moves
) -> None:
    first = get_subnets(web)[0]
    region.subnets["subnet-second"] = region.subnets[first]
    web.network = {**get_network(web), "subnets": [*get_subnets(web), "subnet-second"]}
    before = get_network(web)
    moves.evacuate()
    web.network = {**before, "subnets": [*get_subnets(web), first]}
    assert states(moves.resume()) == {EntryState.APPLIED}
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert get_network(web) == before


# Deployments that fail


def roll_back(region: SimulatedRegion, service: EcsService, *, is_completed: bool) -> None:
    """Let the current deployment fail, and wait until ECS has begun to roll back, or has completed it."""
    service.configuration |= ROLLBACK
    service.fails = True
    for _ in range(1 + is_completed):
        region.arc.clock.sleep(region.ecs.deploy_seconds)
        region.ecs.count_tasks(service.arn)
    service.fails = False


@pytest.mark.parametrize("is_completed", [False, True])
def test_a_rollback_is_reported_and_not_fought(
    region: SimulatedRegion, web: EcsService, moves: Moves, *, is_completed: bool
) -> None:
    before = get_network(web)
    run = moves.evacuate().run
    roll_back(region, web, is_completed=is_completed)
    assert moves.runner.verify(run)[web.arn].state is ChangeState.DIFFERENT
    report = moves.resume()
    assert states(report) == {EntryState.FAILED}
    expected = "others, or a rollback of ECS" if is_completed else "ECS has rolled back to the subnets of use1-az1"
    assert list_notes(report)[0].startswith(expected)
    assert moves.count("UpdateService") == 1
    assert (states(moves.restore()), get_network(web)) == (set(), before)


def test_while_a_failed_deployment_is_listed_the_service_is_not_moved(
    region: SimulatedRegion, web: EcsService, moves: Moves
) -> None:
    entry = moves.build_entry(web.arn)
    moves.action.apply(entry)
    roll_back(region, web, is_completed=False)
    reading = moves.action.read(entry)
    assert (reading.state, "tasks failed to start" in reading.note) == (ChangeState.DIFFERENT, True)
    planned = moves.plan(web.arn)
    assert isinstance(planned, Unmovable)
    assert "ECS has rolled back a deployment that left out the subnets of use1-az1" in planned.reason
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    assert isinstance(moves.plan(web.arn), PlannedChange)


def test_a_rollback_whose_failed_deployment_is_not_listed_is_recognized_by_its_reason(
    region: SimulatedRegion, web: EcsService, moves: Moves
) -> None:
    entry = moves.build_entry(web.arn)
    moves.action.apply(entry)
    roll_back(region, web, is_completed=False)
    del web.deployments[1]
    assert "rolling back to deploymentId" in moves.action.read(entry).note
    # An older rollback says nothing about our change.
    assert moves.action.read(moves.build_entry(web.arn)).state is ChangeState.ABSENT


def test_a_failed_deployment_without_rollback_stays_applied_with_a_note(
    region: SimulatedRegion, web: EcsService, moves: Moves
) -> None:
    before = get_network(web)
    run = moves.evacuate().run
    web.fails = True
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    reading = moves.runner.verify(run)[web.arn]
    assert reading.state is ChangeState.APPLIED
    assert "its deployment has failed, so tasks may still be in use1-az1" in reading.note
    web.fails = False
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert get_network(web) == before


@pytest.mark.parametrize("rolls_back", [True, False])
def test_a_restore_whose_deployment_fails_stays_open_and_is_written_once(
    region: SimulatedRegion, web: EcsService, moves: Moves, *, rolls_back: bool
) -> None:
    before = get_network(web)
    moves.evacuate()
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    region.ecs.count_tasks(web.arn)
    web.configuration |= ROLLBACK if rolls_back else {}
    web.fails = True
    report = moves.restore()
    assert states(report) == {EntryState.RESTORING}
    assert "the deployment that brings tasks back to use1-az1 has failed" in list_notes(report)[0]
    assert moves.count("UpdateService") == 2
    web.fails = False
    if not rolls_back:  # an operator deploys again
        web.deploy(region.arc.clock.wall())
    region.arc.clock.sleep(3 * region.ecs.deploy_seconds)
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert get_network(web) == before


@pytest.mark.parametrize("reports_rollout", [True, False])
def test_a_restore_waits_for_all_tasks(
    region: SimulatedRegion, web: EcsService, moves: Moves, *, reports_rollout: bool
) -> None:
    """A service behind a Classic Load Balancer has no state of its deployments, but numbers of tasks."""
    web.reports_rollout = reports_rollout
    entry = as_restoring(moves.build_entry(web.arn))
    moves.action.apply(entry)
    moves.action.restore(entry, moves.action.read(entry))
    assert [(reading := moves.action.read(entry)).state, reading.is_effective] == [ChangeState.ABSENT, False]
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    assert moves.action.read(entry).is_effective


def test_a_restore_that_takes_too_long_stays_open(region: SimulatedRegion, web: EcsService, moves: Moves) -> None:
    moves.evacuate()
    region.ecs.deploy_seconds = 3600.0
    assert states(moves.restore()) == {EntryState.RESTORING}


# Services that are special, or cannot be moved


@pytest.mark.parametrize(
    ("cross_zone", "minimum", "is_enabled", "expected"),
    [
        ("true", "1", False, []),
        (
            "false",
            "1",
            True,
            ["cross-zone load balancing of web is off: the action `zonal-shift` must move gate first"],
        ),
        ("false", "2", False, ["cross-zone load balancing of web is off: its balancer takes the zone out of DNS"]),
        ("false", "1", False, None),
    ],
)
def test_tasks_behind_a_balancer_leave_only_after_its_traffic(
    region: SimulatedRegion,
    web: EcsService,
    moves: Moves,
    cross_zone: str,
    minimum: str,
    is_enabled: bool,
    expected: list[str] | None,
) -> None:
    """As instances do. Two tasks are in the zone."""
    balancer = region.add("application", "gate", is_enabled=is_enabled)
    group = region.balancers.add_target_group("web", balancer, cross_zone=cross_zone, minimum_healthy=minimum)
    web.details |= {"loadBalancers": [{"targetGroupArn": group, "containerPort": 80}]}
    if expected is None:
        found = moves.action.discover(TARGET)
        (unmovable,) = found.unmovable
        assert (found.resources, unmovable.resource.id) == ([], web.arn)
        assert (
            "its last targets in use1-az1 would get all traffic of the zone; and zonal shift is not" in unmovable.reason
        )
        assert unmovable.remedy.endswith("Value=2 --region us-east-1")
        return
    planned = moves.plan(web.arn)
    assert isinstance(planned, PlannedChange)
    assert [each[: len(text)] for each, text in zip(planned.side_effects[1:], expected, strict=True)] == expected
    assert planned.change["shifted_first"] == ([balancer] if is_enabled else [])


def test_both_target_groups_of_a_blue_green_service_count(
    region: SimulatedRegion, web: EcsService, moves: Moves
) -> None:
    even = region.balancers.add_target_group("even", region.add("application", "gate"), cross_zone="true")
    zonal = region.balancers.add_target_group("zonal", region.add("network", "side", is_enabled=False))
    alternate = {"advancedConfiguration": {"alternateTargetGroupArn": zonal}}
    web.details |= {"loadBalancers": [{"targetGroupArn": even, **alternate}]}
    (staying,) = moves.action.discover(TARGET).unmovable
    assert "its target group zonal is off" in staying.reason


@pytest.mark.parametrize("is_shifted", [False, True])
def test_a_service_stays_if_the_shift_of_its_balancer_failed(
    region: SimulatedRegion, web: EcsService, moves: Moves, is_shifted: bool
) -> None:
    balancer = region.add("network", "gate")
    web.details |= {"loadBalancers": [{"targetGroupArn": region.balancers.add_target_group("web", balancer)}]}
    planned = moves.runner.plan(TARGET)
    if is_shifted:
        region.arc.start_shift(balancer, ZONE, "by another operator")
    report = moves.runner.evacuate(moves.runner.begin(planned, by="me@here"), planned)
    assert states(report) == {EntryState.APPLIED if is_shifted else EntryState.FAILED}
    assert ("gate still sends traffic to use1-az1" in get_entry(report, web.arn).note) != is_shifted
    assert len(get_subnets(web)) == (2 if is_shifted else 3)


@pytest.mark.parametrize("operation", ["DescribeTargetGroups", "ListTasks", "ListManagedResources"])
def test_a_service_whose_balancers_cannot_be_read_stays(
    region: SimulatedRegion, web: EcsService, moves: Moves, operation: str
) -> None:
    group = region.balancers.add_target_group("web", region.add("network", "gate"))
    web.details |= {"loadBalancers": [{"targetGroupArn": group}]}
    alone = region.ecs.add("shop", "alone")
    region.faults = fail_once(operation, deny)
    found = moves.action.discover(TARGET)
    assert [each.id for each in found.resources] == [alone]
    assert [each.resource.id for each in found.unmovable] == [web.arn]
    (note,) = found.notes
    assert "target groups or their balancers cannot be read, so services behind them stay" in note


@pytest.mark.parametrize(
    ("configuration", "details", "expected"),
    [
        ({}, {}, []),
        ({"strategy": "BLUE_GREEN", "bakeTimeInMinutes": 10}, {}, ["BLUE_GREEN moves traffic step by step, with a"]),
        (ROLLBACK, {}, ["ECS rolls back to the subnets in the zone (circuit breaker)"]),
        (
            {**ROLLBACK, "alarms": {"alarmNames": ["errors"], "enable": True, "rollback": True}},
            {},
            ["(circuit breaker and deployment alarms)"],
        ),
        ({"deploymentCircuitBreaker": {"enable": True, "rollback": False}}, {}, []),
        ({}, {"launchType": "EC2", "schedulingStrategy": "DAEMON"}, ["only on instances in the other zones"]),
        ({}, {"loadBalancers": [{"loadBalancerName": "old"}]}, ["it is behind a Classic Load Balancer"]),
    ],
)
def test_side_effects_are_those_of_the_service(
    web: EcsService, moves: Moves, configuration: dict[str, Any], details: dict[str, Any], expected: list[str]
) -> None:
    web.configuration |= configuration
    web.details |= details
    planned = moves.plan(web.arn)
    assert isinstance(planned, PlannedChange)
    first, *others = planned.side_effects
    assert first.startswith("replaces ALL tasks, within 100 % and 200 % of the desired number; if its image tag")
    assert all(text in found for found, text in zip(others, expected, strict=True))


def test_a_deployment_in_progress_is_a_side_effect(region: SimulatedRegion, web: EcsService, moves: Moves) -> None:
    web.deploy(region.arc.clock.wall())
    planned = moves.plan(web.arn)
    assert isinstance(planned, PlannedChange)
    assert planned.side_effects[1] == "interrupts a deployment that is in progress"


@pytest.mark.parametrize(
    ("changes", "reason", "remedy"),
    [
        ({"controller": "CODE_DEPLOY"}, "its deployment controller is CODE_DEPLOY", "by CodeDeploy"),
        ({"controller": "EXTERNAL"}, "its deployment controller is EXTERNAL", "create a task set"),
        ({"network": None}, "its tasks use the network of their instances", "auto-scaling-groups"),
        ({"network": {"subnets": ["subnet-00000000000000000"]}}, "it has no subnet in another zone", "add subnets"),
    ],
)
def test_services_that_cannot_be_moved_are_explained(
    web: EcsService, moves: Moves, changes: dict[str, Any], reason: str, remedy: str
) -> None:
    for name, value in changes.items():
        setattr(web, name, value)
    planned = moves.runner.plan(TARGET)
    (found,) = planned.unmovable
    assert (found.resource.id, reason in found.reason, remedy in found.remedy) == (web.arn, True, True)
    assert planned.changes["tested"] == []
    if "subnets" not in str(changes):  # the last case is found by the plan of the service
        assert moves.action.discover(replace(TARGET, lists_unmovable=False)).unmovable == []


def test_task_sets_of_an_external_controller_are_seen(web: EcsService, moves: Moves) -> None:
    network = {"awsvpcConfiguration": {"subnets": get_subnets(web)}}
    web.network, web.controller, web.details["taskSets"] = None, "EXTERNAL", [{"networkConfiguration": network}]
    (found,) = moves.runner.plan(TARGET).unmovable
    assert "its deployment controller is EXTERNAL" in found.reason


def test_services_outside_of_the_zone_and_of_aws_are_not_listed(region: SimulatedRegion, moves: Moves) -> None:
    """Services on machines outside of AWS have the launch type EXTERNAL."""
    anywhere = region.ecs.services[region.ecs.add("shop", "anywhere")]
    anywhere.network, anywhere.details["launchType"] = None, "EXTERNAL"
    elsewhere = region.ecs.services[region.ecs.add("shop", "elsewhere", OTHER)]
    elsewhere.controller = "CODE_DEPLOY"
    region.ecs.services[region.ecs.add("shop", "ending")].status = "DRAINING"
    found = moves.action.discover(TARGET)
    assert (found.resources, found.unmovable) == ([], [])


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"status": "DRAINING"}, "is DRAINING"),
        ({"status": "INACTIVE"}, "is INACTIVE"),
        ({"controller": "CODE_DEPLOY"}, "another network mode or deployment controller"),
        ({"network": None}, "another network mode or deployment controller"),
    ],
)
def test_a_service_that_cannot_be_changed_any_more_is_gone(
    web: EcsService, moves: Moves, changes: dict[str, Any], note: str
) -> None:
    entry = moves.build_entry(web.arn)
    for name, value in changes.items():
        setattr(web, name, value)
    for each in (entry, as_restoring(entry)):
        reading = moves.action.read(each)
        assert (reading.state, note in reading.note) == (ChangeState.GONE, True)
    with pytest.raises(NotFound):
        moves.action.apply(entry)


def test_a_deleted_cluster_takes_its_services_along(region: SimulatedRegion, web: EcsService, moves: Moves) -> None:
    entry = moves.build_entry(web.arn)
    region.faults = fail_once("ListServices", lambda: ServiceError("ClusterNotFoundException"))
    assert moves.action.discover(TARGET).unreadable == []
    region.ecs.clusters.clear()
    assert moves.action.read(entry).state is ChangeState.GONE


def test_the_last_subnet_is_never_removed(web: EcsService, moves: Moves) -> None:
    entry = moves.build_entry(web.arn)
    web.network = {**get_network(web), "subnets": get_subnets(web)[:1]}
    with pytest.raises(EngineError, match="has no subnet in another zone any more"):
        moves.action.apply(entry)


@pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidParameterException", "ClientException"])
def test_a_refusal_is_reported_and_nothing_is_recorded_as_changed(
    region: SimulatedRegion, web: EcsService, moves: Moves, code: str
) -> None:
    region.faults = fail_once("UpdateService", lambda: ServiceError(code))
    report = moves.evacuate()
    assert states(report) == {EntryState.FAILED}
    assert ("UpdateService" in list_notes(report)[0], len(get_subnets(web))) == (True, 3)


# Lists


def test_many_services_in_many_clusters_are_found(region: SimulatedRegion, moves: Moves) -> None:
    """DescribeServices accepts ten services."""
    added = {region.ecs.add(cluster, f"service-{number}") for cluster in ("bank", "shop") for number in range(12)}
    region.page_size = 5
    assert {each.id for each in moves.action.discover(TARGET).resources} == added
    assert moves.count("DescribeServices") == 4


def test_only_services_with_the_tags_are_found(region: SimulatedRegion, web: EcsService, moves: Moves) -> None:
    tagged = region.ecs.add("shop", "cart", tags={"team": "cart"})
    bridged = region.ecs.services[region.ecs.add("shop", "bridge")]
    bridged.network = None
    found = moves.action.discover(replace(TARGET, selection=Selection(tags={"team": "cart"})))
    assert ([each.id for each in found.resources], found.unmovable) == ([tagged], [])


@pytest.mark.parametrize("operation", ["ListClusters", "ListServices", "DescribeServices", "DescribeSubnets"])
@pytest.mark.parametrize("error", [deny, throttle, lambda: ServiceError(Refusal.INVALID)])
def test_an_account_that_cannot_be_read_is_reported(
    region: SimulatedRegion, web: EcsService, moves: Moves, operation: str, error: Callable[[], Exception]
) -> None:
    region.faults = fail_once(operation, error)
    found = moves.action.discover(TARGET)
    assert [each.scope for each in found.unreadable] == ["the default account in us-east-1"]
    assert (operation in found.unreadable[0].reason, found.resources) == (True, [])


def test_an_account_without_services_is_not_asked_for_subnets(moves: Moves, cloud: Cloud) -> None:
    found = moves.action.discover(TARGET)
    assert (found.resources, moves.count("DescribeSubnets")) == ([], 0)


def test_one_account_with_two_names_is_moved_once(cloud: Cloud, web: EcsService) -> None:
    action = EcsServices(cloud.open({"ours": ACCOUNT, "ours as well": ACCOUNT}))
    assert [each.id for each in action.discover(TARGET).resources] == [web.arn]


def test_the_action_is_registered() -> None:
    kind = ACTIONS.get("ecs-services")
    assert {"ecs:UpdateService", "ecs:ListServices", "ec2:DescribeSubnets", "tag:GetResources"} <= set(kind.permissions)
    assert "ignore_changes = [network_configuration[0].subnets]" in kind.terraform


def test_the_modules_are_imported_without_boto3() -> None:
    code = (
        "import sys; sys.modules.update(boto3=None, botocore=None); "
        "from holdfast.evacuate.action import ACTIONS; ACTIONS.get('ecs-services'); ACTIONS.get('lambda-functions')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
