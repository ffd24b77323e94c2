"""Receive telemetry, as services write it for CloudWatch, and answer questions about it."""

from typing import Annotated, Any, Literal

from litestar import Request, Response, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromQuery, QueryParameter

from holdfast._clock import SystemClock
from holdfast._errors import InvalidValue
from holdfast._names import parse_operation, parse_zone
from holdfast._types import Side
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.detection.messages import IngestResult
from holdfast.server.metrics import ReceivedTelemetry
from holdfast.server.state import ServerState
from holdfast.telemetry.bins import SHORT_TERM
from holdfast.telemetry.query import SeriesQuery, limit_time
from holdfast.telemetry.sinks.server import BATCH_HEADER

_MAX_BATCH_CHARACTERS = 64
_ACCEPTED = {"Accept-Encoding": "gzip"}
"""Tells senders that they may compress (RFC 7694)."""
_ENCODINGS = {"": False, "identity": False, "gzip": True, "x-gzip": True}


@post(
    "/v1/telemetry",
    status_code=202,
    summary="Send telemetry",
    **build_route_options("telemetry", Role.SENDER, errors=(400, 413, 415)),
)
async def ingest(request: Request[Any, Any, Any], state: ServerState) -> Response[IngestResult] | Response[bytes]:
    """Receive records in embedded metric format, one JSON object per line (`application/x-ndjson`), also as gzip.

    Records of workloads that are not the sender's are refused. A batch that arrives twice with the same header
    `X-Holdfast-Batch` counts once. While detection restarts, the answer is 503: send the batch again. A server on
    standby forwards the request to the server that evaluates.
    """
    sender = request.state.credential
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        problem = f"Content-Encoding is {encoding[:32]!r}: expected gzip, or none"
        raise HTTPException(problem, status_code=415, headers=_ACCEPTED)
    batch = request.headers.get(BATCH_HEADER)
    if batch is not None and not 0 < len(batch) <= _MAX_BATCH_CHARACTERS:
        raise InvalidValue(f"{BATCH_HEADER} has {len(batch)} characters: expected 1 to {_MAX_BATCH_CHARACTERS}")
    detection = state.services.detection
    if detection.is_standby:
        answer = await state.forwarder.forward(detection.other_address, await request.body(), request.headers)
        kind = answer.headers.get("content-type", "application/json")
        return Response(answer.body, status_code=answer.status, media_type=kind, headers=_ACCEPTED)
    result = await detection.ingest(
        await request.body(),
        is_gzip=_ENCODINGS[encoding],
        sender=sender.id,
        allowed=sender.workloads if sender.role is Role.SENDER else None,
        batch=batch,
    )
    if not result.is_duplicate:
        state.server_metrics.emit(ReceivedTelemetry(result))
    return Response(result, headers=_ACCEPTED)


@get(
    "/v1/series",
    summary="Show measurements over time",
    **build_route_options("telemetry", Role.VIEWER, errors=(400, 404)),
)
async def series(  # noqa: PLR0917 - Litestar passes parameters by name
    state: ServerState,
    workload: FromQuery[str],
    by: FromQuery[Literal["zone", "operation", "instance"] | None] = None,
    operation: Annotated[
        str | None,
        QueryParameter(description="Only this operation, as service/name.", schema_extra={"pattern": "^[^/]+/.+"}),
    ] = None,
    zone: Annotated[str | None, QueryParameter(description="Only this zone.")] = None,
    instance: Annotated[str | None, QueryParameter(description="Only this instance.")] = None,
    side: FromQuery[Side] = Side.SERVER,
    start: Annotated[
        float | None, QueryParameter(description="Seconds since the epoch. Default: 15 minutes ago.")
    ] = None,
    end: Annotated[float | None, QueryParameter(description="Seconds since the epoch. Default: now.")] = None,
    step: Annotated[
        float | None, QueryParameter(description="Seconds of a point. Default: one that gives at most 300 points.")
    ] = None,
) -> Response[bytes]:
    """Return rate, fault share, peak and latency percentiles of a workload, for the last 24 hours at most.

    One series in total, or one for each zone, operation or instance.
    """
    detection = state.services.detection
    detection.require_watched(workload)
    now = SystemClock().wall()
    start, end = limit_time(now - SHORT_TERM if start is None else start, now if end is None else end, now)
    query = SeriesQuery(
        workload=workload,
        start=start,
        end=end,
        by=by,
        operation=None if operation is None else parse_operation(operation),
        zone=None if zone is None else parse_zone(zone),
        instance=instance,
        side=side,
        step=step,
    )
    return Response(await detection.answer(query), media_type="application/json")
