"""What is particular to requests: bodies that are files, streams, urllib3's timeouts, proxies, authentication."""

import gzip
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import urllib3
from requests.auth import HTTPDigestAuth

from holdfast import InvalidValue
from holdfast.calls import Attempted, Backoff, Dependency, Jitter, Kind, Retry, Timeouts, deadline
from holdfast.calls.adapters.requests import HoldfastAdapter, RequestsDeadlineExceeded
from holdfast.calls.ambient import SCOPE
from holdfast.calls.scope import Incoming
from tests.integration.calls.clients import Events
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
    trickle,
)

AT_ONCE = Backoff(base=0, cap=0, jitter=Jitter.NONE)


def pricing(**options: Any) -> Dependency:
    options.setdefault("timeouts", Timeouts(connect=2.0, attempt=2.0, total=10.0))
    options.setdefault("retry", Retry(backoff=AT_ONCE))
    return Dependency("pricing", sink=Events(), **options)


def failures(dependency: Dependency) -> list[Kind | None]:
    assert isinstance(dependency.sink, Events)
    return [event.failure for event in dependency.sink if isinstance(event, Attempted)]


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
    assert failures(dependency) == [Kind.TRANSIENT, None]


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
    assert failures(dependency) == [Kind.TRANSIENT, None]


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
        deadline(0.25),
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
        assert pickle.loads(pickle.dumps(response)).content == b"fine"


def test_without_any_bound_a_body_is_read_to_its_end() -> None:
    dependency = pricing(timeouts=Timeouts(total=None, attempt=None))
    with Server([chunks(b"one", b"two")]) as server, session_of(dependency) as session:
        with session.get(server.url, stream=True) as response:
            assert b"".join(response.iter_content(None)) == b"onetwo"
        assert session.get(server.url).content == b"onetwo"


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
    assert failures(dependency) == [Kind.PERMANENT, Kind.TRANSIENT, None]


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
    assert failures(dependency) == [Kind.TIMEOUT, None]


def test_a_request_through_a_proxy_is_measured_as_any_other(session: requests.Session, dependency: Dependency) -> None:
    with Server([drop, answer()]) as proxy:
        got = session.get("http://pricing.example/price", proxies={"http": proxy.url})
        assert (got.content, proxy.paths()) == (b"fine", ["http://pricing.example/price"] * 2)
    assert dependency.connects.seen.total == 2


def test_a_traceparent_of_the_callers_own_is_kept(session: requests.Session) -> None:
    token = SCOPE.set(Incoming(float("inf"), trace="00-incoming"))
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
    assert dependency.connects.seen.total == 0


def test_a_warm_up_whose_answer_breaks_off_is_not_ready(dependency: Dependency) -> None:
    with Server([drop_in_body]) as server, pytest.raises(requests.RequestException):
        HoldfastAdapter(dependency).warm_up(server.url, 2, method="GET")


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
