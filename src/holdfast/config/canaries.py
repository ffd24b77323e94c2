"""The settings of canaries: the operations that `holdfast canary` probes in each zone of a workload."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import fields

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Operation, Zone

if TYPE_CHECKING:
    from holdfast.canary.probe import Check, Probe

_OPERATION = re.compile(r"[^/\x00-\x20\x7f]+/[^\x00-\x20\x7f]+")
_HTTP_ONLY = ("method", "path", "status", "text", "headers")


class HeaderValue:
    """The value of a header. `str` and `repr` mask it, because it may be a credential; `reveal` does not."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the value, to send it."""
        return self._text

    def __str__(self) -> str:
        return "****"

    def __repr__(self) -> str:
        return "HeaderValue('****')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeaderValue) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class CanarySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation of a workload that canaries probe, at one endpoint in each zone."""

    operation: str
    """Service and name, such as `Home/Index`, as in the telemetry of the service."""
    endpoint: str | dict[str, str]
    """Text with `{zone}`, or a table of addresses by zone: the zonal names of AWS contain names of zones, no AZ-IDs."""
    kind: Literal["http", "tcp", "python"] = "http"
    """HTTP, because it shows what clients see: a port that accepts connections proves little."""
    method: Literal["GET", "HEAD", "POST"] = "GET"
    path: str = "/"
    status: Annotated[int, Meta(ge=200, le=599)] = 200
    text: str | None = None
    headers: dict[str, HeaderValue] = {}
    function: str | None = None
    """For kind `python`: MODULE:FUNCTION."""
    interval: Annotated[float, Meta(ge=1, le=3600)] = 10.0
    """One probe in each bin of ten seconds: with fewer, bins would be empty. More would add load, but no earlier
    verdict."""
    timeout: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """Half of the interval: a probe ends before the next begins, and in the bin in which it began."""

    def __post_init__(self) -> None:
        if not _OPERATION.fullmatch(self.operation):
            raise InvalidValue(f"operation: expected SERVICE/NAME, such as Home/Index, found {self.operation!r}")
        if self.timeout >= self.interval:
            raise InvalidValue(
                f"timeout: expected less than the interval, {self.interval:g}, so that a probe ends before the next "
                f"begins, found {self.timeout:g}"
            )
        if (self.function is not None) != (self.kind == "python"):
            raise InvalidValue('function: needed with kind = "python", and only then; such as checks:checkout')
        if self.function is not None and not all(self.function.partition(":")):
            raise InvalidValue(f"function: expected MODULE:FUNCTION, such as checks:checkout, found {self.function!r}")
        if self.kind != "http":
            for field in fields(type(self)):
                if field.name in _HTTP_ONLY and getattr(self, field.name) not in (field.default, {}):
                    raise InvalidValue(f'{field.name}: expected it only with kind = "http", and not "{self.kind}"')
        check = self._build_check(lambda _: bool)  # the function itself is imported only to probe
        self._check_endpoint(check)

    def _check_endpoint(self, check: "Check") -> None:
        addresses = self.endpoint
        if isinstance(addresses, str):
            if "{zone}" not in addresses or set("{}") & set(addresses.replace("{zone}", "")):
                raise InvalidValue(
                    f"endpoint: expected text with {{zone}}, and no other braces, or a table with an address for each "
                    f"zone, found {addresses!r}"
                )
            addresses = {"use1-az1": addresses.replace("{zone}", "use1-az1")}
        if not addresses:
            raise InvalidValue("endpoint: expected text with {zone}, or an address for at least one zone")
        for zone, address in addresses.items():
            try:
                parse_zone(zone)
                check.check_address(address)
            except InvalidValue as error:
                raise InvalidValue(f"endpoint: {error}") from error

    def require_zones(self, zones: tuple[str, ...]) -> None:
        """Raise InvalidValue if the table of endpoints has a zone that is not one of `zones`."""
        unknown = [] if isinstance(self.endpoint, str) else [zone for zone in self.endpoint if zone not in zones]
        if unknown:
            raise InvalidValue(f"canary: {self.operation} has an endpoint in {unknown[0]}, which is not in zones")

    def to_probes(self, workload: str, zones: tuple[str, ...]) -> "list[Probe]":
        """Return a probe for each of the zones that has an endpoint.

        Import the function of kind `python`. Raise InvalidValue if that fails.
        """
        from holdfast.canary import Probe

        service, _, name = self.operation.partition("/")
        check = self._build_check(_import_function)
        return [
            Probe(
                workload=workload,
                operation=Operation(service, name),
                zone=Zone(zone),
                address=address,
                check=check,
                interval=self.interval,
                timeout=self.timeout,
            )
            for zone in zones
            if (address := self._find_address(zone)) is not None
        ]

    def _find_address(self, zone: str) -> str | None:
        if isinstance(self.endpoint, str):
            return self.endpoint.replace("{zone}", zone)
        return self.endpoint.get(zone)

    def _build_check(self, find_function: Callable[[str], Callable[[str], object]]) -> "Check":
        from holdfast.canary import HttpCheck, PythonCheck, TcpCheck  # needed only if canaries are configured

        if self.kind == "tcp":
            return TcpCheck()
        if self.function is not None:
            return PythonCheck(find_function(self.function))
        headers = {name: value.reveal() for name, value in self.headers.items()}
        return HttpCheck(method=self.method, path=self.path, status=self.status, text=self.text, headers=headers)


def _import_function(target: str) -> Callable[[str], object]:
    from holdfast._imports import import_target

    module, name = import_target(target, noun="FUNCTION", example="checks:checkout")
    function: object = getattr(module, name, None)
    if not callable(function):
        raise InvalidValue(f"{target}: there is no function {name!r} in {module.__name__}; expected MODULE:FUNCTION")
    return function
