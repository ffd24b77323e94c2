"""Receive telemetry: lines of embedded metric format, as services write them for CloudWatch."""

from typing import Any

from litestar import Request, post
from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.metrics import ReceivedLines
from holdfast.server.state import ServerState
from holdfast.telemetry import build_deltas, decode_emf


class IngestResult(Struct, frozen=True):
    """The number of accepted and refused lines. A refused line does not affect the others."""

    accepted: int
    refused: int
    reason: str | None = None
    """Reason for the first refused line."""


@post(
    "/v1/telemetry",
    status_code=202,
    summary="Send telemetry",
    **build_route_options("telemetry", Role.SENDER, errors=(400, 413)),
)
async def ingest(request: Request[Any, Any, Any], state: ServerState) -> IngestResult:
    """Receive requests in embedded metric format, one JSON object per line (`application/x-ndjson`).

    Lines of workloads that are not the sender's are refused.
    """
    watch, sender = state.services.watch, request.state.credential
    outcomes, refused, reason = [], 0, None
    for line in (await request.body()).splitlines():
        if not line.strip():
            continue
        try:
            outcome = decode_emf(line)
        except InvalidValue as error:
            problem = str(error)
        else:
            if sender.role is Role.SENDER and outcome.workload not in sender.workloads:
                problem = (
                    f"credential {sender.id} may not send telemetry of workload {outcome.workload!r}: "
                    f"expected {' or '.join(sender.workloads)}"
                )
            elif watch.is_watched(outcome.workload, outcome.zone):
                outcomes.append(outcome)
                continue
            else:
                problem = f"no workload {outcome.workload!r} with zone {outcome.zone!r} is configured"
        refused += 1
        reason = reason or problem
    watch.ingest(build_deltas(outcomes, watch.bin_seconds))
    state.server_metrics.emit(ReceivedLines(len(outcomes), refused))
    return IngestResult(len(outcomes), refused, reason)
