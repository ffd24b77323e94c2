"""Dead letters over HTTP: read by viewers, redriven or discarded by operators."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from litestar import Request, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast._errors import Conflict
from holdfast._names import check_queue_name
from holdfast._types import MAX_TENANT_BYTES
from holdfast.queue.backend import DeadLetter, DeadLetterQuery
from holdfast.server.routes.parameters import (
    CHANGE_OPTIONS,
    MAX_TIME,
    NO_NUL,
    QUERY_TEXT_SCHEMA,
    READ_OPTIONS,
    QueueName,
    TenantName,
    Time,
    check_query_text,
    log_change,
    parse_tenant,
    with_strict_query,
)
from holdfast.server.state import ServerState

MAX_LETTERS = 100
"""Maximum dead letters in one answer: each may be as long as a message, plus its traceback."""
MAX_REDRIVEN = 1000
"""Maximum dead letters redriven per request (one transaction)."""
MAX_ID = (1 << 53) - 1
"""Maximum id in a query: greater than that of any message, and exact in every JSON parser."""
_NO_MESSAGE = 0
"""An id that no message has."""
Filter: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_TENANT_BYTES, pattern=NO_NUL)]


class DeadLetterItem(Struct, frozen=True, kw_only=True):
    """A message that was buried, with the reason."""

    id: int
    tenant: str
    priority: int
    group: str | None
    attempts: int
    sent_at: float
    buried_at: float
    reason: str
    detail: str
    """The traceback, if there is one."""
    trace: str
    size: int
    """Size of the body in bytes."""
    base64: str | UnsetType = UNSET
    """The body."""


class DeadLetterPage(Struct, frozen=True):
    """Dead letters, in the order of their ids."""

    letters: Sequence[DeadLetterItem]
    next: int | None
    """The `after` of the next page, or null if this is the last."""


class RedriveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection of dead letters: all of them, or those that match every given condition."""

    which: Literal["matching", "all"] = "matching"
    """Must be `all` to select all: an omitted filter must not select everything."""
    tenant: Filter | None = None
    reason: Filter | None = None
    """Text that the reason must contain."""
    ids: Annotated[list[int], Meta(max_length=MAX_REDRIVEN)] = []
    buried_before: Time | None = None
    action: Literal["redrive", "discard"] = "redrive"
    """redrive: put back into the queue; discard: delete permanently."""
    limit: Annotated[int, Meta(ge=1, le=MAX_REDRIVEN)] = MAX_LETTERS


class RedriveResult(Struct, frozen=True):
    """The number of dead letters that were redriven or discarded. If it is below the limit, there are no more."""

    count: int
    action: Literal["redrive", "discard"]


@get("/v1/queues/{queue:str}/dead", summary="List dead letters", **with_strict_query(READ_OPTIONS))
async def dead_letters(
    state: ServerState,
    queue: QueueName,
    *,
    tenant: TenantName = None,
    reason: Annotated[
        str | None,
        QueryParameter(max_length=256, description="Text in the reason", schema_extra=QUERY_TEXT_SCHEMA),
    ] = None,
    ids: Annotated[list[int] | None, QueryParameter(max_items=MAX_LETTERS)] = None,
    buried_before: Annotated[float | None, QueryParameter(ge=1, le=MAX_TIME)] = None,
    after: Annotated[int, QueryParameter(ge=0, le=MAX_ID, description="The `next` of the previous page")] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_LETTERS)] = 20,
    bodies: Annotated[bool, QueryParameter(description="Whether to include bodies, in base64")] = False,
) -> DeadLetterPage:
    """Return a page of dead letters, with reason, traceback and trace."""
    query = DeadLetterQuery(
        queue=check_queue_name(queue),
        tenant=None if tenant is None else parse_tenant(tenant),
        reason=None if reason is None else check_query_text("reason", reason),
        ids=_keep_valid(ids or []),
        buried_before=buried_before,
        after=after,
        limit=limit,
    )
    found = await state.services.queues.ask(lambda backend: backend.list_dead_letters(query))
    return DeadLetterPage(
        [_to_item(one, bodies=bodies) for one in found], found[-1].id if len(found) == limit else None
    )


@post("/v1/queues/{queue:str}/redrive", summary="Redrive dead letters", **with_strict_query(CHANGE_OPTIONS))
async def redrive(
    request: Request[Any, Any, Any], state: ServerState, queue: QueueName, data: JSONBody[RedriveRequest]
) -> RedriveResult:
    """Put dead letters back into the queue, or delete them. Safe to repeat: they are no dead letters any more."""
    is_filtered = bool(data.ids) or any(each is not None for each in (data.tenant, data.reason, data.buried_before))
    if is_filtered is (data.which == "all"):
        raise Conflict(
            'expected at least one of `tenant`, `reason`, `ids` and `buried_before`, or none and `"which": "all"`'
        )
    query = DeadLetterQuery(
        queue=check_queue_name(queue),
        tenant=None if data.tenant is None else parse_tenant(data.tenant),
        reason=data.reason,
        ids=_keep_valid(data.ids),
        buried_before=data.buried_before,
        limit=data.limit,
    )
    discard = data.action == "discard"
    count = await state.services.queues.ask(lambda backend: backend.redrive(query, discard=discard))
    log_change(request, query.queue, f"{count} dead letters {'discarded' if discard else 'put back'}")
    return RedriveResult(count, data.action)


def _keep_valid(ids: Sequence[int]) -> tuple[int, ...]:
    """Drop ids out of range. If none remains, return an id that never exists: no ids would match all dead letters."""
    return tuple(number for number in ids if 0 < number <= MAX_ID) or ((_NO_MESSAGE,) if ids else ())


def _to_item(letter: DeadLetter, *, bodies: bool) -> DeadLetterItem:
    fields = {
        name: getattr(letter, name) for name in DeadLetterItem.__struct_fields__ if name not in ("size", "base64")
    }
    body = base64.b64encode(letter.body).decode() if bodies else UNSET
    return DeadLetterItem(**fields, size=len(letter.body), base64=body)
