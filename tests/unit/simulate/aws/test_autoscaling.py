"""Simulated Auto Scaling groups, as boto3 sees them: settings, and instances that start and end with the clock."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import EngineUnavailable, Zone
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.simulate.aws.balancers import CROSS_ZONE, MINIMUM_HEALTHY
from holdfast.simulate.aws.control_plane import serve
from holdfast.simulate.aws.protocols import ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.testing import FakeClock

A, B, C = (Zone(f"use1-az{number}") for number in (1, 2, 3))


@pytest.fixture(scope="module")
def regions() -> list[SimulatedRegion]:
    return [SimulatedRegion(FakeClock())]


@pytest.fixture(scope="module")
def session(regions: list[SimulatedRegion]) -> Iterator[AwsSession]:
    """Shared by all tests, because boto3 takes long to create clients."""
    with pytest.MonkeyPatch.context() as patch, serve(regions) as address:
        patch.setenv("AWS_ACCESS_KEY_ID", regions[0].access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        with AwsSession(AwsOptions(region="us-east-1", endpoint_url=address, max_attempts=1)) as opened:
            yield opened


@pytest.fixture
def region(regions: list[SimulatedRegion]) -> SimulatedRegion:
    regions[:] = [SimulatedRegion(FakeClock())]
    return regions[0]


@pytest.fixture
def client(session: AwsSession) -> Any:
    return session.client("autoscaling")


def update(client: Any, **values: Any) -> None:
    client.update_auto_scaling_group(AutoScalingGroupName="shop", **values)


def describe(client: Any) -> Any:
    (found,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=["shop"])["AutoScalingGroups"]
    return found


def test_instances_are_launched_elsewhere_before_those_of_a_removed_zone_end(
    region: SimulatedRegion, client: Any
) -> None:
    arn = region.groups.add("shop", {A: 2, B: 2, C: 2}, max_size=12)
    subnets = describe(client)["VPCZoneIdentifier"].split(",")
    update(client, VPCZoneIdentifier=", ".join(subnets[1:]))
    assert describe(client)["AvailabilityZoneIds"] == [B, C]
    assert region.groups.count_instances(arn) == {A: 2, B: 2, C: 2}
    assert region.groups.count_instances(arn, "Pending") == {B: 1, C: 1}
    region.arc.clock.sleep(60)
    assert region.groups.count_instances(arn) == {B: 3, C: 3}
    update(client, VPCZoneIdentifier=",".join(subnets))
    region.arc.clock.sleep(60)
    assert region.groups.count_instances(arn)[A] == 2
    region.arc.clock.sleep(600)
    assert region.groups.count_instances(arn) == {A: 2, B: 2, C: 2}
    assert {each["HealthStatus"] for each in describe(client)["Instances"]} == {"Healthy"}


def test_a_group_exceeds_its_maximum_by_a_tenth_or_one_instance(region: SimulatedRegion, client: Any) -> None:
    arn = region.groups.add("shop", {A: 10, B: 10})
    update(client, VPCZoneIdentifier=region.groups.get(arn).subnets[1])
    most = 0
    for _ in range(10):
        most = max(most, len(describe(client)["Instances"]))
        region.arc.clock.sleep(60)
    assert (most, region.groups.count_instances(arn)) == (22, {B: 20})


def test_suspended_processes_have_no_effect_until_they_are_resumed(region: SimulatedRegion, client: Any) -> None:
    arn = region.groups.add("shop", {B: 3, C: 3})
    client.suspend_processes(AutoScalingGroupName="shop", ScalingProcesses=["AZRebalance"])
    update(client, VPCZoneIdentifier=",".join(region.subnets))
    region.arc.clock.sleep(600)
    assert region.groups.count_instances(arn) == {B: 3, C: 3}
    assert describe(client)["SuspendedProcesses"] == [{"ProcessName": "AZRebalance"}]
    client.suspend_processes(AutoScalingGroupName="shop")
    assert len(describe(client)["SuspendedProcesses"]) == 9
    update(client, DesiredCapacity=2)
    assert region.groups.count_instances(arn) == {B: 3, C: 3}
    client.resume_processes(AutoScalingGroupName="shop", ScalingProcesses=["Terminate"])
    assert region.groups.count_instances(arn) == {B: 1, C: 1}
    client.resume_processes(AutoScalingGroupName="shop")
    update(client, DesiredCapacity=3)
    region.arc.clock.sleep(60)
    assert region.groups.count_instances(arn) == {A: 1, B: 1, C: 1}
    with pytest.raises(client.exceptions.ClientError, match="Lunch is not a process"):
        client.suspend_processes(AutoScalingGroupName="shop", ScalingProcesses=["Lunch"])


def test_sizes_stay_consistent(region: SimulatedRegion, client: Any) -> None:
    region.groups.add("shop", {A: 2, B: 2}, max_size=8)
    cases: list[tuple[dict[str, int], tuple[int, int, int]]] = [
        ({"MinSize": 6}, (6, 6, 8)),
        ({"DesiredCapacity": 7}, (6, 7, 8)),
        ({"MinSize": 0, "MaxSize": 3}, (0, 3, 3)),
    ]
    for values, expected in cases:
        update(client, **values)
        found = describe(client)
        assert (found["MinSize"], found["DesiredCapacity"], found["MaxSize"]) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"VPCZoneIdentifier": "subnet-1"}, "The subnet ID 'subnet-1' does not exist"),
        ({"VPCZoneIdentifier": ","}, "does not exist"),
        ({"MinSize": 5}, "must be between"),
        ({"DesiredCapacity": 5}, "must be between"),
        ({"HealthCheckType": "ELB"}, "HealthCheckType cannot be changed"),
        ({"AutoScalingGroupName": "unknown"}, "AutoScalingGroup unknown not found"),
    ],
)
def test_impossible_changes_are_refused(
    region: SimulatedRegion, client: Any, values: dict[str, Any], message: str
) -> None:
    region.groups.add("shop", {A: 2, B: 2})
    with pytest.raises(client.exceptions.ClientError, match=message) as refused:
        client.update_auto_scaling_group(**{"AutoScalingGroupName": "shop", **values})
    assert refused.value.response["Error"]["Code"] == "ValidationError"


def test_a_change_under_way_has_the_status_of_a_failure(region: SimulatedRegion, client: Any) -> None:
    """As in the model of AWS, so that a client cannot tell the refusal from a lost reply by the status."""
    region.groups.add("shop", {A: 1, B: 1})

    def refuse(_: str) -> None:
        raise ServiceError("ResourceContention")

    region.faults = refuse
    with pytest.raises(EngineUnavailable):
        describe(client)


def test_groups_are_found_by_name_and_tag(region: SimulatedRegion, client: Any) -> None:
    region.groups.add("shop", {A: 1, B: 1}, tags={"team": "shop"})
    region.groups.add("mail", {A: 1, B: 1}, tags={"team": "mail"})

    def find(**values: Any) -> list[str]:
        found = client.describe_auto_scaling_groups(**values)["AutoScalingGroups"]
        return [each["AutoScalingGroupName"] for each in found]

    assert find() == ["shop", "mail"]
    assert find(AutoScalingGroupNames=["mail", "gone"]) == ["mail"]
    assert find(AutoScalingGroupNames=["gone"]) == []
    assert find(Filters=[{"Name": "tag:team", "Values": ["shop", "x"]}]) == ["shop"]
    assert find(Filters=[{"Name": "tag-key", "Values": ["team"]}]) == ["shop", "mail"]
    with pytest.raises(client.exceptions.ClientError, match="tag-value is not simulated"):
        find(Filters=[{"Name": "tag-value", "Values": ["shop"]}])
    (shop, _) = client.describe_auto_scaling_groups(IncludeInstances=False)["AutoScalingGroups"]
    assert shop["Instances"] == []


def test_policies_scheduled_actions_and_refreshes_are_listed(region: SimulatedRegion, client: Any) -> None:
    now = region.arc.clock.wall()
    target = {
        "TargetValue": 50.5,
        "PredefinedMetricSpecification": {"PredefinedMetricType": "ASGAverageCPUUtilization"},
    }
    arn = region.groups.add(
        "shop",
        {A: 1, B: 1},
        policies=[{"PolicyName": "cpu", "PolicyType": "TargetTrackingScaling", "TargetTrackingConfiguration": target}],
        scheduled_actions=[{"ScheduledActionName": "night", "StartTime": now + 3600, "DesiredCapacity": 1}],
    )
    region.groups.get(arn).refreshes.append({"InstanceRefreshId": "1", "Status": "InProgress"})
    (policy,) = client.describe_policies(AutoScalingGroupName="shop")["ScalingPolicies"]
    assert (policy["AutoScalingGroupName"], policy["TargetTrackingConfiguration"]["TargetValue"]) == ("shop", 50.5)
    assert client.describe_policies(PolicyTypes=["StepScaling"])["ScalingPolicies"] == []
    for hours, names in ((2, ["night"]), (0.5, [])):
        found = client.describe_scheduled_actions(StartTime=now, EndTime=now + hours * 3600)
        assert [each["ScheduledActionName"] for each in found["ScheduledUpdateGroupActions"]] == names
    (refresh,) = client.describe_instance_refreshes(AutoScalingGroupName="shop")["InstanceRefreshes"]
    assert refresh["Status"] == "InProgress"


def test_target_groups_follow_their_balancer_unless_they_are_set(region: SimulatedRegion, session: AwsSession) -> None:
    application, network = region.add("application", "web"), region.add("network", "gate")
    client = session.client("elbv2")
    shop = region.balancers.add_target_group("shop", application)
    mail = region.balancers.add_target_group("mail", network, cross_zone="false", minimum_healthy="3")
    region.page_size = 1
    assert [each["TargetGroupArn"] for each in session.paginate("elbv2", "describe_target_groups")] == [shop, mail]
    (found,) = client.describe_target_groups(LoadBalancerArn=network)["TargetGroups"]
    assert (found["TargetGroupName"], found["LoadBalancerArns"]) == ("mail", [network])
    (found,) = client.describe_target_groups(TargetGroupArns=[shop])["TargetGroups"]
    assert found["TargetGroupName"] == "shop"

    def read(reply: Any) -> dict[str, str]:
        return {each["Key"]: each["Value"] for each in reply["Attributes"]}

    for arn, cross_zone, minimum in ((shop, "use_load_balancer_configuration", "1"), (mail, "false", "3")):
        found = read(client.describe_target_group_attributes(TargetGroupArn=arn))
        assert (found[CROSS_ZONE], found[MINIMUM_HEALTHY]) == (cross_zone, minimum)
    for arn, expected in ((application, "true"), (network, "false")):
        assert read(client.describe_load_balancer_attributes(LoadBalancerArn=arn))[CROSS_ZONE] == expected
    region.balancers.set_attribute(network, CROSS_ZONE, "true")
    assert read(client.describe_load_balancer_attributes(LoadBalancerArn=network))[CROSS_ZONE] == "true"
    with pytest.raises(client.exceptions.TargetGroupNotFoundException):
        client.describe_target_groups(TargetGroupArns=[f"{shop}0"])
