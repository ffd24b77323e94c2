"""One AWS account in one region: its subnets, balancers and EKS clusters, and what each service replies.

Replies have only the fields that Holdfast reads, and those that AWS always sends.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast._clock import Clock
from holdfast._types import Zone
from holdfast.simulate.aws.arc import Arc, Handler
from holdfast.simulate.aws.autoscaling import Groups
from holdfast.simulate.aws.balancers import Balancers
from holdfast.simulate.aws.ecs import Ecs
from holdfast.simulate.aws.functions import Functions
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.scaling import Metrics, Scaling

ACCOUNT = "123456789012"
FREE_ADDRESSES = 251
"""The free IP addresses of an unused subnet with 256 addresses, as AWS counts them."""
REGION = "us-east-1"
_USAGE = {"Type": "Resource", "Resource": "vCPU", "Class": "Standard/OnDemand"}
"""The dimensions of the metric `ResourceCount` of `AWS/Usage`, besides `Service`."""
_VCPUS = {"medium": 1, "large": 2, "xlarge": 4, "2xlarge": 8}
"""The vCPUs of instance types, by their size."""
ZONES = (Zone("use1-az1"), Zone("use1-az2"), Zone("use1-az3"))
ARNS = {
    "application": "elasticloadbalancing:{0}:loadbalancer/app/{1}/{2:016x}",
    "network": "elasticloadbalancing:{0}:loadbalancer/net/{1}/{2:016x}",
    "gateway": "elasticloadbalancing:{0}:loadbalancer/gwy/{1}/{2:016x}",
    "group": "autoscaling:{0}:autoScalingGroup:{2:032x}:autoScalingGroupName/{1}",
    "cluster": "eks:{0}:cluster/{1}",
}
"""The kinds of resources: three kinds of balancers, Auto Scaling groups and EKS clusters."""
_WITHOUT_FILTERS = {"DescribeAvailabilityZones", "DescribeLoadBalancers"}
"""Operations that always return everything, so that a call with a filter would be misled."""


@dataclass(frozen=True, slots=True)
class SimulatedResource:
    """A balancer, an Auto Scaling group or a cluster."""

    arn: str
    kind: str
    name: str
    zones: Sequence[Zone]
    tags: Mapping[str, str]


class SimulatedRegion:
    """One account in one region. Thread-safe."""

    def __init__(
        self, clock: Clock, zones: Sequence[Zone] = ZONES, *, account: str = ACCOUNT, region: str = REGION
    ) -> None:
        """The account calls the first of the zones `a`, such as us-east-1a, and the second one `b`."""
        self.account, self.region = account, region
        self.zones = {f"{region}{chr(ord('a') + number)}": zone for number, zone in enumerate(zones)}
        """The AZ-IDs, by the names that the account has for them."""
        self.faults: Callable[[str], None] = lambda _: None
        """Called with the name of each operation before it is carried out. It may raise ServiceError or ReplyLost."""
        self.subnets = {f"subnet-{number:017x}": name for number, name in enumerate(self.zones)}
        """The name of the zone of each subnet: at first one in each zone."""
        self.vpcs: dict[str, str] = {}
        """The VPCs of subnets that are not in the VPC of all others."""
        self.free_addresses: dict[str, int] = {}
        """The free IP addresses of subnets that have fewer than FREE_ADDRESSES."""
        self.tags: dict[str, dict[str, str]] = {}
        """The tags of resources, by ARN."""
        self.endpoints: dict[str, Mapping[str, Any]] = {}
        """The fields `endpoint` and `certificateAuthority` of EKS clusters, by name. They have none at first."""
        self.quotas = {("ec2", "L-1216C47A"): 1152.0, ("fargate", "L-3032A538"): 1000.0}
        """The vCPUs that On-Demand instances and Fargate tasks may have, by service and code."""
        self.page_size = 100
        self.calls: deque[str] = deque(maxlen=100_000)
        self.resources: dict[str, SimulatedResource] = {}
        self.arc = Arc(clock)
        self.groups = Groups(clock, self)
        self.balancers = Balancers(f"arn:{self._partition}:elasticloadbalancing:{region}:{account}")
        self.ecs = Ecs(clock, f"arn:{self._partition}:ecs:{region}:{account}", self)
        self.functions = Functions(clock, f"arn:{self._partition}:lambda:{region}:{account}", self)
        self.scaling, self.metrics = Scaling(clock, self.ecs), Metrics()
        self._clock = clock
        self._lock = threading.Lock()
        self.handlers: Mapping[str, Mapping[str, Handler]] = {
            "sts": {"GetCallerIdentity": self._get_caller_identity, "AssumeRole": self._assume_role},
            "ec2": {
                "DescribeAvailabilityZones": self._list_zones,
                "DescribeSubnets": self._list_subnets,
                "DescribeInstanceTypes": self._list_instance_types,
            },
            "service-quotas": {"GetServiceQuota": self._get_quota},
            "resourcegroupstaggingapi": {"GetResources": self._list_tagged},
            "elbv2": {"DescribeLoadBalancers": self._list_balancers, **self.balancers.handlers},
            "autoscaling": self.groups.handlers,
            "eks": {"ListClusters": self._list_clusters, "DescribeCluster": self._describe_cluster},
            "arc-zonal-shift": self.arc.handlers,
            "application-autoscaling": self.scaling.handlers,
            "cloudwatch": self.metrics.handlers,
            "ecs": self.ecs.handlers,
            "lambda": self.functions.handlers,
        }
        """The operations of each service, by boto3's names."""

    @property
    def access_key(self) -> str:
        """An access key of the account. Any secret is accepted with it."""
        return f"AKIA{self.account}"

    def add(
        self, kind: str, name: str, *zones: Zone, is_enabled: bool = True, tags: Mapping[str, str] | None = None
    ) -> str:
        """Add a resource in some zones, or in all. Return its ARN. `is_enabled`: zonal shift is enabled for it.

        A group has no instances. Use `groups.add` for a group with instances.
        """
        used = zones or tuple(self.zones.values())
        if kind == "group":
            return self.groups.add(name, dict.fromkeys(used, 0), tags=tags, is_enabled=is_enabled)
        return self.register(kind, name, used, tags or {}, is_enabled=is_enabled)

    def register(
        self, kind: str, name: str, zones: Sequence[Zone], tags: Mapping[str, str], *, is_enabled: bool
    ) -> str:
        """Add a resource to the lists that all kinds share, and return its ARN."""
        ending = ARNS[kind].format(f"{self.region}:{self.account}", name, len(self.resources) + 1)
        arn = f"arn:{self._partition}:{ending}"
        self.resources[arn] = SimulatedResource(arn, kind, name, zones, tags)
        self.tags[arn] = dict(tags)
        if is_enabled:
            self.arc.add(arn, name, *zones)
        return arn

    @property
    def _partition(self) -> str:
        return next((f"aws-{each}" for each in ("cn", "us-gov") if self.region.startswith(each)), "aws")

    def set_used_vcpus(self, service: str, used: float) -> None:
        """Record how many vCPUs of the quota of `ec2` or `fargate` are used."""
        now = self._clock.wall()
        values = {now - now % 60 - 300: used}
        self.metrics.add("AWS/Usage", "ResourceCount", "Maximum", _get_usage_dimensions(service), values)

    def remove(self, arn: str) -> None:
        """Delete a resource."""
        self.resources.pop(arn, None)
        self.groups.remove(arn)
        self.arc.resources.pop(arn, None)

    def call(self, service: str, operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one operation. Lists are complete. Raise ServiceError if the operation is refused."""
        if operation in _WITHOUT_FILTERS and any(isinstance(each, list) for each in values.values()):
            raise ServiceError(Refusal.INVALID, f"{operation} is simulated without names and filters")
        with self._lock:
            return self.handlers[service][operation](values)

    def _find(self, *kinds: str) -> list[SimulatedResource]:
        return [each for _, each in sorted(self.resources.items()) if each.kind in kinds]

    def _get_subnets(self, zones: Collection[Zone]) -> dict[str, str]:
        """Return the first subnet in each of the zones, by the name of the zone."""
        found = {name: subnet for subnet, name in reversed(self.subnets.items())}
        return {name: found[name] for name, zone in self.zones.items() if zone in zones and name in found}

    def _get_caller_identity(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"UserId": "AIDA", "Account": self.account, "Arn": f"arn:aws:iam::{self.account}:user/simulated"}

    def _assume_role(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a key of the account of the role. Every role may be assumed."""
        key = f"ASIA{values['RoleArn'].split(':')[4]}"
        expiration = time.time() + 3600  # botocore compares it with the real time
        secrets = {"SecretAccessKey": "simulated", "SessionToken": "simulated"}
        return {"Credentials": {"AccessKeyId": key, "Expiration": expiration, **secrets}}

    def _list_zones(self, _: Mapping[str, Any]) -> dict[str, Any]:
        common = {"RegionName": self.region, "State": "available", "ZoneType": "availability-zone"}
        found = [{"ZoneName": name, "ZoneId": zone, **common} for name, zone in self.zones.items()]
        return {"AvailabilityZones": found}

    def _list_subnets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        chosen = set(self.subnets)
        for each in values.get("Filters", ()):
            if each["Name"] != "subnet-id":
                raise ServiceError(Refusal.INVALID, f"the filter {each['Name']} is not simulated")
            chosen &= set(each["Values"])
        found = [
            {
                "SubnetId": subnet,
                "VpcId": self.vpcs.get(subnet, "vpc-shop"),
                "AvailabilityZone": name,
                "AvailabilityZoneId": self.zones[name],
                "AvailableIpAddressCount": self.free_addresses.get(subnet, FREE_ADDRESSES),
            }
            for subnet, name in self.subnets.items()
            if subnet in chosen
        ]
        return {"Subnets": found}

    def _list_instance_types(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the vCPUs of instance types, by their size."""
        types = values.get("InstanceTypes", ())
        sizes = {each: each.rpartition(".")[2] for each in types}
        if unknown := [each for each, size in sizes.items() if size not in _VCPUS]:
            raise ServiceError("InvalidInstanceType", f"The following supplied instance types do not exist: {unknown}")
        found = [{"InstanceType": each, "VCpuInfo": {"DefaultVCpus": _VCPUS[size]}} for each, size in sizes.items()]
        return {"InstanceTypes": found}

    def _get_quota(self, values: Mapping[str, Any]) -> dict[str, Any]:
        key = values["ServiceCode"], values["QuotaCode"]
        if key not in self.quotas:
            raise ServiceError("NoSuchResourceException", "The request failed because the quota does not exist.")
        metric = {
            "MetricNamespace": "AWS/Usage",
            "MetricName": "ResourceCount",
            "MetricDimensions": _get_usage_dimensions(key[0]),
        }
        usage = {**metric, "MetricStatisticRecommendation": "Maximum"}
        found = {"ServiceCode": key[0], "QuotaCode": key[1], "Value": self.quotas[key], "UsageMetric": usage}
        return {"Quota": found}

    def _list_tagged(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the resources that have all tags. As in AWS, Auto Scaling groups are missing."""
        wanted = {each["Key"]: each["Values"] for each in values.get("TagFilters", ())}
        found = [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for arn, tags in sorted(self.tags.items())
            if ":autoscaling:" not in arn and all(tags.get(key) in values for key, values in wanted.items())
        ]
        return {"ResourceTagMappingList": found}

    def _list_balancers(self, _: Mapping[str, Any]) -> dict[str, Any]:
        found = [
            {
                "LoadBalancerArn": each.arn,
                "LoadBalancerName": each.name,
                "Type": each.kind,
                "AvailabilityZones": [
                    {"ZoneName": name, "SubnetId": subnet} for name, subnet in self._get_subnets(each.zones).items()
                ],
            }
            for each in self._find("application", "network", "gateway")
        ]
        return {"LoadBalancers": found}

    def _list_clusters(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"clusters": [each.name for each in self._find("cluster")]}

    def _describe_cluster(self, values: Mapping[str, Any]) -> dict[str, Any]:
        for each in self._find("cluster"):
            if each.name == values["name"]:
                subnets = {"subnetIds": list(self._get_subnets(each.zones).values())}
                enabled = {"enabled": each.arn in self.arc.resources}
                names = {"name": each.name, "arn": each.arn}
                found = {**names, "resourcesVpcConfig": subnets, "zonalShiftConfig": enabled}
                return {"cluster": {**found, **self.endpoints.get(each.name, {})}}
        raise ServiceError("ResourceNotFoundException", f"No cluster found for name: {values['name']}.")


def _get_usage_dimensions(service: str) -> dict[str, str]:
    return {**_USAGE, "Service": "EC2" if service == "ec2" else "Fargate"}
