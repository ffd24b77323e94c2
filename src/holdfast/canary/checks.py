"""Make one probe: an HTTP request, a TCP connection, or a call of a Python function. No redirects, no retries.

HTTP/1.1 is written here, over the event loop's streams: the core install has no HTTP client that can be cancelled.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from urllib.parse import urlsplit

import holdfast
from holdfast.calls.context import current_attempt
from holdfast.canary.blocking import BlockingCalls, call_function
from holdfast.canary.probe import (
    OK,
    CheckAnswer,
    HostPort,
    HttpCheck,
    Probe,
    PythonCheck,
    TcpCheck,
    parse_host_port,
    parse_url,
)

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
"""Enough for any page that a health check looks at. The rest of a longer body is not read."""
READ_BYTES = 16 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: .*)?")
_CONTINUE = 199
"""Highest status of an informational answer (1xx), which another answer follows."""
_WITHOUT_BODY = frozenset({204, 304})


class Tls:
    """The settings of TLS: certificates are verified with those that the system trusts, or those in SSL_CERT_FILE."""

    @cached_property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class Checker:
    """Makes the check of one probe, again and again. `phase` says what it is waiting for."""

    def __init__(self, probe: Probe, tls: Tls) -> None:
        self.phase = ""
        self._probe = probe
        self._tls = tls
        self._blocking = BlockingCalls(f"holdfast-canary {probe.operation} {probe.zone}")

    async def check(self) -> CheckAnswer:
        """Make the check once. Raise the error of the connection, or of the function."""
        check = self._probe.check
        match check:
            case HttpCheck():
                return await self._check_http(check, parse_url(self._probe.address))
            case TcpCheck():
                async with self._connect(parse_host_port(self._probe.address)):
                    return CheckAnswer(OK)
            case PythonCheck():
                self.phase = "in the function"
                arguments = (check.function, self._probe.address, self._probe.timeout)
                result = await self._blocking.run(call_function, *arguments)
                return CheckAnswer(502, "the function returned False") if result is False else CheckAnswer(OK)

    async def _check_http(self, check: HttpCheck, address: HostPort) -> CheckAnswer:
        headers = _build_headers(check, self._probe.address)
        name = urlsplit(f"//{headers['host']}").hostname
        async with self._connect(address, name) as (reader, writer):
            self.phase = "waiting for an answer"
            lines = [f"{check.method} {check.path} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            await writer.drain()
            status, answered = await _read_head(reader)
            if status != check.status:
                target = f" to {answered['location']}" if "location" in answered else ""
                return CheckAnswer(status, f"answered {status}{target}, expected {check.status}")
            if check.method == "HEAD" or status in _WITHOUT_BODY:
                return CheckAnswer(status)
            self.phase = "reading the body"
            body = await _read_body(reader, answered)
        if check.text is not None and check.text.encode() not in body:
            part = f"the first {len(body):,} bytes" if len(body) == MAX_BODY_BYTES else "the body"
            return CheckAnswer(status, f"answered {status}, but {part} did not contain {check.text!r}")
        return CheckAnswer(status)

    @asynccontextmanager
    async def _connect(
        self, address: HostPort, name: str | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect, and close the connection at the end. `name` is the one for which the certificate must be valid."""
        reader, writer = await self._open(address, name)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()  # `close` could wait for an endpoint that hangs

    async def _open(self, address: HostPort, name: str | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.phase = "looking up the host name"
        numbers = await self._resolve(address)
        self.phase = "connecting"
        errors: list[OSError] = []
        for number in numbers:
            try:
                if not address.is_tls:
                    return await asyncio.open_connection(number, address.port, limit=MAX_HEAD_BYTES)
                return await asyncio.open_connection(
                    number,
                    address.port,
                    limit=MAX_HEAD_BYTES,
                    ssl=self._tls.context,
                    server_hostname=name,
                )
            except ssl.SSLError:
                raise  # the endpoint was reached: another address of it would hide the failure
            except OSError as error:
                errors.append(error)
        raise errors[0]

    async def _resolve(self, address: HostPort) -> list[str]:
        """Return the IP addresses of a host in the order of the system."""
        try:
            return [str(ipaddress.ip_address(address.host))]
        except ValueError:
            found = await self._blocking.run(socket.getaddrinfo, address.host, address.port, 0, socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _build_headers(check: HttpCheck, address: str) -> dict[str, str]:
    """Return the headers of a request, with names in lower case: HTTP does not distinguish, and each occurs once."""
    return {
        "host": address.partition("://")[2].rstrip("/"),
        "user-agent": f"holdfast-canary/{holdfast.__version__}",
        "accept": "*/*",
        "connection": "close",
        **({"content-length": "0"} if check.method == "POST" else {}),
        **current_attempt().headers(),
        **_lower(check.headers),
    }


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of the answer. Raise ConnectionError if it is not HTTP."""
    while True:
        line = await _read_line(reader)
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise ConnectionError(f"the answer is not HTTP/1.1: {line[:40]!r}" if line else "closed without an answer")
        status, headers, left = int(found[1]), {}, MAX_HEAD_BYTES - len(line)
        while line := await _read_line(reader):
            left -= len(line)
            if left < 0:
                raise ConnectionError(f"the headers are longer than {MAX_HEAD_BYTES:,} bytes")
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        if status > _CONTINUE:
            return status, headers


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readline()
    except ValueError as error:
        raise ConnectionError(f"a line of the headers is longer than {MAX_HEAD_BYTES:,} bytes") from error
    return line.rstrip(b"\r\n")


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """Return the first `MAX_BODY_BYTES` of the body. Raise ConnectionError if it ends early or has another form."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    declared = headers.get("content-length")
    if declared is None:
        return await _read_up_to(reader, MAX_BODY_BYTES)
    if not declared.isascii() or not declared.isdecimal():
        raise ConnectionError(f"the answer has a Content-Length of {declared[:40]!r}")
    # Compare lengths as text first: Python refuses to convert thousands of digits.
    length = MAX_BODY_BYTES if len(declared.lstrip("0")) > 12 else min(int(declared), MAX_BODY_BYTES)
    body = await _read_up_to(reader, length)
    if len(body) < length:
        raise ConnectionError(f"the body ended after {len(body):,} of {declared} bytes")
    return body


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < MAX_BODY_BYTES:
        line = (await _read_line(reader)).partition(b";")[0].strip()
        try:
            length = int(line, 16)
        except ValueError as error:
            raise ConnectionError("the body ended early, or its chunks are invalid") from error
        if length <= 0:
            break
        wanted = min(length, MAX_BODY_BYTES - len(body))
        chunk = await _read_up_to(reader, wanted)
        body += chunk
        if len(chunk) < wanted:
            raise ConnectionError(f"the body ended early, after {len(body):,} bytes")
        if wanted == length:
            await _read_line(reader)  # the line end after a chunk
    return body


async def _read_up_to(reader: asyncio.StreamReader, length: int) -> bytes:
    """Return `length` bytes, or those that come before the end of the stream."""
    parts: list[bytes] = []
    while length > 0 and (part := await reader.read(min(length, READ_BYTES))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
