"""What is particular to requests: bodies that are files, streams, urllib3's timeouts, proxies, authentication."""

import gzip
import io
import os
import pickle
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import urllib3
from requests.auth import HTTPDigestAuth

from holdfast import CallError, InvalidValue
from holdfast.calls import Dependency, FailureKind, Retry, Timeouts, deadline
from holdfast.calls.adapters.requests import HoldfastAdapter, RequestsAttemptTimedOut, RequestsDeadlineExceeded
from holdfast.calls.context import SCOPE
from holdfast.calls.runtime import Runtime
from holdfast.calls.scope import IncomingScope
from holdfast.testing import FakeClock
from tests.integration.calls.clients import AT_ONCE, failures, pricing
from tests.integration.calls.servers import (
    Link,
    Seen,
    Server,
    answer,
    chunks,
    drop,
    drop_in_body,
    drop_in_chunks,
    hang,
    hang_in_body,
    trickle,
)


@pytest.fixture
def dependency() -> Dependency:
    return pricing()


@pytest.fixture
def session(dependency: Dependency) -> Iterator[requests.Session]:
    with session_of(dependency) as session:
        yield session


def session_of(dependency: Dependency, **options: Any) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", HoldfastAdapter(dependency, **options))
    return session


# Answers


def test_a_body_that_does_not_say_how_long_it_is_is_part_of_the_attempt(
    session: requests.Session, dependency: Dependency
) -> None:
    with Server([drop_in_chunks, chunks(b"all ", b"of it")]) as server:
        assert session.get(server.url).content == b"all of it"
    assert failures(dependency) == [FailureKind.TRANSIENT, None]


@pytest.mark.parametrize("act", [drop_in_body, drop_in_chunks])
def test_a_body_that_is_streamed_is_the_callers_to_read(session: requests.Session, act: Any) -> None:
    with Server([act]) as server, session.get(server.url, stream=True) as response:
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            list(response.iter_content(1_024))
        assert len(server.seen) == 1


def test_headers_that_break_off_after_a_whole_line_are_not_taken_for_an_answer(
    session: requests.Session, dependency: Dependency
) -> None:
    def after_a_line(link: Link, _: Seen) -> bool:
        link.send(b"HTTP/1.1 200 Said\r\nServer: this\r\n")
        return False

    with Server([after_a_line, answer()]) as server:
        assert session.get(server.url).content == b"fine"
    assert failures(dependency) == [FailureKind.TRANSIENT, None]


def test_the_socket_of_a_body_that_is_streamed_is_known(session: requests.Session) -> None:
    with (
        Server([hang_in_body]) as server,
        session.get(server.url, stream=True) as response,
        socket.socket(fileno=os.dup(response.raw.fileno())) as connection,
    ):
        assert connection.getpeername() == ("127.0.0.1", server.port)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_compressed_body_is_what_it_was(session: requests.Session, streamed: bool) -> None:
    with Server([answer(200, gzip.compress(b"9.99" * 50_000), Content_Encoding="gzip")]) as server:
        response = session.get(server.url, stream=streamed)
        assert response.text == "9.99" * 50_000
        session.get(server.url)
        assert server.connections == 1


def test_a_body_that_cannot_be_decompressed_is_the_error_of_requests(session: requests.Session) -> None:
    with (
        Server([answer(200, b"no gzip", Content_Encoding="gzip")]) as server,
        pytest.raises(requests.exceptions.ContentDecodingError),
    ):
        session.get(server.url)


def test_a_body_that_is_read_chunk_by_chunk_is_within_the_deadline(session: requests.Session) -> None:
    head = b"HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        Server([trickle(head)]) as server,
        deadline(1.0),
        session.get(server.url, stream=True) as response,
        pytest.raises(RequestsDeadlineExceeded),
    ):
        for _ in response.iter_lines(1, delimiter=b"\n"):
            pass


def test_a_failed_answer_that_is_streamed_is_closed_before_the_next_attempt() -> None:
    failed: list[requests.Response] = []

    def keep(error: Any) -> None:
        failed.append(error.response)

    dependency = pricing(retry=Retry(backoff=AT_ONCE, classify=keep))
    with (
        Server([answer(503, b"x" * 3_000_000), answer()]) as server,
        session_of(dependency) as session,
        session.get(server.url, stream=True) as response,
    ):
        assert response.content == b"fine"
        assert [before.raw.closed for before in failed] == [True]


def test_an_answer_can_be_pickled(session: requests.Session) -> None:
    with Server([answer()]) as server, session.get(server.url, stream=True) as response:
        back = pickle.loads(pickle.dumps(response))
        assert (back.content, read_by_chunks(back)) == (b"fine", b"fine")


def test_without_any_bound_a_body_is_read_to_its_end() -> None:
    dependency = pricing(timeouts=Timeouts(total=None, attempt=None))
    with Server([chunks(b"one", b"two")]) as server, session_of(dependency) as session:
        with session.get(server.url, stream=True) as response:
            assert b"".join(response.iter_content(None)) == b"onetwo"
        assert session.get(server.url).content == b"onetwo"


class SlowReads(HoldfastAdapter):
    """Lets each read of a body take two seconds, and keeps what it might have taken."""

    def __init__(self, dependency: Dependency, clock: FakeClock) -> None:
        super().__init__(dependency)
        self.given: list[float | None] = []
        self.clock = clock

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        read = resp.read1

        def read1(*args: Any, **kwargs: Any) -> bytes:
            if resp._fp.fp is not None:
                self.given.append(resp._fp.fp.raw._sock.gettimeout())
            part: bytes = read(*args, **kwargs)
            self.clock.advance(2.0)
            return part

        resp.read1 = read1
        return super().build_response(req, resp)


def pausing(seconds: float) -> Any:
    """Answer with a body that has a pause in its middle."""

    def act(link: Link, _: Seen) -> bool:
        link.send(b"HTTP/1.1 200 Said\r\nContent-Length: 8\r\n\r\none ")
        link.stopping.wait(seconds)
        link.send(b"two ")
        return True

    return act


def read_by_chunks(response: requests.Response) -> bytes:
    return b"".join(response.iter_content(4))


def read_raw(response: requests.Response) -> bytes:
    body: bytes = response.raw.read()
    return body


@pytest.mark.parametrize("read", [read_by_chunks, read_raw])
def test_a_stream_may_pause_for_longer_than_an_attempt(read: Any) -> None:
    dependency = pricing(timeouts=Timeouts(attempt=0.15, total=10.0))
    with Server([pausing(0.3)]) as server, session_of(dependency) as session:
        assert read(session.get(server.url, stream=True)) == b"one two "


@pytest.mark.parametrize("timeout", [0.4, (2.0, 0.4), urllib3.Timeout(read=0.4), urllib3.Timeout(total=0.4)])
def test_a_stream_may_pause_no_longer_than_the_session_says(session: requests.Session, timeout: Any) -> None:
    with (
        Server([hang_in_body]) as server,
        session.get(server.url, stream=True, timeout=timeout) as response,
        pytest.raises(requests.ConnectionError) as caught,
    ):
        read_by_chunks(response)
    assert not isinstance(caught.value, RequestsDeadlineExceeded)


def test_a_pause_in_a_stream_ends_with_the_deadline(session: requests.Session) -> None:
    with (
        Server([hang_in_body]) as server,
        deadline(1.0),
        session.get(server.url, stream=True) as response,
        pytest.raises(RequestsDeadlineExceeded, match="while the response was read"),
    ):
        read_by_chunks(response)


def test_each_read_of_a_body_takes_at_most_what_is_left_of_the_attempt() -> None:
    """The part that came late in the attempt does not buy the next one as much time again."""
    clock = FakeClock()
    adapter = SlowReads(pricing(timeouts=Timeouts(attempt=5.0, total=10.0), runtime=Runtime(clock, lambda: 0.5)), clock)
    with Server([chunks(b"one ", b"two")]) as server, requests.Session() as session:
        session.mount("http://", adapter)
        assert session.get(server.url).content == b"one two"
        assert adapter.given == [5.0, 3.0, 1.0]
        adapter.given.clear()
        session.get(server.url, timeout=4.0)
        assert adapter.given == [4.0, 3.0, 1.0], "that of the session holds as well"


@pytest.mark.parametrize(
    ("total", "error"), [(20.0, RequestsAttemptTimedOut), (5.0, RequestsDeadlineExceeded)], ids=["attempt", "deadline"]
)
def test_a_body_whose_parts_all_come_in_time_is_cut_off_when_they_are_too_many(
    total: float, error: type[Exception]
) -> None:
    clock = FakeClock()
    dependency = pricing(
        timeouts=Timeouts(attempt=5.0, total=total), retry=Retry(max_attempts=1), runtime=Runtime(clock, lambda: 0.5)
    )
    with Server([chunks(b"1", b"2", b"3", b"4")]) as server, requests.Session() as session:
        session.mount("http://", SlowReads(dependency, clock))
        with pytest.raises(error, match="attempt 1"):
            session.get(server.url)


def test_a_stream_whose_parts_all_come_in_time_ends_with_the_deadline() -> None:
    clock = FakeClock()
    dependency = pricing(timeouts=Timeouts(attempt=5.0, total=10.0), runtime=Runtime(clock, lambda: 0.5))
    with (
        Server([chunks(b"1", b"2", b"3")]) as server,
        session_of(dependency) as session,
        session.get(server.url, stream=True) as response,
    ):
        parts = response.iter_content(None)
        assert next(parts) == b"1"
        clock.advance(9.0)
        assert next(parts) == b"2"
        clock.advance(1.0)
        with pytest.raises(RequestsDeadlineExceeded):
            next(parts)


@pytest.mark.parametrize("act", [hang, hang_in_body])
def test_an_attempt_whose_own_time_is_over_says_so(act: Any) -> None:
    dependency = pricing(timeouts=Timeouts(attempt=0.15, total=10.0), retry=Retry(max_attempts=1))
    with Server([act]) as server, session_of(dependency) as session:
        for _ in range(2):  # the second time there is a connection to be set up again
            with pytest.raises(RequestsAttemptTimedOut, match="attempt 1 timed out") as caught:
                session.get(server.url)
            # On a busy machine the time may be over before a part of the body is waited for.
            assert isinstance(caught.value.__cause__, requests.ReadTimeout) or act is hang_in_body


@pytest.mark.parametrize("act", [hang, hang_in_body])
def test_an_attempt_that_ends_with_the_deadline_says_so(session: requests.Session, act: Any) -> None:
    with Server([act]) as server, deadline(1.0), pytest.raises(RequestsDeadlineExceeded, match="deadline passed"):
        session.get(server.url)


@pytest.mark.parametrize("act", [hang, hang_in_body])
def test_a_timeout_of_the_session_stays_that_of_requests(act: Any) -> None:
    dependency = pricing(retry=Retry(max_attempts=1))
    with Server([act]) as server, session_of(dependency) as session:
        with pytest.raises(requests.ReadTimeout) as caught:
            session.get(server.url, timeout=(10.0, 0.1))
        assert not isinstance(caught.value, CallError)


def test_a_body_that_nobody_takes_ends_with_the_attempt() -> None:
    dependency = pricing(timeouts=Timeouts(attempt=0.2, total=10.0), retry=Retry(max_attempts=1))
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        session_of(dependency) as session,
        pytest.raises(RequestsAttemptTimedOut),
    ):
        session.put(f"http://127.0.0.1:{deaf.getsockname()[1]}", data=b"x" * 50_000_000)
    assert failures(dependency) == [FailureKind.TIMEOUT]


def test_a_connection_that_breaks_when_the_time_is_over_is_still_a_broken_one() -> None:
    clock = FakeClock()
    dependency = pricing(retry=Retry(max_attempts=1), runtime=Runtime(clock, lambda: 0.5))

    class Slow(HoldfastAdapter):
        def add_headers(self, request: requests.PreparedRequest, **kwargs: Any) -> None:
            clock.advance(5.0)
            raise requests.ConnectionError("broken")

    with requests.Session() as session:
        session.mount("http://", Slow(dependency))
        with pytest.raises(requests.ConnectionError, match="broken") as caught:
            session.get("http://127.0.0.1:9")
    assert not isinstance(caught.value, CallError)


# Requests


def test_a_file_is_wound_back_to_where_it_stood(session: requests.Session) -> None:
    file = io.BytesIO(b"skipped, sent")
    file.seek(9)
    with Server([drop, answer()]) as server:
        session.put(server.url, data=file)
        assert [seen.body for seen in server.seen] == [b"sent", b"sent"]


def test_forms_and_uploads_are_repeated(session: requests.Session) -> None:
    with Server([drop, answer()]) as server:
        session.put(server.url, files={"report": io.BytesIO(b"rows")})
        assert server.seen[0].body == server.seen[1].body
        assert b"rows" in server.seen[1].body


def test_authentication_that_asks_again_begins_with_the_request_as_it_was(
    session: requests.Session, dependency: Dependency
) -> None:
    challenge = 'Digest realm="prices", nonce="abc", qop="auth", algorithm=SHA-256'
    with Server([answer(401, b"", WWW_Authenticate=challenge), drop, answer()]) as server:
        response = session.get(server.url, auth=HTTPDigestAuth("me", "secret"))
        assert response.content == b"fine"
        assert "Digest" in server.seen[2].headers["authorization"]
    assert "holdfast-remaining" not in response.request.headers
    assert failures(dependency) == [FailureKind.PERMANENT, FailureKind.TRANSIENT, None]


@pytest.mark.parametrize(
    "timeout", [0.15, (2.0, 0.15), urllib3.Timeout(connect=2.0, read=0.15), urllib3.Timeout(total=0.15)]
)
def test_every_kind_of_timeout_holds(session: requests.Session, timeout: Any) -> None:
    with Server([hang, answer()]) as server:
        assert session.get(server.url, timeout=timeout).content == b"fine"
        assert len(server.seen) == 2


@pytest.mark.parametrize("timeout", [None, (None, None), urllib3.Timeout(None)])
def test_an_attempts_time_holds_if_there_is_no_other(timeout: Any) -> None:
    dependency = pricing(timeouts=Timeouts(connect=2.0, attempt=0.15))
    with Server([hang, answer()]) as server, session_of(dependency) as session:
        assert session.get(server.url, timeout=timeout).content == b"fine"
    assert failures(dependency) == [FailureKind.TIMEOUT, None]


def test_a_request_through_a_proxy_is_measured_as_any_other(session: requests.Session, dependency: Dependency) -> None:
    with Server([drop, answer()]) as proxy:
        got = session.get("http://pricing.example/price", proxies={"http": proxy.url})
        assert (got.content, proxy.paths()) == (b"fine", ["http://pricing.example/price"] * 2)
    assert dependency._state.connect_estimator.histogram.total == 2


def test_a_traceparent_of_the_callers_own_is_kept(session: requests.Session) -> None:
    token = SCOPE.set(IncomingScope(float("inf"), trace="00-incoming"))
    try:
        with Server([answer()]) as server:
            session.get(server.url)
            session.get(server.url, headers={"traceparent": "00-own"})
    finally:
        SCOPE.reset(token)
    assert [seen.headers["traceparent"] for seen in server.seen] == ["00-incoming", "00-own"]


# The adapter itself


def test_connections_that_no_attempt_makes_are_as_those_of_urllib3(dependency: Dependency) -> None:
    adapter = HoldfastAdapter(dependency)
    with Server([answer()]) as server:
        assert adapter.poolmanager.request("GET", server.url).data == b"fine"
        adapter.close()
    assert dependency._state.connect_estimator.histogram.total == 0


def test_a_warm_up_whose_answer_breaks_off_is_not_ready(dependency: Dependency) -> None:
    with Server([drop_in_body]) as server, pytest.raises(requests.RequestException):
        HoldfastAdapter(dependency).warm_up(server.url, 2, method="GET")


def test_an_adapter_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'pricing': expected a Dependency"):
        HoldfastAdapter("pricing")  # type: ignore[arg-type]


@pytest.mark.parametrize("retries", [1, 3, urllib3.Retry(2)])
def test_retries_of_urllib3_are_refused(retries: Any) -> None:
    with pytest.raises(InvalidValue, match="expected 0"):
        HoldfastAdapter(pricing(), max_retries=retries)


def test_an_adapter_cannot_be_pickled(dependency: Dependency) -> None:
    with pytest.raises(InvalidValue, match="pickled"):
        pickle.dumps(HoldfastAdapter(dependency))


def test_no_more_connections_are_warmed_up_than_are_kept(dependency: Dependency) -> None:
    with pytest.raises(InvalidValue, match="at most 2"):
        HoldfastAdapter(dependency, pool_maxsize=2).warm_up("http://127.0.0.1:9", 3)


def test_an_error_that_has_an_answer_and_is_not_of_the_adapter_stays_one(dependency: Dependency) -> None:
    class Refusing(HoldfastAdapter):
        def add_headers(self, request: requests.PreparedRequest, **kwargs: Any) -> None:
            raise requests.HTTPError("no", response=requests.Response())

    with requests.Session() as session:
        session.mount("http://", Refusing(dependency))
        with pytest.raises(requests.HTTPError):
            session.get("http://127.0.0.1:9")
