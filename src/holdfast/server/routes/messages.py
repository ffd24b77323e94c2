"""Messages over HTTP, for whoever sends them: a tenant for itself, or an operator for a tenant.

Whose message it is follows from the credential: nothing in a body can say otherwise.
"""

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias

from litestar import Request, get, post
from litestar.exceptions import HTTPException
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from holdfast._errors import InvalidValue, NotFound, OutcomeUnknown
from holdfast._names import check_queue_name
from holdfast.calls.scope import TRACEPARENT_HEADER, TRACEPARENT_PATTERN, parse_carrier
from holdfast.queue import OutgoingMessage, RefusalReason, RefusedMessage, SentMessage
from holdfast.queue.backend import MessageState
from holdfast.queue.message import (
    DEFAULT_PRIORITY,
    MAX_BODY_BYTES,
    MAX_DURATION,
    MAX_KEY_BYTES,
    PRIORITY_LEVELS,
    BatchKeys,
    check_message,
)
from holdfast.queue.queue import build_backpressure
from holdfast.server.access import get_trace_id
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.problems import OutcomeUnknownWithAdvice
from holdfast.server.routes.parameters import (
    NO_NUL,
    QUERY_TEXT_SCHEMA,
    QUEUE_NOT_FOUND_HANDLERS,
    QueueName,
    TenantName,
    check_query_text,
    queue_not_found,
    resolve_tenant,
    with_strict_query,
)
from holdfast.server.state import ServerState, Services

MAX_BATCH = 1000
"""Most messages in one request: far beyond where more make it any quicker."""
MAX_BATCH_BYTES = 4 << 20
"""Largest request with several messages: they are in memory, and so are those of everybody else."""

Priority: TypeAlias = Annotated[int, Meta(ge=0, lt=PRIORITY_LEVELS)]
Delay: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DURATION)]
Ttl: TypeAlias = Annotated[float, Meta(ge=1e-3, le=MAX_DURATION)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_BYTES, pattern=NO_NUL)]
"""Names of groups, and keys."""
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY_BYTES,
        description="What is sent again with the same key, within the queue's `dedupe_for`, is kept once",
    ),
]


class AcceptedResult(Struct, frozen=True, kw_only=True, tag="accepted", tag_field="status"):
    """A message that is kept: it will be handled at least once, dropped for its age, or buried."""

    id: int
    queue: str
    lane: int
    """Where it waits; below 0, apart from the messages of others, because its tenant has sent so much."""
    trace: str
    """The W3C `traceparent` that travels with it; of a duplicate, the one of this request."""
    pressure: float
    """How much of the backlog that the tenant may have there is: at 1, more is refused."""
    is_duplicate: bool
    """Whether a message with the same key was kept before: then the id is that one's."""


class RefusedResult(Struct, frozen=True, kw_only=True, tag="refused", tag_field="status"):
    """A message that was not kept, because its tenant has sent too much."""

    reason: RefusalReason
    retry_after: float
    """Seconds after which it would be kept, if nothing else is sent."""
    pressure: float


class Base64(Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are no text."""

    base64: Annotated[str, Meta(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]


class NewMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of several; its body is text, or `{"base64": "..."}`."""

    body: str | Base64
    priority: Priority = DEFAULT_PRIORITY
    delay: Delay = 0.0
    group: Text | None = None
    key: Text | None = None
    """Without one, it follows from the request's Idempotency-Key, and from what the message says."""
    ttl: Ttl | None = None


class NewMessages(Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that are sent in one step."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MAX_BATCH)]


class BatchResults(Struct, frozen=True):
    """What became of each message, in the order in which they were sent."""

    accepted: int
    refused: int
    results: Sequence[AcceptedResult | RefusedResult]


class MessageStatus(Struct, frozen=True, kw_only=True):
    """A message that has not been handled yet."""

    id: int
    queue: str
    tenant: str
    state: MessageState
    attempts: int
    """Deliveries so far."""
    sent_at: float
    """When it was sent; of one with a delay, when it falls due, because until then it is not late."""
    until: float | None
    """When its delay, or the lease of whoever handles it, ends."""


@dataclass
class _BinaryOperation(Operation):
    """The description of an operation that takes any bytes."""

    def __post_init__(self) -> None:
        content = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY, max_length=MAX_BODY_BYTES)
        self.request_body = RequestBody(
            content={"application/octet-stream": OpenAPIMediaType(schema=content)},
            description="The message itself, as it is; its content type is not looked at",
        )


_SEND: dict[str, Any] = {
    **with_strict_query(build_route_options("messages", Role.TENANT, errors=(400, 404, 413, 429, 500, 507))),
    "exception_handlers": QUEUE_NOT_FOUND_HANDLERS,
    "status_code": 202,
}
_READ = with_strict_query(build_route_options("messages", Role.TENANT, Role.VIEWER, errors=(400, 404)))


@post("/v1/queues/{queue:str}/messages", operation_class=_BinaryOperation, summary="Send a message", **_SEND)
async def send_message(
    request: Request[Any, Any, Any],
    state: ServerState,
    queue: QueueName,
    *,
    tenant: TenantName = None,
    key: IdempotencyKey = None,
    priority: Annotated[
        int, QueryParameter(ge=0, lt=PRIORITY_LEVELS, description="0 is the most urgent")
    ] = DEFAULT_PRIORITY,
    delay: Annotated[
        float, QueryParameter(ge=0, le=MAX_DURATION, description="Seconds before it may be handled")
    ] = 0.0,
    group: Annotated[
        str | None,
        QueryParameter(
            min_length=1,
            max_length=MAX_KEY_BYTES,
            description="Those of one group are handled in order",
            schema_extra=QUERY_TEXT_SCHEMA,
        ),
    ] = None,
    ttl: Annotated[
        float | None, QueryParameter(ge=1e-3, le=MAX_DURATION, description="Seconds after which it is worth nothing")
    ] = None,
) -> AcceptedResult:
    """Keep one message. When this answers with 202, it will not be lost.

    `traceparent` and `holdfast-remaining` of the request travel with it: handlers find the trace, and the deadline.
    """
    whose = resolve_tenant(request.state.credential, tenant)
    message = OutgoingMessage(
        tenant=whose,
        body=await request.body(),
        priority=priority,
        delay=delay,
        group=None if group is None else check_query_text("group", group),
        key=key,
        ttl=ttl,
        deadline=_deadline(request),
        trace=_trace(request),
    )
    [result] = await _send(state, check_queue_name(queue), whose, [message])
    if isinstance(result, RefusedMessage):
        raise build_backpressure(queue, result)
    return _accepted(result)


@post(
    "/v1/queues/{queue:str}/messages/batch",
    request_max_body_size=MAX_BATCH_BYTES,
    summary="Send several messages",
    **_SEND,
)
async def send_messages(
    request: Request[Any, Any, Any],
    state: ServerState,
    queue: QueueName,
    data: JSONBody[NewMessages],
    *,
    tenant: TenantName = None,
    key: IdempotencyKey = None,
) -> BatchResults:
    """Keep up to 1000 messages in one step, and say what became of each: a tenant may send some, and no more.

    One that is not valid keeps all of them from being sent. If every one is refused, so is the request, with 429. All
    of them, or those that were refused, may be sent again with the same Idempotency-Key: each is kept once. Of several
    that are the same in all, send all again, or give each a key of its own.
    """
    whose = resolve_tenant(request.state.credential, tenant)
    carried = {"tenant": whose, "trace": _trace(request), "deadline": _deadline(request)}
    messages = [_outgoing(index, message, key, carried) for index, message in enumerate(data.messages)]
    if key is not None:
        keys = BatchKeys(key)
        messages = [
            replace(one, key=keys.next_key(one)) if message.key is None else one
            for one, message in zip(messages, data.messages, strict=True)
        ]
    sent = await _send(state, check_queue_name(queue), whose, messages)
    kept = [result for result in sent if isinstance(result, SentMessage)]
    if not kept and isinstance(sent[0], RefusedMessage):
        raise build_backpressure(queue, sent[0])
    return BatchResults(len(kept), len(sent) - len(kept), [_result(result) for result in sent])


@get("/v1/queues/{queue:str}/messages/{message:int}", summary="Is a message handled yet?", **_READ)
async def message_status(
    request: Request[Any, Any, Any],
    state: ServerState,
    queue: QueueName,
    message: Annotated[int, PathParameter(description="The id that it was given when it was sent")],
) -> MessageStatus:
    """Where a message is: waiting, delayed, leased or dead; 404 when it is gone, which is to say handled or dropped.

    A tenant sees its own messages alone: of those of others it is told what it is told of those that never were.
    """
    name, credential = check_queue_name(queue), request.state.credential
    try:
        found = await state.services.queues.ask(
            lambda backend: backend.inspect(name, top=0, messages=[message], lanes=False).messages, credential.tenant
        )
    except NotFound as error:
        raise queue_not_found(name) from error
    kept = found.get(message)
    if kept is None or credential.tenant not in (None, kept.tenant):
        whose = "" if credential.tenant is None else f" of tenant {credential.tenant}"
        raise NotFound(
            f"queue {name} has no message {str(message)[:20]}{whose}: it was handled, dropped or discarded, "
            "or there never was one"
        )
    fields = asdict(kept)
    return MessageStatus(id=message, queue=name, state=fields.pop("state"), **fields)


async def _send(
    state: ServerState, queue: str, tenant: str, messages: Sequence[OutgoingMessage]
) -> Sequence[SentMessage | RefusedMessage]:
    try:
        return await state.services.queues.send(queue, tenant, messages)
    except OutcomeUnknown as error:
        if all(message.key is not None for message in messages):
            advice = "send it again with the same key, and it is kept once"
        else:
            advice = "if it is sent again it may be handled twice; with an Idempotency-Key it would not be"
        raise OutcomeUnknownWithAdvice(str(error), advice) from error


def _outgoing(index: int, message: NewMessage, key: str | None, carried: dict[str, Any]) -> OutgoingMessage:
    try:
        return check_message(
            OutgoingMessage(**asdict(message) | {"body": _body(index, message), "key": message.key or key} | carried)
        )
    except InvalidValue as error:
        raise InvalidValue(f"message {index}: {error}") from error


def _body(index: int, message: NewMessage) -> bytes:
    if isinstance(message.body, Base64):
        try:
            body = base64.b64decode(message.body.base64, validate=True)
        except ValueError as error:  # which is to say, a line break behind it
            raise InvalidValue(f"base64 {message.body.base64[-32:]!r}: {error}") from error
    else:
        body = message.body.encode()
    if len(body) > MAX_BODY_BYTES:
        raise HTTPException(
            f"message {index}: a body of {len(body)} bytes: expected at most {MAX_BODY_BYTES}",
            status_code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    return body


def _trace(request: Request[Any, Any, Any]) -> str:
    """The caller's own, or one under which the log has this request."""
    header = request.headers.get(TRACEPARENT_HEADER, "")
    if TRACEPARENT_PATTERN.fullmatch(header):
        return f"00{header[2:55]}"  # a later version says in its first parts what this one does
    return f"00-{get_trace_id(request.scope)}-{secrets.token_hex(8)}-00"


def _deadline(request: Request[Any, Any, Any]) -> float | None:
    services: Services = request.app.state.services
    remaining = parse_carrier(request.headers).remaining
    return None if remaining is None else services.queues.clock.wall() + min(remaining, MAX_DURATION)


def _accepted(sent: SentMessage) -> AcceptedResult:
    fields = asdict(sent)
    return AcceptedResult(is_duplicate=fields.pop("is_duplicate"), **fields)


def _result(result: SentMessage | RefusedMessage) -> AcceptedResult | RefusedResult:
    if isinstance(result, SentMessage):
        return _accepted(result)
    return RefusedResult(reason=result.reason, retry_after=result.retry_after, pressure=result.pressure)
