"""Zone statuses of a server that runs elsewhere, over its HTTP interface."""

import http.client
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast._errors import (
    Conflict,
    CredentialRefused,
    DatabaseFull,
    EngineError,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
)
from holdfast._types import Zone, ZoneStatus
from holdfast.status.sources.web import LARGEST_ANSWER, check, connect
from holdfast.status.wire import Snapshot

TOKEN_VARIABLE = "HOLDFAST_TOKEN"  # noqa: S105 - where it is, not what it is
"""Holds the token of a credential: on the command line every user of the machine could see it."""
TIMEOUT_SECONDS = 5.0
"""For connecting, and for every wait for a part of the answer: people wait for it."""

_ERRORS: Mapping[int, type[HoldfastError]] = {
    400: InvalidValue,
    401: CredentialRefused,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    503: EngineUnavailable,
    507: DatabaseFull,
}


class RemoteZones:
    """Reads and changes the statuses that a server keeps. Raises the errors that the server says it met."""

    def __init__(self, address: str, token: str | None) -> None:
        self._address = check(address)
        self._token = token

    @classmethod
    def open(cls, address: str) -> "RemoteZones":
        """With the token that the environment holds, if there is one."""
        return cls(address, os.environ.get(TOKEN_VARIABLE) or None)

    def read(self) -> tuple[Sequence[ZoneStatus], float]:
        """All statuses, and the server's time."""
        snapshot: Snapshot = self._ask("GET", "/v1/status", Snapshot)
        return snapshot.statuses, snapshot.at

    def take_out(
        self, zone: Zone, workload: str | None, *, reason: str, seconds: float | None, force: bool
    ) -> ZoneStatus:
        """Mark a zone as out."""
        return self._change(zone, workload, {"out": True, "reason": reason, "for": seconds, "force": force})

    def bring_in(self, zone: Zone, workload: str | None, *, reason: str) -> ZoneStatus:
        """Mark a zone as in."""
        return self._change(zone, workload, {"out": False, "reason": reason})

    def _change(self, zone: Zone, workload: str | None, wanted: Mapping[str, object]) -> ZoneStatus:
        try:
            body = msgspec.json.encode(wanted)
        except UnicodeEncodeError as error:
            raise InvalidValue("reason: expected Unicode text") from error
        path = f"/v1/zones/{zone}" + (f"/{workload}" if workload else "")
        status: ZoneStatus = self._ask("PUT", path, ZoneStatus, body)
        return status

    def _ask(self, method: str, path: str, kind: type[Any], body: bytes | None = None) -> Any:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = connect(self._address, TIMEOUT_SECONDS)
        try:
            connection.connect()
        except OSError as error:
            raise EngineUnavailable(f"server {self._address} cannot be reached: {error}") from error
        try:
            connection.request(method, urlsplit(self._address).path + path, body, headers)
            response = connection.getresponse()
            content = response.read(LARGEST_ANSWER)
        except ValueError as error:  # a token that cannot stand in a header
            raise CredentialRefused(
                f"{TOKEN_VARIABLE} holds no token: expected one like hf_3f9c0a5b7d21_..."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            if method == "GET":
                raise EngineUnavailable(f"server {self._address} did not answer: {error}") from error
            raise OutcomeUnknown(
                f"server {self._address} did not answer: {error}; it may or may not have done it, "
                "`holdfast zone status` shows"
            ) from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise self._problem(response.status, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, ValueError) as error:
            raise EngineError(f"{self._address} is no Holdfast server, by its answer to {method} {path}") from error

    def _problem(self, status: int, content: bytes) -> HoldfastError:
        try:
            problem = msgspec.json.decode(content, type=_Problem)
            told = "; ".join([problem.detail, *(str(error.get("detail")) for error in problem.errors)])
        except (msgspec.DecodeError, ValueError):
            told = f"server {self._address} answered {status}"
        if status == http.client.UNAUTHORIZED and self._token is None:
            told += f" (set {TOKEN_VARIABLE} to the token of a credential)"
        return _ERRORS.get(status, EngineError)(told)


class _Problem(msgspec.Struct, frozen=True):
    """What is read of a server's problem details."""

    detail: str
    errors: tuple[dict[str, str | None], ...] = ()
