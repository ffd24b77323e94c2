"""Ask a remote server over its HTTP API, and read and change its zone statuses."""

import http.client
import os
from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

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
from holdfast._names import check_address
from holdfast._types import Zone, ZoneStatus
from holdfast.server.status_log import StatusLogEntry
from holdfast.status.sources.web import MAX_RESPONSE_BYTES, connect
from holdfast.status.wire import StatusSnapshot

Answer = TypeVar("Answer")

TOKEN_VARIABLE = "HOLDFAST_TOKEN"  # noqa: S105 - the name of a variable, not a token
"""Holds the token of a credential: on the command line every user of the machine could see it."""
TIMEOUT_SECONDS = 5.0
"""For connecting, and for each read: a person is waiting."""

_ERRORS: Mapping[int, type[HoldfastError]] = {
    400: InvalidValue,
    401: CredentialRefused,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    503: EngineUnavailable,
    507: DatabaseFull,
}
_URN = "urn:holdfast:problem:"
"""Prefix of the type of a problem that is one of Holdfast's errors."""


def read_token() -> str | None:
    """Return the token in the environment, without a trailing line end, or None."""
    return os.environ.get(TOKEN_VARIABLE, "").strip() or None


class RemoteServer:
    """A remote server. Raises the errors that the server reports."""

    def __init__(self, address: str, token: str | None) -> None:
        self._address = check_address(address)
        self._display_address = _strip_user(self._address)
        self.location = f"server: {self._display_address}"
        self._token = token

    def request(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: bytes | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Answer:
        """Send a request, and return its answer."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = connect(self._address, timeout)
        try:
            connection.connect()
        except OSError as error:
            raise EngineUnavailable(
                f"server {self._display_address} cannot be reached: check that it runs, and its address ({error})"
            ) from error
        try:
            connection.request(method, urlsplit(self._address).path + path, body, headers)
            response = connection.getresponse()
            content = response.read(MAX_RESPONSE_BYTES)
        except ValueError as error:  # the token contains characters that are not allowed in a header
            raise CredentialRefused(
                f"{TOKEN_VARIABLE} is not a valid token: expected one like hf_3f9c0a5b7d21_..."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            if method == "GET":
                raise EngineUnavailable(f"server {self._display_address} did not answer: {error}") from error
            raise OutcomeUnknown(
                f"server {self._display_address} did not answer: {error}; the change may or may not have been made: "
                "check before you repeat it"
            ) from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise self._build_error(f"{method} {self._display_address}{path}", response.status, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, ValueError) as error:
            raise EngineError(
                f"{self._display_address} is not a Holdfast server, judging by its answer to {method} {path}"
            ) from error

    def _build_error(self, request: str, status: int, content: bytes) -> HoldfastError:
        try:
            problem = msgspec.json.decode(content, type=_Problem)
        except (msgspec.DecodeError, ValueError):
            problem = _Problem(f"server {self._display_address} answered {status}")
        text = "; ".join([problem.detail, *map(_format_complaint, problem.errors)])
        kind = _ERRORS.get(status, EngineError)
        if problem.type == _URN + OutcomeUnknown.slug:
            kind = OutcomeUnknown
            if "may or may not" not in text:
                text += "; the change may or may not have been made: check before you repeat it"
        if status == http.client.NOT_FOUND and not problem.type.startswith(_URN):
            text = f"{request} answered 404: expected the base URL of a Holdfast server, such as http://127.0.0.1:8470"
        if status == http.client.UNAUTHORIZED and self._token is None:
            text += f" (set {TOKEN_VARIABLE} to the token of a credential)"
        return kind(f"{text} (trace {problem.trace_id})" if problem.trace_id else text)


class RemoteZones(RemoteServer):
    """The zone statuses of a remote server. Raises the errors that the server reports."""

    can_expire = True
    """The server brings expired zones in."""

    def read(self, zone: Zone | None = None, workload: str | None = None) -> tuple[Sequence[ZoneStatus], float]:
        """Return all statuses, and the server's time."""
        del zone, workload  # the server does not tell which zones and workloads are configured
        snapshot = self.request("GET", "/v1/status", StatusSnapshot)
        return snapshot.statuses, snapshot.at

    def take_out(
        self, zone: Zone, workload: str | None, *, reason: str, seconds: float | None, force: bool
    ) -> ZoneStatus:
        return self._change(zone, workload, {"state": "out", "reason": reason, "for": seconds, "force": force})

    def bring_in(self, zone: Zone, workload: str | None, *, reason: str, force: bool) -> ZoneStatus:
        return self._change(zone, workload, {"state": "in", "reason": reason, "force": force})

    def history(self, limit: int) -> Sequence[StatusLogEntry]:
        """Return the latest changes that the server has recorded, newest first."""
        return self.request("GET", f"/v1/status/history?limit={limit}", list[StatusLogEntry])

    def _change(self, zone: Zone, workload: str | None, wanted: Mapping[str, object]) -> ZoneStatus:
        try:
            body = msgspec.json.encode(wanted)
        except UnicodeEncodeError as error:
            raise InvalidValue("reason: expected Unicode text") from error
        path = f"/v1/zones/{zone}" + (f"/{workload}" if workload else "")
        return self.request("PUT", path, ZoneStatus, body)


class _Problem(msgspec.Struct, frozen=True):
    """The fields of a problem response that are used here."""

    detail: str
    type: str = "about:blank"
    trace_id: str | None = None
    errors: tuple[dict[str, str | None], ...] = ()


def _format_complaint(error: Mapping[str, str | None]) -> str:
    name, detail = error.get("name"), error.get("detail")
    return f"{name}: {detail}" if name else str(detail)


def _strip_user(address: str) -> str:
    """Return the address without user name and password, which must not be printed."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
