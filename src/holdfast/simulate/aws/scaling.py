"""Application Auto Scaling of ECS services, and metrics of CloudWatch, in one account and region."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast._clock import Clock
from holdfast.simulate.aws.arc import Handler
from holdfast.simulate.aws.ecs import Ecs
from holdfast.simulate.aws.protocols import Refusal, ServiceError

SUSPENDED_KEYS = ("DynamicScalingInSuspended", "DynamicScalingOutSuspended", "ScheduledScalingSuspended")
DIMENSION = "ecs:service:DesiredCount"
PERIOD, MAX_QUERIES = 60, 500
"""Seconds of one datapoint, and the metrics of one call."""


@dataclass(slots=True)
class ScalableTarget:
    """The bounds of the number of tasks of an ECS service. Tests may change every field."""

    resource: str
    """Such as `service/cluster/name`."""
    min_capacity: int
    max_capacity: int
    suspended: dict[str, bool]
    created_at: float


class Scaling:
    """Application Auto Scaling of one account and region. The caller of the handlers holds a lock."""

    def __init__(self, clock: Clock, ecs: Ecs) -> None:
        self._clock, self._ecs = clock, ecs
        self.targets: dict[str, ScalableTarget] = {}
        """The scalable targets, by resource."""
        self.policies: list[dict[str, Any]] = []
        """Scaling policies, with the fields of DescribeScalingPolicies that differ."""
        self.scheduled_actions: list[dict[str, Any]] = []
        """Scheduled actions, in the same form. They are listed, but not carried out."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """All operations, by name."""
        return {
            "DescribeScalableTargets": self._list_targets,
            "RegisterScalableTarget": self._register,
            "DescribeScalingPolicies": lambda values: {"ScalingPolicies": _choose(self.policies, values)},
            "DescribeScheduledActions": lambda values: {"ScheduledActions": _choose(self.scheduled_actions, values)},
        }

    def add(self, resource: str, least: int, most: int, **suspended: bool) -> ScalableTarget:
        """Add a scalable target with bounds."""
        state = dict.fromkeys(SUSPENDED_KEYS, False) | suspended
        found = self.targets[resource] = ScalableTarget(resource, least, most, state, self._clock.wall())
        return found

    def add_policy(self, resource: str, metric: str, target_value: float, label: str = "") -> None:
        """Add a policy that tracks a predefined metric. `label` names a balancer and a target group."""
        specification = {"PredefinedMetricType": metric} | ({"ResourceLabel": label} if label else {})
        self.policies.append(
            {
                "PolicyARN": f"arn:aws:autoscaling:::scalingPolicy:{len(self.policies)}",
                "PolicyName": f"{metric}-{len(self.policies)}",
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": target_value,
                    "PredefinedMetricSpecification": specification,
                },
                **self._build_common(resource),
            }
        )

    def schedule(self, resource: str, schedule: str, action: Mapping[str, int], **fields: Any) -> None:
        """Add a scheduled action, which sets `MinCapacity` or `MaxCapacity`."""
        number = len(self.scheduled_actions)
        self.scheduled_actions.append(
            {
                "ScheduledActionName": f"action-{number}",
                "ScheduledActionARN": f"arn:aws:autoscaling:::scheduledAction:{number}",
                "Schedule": schedule,
                "ScalableTargetAction": dict(action),
                **self._build_common(resource),
                **fields,
            }
        )

    def _build_common(self, resource: str) -> dict[str, Any]:
        names = {"ServiceNamespace": "ecs", "ResourceId": resource, "ScalableDimension": DIMENSION}
        return {**names, "CreationTime": self._clock.wall()}

    def _list_targets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        chosen = values.get("ResourceIds")
        found = [
            {
                **self._build_common(each.resource),
                "MinCapacity": each.min_capacity,
                "MaxCapacity": each.max_capacity,
                "RoleARN": "arn:aws:iam::aws:role/simulated",
                "SuspendedState": dict(each.suspended),
                "CreationTime": each.created_at,
            }
            for _, each in sorted(self.targets.items())
            if not chosen or each.resource in chosen
        ]
        return {"ScalableTargets": found}

    def _register(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Change a target, or add it. As in AWS, a new one needs both bounds, and an omitted key is not suspended."""
        resource = values["ResourceId"]
        least, most = values.get("MinCapacity"), values.get("MaxCapacity")
        target = self.targets.get(resource)
        if target is None:
            if least is None or most is None:
                raise ServiceError("ValidationException", "ECS service doesn't exist, or it is not a scalable target")
            target = self.add(resource, least, most)
        least = target.min_capacity if least is None else least
        most = target.max_capacity if most is None else most
        if least > most:
            raise ServiceError("ValidationException", f"MinCapacity {least} is more than MaxCapacity {most}")
        target.min_capacity, target.max_capacity = least, most
        if "SuspendedState" in values:
            target.suspended = {each: values["SuspendedState"].get(each, False) for each in SUSPENDED_KEYS}
        for service in self._ecs.services.values():
            if resource == f"service/{service.cluster.rpartition('/')[2]}/{service.name}":
                service.desired = min(max(service.desired, least), most)  # AWS keeps the count within the bounds
        return {}


@dataclass(slots=True)
class Metrics:
    """The metrics of CloudWatch in one account and region. The caller of the handlers holds a lock."""

    series: dict[tuple[str, str, str, frozenset[tuple[str, str]]], dict[float, float]] = field(default_factory=dict)
    """Values by time, of each metric by its namespace, name, statistic and dimensions."""
    failing: set[str] = field(default_factory=set)
    """Names of metrics of which CloudWatch can read only a part."""
    chunk: int = 1000
    """Values of one metric in one result. AWS divides the values of a metric between pages, too."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """All operations, by name."""
        return {"GetMetricData": self._get_data}

    def add(
        self, namespace: str, name: str, statistic: str, dimensions: Mapping[str, str], values: Mapping[float, float]
    ) -> None:
        """Add values of a metric, by time."""
        self.series.setdefault((namespace, name, statistic, frozenset(dimensions.items())), {}).update(values)

    def _get_data(self, values: Mapping[str, Any]) -> dict[str, Any]:
        queries: Sequence[Mapping[str, Any]] = values["MetricDataQueries"]
        if len(queries) > MAX_QUERIES:
            raise ServiceError(Refusal.INVALID, f"{len(queries)} metrics are more than {MAX_QUERIES}")
        results = []
        for query in queries:
            found = sorted(
                self._find(query["MetricStat"], values["StartTime"], values["EndTime"]).items(), reverse=True
            )
            chunks = [found[start : start + self.chunk] for start in range(0, len(found), self.chunk)] or [[]]
            for number, chunk in enumerate(chunks, 1):
                results.append(
                    {
                        "Id": query["Id"],
                        "Label": query["MetricStat"]["Metric"]["MetricName"],
                        "Timestamps": [time for time, _ in chunk],
                        "Values": [value for _, value in chunk],
                        "StatusCode": self._get_status(query, is_last=number == len(chunks)),
                    }
                )
        return {"MetricDataResults": results}

    def _get_status(self, query: Mapping[str, Any], *, is_last: bool) -> str:
        if query["MetricStat"]["Metric"]["MetricName"] in self.failing:
            return "InternalError"
        return "Complete" if is_last else "PartialData"

    def _find(self, wanted: Mapping[str, Any], start: float, end: float) -> dict[float, float]:
        if wanted["Period"] != PERIOD:
            raise ServiceError(Refusal.INVALID, f"a period of {wanted['Period']} s is not simulated")
        metric = wanted["Metric"]
        dimensions = frozenset((each["Name"], each["Value"]) for each in metric.get("Dimensions", ()))
        found = self.series.get((metric["Namespace"], metric["MetricName"], wanted["Stat"], dimensions), {})
        return {time: value for time, value in found.items() if start <= time < end}


def _choose(items: Sequence[dict[str, Any]], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items of the resource that a call names; without a name, all of them."""
    return [each for each in items if values.get("ResourceId", each["ResourceId"]) == each["ResourceId"]]
