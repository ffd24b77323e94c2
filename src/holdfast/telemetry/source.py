"""The interface between telemetry sources and the loop that collects their measurements. Pure.

There are two kinds of sources. A decoder gets what senders push, such as `sources/emf.py`: its `decode` returns a
SourceBatch. A polled source fetches measurements itself: the loop calls `poll` again and again. Polled sources register
with `SOURCES`, so that settings and the server find them by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast._plugins import Plugins
from holdfast._types import Zone
from holdfast.telemetry.bins import BinDelta, RequestRow


class SourceBatch(Struct):
    """The result of reading a source: measurements, and the numbers of records that it could not use."""

    deltas: list[BinDelta] = []
    requests: dict[int, list[RequestRow]] = {}
    """Single requests by the number of their bin, in addition to `deltas`."""
    accepted: int = 0
    """Number of records that were used."""
    refused: dict[str, int] = {}
    """Number of refused records by reason: a short fixed text such as `invalid` or `unknown_zone`."""
    problem: str | None = None
    """The first refusal in full: which record, what is wrong, what was expected."""
    oldest: float | None = None
    """Time of the oldest accepted record. Its age is the lag of the source."""

    def refuse(self, reason: str, problem: str) -> None:
        """Count a refused record."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self.problem = self.problem or problem


def count_server_errors(count_4xx: int, count_5xx: int, status: int | None = None) -> int:
    """Return how many requests of a record are faults if exactly those with 5xx are."""
    del count_4xx, status
    return count_5xx


@dataclass(frozen=True, slots=True)
class SourceWorkload:
    """A workload as sources need it: they refuse the measurements of all others."""

    name: str
    zones: frozenset[Zone]
    count_faults: Callable[[int, int, int | None], int] = count_server_errors
    """Returns how many requests of a record count against availability, given its numbers of 4xx and 5xx, and its
    status if the record has one."""


class Decoder(Protocol):
    """A source that gets what senders push."""

    def decode(self, body: bytes, now: float, *, allowed: frozenset[str] | None = None) -> SourceBatch:
        """Return the measurements in `body`. `allowed` has the workloads that the sender may report; None means all.

        Never raises, whatever the body contains: it counts what it cannot use.
        """


class PolledSource(Protocol):
    """A source that the loop polls."""

    @property
    def lateness(self) -> float:
        """How long after the end of a bin its measurements may arrive, in seconds: at most MAX_LATENESS."""

    @property
    def state(self) -> str:
        """The position after the last poll. The loop stores it, and passes it to the source after a restart."""

    def poll(self, now: float) -> SourceBatch:
        """Return the measurements since the last call. Returns quickly; raises HoldfastError or OSError to retry."""

    def close(self) -> None:
        """Release all resources. May be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """The values that polled sources get besides their own options."""

    workloads: Sequence[SourceWorkload]
    bin_seconds: float
    emf: Decoder
    """Decodes lines of embedded metric format with the server's mappings."""


class SourceType(Protocol):
    """The type of a polled source, as it registers with `SOURCES`."""

    @property
    def options_type(self) -> type[Struct]:
        """The options of an entry in the settings."""

    def __call__(self, options: Any, context: SourceContext, state: str) -> PolledSource:
        """Return a source that begins at `state`; "" means that it has never been polled."""


SOURCES: Plugins[SourceType] = Plugins(
    "telemetry source", package="holdfast.telemetry.sources", group="holdfast.telemetry_sources"
)


def parse_source_options(kind: str, options: Mapping[str, Any]) -> Struct:
    """Return the options of a source. Raise SettingsError if no source is called `kind`, InvalidValue for an option."""
    wanted = SOURCES.get(kind).options_type
    known = [field.name for field in msgspec.structs.fields(wanted)]
    for option in options:
        if option not in known:
            raise InvalidValue(f"options.{option}: unknown option of source {kind}, expected {', '.join(known)}")
    try:
        return msgspec.convert(options, wanted)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        raise InvalidValue(f"options{path and '.'}{path.rstrip('`')}: {problem}") from error


def open_source(kind: str, options: Mapping[str, Any], context: SourceContext, state: str = "") -> PolledSource:
    """Return the source called `kind`, which begins at `state`. Raise SettingsError or InvalidValue."""
    return SOURCES.get(kind)(parse_source_options(kind, options), context, state)
