"""Probes refuse wrong values, and every answer and error becomes one result and at most one outcome."""

import errno
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast import InvalidValue, Operation, Side, Zone
from holdfast._errors import AttemptTimedOut, DeadlineExceeded
from holdfast.canary.probe import (
    CheckAnswer,
    HttpCheck,
    Probe,
    ProbeResult,
    PythonCheck,
    ResultKind,
    TcpCheck,
    build_outcome,
    judge_answer,
    judge_error,
    parse_host_port,
    parse_url,
)
from tests.table import every_row

GOOD: Mapping[str, Any] = {
    "workload": "shop",
    "operation": Operation("Home", "Index"),
    "zone": Zone("use1-az1"),
    "address": "http://127.0.0.1:8080",
    "check": HttpCheck(),
}
PROBE = Probe(**GOOD)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def failed(error: Exception, seconds: float = 0.1) -> ProbeResult:
    return judge_error(PROBE, error, at=50.0, seconds=seconds, phase="connecting", wall=lambda: 50.0)


def test_addresses_are_split_into_host_port_and_tls() -> None:
    assert parse_url("http://a.example") == ("a.example", 80, False)
    assert parse_url("https://a.example/") == ("a.example", 443, True)
    assert parse_url("https://[::1]:8443") == ("::1", 8443, True)
    assert parse_host_port("a.example:6379") == ("a.example", 6379, False)
    assert parse_host_port("[::1]:6379") == ("::1", 6379, False)


def test_a_wrong_value_is_refused_with_its_name() -> None:
    def check(row: tuple[dict[str, Any], str]) -> None:
        changed, told = row
        with pytest.raises(InvalidValue, match=told):
            Probe(**{**GOOD, **changed})

    rows: list[tuple[dict[str, Any], str]] = [
        ({"workload": "a b"}, "workload 'a b'"),
        ({"zone": "us-east-1a"}, "name of a zone"),
        ({"timeout": 10.0}, "timeout is 10 and interval 10"),
        ({"timeout": 0.0}, "timeout is 0 and interval 10"),
        ({"interval": 90_000.0}, "interval 90000"),
        *[
            ({"address": address}, "expected one such as https://")
            for address in (
                *("a.example", "ftp://a.example", "http://", "http://a:0", "http://a:x", "http://[::1"),
                *("http://me:word@a", "http://a b", "http://a\n", "http://b\xfccher.example"),
                *("http://a..b", f"http://{'a' * 64}"),  # no name can be looked up that has such a label
            )
        ],
        ({"address": "http://a/health"}, "expected no path in it; set `path` instead"),
        ({"address": "http://a?x=1"}, "expected no path"),
        ({"address": "http://a#x"}, "expected no path"),
        *[
            ({"address": address, "check": TcpCheck()}, "expected host:port")
            for address in ("a", "a:0", "a:x", ":80", "a:80/x", "me@a:80", "a b:80", "[::1", "a..b:80")
        ],
        ({"address": "", "check": PythonCheck(bool)}, "expected printable text"),
        ({"address": "a\n", "check": PythonCheck(bool)}, "expected printable text"),
    ]
    every_row(rows, check)


def test_a_wrong_part_of_an_http_check_is_refused_with_its_name() -> None:
    def check(row: tuple[dict[str, Any], str]) -> None:
        changed, told = row
        with pytest.raises(InvalidValue, match=told):
            HttpCheck(**changed)

    rows: list[tuple[dict[str, Any], str]] = [
        ({"path": "health"}, "path: expected"),
        ({"path": "/a b"}, "path: expected"),
        ({"path": "/a\r\nX: y"}, "path: expected"),
        ({"status": 199}, "status: expected"),
        ({"status": 600}, "status: expected"),
        ({"text": ""}, "text: expected"),
        ({"text": "x", "method": "HEAD"}, "text: expected"),
        ({"headers": {"a b": "c"}}, "headers: 'a b'"),
        ({"headers": {"A": "b\r\nC: d"}}, "headers: 'A'"),
        ({"headers": {"A": "\u20ac"}}, "headers: 'A'"),
        ({"headers": {"host": "["}}, r"headers: Host is '\['"),
        ({"headers": {"Host": "a b"}}, "headers: Host is 'a b'"),
    ]
    every_row(rows, check)


def test_values_that_are_right_are_accepted() -> None:
    assert HttpCheck(headers={"Host": "shop.example.com", "X-Note": "caf\xe9"}).headers["X-Note"] == "caf\xe9"
    assert Probe(**{**GOOD, "address": "orders of use1-az1", "check": PythonCheck(bool)}).timeout == 5.0


def test_a_probe_is_named_by_workload_operation_and_zone() -> None:
    assert PROBE.name == "shop Home/Index in use1-az1"


def test_errors_become_the_status_that_a_gateway_would_send() -> None:
    response = type("Response", (), {"status_code": 429, "headers": {}})()
    answered = RuntimeError("busy")
    answered.response = response  # type: ignore[attr-defined]

    def check(row: tuple[Exception, int, str]) -> None:
        error, status, text = row
        result = failed(error)
        assert (result.kind, result.status, result.error) == (ResultKind.FAILED, status, text)

    every_row(
        [
            (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), 503, "ConnectionRefusedError: [Errno 111] refused"),
            (socket.gaierror(-2, "not known"), 503, "gaierror: [Errno -2] not known"),
            (ConnectionResetError("reset"), 502, "ConnectionResetError: reset"),
            (ssl.SSLError("bad record"), 502, "SSLError: ('bad record',)"),
            (ssl.SSLCertVerificationError("expired"), 502, "SSLCertVerificationError: ('expired',)"),
            (DeadlineExceeded("x"), 504, "timed out after 5 s, connecting"),
            (AttemptTimedOut("x"), 504, "timed out after 5 s, connecting"),
            (TimeoutError("the database did not answer"), 504, "TimeoutError: the database did not answer"),
            (AssertionError(), 502, "AssertionError"),
            (ValueError("a\nb"), 502, "ValueError: a\\nb"),
            (answered, 429, "RuntimeError: busy"),
            (Unprintable(), 502, "Unprintable"),
        ],
        check,
    )


@pytest.mark.parametrize(
    ("error", "seconds", "told"),
    [
        (OSError(errno.EMFILE, "too many open files"), 0.1, "this host cannot probe: OSError: [Errno 24] too many"),
        (MemoryError("no thread can be started"), 0.1, "this host cannot probe: MemoryError: no thread"),
        (DeadlineExceeded("x"), 6.1, "this process took 6.1 s for a probe with a timeout of 5 s"),
    ],
)
def test_a_failure_of_the_canarys_own_host_is_not_sent(error: Exception, seconds: float, told: str) -> None:
    result = failed(error, seconds)
    assert (result.kind, result.status) == (ResultKind.UNMEASURED, None)
    assert str(result.error).startswith(told)
    assert build_outcome(result) is None


def test_an_outcome_is_on_the_side_of_the_canary_for_the_zone_under_test() -> None:
    outcome = build_outcome(judge_answer(PROBE, CheckAnswer(200), at=50.0, seconds=0.25))
    assert outcome is not None
    assert (outcome.side, outcome.zone, outcome.instance) == (Side.CANARY, "use1-az1", "http://127.0.0.1:8080")
    assert (outcome.workload, outcome.operation, outcome.at) == ("shop", Operation("Home", "Index"), 50.0)
    assert (outcome.count_2xx, outcome.success_seconds, outcome.is_ignored) == (1, (0.25,), False)


def test_an_answer_counts_as_success_if_it_is_expected_and_otherwise_as_a_fault() -> None:
    def check(row: tuple[int, str | None, int]) -> None:
        status, error, faults = row
        outcome = build_outcome(judge_answer(PROBE, CheckAnswer(status, error), at=50.0, seconds=0.25))
        assert outcome is not None
        assert (outcome.count_2xx, outcome.count_5xx) == (1 - faults, faults)
        assert outcome.count_3xx == outcome.count_4xx == 0

    every_row(
        [
            (200, None, 0),
            (401, None, 0),
            (301, None, 0),
            (404, "expected 200", 1),
            (302, "expected 200", 1),
            (200, "text is missing", 1),
            (503, "expected 200", 1),
        ],
        check,
    )
