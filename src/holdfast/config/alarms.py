"""The settings of a workload's alarms."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from holdfast._errors import InvalidValue
from holdfast._names import parse_operation
from holdfast._types import Zone
from holdfast.config.queues import require_unique_names

if TYPE_CHECKING:
    from holdfast.alarms.declaration import AlarmDeclaration


class ResourceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A resource that has one active instance, in one zone, and that all zones use: a primary database, a cache."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+$", max_length=64)]
    """Its alarm is called `<name>-impact`."""
    operations: Annotated[tuple[str, ...], Meta(min_length=1, max_length=20)]
    """The operations by which consumers use it, as they measure them on the client side, such as `orders-db/query`."""

    def __post_init__(self) -> None:
        _check_operations(self.operations)


class AlarmSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The thresholds of a workload's alarms. `holdfast.alarms.AlarmOptions` has the same defaults."""

    period: Literal[10, 60] = 60
    """A minute, as in CloudWatch: every alarm can be exported. With 10, alarms are six times as quick."""
    min_availability: Annotated[float, Meta(gt=0, le=100)] = 99.0
    """One failed request of a hundred. Healthy services stay well below that."""
    latency_statistic: Annotated[str, Meta(pattern=r"^(Average|Minimum|Maximum|(p|tm|wm)[0-9][0-9]?([.][0-9]+)?)$")] = (
        "p90"
    )
    """The 90th percentile shows slowness that the mean hides, and ignores a few outliers."""
    max_latency: Annotated[float, Meta(gt=0, le=3600)] = 0.5
    """People notice longer waits."""
    contributors: Annotated[int, Meta(ge=0, le=100_000)] = 2
    """Up to two instances may be replaced; more of them hint at the zone."""
    contributor_share: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    """In a large zone a few instances are always bad."""
    throughput_drop: Annotated[float, Meta(gt=0, le=100)] = 50.0
    """With two zones, the return of one halves the share of the other: that is no drop of more than 50 %."""
    chi_squared_periods: Annotated[int, Meta(ge=1, le=60)] = 1
    """One period finds an outlier soonest. With rare faults, several together are more certain."""
    operations: tuple[str, ...] = ()
    """The operations that have alarms, as `service/name`. Empty means all that are measured."""
    resource: tuple[ResourceSettings, ...] = ()

    def __post_init__(self) -> None:
        _check_operations(self.operations)
        require_unique_names("resource", [resource.name for resource in self.resource])

    def to_declaration(self, workload: str, region: str, zones: Sequence[str]) -> "AlarmDeclaration":
        """Return the declaration that the alarms of a workload are generated from."""
        from holdfast.alarms.declaration import AlarmDeclaration, AlarmOptions  # imports NumPy

        options = asdict(self)
        del options["operations"], options["resource"]
        return AlarmDeclaration(
            workload=workload,
            region=region,
            zones=tuple(map(Zone, zones)),
            options=AlarmOptions(**options),
            operations=tuple(map(parse_operation, self.operations)),
            resources=tuple((each.name, tuple(map(parse_operation, each.operations))) for each in self.resource),
        )


def _check_operations(operations: Sequence[str]) -> None:
    for each in operations:
        try:
            parse_operation(each)
        except InvalidValue as error:
            raise InvalidValue(f"operations: {error}") from error
    require_unique_names("alarm", operations, "operation")
