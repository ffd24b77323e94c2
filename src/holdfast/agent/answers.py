"""What the agent answers over HTTP. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast._types import Zone

if TYPE_CHECKING:
    from holdfast.agent.state import State
    from holdfast.status import Heard

_STATUS = "/status/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is to tell: the state, and how fresh it is."""

    state: "State"
    age: float | None
    """Seconds since enough sources were heard; None before the first time."""
    sources: "Sequence[Heard]"
    period: float
    """Seconds between two looks: asking again sooner is of no use."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code, a JSON document, and headers beside the usual ones."""

    status: int
    document: Any
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> bytes:
        return msgspec.json.encode(self.document)


def told(status: int, detail: str, *headers: tuple[str, str]) -> Answer:
    """An answer that only says how it went."""
    return Answer(status, {"detail": detail}, headers)


def answer(method: str, target: str, known: Known) -> Answer:
    """The answer to a question; 404 for everything that is none."""
    path = path_of(target)
    if method not in ("GET", "HEAD") or path is None:
        return told(404, "there is nothing here")
    state = known.state
    fresh = () if known.age is None else (("Age", str(int(known.age))),)
    if path == "/health":
        again = (("Retry-After", str(math.ceil(known.period))),) if state.is_out else ()
        return Answer(503 if state.is_out else 200, _one(state, state.zone), (*again, *fresh))
    if path == "/":
        heard = [{"name": source.name, "age": _seconds(source.age)} for source in known.sources]
        return Answer(200, {**state.facts(), "age": _seconds(known.age), "sources": heard}, fresh)
    zone = Zone(path.removeprefix(_STATUS))
    if path.startswith(_STATUS) and zone and "/" not in zone:
        return Answer(500 if zone in state.out else 200, _one(state, zone), fresh)
    return told(404, "there is nothing here")


def path_of(target: str) -> str | None:
    """The path that a request names; None if it names none."""
    try:
        return unquote(urlsplit(target).path)
    except ValueError:
        return None


def _one(state: "State", zone: Zone) -> dict[str, Any]:
    return {"zone": zone, "workload": state.workload, "out": zone in state.out}


def _seconds(age: float | None) -> float | None:
    return None if age is None else round(age, 3)
