"""Announce a deploy to a server from the program that deploys. A deploy never fails because of its announcement."""

import asyncio
import logging
import secrets
import time
from http.client import HTTPException
from typing import Any, Self

import msgspec

from holdfast._errors import CallError
from holdfast._names import check_address
from holdfast.status.sources.web import HttpResponse, http_post
from holdfast.watch.deploy import build_deploy

logger = logging.getLogger("holdfast.deploys")

ATTEMPT_SECONDS = 2.0
TOTAL_SECONDS = 5.0
"""Seconds that a deploy waits for its announcement at most."""


def announce_deploy(
    server: str,
    *,
    workload: str,
    zone: str | None = None,
    by: str = "",
    note: str = "",
    seconds: float | None = None,
    token: str | None = None,
) -> "DeployAnnouncement":
    """Return a context manager, also for `async with`, that announces a deploy and ends it, also after an exception.

    Without a `zone`, it is one of all zones of the workload. It expires after `seconds`, by default 15 minutes.
    `token` is that of an operator. Raise InvalidValue for wrong arguments. If the server cannot be reached or refuses
    the announcement, log a warning: the deploy goes on.
    """
    deploy_id = secrets.token_hex(6)
    checked = build_deploy(deploy_id, workload, zone, now=time.time(), by=by, note=note, seconds=seconds)
    body: dict[str, Any] = {"id": checked.id, "workload": checked.workload, "note": checked.note}
    body |= {"zone": checked.zone, "by": checked.by or None, "for": seconds}
    return DeployAnnouncement(check_address(server), token, body)


class DeployAnnouncement:
    """The announcement of one deploy. Use it as a context manager; `announce_deploy` makes it."""

    def __init__(self, server: str, token: str | None, body: dict[str, Any]) -> None:
        self._server = server
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._body = body

    def begin(self) -> bool:
        """Announce the deploy. Return whether the server accepted it. Never raises."""
        return self._send("announce", "/v1/deploys", self._body)

    def end(self) -> bool:
        """End the deploy. Return whether the server knows that it has ended. Never raises."""
        return self._send("end", "/v1/deploys/end", {"id": self._body["id"]})

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.begin)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.shield(asyncio.to_thread(self.end))

    def _send(self, action: str, path: str, body: dict[str, Any]) -> bool:
        from holdfast.calls import Dependency, Retry, Timeouts, current_attempt, detached  # only here
        from holdfast.calls.classify import of_status

        def post() -> HttpResponse:
            timeout = min(ATTEMPT_SECONDS, current_attempt().timeout)
            return http_post(self._server + path, msgspec.json.encode(body), self._headers, timeout)

        dependency = Dependency(
            "holdfast",
            timeouts=Timeouts(attempt=ATTEMPT_SECONDS, total=TOTAL_SECONDS),
            retry=Retry(classify_result=lambda answer: of_status(answer.status, answer.headers, time.time)),
        )
        try:
            with detached():
                answer = dependency.run(post, idempotent=True, operation=f"{action} deploy")
            problem = None if answer.status < 300 else _describe(answer)
        except (OSError, HTTPException, CallError, ValueError) as error:
            problem = str(error)
        if problem is not None:
            scope = f"{self._body['workload']}, {self._body['zone'] or 'all zones'}"
            logger.warning("cannot %s the deploy of %s at %s: %s", action, scope, self._server, problem)
        return problem is None


def _describe(answer: HttpResponse) -> str:
    try:
        detail = msgspec.json.decode(answer.body, type=_Problem).detail
    except (msgspec.DecodeError, ValueError):
        detail = "no reason given"
    return f"HTTP {answer.status}: {detail[:250]}"


class _Problem(msgspec.Struct, frozen=True):
    detail: str = "no reason given"
