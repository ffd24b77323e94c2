"""The settings of a workload's alarms."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from holdfast._alarm_options import AlarmOptions
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
    zone: str | None = None
    """The zone that its active instance is in. Holdfast cannot see a failover, so it may be left out."""

    def __post_init__(self) -> None:
        _check_operations(self.operations)


class AlarmSettings(AlarmOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a workload's alarms, its operations and its shared resources."""

    operations: tuple[str, ...] = ()
    """The operations that have alarms, as `service/name`. Empty means all that are measured."""
    resource: tuple[ResourceSettings, ...] = ()

    def __post_init__(self) -> None:
        AlarmOptions.__post_init__(self)
        _check_operations(self.operations)
        require_unique_names("resource", [resource.name for resource in self.resource])

    def require_zones(self, zones: Sequence[str]) -> None:
        """Raise InvalidValue if a resource is in a zone that is not one of the workload."""
        for index, each in enumerate(self.resource):
            if each.zone is not None and each.zone not in zones:
                expected = f"expected one of {', '.join(zones)}"
                raise InvalidValue(f"alarms.resource[{index}].zone: no zone {each.zone} of the workload: {expected}")

    def to_declaration(self, workload: str, region: str, zones: Sequence[str]) -> "AlarmDeclaration":
        """Return the declaration that the alarms of a workload are generated from."""
        from holdfast.alarms.declaration import AlarmDeclaration  # imports NumPy

        options = {name: getattr(self, name) for name in AlarmOptions.__struct_fields__}
        return AlarmDeclaration(
            workload=workload,
            region=region,
            zones=tuple(map(Zone, zones)),
            options=AlarmOptions(**options),
            operations=tuple(map(parse_operation, self.operations)),
            resources=tuple((each.name, tuple(map(parse_operation, each.operations))) for each in self.resource),
            resource_zones={each.name: Zone(each.zone) for each in self.resource if each.zone is not None},
        )


def _check_operations(operations: Sequence[str]) -> None:
    for each in operations:
        try:
            parse_operation(each)
        except InvalidValue as error:
            raise InvalidValue(f"operations: {error}") from error
    require_unique_names("alarm", operations, "operation")
