"""The agent's responses over HTTP. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast._types import Zone

if TYPE_CHECKING:
    from holdfast.agent.state import AgentState
    from holdfast.status import SourceHealth

_STATUS = "/status/"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSnapshot:
    """The agent's state, and how current it is."""

    state: "AgentState"
    age: float | None
    """Seconds since a majority of the sources last answered; None if it never has."""
    sources: "Sequence[SourceHealth]"
    poll_interval: float
    """Seconds between two polls: asking again sooner is useless."""


@dataclass(frozen=True, slots=True)
class Response:
    """A status code, a JSON document, and additional headers."""

    status: int
    document: Any
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> bytes:
        return msgspec.json.encode(self.document)


def build_detail(status: int, detail: str, *headers: tuple[str, str]) -> Response:
    """Return a response that only carries a text."""
    return Response(status, {"detail": detail}, headers)


def build_response(method: str, target: str, snapshot: AgentSnapshot) -> Response:
    """Return the response to a request; 404 for an unknown method or path."""
    path = parse_path(target)
    if method not in ("GET", "HEAD") or path is None:
        return build_detail(404, "not found")
    state = snapshot.state
    fresh = () if snapshot.age is None else (("Age", str(int(snapshot.age))),)
    if path == "/health":
        retry_after = (("Retry-After", str(math.ceil(snapshot.poll_interval))),) if state.is_out else ()
        return Response(503 if state.is_out else 200, _describe_zone(state, state.zone), (*retry_after, *fresh))
    if path == "/":
        sources = [{"name": source.name, "age": _round_age(source.age)} for source in snapshot.sources]
        return Response(200, {**state.to_document(), "age": _round_age(snapshot.age), "sources": sources}, fresh)
    zone = Zone(path.removeprefix(_STATUS))
    if path.startswith(_STATUS) and zone and "/" not in zone:
        return Response(500 if zone in state.zones_out else 200, _describe_zone(state, zone), fresh)
    return build_detail(404, "not found")


def parse_path(target: str) -> str | None:
    """Return the path of a request target, or None if it has none."""
    try:
        return unquote(urlsplit(target).path)
    except ValueError:
        return None


def _describe_zone(state: "AgentState", zone: Zone) -> dict[str, Any]:
    return {"zone": zone, "workload": state.workload, "out": zone in state.zones_out}


def _round_age(age: float | None) -> float | None:
    return None if age is None else round(age, 3)
