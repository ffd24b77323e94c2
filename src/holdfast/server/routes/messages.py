"""Messages over HTTP, for senders: a tenant sends its own messages, an operator those of any tenant.

The credential determines the tenant: nothing in a body can change it.
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
"""Maximum messages in one request: more would not be faster."""
MAX_BATCH_BYTES = 4 << 20
"""Maximum size of a batch request: it is held in memory, together with those of all other tenants."""

Priority: TypeAlias = Annotated[int, Meta(ge=0, lt=PRIORITY_LEVELS)]
Delay: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DURATION)]
Ttl: TypeAlias = Annotated[float, Meta(ge=1e-3, le=MAX_DURATION)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_BYTES, pattern=NO_NUL)]
"""A name of a group, or a key."""
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY_BYTES,
        description="A message sent again with the same key within the queue's `dedupe_for` is stored once",
    ),
]


class AcceptedResult(Struct, frozen=True, kw_only=True, tag="accepted", tag_field="status"):
    """A message that was stored. It will be handled at least once, dropped because of its ttl, or buried."""

    id: int
    queue: str
    lane: int
    """The lane in which the message waits. A negative number is the tenant's overflow lane: see `is_spilled`."""
    trace: str
    """The W3C `traceparent` of the message; for a duplicate, that of this request."""
    pressure: float
    """Share of the tenant's `max_waiting` in use, 0 to 1. At 1, sends are refused."""
    is_duplicate: bool
    """Whether a message with the same key was stored before. Then `id` is the id of the earlier message."""
    is_spilled: bool
    """Whether the message exceeded its tenant's share of the shared lanes, and waits in its overflow lane."""


class RefusedResult(Struct, frozen=True, kw_only=True, tag="refused", tag_field="status"):
    """A message that was not stored, because its tenant exceeds a limit."""

    reason: RefusalReason
    retry_after: float
    """Seconds after which the message would be accepted, if the tenant sends nothing else."""
    pressure: float


class Base64(Struct, frozen=True, forbid_unknown_fields=True):
    """A binary body, base64-encoded."""

    base64: Annotated[str, Meta(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]


class NewMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a batch. Its body is text, or `{"base64": "..."}`."""

    body: str | Base64
    priority: Priority = DEFAULT_PRIORITY
    delay: Delay = 0.0
    group: Text | None = None
    key: Text | None = None
    """Deduplication key. Default: derived from the request's Idempotency-Key and the content of the message."""
    ttl: Ttl | None = None


class NewMessages(Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that are stored in one transaction."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MAX_BATCH)]


class BatchResults(Struct, frozen=True):
    """The result of each message, in the order of the request."""

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
    """When the message was sent, or becomes due if it was sent with a delay."""
    until: float | None
    """When its delay or its lease ends, or null."""


@dataclass
class _BinaryOperation(Operation):
    """The OpenAPI description of an operation that accepts any bytes."""

    def __post_init__(self) -> None:
        content = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY, max_length=MAX_BODY_BYTES)
        self.request_body = RequestBody(
            content={"application/octet-stream": OpenAPIMediaType(schema=content)},
            description="The body of the message, unchanged; its content type is ignored",
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
        float, QueryParameter(ge=0, le=MAX_DURATION, description="Seconds before the message may be handled")
    ] = 0.0,
    group: Annotated[
        str | None,
        QueryParameter(
            min_length=1,
            max_length=MAX_KEY_BYTES,
            description="Messages of one group are handled in order",
            schema_extra=QUERY_TEXT_SCHEMA,
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        QueryParameter(ge=1e-3, le=MAX_DURATION, description="Seconds after which it is dropped unhandled"),
    ] = None,
) -> AcceptedResult:
    """Store one message. After an answer with 202, it will not be lost.

    The message carries `traceparent` and `holdfast-remaining` of the request: its handler has this trace and deadline.
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
    """Store up to 1000 messages in one transaction. Return a result for each: some may be accepted and others refused.

    If one message is invalid, none is stored. If all are refused, the answer is 429. Send all messages, or only the
    refused ones, again with the same Idempotency-Key: each is stored once. If a batch contains identical messages, send
    the whole batch again, or give each its own key.
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
    accepted = [result for result in sent if isinstance(result, SentMessage)]
    if not accepted and isinstance(sent[0], RefusedMessage):
        raise build_backpressure(queue, sent[0])
    return BatchResults(len(accepted), len(sent) - len(accepted), [_result(result) for result in sent])


@get("/v1/queues/{queue:str}/messages/{message:int}", summary="Show a message", **_READ)
async def message_status(
    request: Request[Any, Any, Any],
    state: ServerState,
    queue: QueueName,
    message: Annotated[int, PathParameter(description="The id in the answer when it was sent")],
) -> MessageStatus:
    """Return the state of a message: waiting, delayed, leased or dead. 404 if it was handled or dropped.

    A tenant gets 404 for other tenants' messages, as for ids that do not exist.
    """
    name, credential = check_queue_name(queue), request.state.credential
    try:
        found = await state.services.queues.ask(
            lambda backend: backend.inspect(name, top=0, messages=[message], lanes=False).messages, credential.tenant
        )
    except NotFound as error:
        raise queue_not_found(name) from error
    info = found.get(message)
    if info is None or credential.tenant not in (None, info.tenant):
        whose = "" if credential.tenant is None else f" of tenant {credential.tenant}"
        raise NotFound(
            f"queue {name} has no message {str(message)[:20]}{whose}: it was handled, dropped or discarded, "
            "or never existed"
        )
    fields = asdict(info)
    return MessageStatus(id=message, queue=name, state=fields.pop("state"), **fields)


async def _send(
    state: ServerState, queue: str, tenant: str, messages: Sequence[OutgoingMessage]
) -> Sequence[SentMessage | RefusedMessage]:
    try:
        return await state.services.queues.send(queue, tenant, messages, state.send_sink)
    except OutcomeUnknown as error:
        if all(message.key is not None for message in messages):
            advice = "send it again with the same key, and it is stored once"
        else:
            advice = "if it is sent again, it may be handled twice; an Idempotency-Key prevents that"
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
        except ValueError as error:  # a trailing line break, which the pattern lets through
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
    """Return the caller's traceparent, or a new one with the trace id of this request in the log."""
    header = request.headers.get(TRACEPARENT_HEADER, "")
    if TRACEPARENT_PATTERN.fullmatch(header):
        return f"00{header[2:55]}"  # later versions begin with the same fields
    return f"00-{get_trace_id(request.scope)}-{secrets.token_hex(8)}-00"


def _deadline(request: Request[Any, Any, Any]) -> float | None:
    services: Services = request.app.state.services
    remaining = parse_carrier(request.headers).remaining
    return None if remaining is None else services.queues.clock.wall() + min(remaining, MAX_DURATION)


def _accepted(sent: SentMessage) -> AcceptedResult:
    return AcceptedResult(is_spilled=sent.is_spilled, **asdict(sent))


def _result(result: SentMessage | RefusedMessage) -> AcceptedResult | RefusedResult:
    if isinstance(result, SentMessage):
        return _accepted(result)
    return RefusedResult(reason=result.reason, retry_after=result.retry_after, pressure=result.pressure)
