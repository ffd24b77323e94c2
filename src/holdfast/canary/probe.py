"""A probe of one zonal endpoint, its result, and the rules that turn an answer or an error into one. Pure."""

import errno
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from holdfast._errors import CallError, InvalidValue
from holdfast._names import check_workload_name, escape_unprintable, parse_zone
from holdfast._types import Operation, Outcome, RequestDetail, Side, Zone
from holdfast.calls.classify import FailureKind, classify
from holdfast.calls.outcomes import ASSUMED_STATUS
from holdfast.telemetry.bins import BIN_SECONDS

OK, BAD_ANSWER = 200, 502
MAX_OVERRUN = 1.0
"""Seconds by which a probe may exceed its timeout. After more than that, this process was too slow to measure: it was
paused, or its host is overloaded."""
MAX_ERROR_CHARACTERS = 300
OWN_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})
"""This host has no more files, memory or ports: that says nothing about the endpoint."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
# Latin-1 without control characters: https://www.rfc-editor.org/rfc/rfc9110#section-5.5
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_PATH = re.compile(r"/[!-~]*", re.ASCII)

HttpMethod: TypeAlias = Literal["GET", "HEAD", "POST"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCheck:
    """An HTTP request, without a body, and the answer that it must get. Redirects are answers: none is followed."""

    method: HttpMethod = "GET"
    path: str = "/"
    """Path and query."""
    status: int = 200
    text: str | None = None
    """Text that the first 256 KiB of the body must contain, in UTF-8."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """`Host` is also the name for which the endpoint's certificate must be valid."""

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise InvalidValue(f"path: expected one that begins with /, without spaces, found {self.path!r}")
        if not 200 <= self.status <= 599:
            raise InvalidValue(f"status: expected an HTTP status from 200 to 599, found {self.status}")
        if self.text is not None and (not self.text or self.method == "HEAD"):
            raise InvalidValue("text: expected some text, and a method other than HEAD, whose answers have no body")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise InvalidValue(f"headers: {name!r} or its value contains a character that is not allowed there")
            if name.lower() == "host":
                try:
                    parse_url(f"http://{value}")
                except InvalidValue as error:
                    raise InvalidValue(f"headers: Host is {value!r}: expected one such as shop.example.com") from error

    def check_address(self, address: str) -> None:
        parse_url(address)


@dataclass(frozen=True, slots=True)
class TcpCheck:
    """A TCP connection that the endpoint must accept."""

    def check_address(self, address: str) -> None:
        parse_host_port(address)


@dataclass(frozen=True, slots=True)
class PythonCheck:
    """A function, synchronous or not, that gets the endpoint's address. It fails by raising, or by returning False.

    It runs in a thread of its own, an asynchronous one with an event loop of its own, so that it delays no other probe.
    """

    function: Callable[[str], object]

    def check_address(self, address: str) -> None:
        if not address or not address.isprintable():
            raise InvalidValue(f"address {address!r}: expected printable text")


Check: TypeAlias = HttpCheck | TcpCheck | PythonCheck


class HostPort(NamedTuple):
    """An address to connect to."""

    host: str
    port: int
    is_tls: bool = False


def parse_url(address: str) -> HostPort:
    """Return the host and port of an HTTP URL. Raise InvalidValue if it is none, or has a path."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    is_url = parts.scheme in ("http", "https") and port != 0 and "@" not in parts.netloc
    if not is_url or not host or not _can_resolve(address, host):
        raise InvalidValue(f"address {address!r}: expected one such as https://use1-az1.shop.internal:8443")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidValue(f"address {address!r}: expected no path in it; set `path` instead")
    is_tls = parts.scheme == "https"
    return HostPort(host, port or (443 if is_tls else 80), is_tls)


def parse_host_port(address: str) -> HostPort:
    """Return the parts of `host:port` or `[ipv6]:port`. Raise InvalidValue if it has another form."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if not host or not port or parts.netloc != address or "@" in address or not _can_resolve(address, host):
        raise InvalidValue(f"address {address!r}: expected host:port, such as use1-az1.cache.internal:6379")
    return HostPort(host, port)


def _can_resolve(address: str, host: str) -> bool:
    """Return whether a host can be looked up: it is ASCII, without spaces, and its labels have 1 to 63 characters."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return address.isascii() and address.isprintable() and " " not in address


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A regular check of one operation of a workload, at its endpoint in one zone."""

    workload: str
    operation: Operation
    zone: Zone
    """The zone of the endpoint, which is the zone under test."""
    address: str
    """The endpoint: a URL without a path for HTTP, host:port for TCP, any text for a Python function."""
    check: Check
    interval: float = BIN_SECONDS
    """Seconds between two probes. One in each bin of the server, so that no bin is empty."""
    timeout: float = 5.0
    """Seconds for a whole probe. Half of the interval leaves the other half to spread the probes over."""

    def __post_init__(self) -> None:
        check_workload_name(self.workload)
        parse_zone(self.zone)
        self.check.check_address(self.address)
        if not 0 < self.timeout < self.interval <= 86_400:
            raise InvalidValue(
                f"timeout is {self.timeout:g} and interval {self.interval:g}: expected a timeout above 0 and below the "
                "interval, so that a probe ends before the next begins"
            )

    @property
    def name(self) -> str:
        return f"{self.workload} {self.operation} in {self.zone}"


class ResultKind(StrEnum):
    """Whether the endpoint did what was expected."""

    PASSED = "passed"
    FAILED = "failed"
    UNMEASURED = "unmeasured"
    """The canary's own host could not make the probe. Not sent as telemetry: it says nothing about the zone."""


class CheckAnswer(NamedTuple):
    """The answer of an endpoint."""

    status: int
    error: str | None = None
    """How the answer differs from the expected one; None if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of one probe."""

    probe: Probe
    at: float
    """When the probe ended, in seconds since the epoch."""
    seconds: float
    kind: ResultKind
    status: int | None
    """The HTTP status of the answer; without one, the status that a gateway would send: 502, 503 or 504. None if
    unmeasured."""
    error: str | None = None
    lag: float = 0.0
    """Seconds by which the probe began late."""
    has_changed: bool = False
    """Whether kind or status differ from those of the previous result. True for a first result that did not pass."""


def judge_answer(probe: Probe, answer: CheckAnswer, *, at: float, seconds: float) -> ProbeResult:
    """Return the result of a probe that was answered."""
    kind = ResultKind.PASSED if answer.error is None else ResultKind.FAILED
    return ProbeResult(probe=probe, at=at, seconds=seconds, kind=kind, status=answer.status, error=answer.error)


def judge_error(
    probe: Probe, error: Exception, *, at: float, seconds: float, phase: str, wall: Callable[[], float]
) -> ProbeResult:
    """Return the result of a probe that raised `error` in `phase`, such as `connecting`."""
    text = _describe(error)
    own = _find_own_error(error)
    if own is not None or seconds > probe.timeout + MAX_OVERRUN:
        text = own or f"this process took {seconds:.1f} s for a probe with a timeout of {probe.timeout:g} s"
        return ProbeResult(probe=probe, at=at, seconds=seconds, kind=ResultKind.UNMEASURED, status=None, error=text)
    failure = classify(error, wall)
    status = failure.status or ASSUMED_STATUS.get(failure.kind, BAD_ANSWER)
    if isinstance(error, CallError) and failure.kind is FailureKind.TIMEOUT:
        text = f"timed out after {probe.timeout:g} s, {phase}"
    return ProbeResult(probe=probe, at=at, seconds=seconds, kind=ResultKind.FAILED, status=status, error=text)


def _find_own_error(error: Exception) -> str | None:
    """Return the error if it is one of this host, and not of the endpoint."""
    is_own = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in OWN_ERRORS)
    return f"this host cannot probe: {_describe(error)}" if is_own else None


def _describe(error: Exception) -> str:
    """Return the class and message of an error as one line."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an error of a user's function, whose text cannot be built
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return escape_unprintable(text[:MAX_ERROR_CHARACTERS])


def build_outcome(result: ProbeResult) -> Outcome | None:
    """Return the outcome to send, or None if the probe was not measured.

    An answer as expected counts as 200, even if the expected status is 401. One that is not as expected is a fault,
    even if its status is below 500: it counts as 502.
    """
    probe = result.probe
    if result.status is None:
        return None
    passed = result.kind is ResultKind.PASSED
    status = OK if passed else result.status if result.status >= 500 else BAD_ANSWER
    return Outcome(
        workload=probe.workload,
        operation=probe.operation,
        zone=probe.zone,
        instance=probe.address,
        at=result.at,
        side=Side.CANARY,
        count_2xx=int(passed),
        count_5xx=int(not passed),
        success_seconds=(result.seconds,) if passed else (),
        fault_seconds=() if passed else (result.seconds,),
        detail=RequestDetail(status=status),
    )
