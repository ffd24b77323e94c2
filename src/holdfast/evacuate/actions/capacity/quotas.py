"""Find how large services may become within the vCPU quotas of an account.

AWS limits the vCPUs of On-Demand instances of the usual families, and those of Fargate tasks, in each account and
region. Groups of other families, with Spot or mixed instances, and tasks on instances have other limits, which are not
looked at.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast._errors import EngineError, HoldfastError
from holdfast.evacuate.actions.capacity.needs import PERIOD, Metric, read_series
from holdfast.evacuate.actions.capacity.services import ScaledService
from holdfast.evacuate.refusals import translate_refusals

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = (
    "cloudwatch:GetMetricData",
    "ec2:DescribeInstanceTypes",
    "ecs:DescribeTaskDefinition",
    "servicequotas:GetServiceQuota",
)
_INSTANCES, _FARGATE = ("ec2", "L-1216C47A"), ("fargate", "L-3032A538")
"""The service and the code of the quotas: standard On-Demand instances, and Fargate tasks."""
_STANDARD = {"a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"}
"""The families of instance types that share the first quota, as they begin."""
_USAGE_SECONDS = 3600.0
"""AWS records the usage of a quota every five minutes. The highest one of an hour counts."""


class SizeLimit(NamedTuple):
    """The largest size of a service, and why."""

    size: int
    reason: str


@dataclass(slots=True)
class _Quota:
    limit: float
    used: float
    """The vCPUs that are used now, and those that services of the plan add."""


class Quotas:
    """The vCPU quotas of one account and region. Reads them when the first service must grow."""

    def __init__(self, session: "AwsSession", now: float) -> None:
        self._session = session
        self._now = now
        self._quotas: dict[tuple[str, str], _Quota | None] = {}
        self._vcpus: dict[str, float] = {}
        """The vCPUs of one unit, by the ARN of the service."""
        self.problems: set[str] = set()

    def find_limit(self, service: ScaledService) -> SizeLimit | None:
        """Return the largest size that the quota of a service allows; None if no quota is known."""
        key = _find_quota(service)
        if key is None:
            return None
        try:
            with translate_refusals(self._session):
                if key not in self._quotas:
                    self._quotas[key] = self._read(*key)
                if self._quotas[key] is None:
                    return None
                vcpus = self._vcpus[service.arn] = self._count_vcpus(service)
        except HoldfastError as error:
            self.problems.add(f"vCPU quotas cannot be read, so they do not limit `scale_out_first`: {error}")
            self._quotas[key] = None  # do not ask again for each service
            return None
        quota = self._quotas[key]
        if quota is None or not vcpus:
            return None
        size = service.desired + int(max(quota.limit - quota.used, 0.0) / vcpus)
        return SizeLimit(size, f"a quota of {quota.limit:,g} vCPUs, of which {quota.used:,g} are used")

    def take(self, service: ScaledService, size: int) -> None:
        """Count the units that a service adds, because other services share its quota."""
        key = _find_quota(service)
        quota = None if key is None else self._quotas.get(key)
        if quota is not None:
            quota.used += max(size - service.desired, 0) * self._vcpus.get(service.arn, 0.0)

    def _read(self, service: str, code: str) -> _Quota | None:
        """Return a quota; None if AWS does not record how much of it is used."""
        client = self._session.client("service-quotas")
        found = client.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
        usage = found.get("UsageMetric")
        if usage is None:
            return None
        metric = Metric(
            usage["MetricNamespace"],
            usage["MetricName"],
            usage.get("MetricStatisticRecommendation", "Maximum"),
            tuple(sorted(usage.get("MetricDimensions", {}).items())),
        )
        end = self._now - self._now % PERIOD
        problems: list[str] = []
        series = read_series(self._session, [metric], end - _USAGE_SECONDS, end, problems).get(metric)
        if problems:
            raise EngineError(problems[0])
        return None if series is None else _Quota(found["Value"], max(series.values()))

    def _count_vcpus(self, service: ScaledService) -> float:
        """Return the vCPUs of one unit: of the largest type of instance that it has, or of a task."""
        if service.task_definition:
            client = self._session.client("ecs")
            found = client.describe_task_definition(taskDefinition=service.task_definition)["taskDefinition"]
            return int(found.get("cpu", 0)) / 1024
        types = self._session.paginate("ec2", "describe_instance_types", InstanceTypes=list(service.instance_types))
        return float(max((each["VCpuInfo"]["DefaultVCpus"] for each in types), default=0)) / service.load.weight


def _find_quota(service: ScaledService) -> tuple[str, str] | None:
    """Return the quota that limits a service; None if it is not known."""
    if service.task_definition:
        return _FARGATE
    families = {found[0] for each in service.instance_types if (found := re.match("[a-z]+", each))}
    return _INSTANCES if families and families <= _STANDARD else None
