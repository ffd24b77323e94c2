"""AWS ARC zonal shift over HTTP, from the model of botocore, with the behaviour that AWS documents.

It validates requests by the model, and answers only with errors of the model. `faults` decides what goes wrong:
throttling, or lost replies. Everything else is in memory.
"""

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import botocore.session
from botocore.model import OperationModel
from botocore.validate import ParamValidator

from holdfast._clock import Clock
from holdfast._types import Zone

SERVICE = "arc-zonal-shift"
MAX_MINUTES = 72 * 60
PAGE = 100


class ArcError(Exception):
    """An error of the model, by its name, with its members."""

    def __init__(self, name: str, message: str, **members: str) -> None:
        super().__init__(message)
        self.name, self.members = name, {"message": message, **members}


class ReplyLost(Exception):
    """Raise it in `faults` to carry the call out, and then close the connection without a reply."""


@dataclass(slots=True)
class Shift:
    """A zonal shift, a practice run, or a FIS experiment."""

    id: str
    resource: str
    zone: Zone
    comment: str
    start: float
    expiry: float
    status: str = "ACTIVE"
    type: str = "ZONAL_SHIFT"

    def to_summary(self) -> dict[str, Any]:
        return {
            "zonalShiftId": self.id,
            "resourceIdentifier": self.resource,
            "awayFrom": self.zone,
            "expiryTime": self.expiry,
            "startTime": self.start,
            "status": self.status,
            "comment": self.comment,
        }


@dataclass(slots=True)
class ManagedResource:
    """A balancer, an Auto Scaling group or a cluster that has zonal shift enabled."""

    arn: str
    name: str
    zones: tuple[Zone, ...]
    autoshift: Zone | None = None
    """The zone that AWS has shifted traffic away from."""


@dataclass(slots=True)
class Arc:
    """The state of ARC in one account and region."""

    clock: Clock
    resources: dict[str, ManagedResource] = field(default_factory=dict)
    shifts: list[Shift] = field(default_factory=list)
    faults: Callable[[str], None] = lambda _: None
    """Called with the name of each operation before it is carried out. It may raise ArcError or ReplyLost."""
    page: int = PAGE
    calls: deque[str] = field(default_factory=lambda: deque(maxlen=100_000))
    _lock: Any = field(default_factory=threading.RLock)

    def add(self, arn: str, *zones: Zone, name: str = "") -> ManagedResource:
        """Add a resource that has zonal shift enabled."""
        found = self.resources[arn] = ManagedResource(arn, name or arn.rpartition("/")[2], zones)
        return found

    def start_shift(self, arn: str, zone: Zone, comment: str, *, minutes: int = 60, type: str = "ZONAL_SHIFT") -> Shift:  # noqa: A002
        """Start a shift as somebody else would."""
        now = self.clock.wall()
        shift = Shift(f"shift-{len(self.shifts):06}", arn, zone, comment, now, now + 60 * minutes, type=type)
        self.shifts.append(shift)
        return shift

    def get_active(self, arn: str) -> Shift | None:
        """Return the active shift of a resource."""
        self._expire()
        found = [each for each in self.shifts if each.resource == arn and each.status == "ACTIVE"]
        return max(found, key=lambda each: _PRECEDENCE.index(each.type), default=None)

    def call(self, operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one operation."""
        with self._lock:
            self._expire()
            return _OPERATIONS[operation](self, values)

    def _expire(self) -> None:
        now = self.clock.wall()
        for each in self.shifts:
            if each.status == "ACTIVE" and now >= each.expiry:
                each.status = "EXPIRED"

    def _find(self, arn: str) -> ManagedResource:
        if arn not in self.resources:
            raise ArcError("ResourceNotFoundException", f"{arn} is not a managed resource")
        return self.resources[arn]

    def _find_shift(self, shift_id: str) -> Shift:
        for each in self.shifts:
            if each.id == shift_id:
                return each
        raise ArcError("ResourceNotFoundException", f"there is no zonal shift {shift_id}")

    def _summarize(self, resource: ManagedResource) -> dict[str, Any]:
        shift = self.get_active(resource.arn)
        away = shift.zone if shift is not None else resource.autoshift
        shifts = [] if shift is None else [_to_part(shift)]
        autoshifts = []
        if resource.autoshift is not None:
            applied = "NOT_APPLIED" if shift is not None and shift.type == "ZONAL_SHIFT" else "APPLIED"
            autoshifts = [{"appliedStatus": applied, "awayFrom": resource.autoshift, "startTime": self.clock.wall()}]
        return {
            "arn": resource.arn,
            "name": resource.name,
            "availabilityZones": list(resource.zones),
            "appliedWeights": {zone: 0.0 if zone == away else 1.0 for zone in resource.zones},
            "zonalShifts": shifts,
            "autoshifts": autoshifts,
        }

    def _list_resources(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._page([self._summarize(each) for _, each in sorted(self.resources.items())], values)

    def _get_resource(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = self._summarize(self._find(values["resourceIdentifier"]))
        del found["availabilityZones"]
        return found

    def _list_shifts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        wanted, arn = values.get("status"), values.get("resourceIdentifier")
        found = [
            each.to_summary() | {"shiftType": each.type}
            for each in self.shifts
            if wanted in (None, each.status) and arn in (None, each.resource)
        ]
        return self._page(found, values)

    def _list_autoshifts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        zones = sorted({each.autoshift for each in self.resources.values() if each.autoshift is not None})
        found = [{"awayFrom": zone, "startTime": self.clock.wall(), "status": "ACTIVE"} for zone in zones]
        return self._page([] if values.get("status") == "COMPLETED" else found, values)

    def _start(self, values: Mapping[str, Any]) -> dict[str, Any]:
        resource = self._find(values["resourceIdentifier"])
        if values["awayFrom"] not in resource.zones:
            raise ArcError("ValidationException", f"{resource.arn} is not in that zone", reason="UnsupportedAz")
        minutes = _parse_minutes(values["expiresIn"])
        active = self.get_active(resource.arn)
        if active is not None and active.type == "ZONAL_SHIFT":
            raise ArcError(
                "ConflictException",
                f"{resource.arn} has a zonal shift already",
                reason="ZonalShiftAlreadyExists",
                zonalShiftId=active.id,
            )
        if active is not None:
            active.status = "CANCELED"  # a customer's shift ends a practice run
        return self.start_shift(resource.arn, values["awayFrom"], values["comment"], minutes=minutes).to_summary()

    def _update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        shift = self._require_active(values)
        if "comment" in values:
            shift.comment = values["comment"]
        if "expiresIn" in values:
            shift.expiry = self.clock.wall() + 60 * _parse_minutes(values["expiresIn"])
        return shift.to_summary()

    def _cancel(self, values: Mapping[str, Any]) -> dict[str, Any]:
        shift = self._require_active(values)
        shift.status = "CANCELED"
        return shift.to_summary()

    def _require_active(self, values: Mapping[str, Any]) -> Shift:
        shift = self._find_shift(values["zonalShiftId"])
        if shift.status != "ACTIVE":
            text = f"zonal shift {shift.id} is {shift.status}"
            raise ArcError("ConflictException", text, reason="ZonalShiftStatusNotActive", zonalShiftId=shift.id)
        return shift

    def _page(self, items: list[dict[str, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
        start, size = int(values.get("nextToken", 0)), min(int(values.get("maxResults", PAGE)), self.page)
        end = start + size
        return {"items": items[start:end]} | ({"nextToken": str(end)} if end < len(items) else {})


_PRECEDENCE = ("FIS_EXPERIMENT", "PRACTICE_RUN", "ZONAL_AUTOSHIFT", "ZONAL_SHIFT")
_OPERATIONS: dict[str, Callable[[Arc, Mapping[str, Any]], dict[str, Any]]] = {
    "ListManagedResources": Arc._list_resources,  # noqa: SLF001 - its own class
    "GetManagedResource": Arc._get_resource,  # noqa: SLF001
    "ListZonalShifts": Arc._list_shifts,  # noqa: SLF001
    "ListAutoshifts": Arc._list_autoshifts,  # noqa: SLF001
    "StartZonalShift": Arc._start,  # noqa: SLF001
    "UpdateZonalShift": Arc._update,  # noqa: SLF001
    "CancelZonalShift": Arc._cancel,  # noqa: SLF001
}


def _to_part(shift: Shift) -> dict[str, Any]:
    summary = shift.to_summary() | {"appliedStatus": "APPLIED", "shiftType": shift.type}
    del summary["status"]
    return summary


def _parse_minutes(text: str) -> int:
    minutes = int(text[:-1]) * (60 if text.endswith("h") else 1)
    if minutes > MAX_MINUTES:
        raise ArcError("ValidationException", f"{text} is longer than three days", reason="InvalidExpiresIn")
    return minutes


@contextmanager
def serve(arc: Arc) -> Iterator[str]:
    """Serve ARC on a port of the loopback interface. Yield its address."""
    model = botocore.session.Session().get_service_model(SERVICE)
    routes = [_build_route(model.operation_model(name)) for name in _OPERATIONS]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write nothing to standard error."""

        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            parts = urlsplit(self.path)
            try:
                operation, values = _find_operation(routes, self.command, parts.path)
                values |= dict(parse_qsl(parts.query)) | body
                _validate(operation, values)
                arc.calls.append(operation.name)
                is_lost = False
                try:
                    arc.faults(operation.name)
                except ReplyLost:
                    is_lost = True
                reply = arc.call(operation.name, values)
                if is_lost:
                    self.close_connection = True
                    return
                self.reply(operation.http["responseCode"], reply)
            except ArcError as error:
                status = model.shape_for(error.name).metadata["error"]["httpStatusCode"]
                self.reply(status, error.members, {"x-amzn-errortype": error.name})

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - names of the standard library

        def reply(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {
                "content-type": "application/json",
                "content-length": str(len(data)),
                **(headers or {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Route = tuple[OperationModel, str, "re.Pattern[str]"]


def _build_route(operation: OperationModel) -> Route:
    path = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(operation.http["requestUri"]))
    return operation, operation.http["method"], re.compile(path)


def _find_operation(routes: list[Route], method: str, path: str) -> tuple[OperationModel, dict[str, Any]]:
    for operation, wanted, pattern in routes:
        found = pattern.fullmatch(path)
        if wanted == method and found:
            return operation, {name: unquote(value) for name, value in found.groupdict().items()}
    raise ArcError("ValidationException", f"there is no operation {method} {path}", reason="InvalidStatus")


def _validate(operation: OperationModel, values: dict[str, Any]) -> None:
    shape: Any = operation.input_shape
    if "maxResults" in values:
        values["maxResults"] = int(values["maxResults"])
    problems = ParamValidator().validate(values, shape)
    if problems.has_errors():
        raise ArcError("ValidationException", problems.generate_report(), reason="MissingValue")
    for name, value in values.items():
        member = shape.members[name]
        pattern, longest = member.metadata.get("pattern"), member.metadata.get("max")
        if isinstance(value, str) and (
            (pattern and not re.fullmatch(pattern, value))
            or (longest and len(value) > longest)
            or (member.enum and value not in member.enum)
        ):
            raise ArcError("ValidationException", f"{name} is {value!r}", reason="InvalidExpiresIn")
