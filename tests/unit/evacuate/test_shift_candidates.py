"""Resources in a zone for which zonal shift is not enabled: found, explained, and never a reason to stop."""

import shlex
from collections.abc import Callable

import pytest

from holdfast.evacuate.shift_candidates import Candidates, find_candidates
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, ZONE


def find(cloud: Cloud, region: SimulatedRegion) -> Candidates:
    account = cloud.open({"ours": ACCOUNT}).list_for(ZONE)[0]
    return find_candidates(account, ZONE, set(region.arc.resources))


@pytest.mark.parametrize("page_size", [1, 100])
def test_what_is_in_the_zone_and_not_enabled_is_listed_with_the_command(
    cloud: Cloud, region: SimulatedRegion, page_size: int
) -> None:
    region.page_size = page_size
    expected = {}
    for kind in ("application", "network", "group", "cluster"):
        arn = region.add(kind, "shop", is_enabled=False)
        expected[arn] = "zonal shift is not enabled for it"
        region.add(kind, "enabled")
        region.add(kind, "elsewhere", OTHER, is_enabled=False)
    expected[region.add("group", "single", ZONE, is_enabled=False)] = "it has no other zone"
    region.add("gateway", "firewall", is_enabled=False)
    found = find(cloud, region)
    assert {each.resource.id: each.reason for each in found.unmovable} == expected
    assert found.notes == []
    commands = {each.resource.id: each.remedy for each in found.unmovable}
    application, network, group, cluster, single = expected
    modify = "aws elbv2 modify-load-balancer-attributes --load-balancer-arn {} --attributes {} --region us-east-1"
    for balancer in (application, network):
        assert commands[balancer] == modify.format(balancer, "Key=zonal_shift.config.enabled,Value=true")
    assert commands[group] == (
        "aws autoscaling update-auto-scaling-group --auto-scaling-group-name shop --availability-zone-impairment-policy"
        " ZonalShiftEnabled=true,ImpairedZoneHealthCheckBehavior=IgnoreUnhealthy --region us-east-1"
    )
    assert commands[cluster] == (
        "aws eks update-cluster-config --name shop --zonal-shift-config enabled=true --region us-east-1"
    )
    assert commands[single] == ""


def test_names_are_quoted_for_a_shell(cloud: Cloud, region: SimulatedRegion) -> None:
    region.add("group", "it's; rm -rf $HOME", is_enabled=False)
    (found,) = find(cloud, region).unmovable
    assert shlex.split(found.remedy)[4] == "it's; rm -rf $HOME"


def test_names_of_zones_are_those_of_the_account(cloud: Cloud, region: SimulatedRegion) -> None:
    region.zones = {"us-east-1a": OTHER, "us-east-1b": ZONE}
    region.add("application", "here", ZONE, is_enabled=False)
    region.add("application", "elsewhere", OTHER, is_enabled=False)
    assert [each.resource.name for each in find(cloud, region).unmovable] == ["here"]


def test_groups_of_nodes_belong_to_their_cluster(cloud: Cloud, region: SimulatedRegion) -> None:
    def build_tags(cluster: str) -> dict[str, str]:
        return {"eks:nodegroup-name": "workers", "eks:cluster-name": cluster}

    region.add("cluster", "moved")
    region.add("group", "moved-nodes", is_enabled=False, tags=build_tags("moved"))
    region.add("cluster", "staying", is_enabled=False)
    region.add("group", "staying-nodes", is_enabled=False, tags=build_tags("staying"))
    found = {each.resource.name: each for each in find(cloud, region).unmovable}
    assert sorted(found) == ["staying", "staying-nodes"]
    assert found["staying-nodes"].reason == (
        "it is a node group of the EKS cluster staying, and zonal shift is not enabled for the cluster"
    )
    assert found["staying-nodes"].remedy == "enable zonal shift for the cluster staying"


def test_a_cluster_that_is_deleted_meanwhile_is_left_out(cloud: Cloud, region: SimulatedRegion) -> None:
    gone = region.add("cluster", "gone", is_enabled=False)
    region.add("cluster", "here", is_enabled=False)
    region.faults = lambda operation: region.remove(gone) if operation == "DescribeCluster" else None
    found = find(cloud, region)
    assert ([each.resource.name for each in found.unmovable], found.notes) == (["here"], [])


LISTS = {
    "DescribeAvailabilityZones": ("load balancers and Auto Scaling groups", {"load-balancer", "auto-scaling-group"}),
    "DescribeLoadBalancers": ("load balancers", {"load-balancer"}),
    "DescribeAutoScalingGroups": ("Auto Scaling groups", {"auto-scaling-group"}),
    "ListClusters": ("EKS clusters", {"eks-cluster"}),
    "DescribeCluster": ("EKS clusters", {"eks-cluster"}),
    "DescribeSubnets": ("EKS clusters", {"eks-cluster"}),
}


@pytest.mark.parametrize("operation", LISTS)
@pytest.mark.parametrize(
    "error",
    [
        lambda: ServiceError(Refusal.DENIED),
        lambda: ServiceError(Refusal.THROTTLED),
        lambda: ServiceError(Refusal.INVALID),
        ReplyLost,
    ],
    ids=["denied", "throttled", "invalid", "lost"],
)
def test_a_list_that_cannot_be_read_is_a_note(
    cloud: Cloud, region: SimulatedRegion, operation: str, error: Callable[[], Exception]
) -> None:
    for kind in ("application", "group", "cluster"):
        region.add(kind, "shop", is_enabled=False)

    def fail(called: str) -> None:
        if called == operation:
            raise error()

    region.faults = fail
    found = find(cloud, region)
    what, missing = LISTS[operation]
    types = {"load-balancer", "auto-scaling-group", "eks-cluster"}
    assert {each.resource.type for each in found.unmovable} == types - missing
    (note,) = found.notes
    assert note.startswith(f"ours in us-east-1: {what} cannot be listed (")
    assert operation in note
