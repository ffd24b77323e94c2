"""Find resources in a zone that a zonal shift would move, if it was enabled for them.

ARC lists only resources for which it is enabled. The others come from the services themselves. ELB and Auto Scaling
name zones as the account does, so EC2 is asked for their AZ-IDs. A list that cannot be read is a note, and no reason
against an evacuation: it says nothing about other zones.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from shlex import join
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._errors import HoldfastError
from holdfast._types import Zone
from holdfast.evacuate.accounts import Account
from holdfast.evacuate.action import Resource, Unmovable

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeSubnets",
    "eks:DescribeCluster",
    "eks:ListClusters",
    "elasticloadbalancing:DescribeLoadBalancers",
)
NODE_GROUP_TAG, CLUSTER_TAG = "eks:nodegroup-name", "eks:cluster-name"
"""The tags that EKS gives to the Auto Scaling groups of its node groups."""
_TYPES = {"elasticloadbalancing": "load-balancer", "autoscaling": "auto-scaling-group", "eks": "eks-cluster"}
"""The type of a resource, by the service in its ARN."""


class Candidates(NamedTuple):
    """The resources that stay in the zone, and a note for each list that could not be read."""

    unmovable: list[Unmovable]
    notes: list[str]


def build_resource(arn: str, name: str, zones: Iterable[str], **details: Any) -> Resource:
    """Return a resource with the type, account and region of its ARN."""
    _, _, service, region, account, *_ = arn.split(":")
    return Resource(
        id=arn,
        type=_TYPES.get(service, service),
        name=name,
        account=account,
        region=region,
        details={"zones": list(zones), **details},
    )


def find_candidates(account: Account, zone: Zone, managed: Collection[str]) -> Candidates:
    """Return what is in a zone of an account, without the ARNs that ARC manages."""
    session = account.reader
    notes: list[str] = []

    def read(what: str, call: str, lister: Callable[[], Iterable[Any]]) -> list[Any]:
        try:
            return list(lister())
        except (HoldfastError, session.client("ec2").exceptions.ClientError) as error:
            notes.append(
                f"{account.scope}: {what} cannot be listed ({call}), so the plan does not name those for which zonal "
                f"shift is not enabled: {error}"
            )
            return []

    by_name = "load balancers and Auto Scaling groups"
    names = dict(read(by_name, "ec2:DescribeAvailabilityZones", lambda: _list_zone_names(session)))
    lists: dict[str, tuple[str, Callable[[], Iterable[Resource]]]] = {
        "EKS clusters": ("eks:ListClusters, eks:DescribeCluster", lambda: _list_clusters(session, managed))
    }
    if names:
        balancers, groups = "elasticloadbalancing:DescribeLoadBalancers", "autoscaling:DescribeAutoScalingGroups"
        lists["load balancers"] = balancers, lambda: _list_balancers(session, names)
        lists["Auto Scaling groups"] = groups, lambda: _list_groups(session, names)
    with ThreadPoolExecutor(len(lists)) as pool:
        found = chain.from_iterable(pool.map(lambda what: read(what, *lists[what]), lists))
        here = [each for each in found if zone in each.details["zones"] and each.id not in managed]
    return Candidates([each for resource in here for each in _explain(resource, managed)], sorted(notes))


def _explain(resource: Resource, managed: Collection[str]) -> Iterator[Unmovable]:
    """Yield why a resource stays in the zone, and the command that would change that."""
    if len(resource.details["zones"]) < 2:
        yield Unmovable(resource=resource, reason="it has no other zone")
        return
    reason, cluster = "zonal shift is not enabled for it", resource.details.get("cluster")
    if cluster is None:
        yield Unmovable(resource=resource, reason=reason, remedy=build_enabling_command(resource))
    elif not any(each.endswith(f":{resource.account}:cluster/{cluster}") for each in managed):
        reason = f"it is a node group of the EKS cluster {cluster}, and zonal shift is not enabled for the cluster"
        yield Unmovable(resource=resource, reason=reason, remedy=f"enable zonal shift for the cluster {cluster}")


def build_enabling_command(resource: Resource) -> str:
    """Return the command of the AWS CLI that enables zonal shift."""
    if resource.type == "load-balancer":
        command = ["elbv2", "modify-load-balancer-attributes", "--load-balancer-arn", resource.id]
        command += ["--attributes", "Key=zonal_shift.config.enabled,Value=true"]
    elif resource.type == "auto-scaling-group":
        command = ["autoscaling", "update-auto-scaling-group", "--auto-scaling-group-name", resource.name]
        # CloudFormation requires both. Instances that are ignored take traffic again when the zone is back.
        policy = "ZonalShiftEnabled=true,ImpairedZoneHealthCheckBehavior=IgnoreUnhealthy"
        command += ["--availability-zone-impairment-policy", policy]
    else:
        command = ["eks", "update-cluster-config", "--name", resource.name, "--zonal-shift-config", "enabled=true"]
    return join(["aws", *command, "--region", resource.region])


def _list_zone_names(session: "AwsSession") -> Iterator[tuple[str, Zone]]:
    for each in session.client("ec2").describe_availability_zones()["AvailabilityZones"]:
        yield each["ZoneName"], Zone(each["ZoneId"])


def _list_balancers(session: "AwsSession", names: Mapping[str, Zone]) -> Iterator[Resource]:
    for each in session.paginate("elbv2", "describe_load_balancers"):
        if each["Type"] != "gateway":  # ARC does not shift those
            zones = [names.get(zone["ZoneName"], zone["ZoneName"]) for zone in each["AvailabilityZones"]]
            yield build_resource(each["LoadBalancerArn"], each["LoadBalancerName"], zones)


def _list_groups(session: "AwsSession", names: Mapping[str, Zone]) -> Iterator[Resource]:
    for each in session.paginate("autoscaling", "describe_auto_scaling_groups"):
        tags = {tag["Key"]: tag.get("Value", "") for tag in each.get("Tags", ())}
        cluster = {"cluster": tags.get(CLUSTER_TAG, "")} if NODE_GROUP_TAG in tags else {}
        zones = [names.get(zone, zone) for zone in each["AvailabilityZones"]]
        yield build_resource(each["AutoScalingGroupARN"], each["AutoScalingGroupName"], zones, **cluster)


def _list_clusters(session: "AwsSession", managed: Collection[str]) -> Iterator[Resource]:
    client = session.client("eks")
    known = {each.rpartition("/")[2] for each in managed if ":eks:" in each}
    found = []
    for name in session.paginate("eks", "list_clusters"):
        if name not in known:
            try:
                found.append(client.describe_cluster(name=name)["cluster"])
            except client.exceptions.ResourceNotFoundException:
                continue  # it was deleted meanwhile
    if not found:
        return
    subnets = {each["SubnetId"]: each["AvailabilityZoneId"] for each in session.paginate("ec2", "describe_subnets")}
    for each in found:
        used = each["resourcesVpcConfig"]["subnetIds"]
        yield build_resource(each["arn"], each["name"], sorted({subnets[name] for name in used if name in subnets}))
