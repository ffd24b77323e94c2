"""Forward telemetry from a server on standby to the server that evaluates."""

import secrets
import time
from collections.abc import Mapping
from http.client import HTTPException

import msgspec

from holdfast._errors import CallError, EngineUnavailable
from holdfast.calls import Dependency, Retry, Timeouts, current_attempt, detached
from holdfast.calls.classify import of_status
from holdfast.server.executor import BoundedExecutor
from holdfast.status.sources.web import HttpResponse, http_post
from holdfast.telemetry.sinks.server import BATCH_HEADER

FORWARDED_HEADER = "X-Holdfast-Forwarded"
"""Marks a forwarded request. It is not forwarded again: two servers on standby would send it to and fro."""
_PASSED_HEADERS = ("authorization", "content-type", "content-encoding", BATCH_HEADER.lower())
_TIMEOUTS = Timeouts(connect=1.0, attempt=3.0, total=4.0)
"""Shorter than the five seconds after which senders give up, so that they get an answer."""


class TelemetryForwarder:
    """Sends the telemetry of senders to another server, in their name. For use in one event loop."""

    def __init__(self) -> None:
        self._executor = BoundedExecutor("holdfast-forward", threads=8, max_running=32)
        self._dependency = Dependency(
            "holdfast-server",
            timeouts=_TIMEOUTS,
            retry=Retry(
                max_attempts=2, classify_result=lambda answer: of_status(answer.status, answer.headers, time.time)
            ),
        )

    async def forward(self, address: str | None, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """Return the answer of the server at `address`: of success, or that the request is refused.

        The batch keeps its id, or gets one, so that a repeated attempt counts once. Raise EngineUnavailable if there is
        no such server, it does not answer, or it cannot process the request now: the sender repeats it.
        """
        if FORWARDED_HEADER.lower() in headers or address is None:
            raise EngineUnavailable("no server evaluates at the moment: send the batch again")
        passed = {name: headers[name] for name in _PASSED_HEADERS if name in headers}
        passed.setdefault(BATCH_HEADER.lower(), secrets.token_hex(16))
        passed[FORWARDED_HEADER] = "1"

        def post() -> HttpResponse:
            return http_post(f"{address}/v1/telemetry", body, passed, current_attempt().timeout)

        def call() -> HttpResponse:
            with detached():
                return self._dependency.run(post, idempotent=True, operation="forward telemetry")

        try:
            answer = await self._executor.run(call)
        except (OSError, HTTPException, CallError) as error:
            raise EngineUnavailable(f"the evaluating server {address} cannot be reached: {error}") from error
        if answer.status in (408, 429) or answer.status >= 500:
            detail = _Problem.read(answer.body)
            raise EngineUnavailable(f"the evaluating server {address} answered {answer.status}: {detail}")
        return answer


class _Problem(msgspec.Struct, frozen=True):
    detail: str = "no reason given"

    @classmethod
    def read(cls, body: bytes) -> str:
        try:
            return msgspec.json.decode(body, type=cls).detail
        except (msgspec.DecodeError, ValueError):
            return cls().detail
