"""The messages between the server and its detection process. Pure.

A message is a MessagePack structure behind its length in four bytes. Both sides ask and answer: an Answer has the
number of its question.
"""

import struct
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, msgpack

from holdfast._errors import Conflict, EngineError, EngineUnavailable, HoldfastError, InvalidValue, LeaseLost, NotFound
from holdfast._types import Verdict, Zone, ZoneState
from holdfast.telemetry.collector import Arrivals
from holdfast.telemetry.query import SeriesQuery
from holdfast.telemetry.source import SourceBatch

LENGTH = struct.Struct(">I")
MAX_BODY_BYTES = 8 << 20
"""Maximum size of a telemetry body after it is decompressed: eight times the maximum of a request."""


class IngestResult(Struct, frozen=True):
    """The result of a request with telemetry. A refused record does not affect the others."""

    accepted: int
    """Number of valid records, including those that arrived too late to be stored."""
    refused: int
    reason: str | None = None
    """Reason for the first refused record."""
    refused_by_reason: Mapping[str, int] = {}
    late: int = 0
    """Requests that arrived after their bin was judged: stored, but not part of a verdict."""
    too_late: int = 0
    """Requests that arrived too late to be stored."""
    too_early: int = 0
    """Requests that are dated in the future. Records of embedded metric format are refused instead."""
    overflowed: int = 0
    """Requests counted as `other`, because the workload has too many operations or instances."""
    is_duplicate: bool = False
    """Whether the batch had arrived before. Then nothing was added, and the counts are those of the first time."""
    lag: float | None = None
    """Age of the oldest accepted record, in seconds."""


def build_result(batch: SourceBatch, arrivals: Arrivals, now: float) -> IngestResult:
    """Return the result of a batch that arrived at `now`."""
    return IngestResult(
        accepted=batch.accepted,
        refused=sum(batch.refused.values()),
        reason=batch.problem,
        refused_by_reason=batch.refused,
        late=arrivals.late,
        too_late=arrivals.too_late,
        too_early=arrivals.too_early,
        overflowed=arrivals.overflowed,
        lag=None if batch.oldest is None else max(0.0, now - batch.oldest),
    )


class Start(Struct, tag=True):
    """The first message to the child."""

    settings: bytes
    """The settings, pickled: they contain values of many types, and come from the same program."""
    lease: int | None = None
    """The number of the lease that allows this server to evaluate; None if there is no lease."""


class Ready(Struct, tag=True):
    """The child has loaded its state, and accepts questions."""


class Ingest(Struct, tag=True):
    """Telemetry of a sender. The answer is an IngestResult."""

    number: int
    body: bytes
    is_gzip: bool
    sender: str
    """The id of the sender's credential."""
    allowed: list[str] | None
    """The workloads that the sender may report; None means all."""
    batch: str | None
    """An id that is the same when a sender repeats a request. None if the sender gives none."""


class Query(Struct, tag=True):
    """A question about measurements. The answer is a SeriesAnswer as JSON."""

    number: int
    query: SeriesQuery


class ReadStates(Struct, tag=True):
    """The child asks for the states of a workload's zones that are not in."""

    number: int
    workload: str


class Evacuate(Struct, tag=True):
    """The child asks to act on a verdict."""

    number: int
    verdict: Verdict
    zones: list[Zone]


POLLED = "polled"
"""Name of an event with an IngestResult: what a polled source has read."""


class Event(Struct, tag=True):
    """An event of the detection loop, as JSON."""

    name: str
    content: bytes


class Answer(Struct, tag=True):
    """The answer to a question, or its error."""

    number: int
    content: bytes = b""
    """MessagePack or JSON, as the question says."""
    error: str | None = None
    """The `slug` of the error."""
    detail: str = ""


ToChild: TypeAlias = Start | Ingest | Query | Answer
FromChild: TypeAlias = Ready | ReadStates | Evacuate | Event | Answer
States: TypeAlias = dict[Zone, ZoneState]

_to_child = msgpack.Decoder(ToChild)
_from_child = msgpack.Decoder(FromChild)


def encode_message(message: ToChild | FromChild) -> bytes:
    """Return a message with its length in front."""
    content = msgpack.encode(message)
    return LENGTH.pack(len(content)) + content


def decode_to_child(content: bytes) -> ToChild:
    """Return a message of the server."""
    message: ToChild = _to_child.decode(content)
    return message


def decode_from_child(content: bytes) -> FromChild:
    """Return a message of the child."""
    message: FromChild = _from_child.decode(content)
    return message


_ERRORS = {kind.slug: kind for kind in (Conflict, EngineUnavailable, InvalidValue, LeaseLost, NotFound)}
"""The errors that the asking side handles; all others become EngineError."""


def build_error_answer(number: int, error: Exception) -> Answer:
    """Return the answer to a question that failed."""
    slug = error.slug if isinstance(error, HoldfastError) else EngineError.slug
    return Answer(number, error=slug, detail=str(error))


def get_content(answer: Answer) -> bytes:
    """Return the content of an answer, or raise its error."""
    if answer.error is not None:
        raise _ERRORS.get(answer.error, EngineError)(answer.detail)
    return answer.content
