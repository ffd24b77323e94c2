"""Probes over real sockets: every way in which an endpoint answers, fails or hangs."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import pytest
import trustme

import holdfast
from holdfast import Operation, Outcome, Zone
from holdfast.calls import current_attempt, deadline, remaining
from holdfast.canary import Canary, HttpCheck, Probe, ProbeResult, PythonCheck, ResultKind, TcpCheck
from holdfast.canary.checks import MAX_BODY_BYTES, MAX_HEAD_BYTES
from holdfast.canary.probe import Check
from holdfast.testing import FakeClock
from tests.services.start import free_port

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PASSED, FAILED, UNMEASURED = ResultKind.PASSED, ResultKind.FAILED, ResultKind.UNMEASURED


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def emit(self, event: Outcome) -> None:
        self.outcomes.append(event)


def make_probe(address: str, check: Check | None = None, **more: Any) -> Probe:
    return Probe(
        workload="shop",
        operation=Operation("Home", "Index"),
        zone=Zone("use1-az1"),
        address=address,
        check=check or HttpCheck(),
        **more,
    )


def probe_once(address: str, check: Check | None = None, **more: Any) -> ProbeResult:
    [result] = asyncio.run(Canary([make_probe(address, check, **more)], Kept()).run_once())
    return result


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.001)


def has_threads() -> bool:
    return any(thread.name.startswith("holdfast-canary") for thread in threading.enumerate())


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> Any:
    server = await asyncio.start_server(handler, "127.0.0.1", 0, **options)
    async with server:
        yield server.sockets[0].getsockname()[1]


def answer_of(content: bytes, check: Check | None = None, *, closes: bool = True) -> tuple[ProbeResult, bytes]:
    """Probe an endpoint that sends these bytes; return the result, and the request that it got."""
    requests: list[bytes] = []
    finished = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(content)
            if closes:
                writer.write_eof()
            await finished.wait()
        except ConnectionError:
            pass  # the probe has seen enough
        finally:
            writer.close()

    async def run() -> ProbeResult:
        async with serving(handle) as port:
            [result] = await Canary([make_probe(f"http://127.0.0.1:{port}", check)], Kept()).run_once()
            finished.set()
            return result

    return asyncio.run(run()), requests[0]


def http(status: str = "200 OK", body: bytes = b"fine", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    if "Content_Length" not in headers and "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_an_answer_as_expected_passes_and_the_request_names_the_canary_and_its_deadline() -> None:
    check = HttpCheck(path="/health?deep=1", text="fine", headers={"Host": "shop.example.com", "X-Key": "k"})
    result, request = answer_of(http(), check)
    assert (result.kind, result.status, result.error) == (PASSED, 200, None)
    lines = request.decode().split("\r\n")
    assert lines[0] == "GET /health?deep=1 HTTP/1.1"
    sent = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert (sent["host"], sent["x-key"], sent["connection"]) == ("shop.example.com", "k", "close")
    assert sent["user-agent"] == f"holdfast-canary/{holdfast.__version__}"
    assert 0 < float(sent["holdfast-remaining"]) <= 5
    assert "holdfast-retry-owner" not in sent


ANSWERS: Mapping[str, tuple[bytes, HttpCheck, ResultKind, int, str | None]] = {
    "another status": (http("404 Not Found"), HttpCheck(), FAILED, 404, "answered 404, expected 200"),
    "a fault": (http("500 Oops"), HttpCheck(), FAILED, 500, "answered 500, expected 200"),
    "a redirect": (
        http("302 Found", Location="/login"),
        HttpCheck(),
        FAILED,
        302,
        "answered 302 to /login, expected 200",
    ),
    "an expected redirect": (http("302 Found", Location="/login"), HttpCheck(status=302), PASSED, 302, None),
    "an expected refusal": (http("401 Unauthorized"), HttpCheck(status=401), PASSED, 401, None),
    "no content": (http("204 No Content", b""), HttpCheck(status=204), PASSED, 204, None),
    "HEAD": (http(body=b"", Content_Length="9999"), HttpCheck(method="HEAD"), PASSED, 200, None),
    "POST": (http(), HttpCheck(method="POST"), PASSED, 200, None),
    "an interim answer": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + http(), HttpCheck(), PASSED, 200, None),
    "bare line ends": (b"HTTP/1.0 200 OK\n\nfine", HttpCheck(text="fine"), PASSED, 200, None),
    "no reason": (b"HTTP/1.1 200\r\n\r\nfine", HttpCheck(text="fine"), PASSED, 200, None),
    "another text": (
        http(),
        HttpCheck(text="good"),
        FAILED,
        200,
        "answered 200, but the body did not contain 'good'",
    ),
    "text split over chunks": (
        http(body=b"2;x=y\r\nfi\r\n2\r\nne\r\n0\r\n\r\n", Transfer_Encoding="chunked"),
        HttpCheck(text="fine"),
        PASSED,
        200,
        None,
    ),
    "text after the limit": (
        http(body=b"x" * MAX_BODY_BYTES + b"fine"),
        HttpCheck(text="fine"),
        FAILED,
        200,
        "answered 200, but the first 262,144 bytes did not contain 'fine'",
    ),
    "one huge chunk": (
        http(body=b"ffffffff\r\n" + b"x" * MAX_BODY_BYTES, Transfer_Encoding="chunked"),
        HttpCheck(),
        PASSED,
        200,
        None,
    ),
    "a short body": (
        http(body=b"fi", Content_Length="4"),
        HttpCheck(),
        FAILED,
        502,
        "ConnectionError: the body ended after 2 of 4 bytes",
    ),
    "a short chunk": (
        http(body=b"4\r\nfi", Transfer_Encoding="chunked"),
        HttpCheck(),
        FAILED,
        502,
        "ConnectionError: the body ended early, after 2 bytes",
    ),
    "no last chunk": (
        http(body=b"2\r\nfi\r\n", Transfer_Encoding="chunked"),
        HttpCheck(),
        FAILED,
        502,
        "ConnectionError: the body ended early, or its chunks are invalid",
    ),
    "a wrong length": (
        http(Content_Length="-1"),
        HttpCheck(),
        FAILED,
        502,
        "ConnectionError: the answer has a Content-Length of '-1'",
    ),
    "no answer": (b"", HttpCheck(), FAILED, 502, "ConnectionError: closed without an answer"),
    "no HTTP": (
        b"SSH-2.0-x\r\n",
        HttpCheck(),
        FAILED,
        502,
        "ConnectionError: the answer is not HTTP/1.1: b'SSH-2.0-x'",
    ),
    "endless line": (
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 3 * MAX_HEAD_BYTES,
        HttpCheck(),
        FAILED,
        502,
        "ConnectionError: a line of the headers is longer than 65,536 bytes",
    ),
    "endless headers": (
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
        HttpCheck(),
        FAILED,
        502,
        "ConnectionError: the headers are longer than 65,536 bytes",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_kind_of_answer_has_its_result(name: str) -> None:
    content, check, kind, status, error = ANSWERS[name]
    result, _ = answer_of(content, check)
    assert (result.kind, result.status, result.error) == (kind, status, error)


@pytest.mark.parametrize("length", ["1000000000", "9" * 5000])
def test_a_huge_body_is_read_only_up_to_the_limit(length: str) -> None:
    result, _ = answer_of(http(body=b"x" * MAX_BODY_BYTES, Content_Length=length), closes=False)
    assert (result.kind, result.status) == (PASSED, 200)


@pytest.mark.parametrize("check", [HttpCheck(), TcpCheck()])
def test_a_refused_connection_is_503(check: Check) -> None:
    scheme = "http://" if isinstance(check, HttpCheck) else ""
    result = probe_once(f"{scheme}127.0.0.1:{free_port()}", check)
    assert (result.kind, result.status) == (FAILED, 503)
    assert str(result.error).startswith("ConnectionRefusedError: ")


def test_a_name_that_cannot_be_resolved_is_503() -> None:
    result = probe_once("http://nothing.invalid")
    assert (result.kind, result.status) == (FAILED, 503)
    assert str(result.error).startswith("gaierror: ")


def test_a_name_is_resolved_and_an_open_port_passes_a_tcp_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = probe_once(f"localhost:{listener.getsockname()[1]}", TcpCheck())
    assert (result.kind, result.status, result.error) == (PASSED, 200, None)


HANGING: Mapping[str, tuple[bytes, str]] = {
    "before the head": (b"", "timed out after 5 s, waiting for an answer"),
    "in the head": (b"HTTP/1.1 200 OK\r\nContent-", "timed out after 5 s, waiting for an answer"),
    "in the body": (http(Content_Length="9"), "timed out after 5 s, reading the body"),
}


@pytest.mark.parametrize("name", HANGING)
def test_a_hanging_endpoint_is_504_after_the_timeout_and_delays_no_other_probe(name: str) -> None:
    content, told = HANGING[name]
    clock, sink = FakeClock(manual=True), Kept()

    async def run() -> list[ProbeResult]:
        seen, ended = asyncio.Event(), asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(content)
            await writer.drain()
            seen.set()
            await ended.wait()
            writer.close()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(http())
            await writer.drain()
            writer.close()

        async with serving(hang) as slow, serving(answer) as quick:
            probes = [make_probe(f"http://127.0.0.1:{port}") for port in (slow, quick)]
            probing = asyncio.create_task(Canary(probes, sink, clock=clock).run_once())
            await seen.wait()
            await until(lambda: bool(sink.outcomes))  # the other one has passed, while this one still hangs
            for _ in range(50):
                await asyncio.sleep(0)  # lets the probe read what was sent
            assert not probing.done()
            clock.advance(5.0)
            found = await probing
            ended.set()
            return found

    slow, quick = asyncio.run(run())
    assert (slow.kind, slow.status, slow.error, slow.seconds) == (FAILED, 504, told, 5.0)
    assert (quick.kind, quick.seconds) == (PASSED, 0.0)
    assert [(each.count_2xx, each.count_5xx) for each in sink.outcomes] == [(1, 0), (0, 1)]


def test_a_connection_that_hangs_is_504() -> None:
    """TLS to an endpoint that accepts the connection, and then says nothing."""
    clock = FakeClock(manual=True)

    async def run() -> ProbeResult:
        accepted, ended = asyncio.Event(), asyncio.Event()

        async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set()
            await ended.wait()
            writer.close()

        async with serving(hang) as port:
            probe = make_probe(f"https://127.0.0.1:{port}")
            probing = asyncio.create_task(Canary([probe], Kept(), clock=clock).run_once())
            await accepted.wait()
            clock.advance(5.0)
            [result] = await probing
            ended.set()
            return result

    result = asyncio.run(run())
    assert (result.kind, result.status, result.error) == (FAILED, 504, "timed out after 5 s, connecting")


# TLS


@contextmanager
def tls_endpoint(*names: str, authority: trustme.CA) -> Iterator[int]:
    """Serve HTTPS with a certificate for these names, in a thread."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    started, stop = threading.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http())
        await writer.drain()
        writer.close()

    async def serve() -> None:
        async with serving(answer, ssl=context) as port:
            ports.append(port)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.Runner(loop_factory=lambda: loop).run(serve()))
    thread.start()
    assert started.wait(60)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def authority(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """An authority that the environment trusts."""
    made = trustme.CA()
    path = tmp_path / "authority.pem"
    made.cert_pem.write_to_path(str(path))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return made


def test_a_trusted_certificate_passes_and_the_host_header_is_the_name_that_it_must_be_valid_for(
    authority: trustme.CA,
) -> None:
    with tls_endpoint("shop.example.com", "127.0.0.1", authority=authority) as port:
        assert probe_once(f"https://127.0.0.1:{port}").kind is PASSED
        assert probe_once(f"https://127.0.0.1:{port}", HttpCheck(headers={"host": "shop.example.com"})).kind is PASSED
        wrong = probe_once(f"https://127.0.0.1:{port}", HttpCheck(headers={"Host": "other.example.com:443"}))
    assert (wrong.kind, wrong.status) == (FAILED, 502)
    assert "certificate is not valid for 'other.example.com'" in str(wrong.error)


def test_an_untrusted_certificate_is_502(authority: trustme.CA) -> None:
    with tls_endpoint("127.0.0.1", authority=trustme.CA()) as port:
        result = probe_once(f"https://127.0.0.1:{port}")
    assert (result.kind, result.status) == (FAILED, 502)
    assert str(result.error).startswith("SSLCertVerificationError: ")


def test_an_endpoint_that_does_not_speak_tls_is_502() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def run() -> ProbeResult:
        async with serving(answer) as port:
            [result] = await Canary([make_probe(f"https://127.0.0.1:{port}")], Kept()).run_once()
            return result

    result = asyncio.run(run())
    assert (result.kind, result.status) == (FAILED, 502)
    assert str(result.error).startswith("SSLError: ")


# Python functions


def raises(error: BaseException) -> Callable[[str], object]:
    def check(_: str) -> None:
        raise error

    return check


async def passes_asynchronously(address: str) -> bool:
    await asyncio.sleep(0)
    return address == "use1-az1"


async def fails_asynchronously(_: str) -> bool:
    await asyncio.sleep(0)
    return False


FUNCTIONS: Mapping[str, tuple[Callable[[str], object], ResultKind, int | None, str | None]] = {
    "returns nothing": (lambda _: None, PASSED, 200, None),
    "is asynchronous": (passes_asynchronously, PASSED, 200, None),
    "returns False": (lambda _: False, FAILED, 502, "the function returned False"),
    "returns False asynchronously": (fails_asynchronously, FAILED, 502, "the function returned False"),
    "raises": (raises(AssertionError("no items")), FAILED, 502, "AssertionError: no items"),
    "raises a refusal": (raises(ConnectionRefusedError("no")), FAILED, 503, "ConnectionRefusedError: no"),
    "ends the process": (
        raises(SystemExit(3)),
        FAILED,
        502,
        "RuntimeError: the function raised SystemExit, which ends a process, and not only a check",
    ),
    "ends an iteration": (raises(StopIteration("x")), FAILED, 502, "RuntimeError: coroutine raised StopIteration"),
    "has no memory": (raises(MemoryError("m")), UNMEASURED, None, "this host cannot probe: MemoryError: m"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_end_of_a_function_has_its_result(name: str) -> None:
    function, kind, status, error = FUNCTIONS[name]
    result = probe_once("use1-az1", PythonCheck(function))
    assert (result.kind, result.status, result.error) == (kind, status, error)


def test_a_function_knows_the_deadline_of_its_probe_and_not_that_around_the_canary() -> None:
    seen: list[float | None] = []

    def check(_: str) -> None:
        seen.extend([remaining(), current_attempt().timeout])

    with deadline(0):
        assert probe_once("x", PythonCheck(check)).kind is PASSED
    assert all(left is not None and 3 < left <= 5 for left in seen)


def test_a_function_that_hangs_is_504_until_it_ends_and_has_one_thread_only() -> None:
    clock = FakeClock(manual=True)
    released, entered = threading.Event(), threading.Event()
    calls: list[str] = []

    def check(address: str) -> None:
        calls.append(address)
        entered.set()
        released.wait(60)

    async def run() -> list[ProbeResult]:
        canary = Canary([make_probe("x", PythonCheck(check))], Kept(), clock=clock)
        probing = asyncio.create_task(canary.run_once())
        await asyncio.to_thread(entered.wait, 60)
        clock.advance(5.0)
        first = await probing
        second = await canary.run_once()
        released.set()
        await until(lambda: not has_threads())
        third = await canary.run_once()
        return [*first, *second, *third]

    first, second, third = asyncio.run(run())
    assert (first.kind, first.status, first.error) == (FAILED, 504, "timed out after 5 s, in the function")
    assert (second.kind, second.status, second.error) == (FAILED, 504, "TimeoutError: an earlier call still runs")
    assert third.kind is PASSED
    assert calls == ["x", "x"]


def test_an_asynchronous_function_that_hangs_or_blocks_delays_no_other_probe() -> None:
    clock, sink = FakeClock(manual=True), Kept()
    entered, released = threading.Barrier(3), threading.Event()

    async def block(_: str) -> None:
        entered.wait(60)
        released.wait(60)  # not even awaited

    async def hang(_: str) -> None:
        entered.wait(60)
        await until(released.is_set)

    async def run() -> list[ProbeResult]:
        checks = [PythonCheck(function) for function in (block, hang, lambda _: True)]
        canary = Canary([make_probe("x", check) for check in checks], sink, clock=clock)
        probing = asyncio.create_task(canary.run_once())
        await asyncio.to_thread(entered.wait, 60)
        await until(lambda: bool(sink.outcomes))  # the last one has passed, while the others still hang
        clock.advance(5.0)
        return await probing

    results = asyncio.run(run())
    released.set()
    assert [(result.kind, result.status) for result in results] == [(FAILED, 504), (FAILED, 504), (PASSED, 200)]
    asyncio.run(until(lambda: not has_threads()))
