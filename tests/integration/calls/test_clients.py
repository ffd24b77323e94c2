"""What every HTTP client does that calls as a dependency says, over real sockets, against servers that misbehave."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme

from holdfast import (
    AttemptTimedOut,
    CallError,
    DeadlineExceeded,
    InvalidValue,
    LimitReached,
    RetryAfterTooLong,
    Zone,
)
from holdfast.calls import (
    Dependency,
    Endpoints,
    Failure,
    FailureKind,
    Limit,
    NoEndpoint,
    Retry,
    RetryAfter,
    RetryAfterScope,
    Timeouts,
    deadline,
)
from holdfast.calls.events import AttemptEnded, GaveUp, Retrying
from holdfast.calls.retry import GiveUpReason
from holdfast.calls.runtime import Runtime
from holdfast.testing import FakeClock
from tests.integration.calls.clients import AT_ONCE, KINDS, Client, Events, opened, pricing
from tests.integration.calls.servers import (
    Act,
    Link,
    Seen,
    Server,
    answer,
    chunks,
    drop,
    drop_in_body,
    drop_in_headers,
    hang,
    hang_in_body,
    then_close,
    trickle,
)
from tests.services.start import free_port

Connect = Callable[..., Client]


def impatient(**options: Any) -> Dependency:
    """One whose attempts are cut off soon."""
    return pricing(timeouts=Timeouts(connect=2.0, attempt=0.15, total=10.0), **options)


def happened(dependency: Dependency, kind: type[Any]) -> list[Any]:
    assert isinstance(dependency.sink, Events)
    return [event for event in dependency.sink if isinstance(event, kind)]


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one kind, and closes them."""
    with ExitStack() as stack:

        def make(dependency: Dependency, trusted: str | None = None, **options: Any) -> Client:
            return stack.enter_context(opened(request.param, dependency, trusted, **options))

        yield make


@pytest.fixture(params=["httpx", "httpx-async", "requests"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def identity(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def trusted(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("tls") / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


# Answers


def test_a_good_answer_is_one_attempt(connect: Connect) -> None:
    dependency = pricing()
    with Server([answer(200, b"9.99")]) as server:
        got = connect(dependency).send("GET", f"{server.url}/price?sku=1")
    assert (got.status, got.body, server.paths()) == (200, b"9.99", ["/price?sku=1"])
    assert [(it.number, it.failure, it.operation.name) for it in happened(dependency, AttemptEnded)] == [
        (1, None, "GET")
    ]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_an_answer_that_is_a_transient_failure_is_repeated(connect: Connect, status: int) -> None:
    dependency = pricing()
    with Server([answer(status, b"busy"), answer()]) as server:
        got = connect(dependency).send("GET", server.url)
    assert (got.status, got.body, len(server.seen)) == (200, b"fine", 2)
    assert [it.status for it in happened(dependency, AttemptEnded)] == [status, None]


@pytest.mark.parametrize("status", [400, 401, 404, 501])
def test_an_answer_that_would_be_the_same_again_is_returned(connect: Connect, status: int) -> None:
    with Server([answer(status, b"no")]) as server:
        got = connect(pricing()).send("GET", server.url)
    assert (got.status, got.body, len(server.seen)) == (status, b"no", 1)


def test_the_last_failed_answer_is_returned_and_can_be_read(connect: Connect) -> None:
    dependency = pricing()
    large = b"x" * 200_000
    with Server([answer(503, b"one"), answer(503, b"two"), answer(503, large)]) as server:
        got = connect(dependency).send("GET", server.url)
    assert (got.status, got.body, len(server.seen)) == (503, large, 3)
    assert happened(dependency, GaveUp)[0].reason is GiveUpReason.MAX_ATTEMPTS


def test_answers_that_are_repeated_leave_their_connection_to_the_next_attempt(connect: Connect) -> None:
    with Server([answer(503, b"one"), chunks(b"tw", b"o", status=503), answer()]) as server:
        got = connect(pricing()).send("GET", server.url)
    assert (got.status, [seen.connection for seen in server.seen]) == (200, [1, 1, 1])


def test_a_large_failed_answer_is_closed_before_the_next_attempt(connect: Connect) -> None:
    with Server([answer(503, b"x" * 200_000), answer()]) as server:
        got = connect(pricing(), connections=1).send("GET", server.url)
    assert (got.status, got.body, len(server.seen)) == (200, b"fine", 2)


def test_a_status_that_may_turn_into_success_is_repeated_if_so_said(connect: Connect) -> None:
    dependency = pricing(retry=Retry(backoff=AT_ONCE, eventually_consistent=frozenset({404})))
    with Server([answer(404), answer(200, b"there")]) as server:
        got = connect(dependency).send("GET", server.url)
    assert (got.status, got.body, len(server.seen)) == (200, b"there", 2)


def test_the_dependencys_own_judgement_of_answers_goes_on_working(connect: Connect) -> None:
    def classify_result(response: Any) -> Failure | None:
        return Failure(FailureKind.TRANSIENT) if response.headers.get("x-state") == "busy" else None

    dependency = pricing(retry=Retry(max_attempts=2, backoff=AT_ONCE, classify_result=classify_result))
    with Server([answer(200, b"", X_State="busy"), answer(), answer(400, b"", X_State="busy"), answer()]) as server:
        client = connect(dependency)
        assert client.send("GET", server.url).body == b"fine"
        assert client.send("GET", server.url).body == b"fine"
        assert len(server.seen) == 4


def test_redirects_are_followed_and_each_is_a_call_of_its_own(connect: Connect) -> None:
    dependency = pricing()
    with Server([answer(302, b"", Location="/there"), drop, answer(200, b"there")]) as server:
        got = connect(dependency).send("GET", f"{server.url}/here")
    assert (got.body, server.paths()) == (b"there", ["/here", "/there", "/there"])
    assert [it.number for it in happened(dependency, AttemptEnded)] == [1, 1, 2]


# Broken connections


@pytest.mark.parametrize("act", [drop, drop_in_headers, drop_in_body])
def test_a_request_whose_connection_breaks_is_repeated(connect: Connect, act: Act) -> None:
    dependency = pricing()
    with Server([act, answer()]) as server:
        got = connect(dependency).send("GET", server.url)
    assert (got.body, len(server.seen)) == (b"fine", 2)
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.TRANSIENT, None]


@pytest.mark.parametrize("act", [drop, drop_in_headers, drop_in_body, answer(503, b"busy")])
def test_a_request_with_effects_is_sent_once_whatever_happens_to_the_answer(connect: Connect, act: Act) -> None:
    dependency = pricing()
    client = connect(dependency)
    with Server([act, answer()]) as server:
        with suppress(client.error):
            client.send("POST", server.url, content=b"order")
        assert [seen.body for seen in server.seen] == [b"order"]
    assert happened(dependency, GaveUp)[0].reason is GiveUpReason.NOT_IDEMPOTENT


def test_a_request_with_effects_is_repeated_when_no_connection_came_about(connect: Connect) -> None:
    with ExitStack() as stack:
        server = Server([answer(201, b"ordered")], port=free_port())

        class Starting(Events):
            def emit(self, event: Any) -> None:
                super().emit(event)
                if isinstance(event, Retrying):
                    stack.enter_context(server)

        dependency = pricing(sink=Starting())
        got = connect(dependency).send("POST", f"http://127.0.0.1:{server.port}", content=b"order")
        assert (got.status, [seen.body for seen in server.seen]) == (201, [b"order"])
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.UNSENT, None]


def test_a_port_that_nobody_listens_on_is_an_error_of_the_library_after_all_attempts(connect: Connect) -> None:
    dependency = pricing()
    client = connect(dependency)
    with pytest.raises(client.error) as caught:
        client.send("GET", f"http://127.0.0.1:{free_port()}")
    assert "3 attempts" in caught.value.__notes__[0]
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.UNSENT] * 3


def test_an_idle_connection_that_the_server_closed_costs_no_attempt(connect: Connect) -> None:
    dependency = pricing()
    client = connect(dependency)
    with Server([then_close(answer()), answer()]) as server:
        client.send("GET", server.url)
        assert server.closed.acquire(timeout=5)
        client.send("POST", server.url, content=b"order")
        assert (server.connections, len(server.seen)) == (2, 2)
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [None, None]


# Time


def test_a_server_that_never_answers_is_given_up_and_asked_again(connect: Connect) -> None:
    dependency = impatient()
    with Server([hang, answer()]) as server:
        got = connect(dependency).send("GET", server.url)
        assert (got.body, len(server.seen)) == (b"fine", 2)
        assert server.closed.acquire(timeout=5), "the connection of the attempt that was given up is closed"
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.TIMEOUT, None]


def test_a_server_that_never_answers_ends_in_a_timeout_of_the_library(connect: Connect) -> None:
    dependency = impatient(retry=Retry(max_attempts=2, backoff=AT_ONCE))
    client = connect(dependency)
    with Server([hang]) as server:
        with pytest.raises(client.error) as caught:
            client.send("GET", server.url)
        assert len(server.seen) == 2
    assert "2 attempts" in caught.value.__notes__[0]


def test_a_body_that_stops_in_the_middle_is_given_up_and_asked_for_again(connect: Connect) -> None:
    dependency = impatient()
    with Server([hang_in_body, answer()]) as server:
        got = connect(dependency).send("GET", server.url)
        assert (got.body, len(server.seen)) == (b"fine", 2)
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.TIMEOUT, None]


def test_a_body_that_trickles_is_cut_off_though_each_read_is_in_time(connect: Connect) -> None:
    dependency = impatient(retry=Retry(max_attempts=1))
    client = connect(dependency)
    head = b"HTTP/1.1 200 Said\r\nContent-Length: 1000000\r\n\r\n"
    with Server([trickle(head)]) as server, pytest.raises(AttemptTimedOut) as caught:
        client.send("GET", server.url)
    assert isinstance(caught.value, client.error)


def test_headers_that_trickle_are_cut_off_though_each_read_is_in_time(connect: Connect) -> None:
    dependency = impatient()
    client = connect(dependency)
    with Server([trickle(b"HTTP/1.1 200 Said\r\nX-Slow: "), answer()]) as server:
        assert client.send("GET", server.url).body == b"fine"
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.TIMEOUT, None]


def test_headers_that_trickle_end_with_the_deadline(connect: Connect) -> None:
    client = connect(pricing())
    with (
        Server([trickle(b"HTTP/1.1 200 Said\r\nX-Slow: ")]) as server,
        deadline(0.5),
        pytest.raises(DeadlineExceeded) as caught,
    ):
        client.send("GET", server.url)
    assert isinstance(caught.value, client.error)


def test_headers_that_trickle_over_tls_are_cut_off(connect: Connect, identity: ssl.SSLContext, trusted: str) -> None:
    dependency = impatient()
    with Server([trickle(b"HTTP/1.1 200 Said\r\nX-Slow: "), answer()], tls=identity) as server:
        assert connect(dependency, trusted).send("GET", server.url).body == b"fine"
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.TIMEOUT, None]


def test_the_timeout_of_the_client_holds_if_it_is_shorter(connect: Connect) -> None:
    dependency = pricing(retry=Retry(max_attempts=1))
    client = connect(dependency)
    with Server([hang]) as server, pytest.raises(client.error):
        client.send("GET", server.url, timeout=0.5)
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.TIMEOUT]


def test_a_connection_that_was_given_up_leaves_its_place_in_the_pool(connect: Connect) -> None:
    client = connect(impatient(), connections=1)
    with Server([hang, answer(), answer()]) as server:
        assert client.send("GET", server.url).body == b"fine"
        assert client.send("GET", server.url).body == b"fine"
        assert server.connections == 2


def test_nothing_is_sent_after_the_deadline(connect: Connect) -> None:
    client = connect(pricing())
    with Server([answer()]) as server:
        with deadline(0), pytest.raises(DeadlineExceeded) as caught:
            client.send("GET", server.url)
        assert server.connections == 0
    assert isinstance(caught.value, client.error)


def test_a_deadline_ends_an_attempt(connect: Connect) -> None:
    client = connect(pricing())
    with Server([hang]) as server:
        with deadline(1.0), pytest.raises(client.error) as caught:
            client.send("GET", server.url)
        assert len(server.seen) == 1
    assert "no time is left before the deadline" in caught.value.__notes__[0]


def test_a_body_that_is_handed_over_may_take_longer_than_an_attempt(connect: Connect) -> None:
    def slowly(link: Link, _: Seen) -> bool:
        link.send(b"HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _number in range(4):
            link.stopping.wait(0.06)
            link.send(b"4\r\nrow\n\r\n")
        link.send(b"0\r\n\r\n")
        return True

    with Server([slowly]) as server:
        assert b"".join(connect(impatient()).stream(server.url)) == b"row\n" * 4


def test_a_body_that_is_handed_over_ends_with_the_deadline(connect: Connect) -> None:
    client = connect(pricing())
    head = b"HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Server([trickle(head)]) as server:
        with deadline(1.0), pytest.raises(DeadlineExceeded) as caught:
            client.stream(server.url)
        assert server.closed.acquire(timeout=5)
    assert isinstance(caught.value, client.error)


# TLS


def test_setting_up_tls_may_take_longer_than_an_attempt(
    connect: Connect, identity: ssl.SSLContext, trusted: str
) -> None:
    dependency = impatient()
    with Server([answer()], tls=identity, before_tls=lambda link: _wait(link, 0.25)) as server:
        got = connect(dependency, trusted).send("GET", server.url)
        assert (got.body, server.connections) == (b"fine", 1)
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [None]
    assert dependency._state.connect_estimator.histogram.total == 1


def test_an_attempt_after_a_slow_set_up_has_its_whole_time_and_no_more(
    connect: Connect, identity: ssl.SSLContext, trusted: str
) -> None:
    dependency = impatient(retry=Retry(max_attempts=1))
    client = connect(dependency, trusted)
    with Server([hang], tls=identity, before_tls=lambda link: _wait(link, 0.25)) as server:
        with pytest.raises(client.error):
            client.send("GET", server.url)
        assert len(server.seen) == 1
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.TIMEOUT]


def test_a_connection_that_is_not_ready_in_time_has_sent_nothing(
    connect: Connect, identity: ssl.SSLContext, trusted: str
) -> None:
    dependency = pricing(timeouts=Timeouts(connect=0.15, attempt=2.0, total=10.0))
    client = connect(dependency, trusted)
    first = count()

    def once(link: Link) -> None:
        if next(first) == 0:
            link.until_gone()

    with Server([answer(201)], tls=identity, before_tls=once) as server:
        assert client.send("POST", server.url, content=b"order").status == 201
        assert (server.connections, len(server.seen)) == (2, 1)
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.UNSENT, None]


def test_a_connection_that_breaks_while_it_is_set_up_has_sent_nothing(
    connect: Connect, identity: ssl.SSLContext, trusted: str
) -> None:
    dependency = pricing()
    first = count()

    def once(link: Link) -> None:
        if next(first) == 0:
            raise EOFError

    with Server([answer(201)], tls=identity, before_tls=once) as server:
        assert connect(dependency, trusted).send("POST", server.url, content=b"order").status == 201
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [FailureKind.UNSENT, None]


def test_a_certificate_that_is_not_trusted_sends_nothing(connect: Connect, identity: ssl.SSLContext) -> None:
    client = connect(pricing())  # which trusts the authorities of the system
    with Server([answer()], tls=identity) as server:
        with pytest.raises(client.error):
            client.send("GET", server.url)
        assert server.seen == []


# RetryAfter of the server


def test_a_server_that_says_when_to_come_back_is_believed(connect: Connect) -> None:
    clock = FakeClock()
    dependency = pricing(runtime=Runtime(clock, Random(1).random))
    with Server([answer(503, b"", Retry_After="7"), answer()]) as server:
        assert connect(dependency).send("GET", server.url).status == 200
    waited = sum(clock.sleeps)
    assert 7 <= waited <= 7 * 1.25


def test_other_clients_of_the_dependency_are_held_back_as_well(kind: str) -> None:
    clock = FakeClock()
    dependency = pricing(runtime=Runtime(clock, Random(1).random), retry_after=RetryAfter(scope=RetryAfterScope.ALL))
    with (
        Server([answer(429, b"", Retry_After="7"), answer()]) as server,
        opened(kind, dependency) as one,
        opened("httpx", dependency) as other,
    ):
        assert one.send("POST", server.url).status == 429
        assert sum(clock.sleeps) == 0
        assert other.send("POST", server.url).status == 200
        assert sum(clock.sleeps) >= 7


def test_who_is_held_back_longer_than_there_is_time_is_told_so(connect: Connect) -> None:
    dependency = pricing(retry_after=RetryAfter(scope=RetryAfterScope.ALL))
    client = connect(dependency)
    with Server([answer(429, b"", Retry_After="15")]) as server:
        client.send("POST", server.url)
        with pytest.raises(RetryAfterTooLong) as caught:
            client.send("POST", server.url)
        assert len(server.seen) == 1
    assert isinstance(caught.value, client.error)


# What is sent along


@pytest.mark.parametrize(("seconds", "left"), [(1.5, 1.5), (4.0, 2.0)])
def test_the_time_that_is_left_and_who_retries_are_sent_along(connect: Connect, seconds: float, left: float) -> None:
    """The time is that of the call, or of the attempt if that is shorter_timeout over: then nobody waits for this
    answer.
    """
    clock = FakeClock()
    dependency = pricing(runtime=Runtime(clock, Random(1).random))
    with Server([drop, answer()]) as server, deadline(seconds, runtime=dependency._state.runtime):
        got = connect(dependency).send("GET", server.url)
    sent = [seen.headers for seen in server.seen]
    assert [headers["holdfast-retry-owner"] for headers in sent] == ["pricing", "pricing"]
    assert [float(headers["holdfast-remaining"]) for headers in sent] == [left, left]
    assert "holdfast-remaining" not in got.request_headers, "the client's own request stays as it is"


def test_nothing_is_sent_along_if_so_said(connect: Connect) -> None:
    with Server([answer()]) as server:
        connect(pricing(), propagate=False).send("GET", server.url)
    assert not [name for name in server.seen[0].headers if name.startswith("holdfast")]


def test_a_call_inside_of_one_that_retries_is_made_once(connect: Connect) -> None:
    outer = Dependency("shop", retry=Retry(backoff=AT_ONCE))
    dependency = pricing()
    client = connect(dependency)
    with Server([answer(503)]) as server:
        got = outer.run(client.send, "GET", server.url, idempotent=True)
        assert (got.status, len(server.seen)) == (503, 1)
        assert server.seen[0].headers["holdfast-retry-owner"] == "shop"
    assert happened(dependency, GaveUp)[0].retry_owner == "shop"


def test_a_key_makes_a_request_with_effects_safe_to_repeat(connect: Connect) -> None:
    client = connect(pricing(), idempotency_key=True)
    with Server([drop, answer(201), answer(201)]) as server:
        assert client.send("POST", server.url, content=b"order").status == 201
        client.send("POST", server.url, content=b"another")
        keys = [seen.headers["idempotency-key"] for seen in server.seen]
    assert keys[0] == keys[1] != keys[2]


def test_the_callers_own_key_is_kept_and_methods_that_need_none_have_none(connect: Connect) -> None:
    client = connect(pricing(), idempotency_key=True)
    with Server([answer()]) as server:
        client.send("POST", server.url, headers={"Idempotency-Key": "mine"})
        client.send("PUT", server.url, content=b"x")
        assert server.seen[0].headers["idempotency-key"] == "mine"
        assert "idempotency-key" not in server.seen[1].headers


def test_a_request_can_say_that_it_may_be_repeated_and_what_it_is_called(connect: Connect) -> None:
    dependency = pricing()
    with Server([drop, answer()]) as server:
        connect(dependency).send("POST", server.url, content=b"x", idempotent=True, operation="reserve")
        assert [seen.body for seen in server.seen] == [b"x", b"x"]
    assert {it.operation.name for it in happened(dependency, AttemptEnded)} == {"reserve"}


def test_a_request_can_say_that_it_must_not_be_repeated(connect: Connect) -> None:
    client = connect(pricing())
    with Server([drop, answer()]) as server:
        with pytest.raises(client.error):
            client.send("GET", server.url, idempotent=False)
        assert len(server.seen) == 1


# Bodies of requests


def test_a_body_that_can_be_sent_once_is_sent_once(connect: Connect) -> None:
    client = connect(pricing())
    with Server([drop, answer()]) as server:
        with pytest.raises(client.error):
            client.send("PUT", server.url, content=iter([b"one ", b"two"]))
        assert [seen.body for seen in server.seen] == [b"one two"]


def test_a_body_that_can_be_sent_once_is_sent_whole_after_a_connection_was_refused(connect: Connect) -> None:
    with ExitStack() as stack:
        server = Server([answer()], port=free_port())

        class Starting(Events):
            def emit(self, event: Any) -> None:
                if isinstance(event, Retrying):
                    stack.enter_context(server)

        client = connect(pricing(sink=Starting()))
        client.send("PUT", f"http://127.0.0.1:{server.port}", content=iter([b"one ", b"two"]))
        assert [seen.body for seen in server.seen] == [b"one two"]


# Endpoints


def test_an_endpoint_that_fails_is_followed_by_one_in_another_zone(connect: Connect) -> None:
    with Server([drop]) as bad, Server([answer()]) as good:
        endpoints = Endpoints({Zone("use1-az1"): [bad.address], Zone("use1-az2"): [good.url]})
        dependency = pricing(endpoints=endpoints)
        got = connect(dependency).send("GET", "http://pricing/price?sku=1")
        assert (got.body, good.paths()) == (b"fine", ["/price?sku=1"])
        assert [it.headers["host"] for it in bad.seen + good.seen] == [bad.address, good.address]
    assert [it.zone for it in happened(dependency, AttemptEnded)] == ["use1-az1", "use1-az2"]


def test_a_host_that_the_caller_chose_stays(connect: Connect) -> None:
    with Server([answer()]) as server:
        dependency = pricing(endpoints=Endpoints({Zone("use1-az1"): [server.address]}))
        connect(dependency).send("GET", "http://pricing/", headers={"Host": "prices.example"})
        assert server.seen[0].headers["host"] == "prices.example"


def test_an_endpoint_that_is_no_address_is_refused(connect: Connect) -> None:
    dependency = pricing(endpoints=Endpoints({Zone("use1-az1"): ["http://pricing/path"]}))
    with pytest.raises(InvalidValue, match="without a path"):
        connect(dependency).send("GET", "http://pricing/")


def test_zones_that_are_all_out_are_an_error_of_the_library(connect: Connect) -> None:
    class AllOut:
        def zones_out(self, workload: str | None = None) -> frozenset[Zone]:
            return frozenset({Zone("use1-az1")})

    dependency = pricing(endpoints=Endpoints({Zone("use1-az1"): ["127.0.0.1:9"]}, AllOut()))
    client = connect(dependency)
    with pytest.raises(NoEndpoint) as caught:
        client.send("GET", "http://pricing/")
    assert isinstance(caught.value, client.error)


# Limits


def test_more_calls_than_may_be_are_refused_with_an_error_of_the_library(connect: Connect) -> None:
    dependency = pricing(limit=Limit(1))
    client = connect(dependency)
    with Server([answer()]) as server:
        assert dependency._state.in_flight.enter()
        with pytest.raises(LimitReached) as caught:
            client.send("GET", server.url)
        dependency._state.in_flight.leave()
        assert client.send("GET", server.url).status == 200
    assert isinstance(caught.value, client.error)
    assert dependency.in_flight == 0


def test_a_full_pool_is_waited_for_no_longer_than_an_attempt_and_nothing_was_sent(kind: str) -> None:
    dependency = impatient(retry=Retry(max_attempts=1))
    with (
        Server([trickle(b"HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\n")]) as server,
        opened(kind, dependency, connections=1) as client,
        holding(kind, client, server.url),
    ):
        with pytest.raises(client.error):
            client.send("POST", server.url)
        assert len(server.seen) == 1
    assert [it.failure for it in happened(dependency, AttemptEnded)] == [None, FailureKind.UNSENT]


# Warm-up


def test_connections_are_opened_before_there_is_traffic(
    connect: Connect, identity: ssl.SSLContext, trusted: str
) -> None:
    dependency = pricing()
    client = connect(dependency, trusted)
    with Server([answer()], tls=identity) as server:
        assert client.warm_up(server.url, 3) == 3
        assert (server.connections, {seen.method for seen in server.seen}) == (3, {"HEAD"})
        client.send("GET", server.url)
        assert server.connections == 3
    assert dependency._state.connect_estimator.histogram.total == 3


def test_any_answer_to_a_warm_up_will_do(connect: Connect) -> None:
    client = connect(pricing())
    with Server([answer(405, b"not that")]) as server:
        assert client.warm_up(server.url, 2, method="OPTIONS") == 2
        client.send("GET", server.url)
        assert (server.connections, server.seen[0].method) == (2, "OPTIONS")


def test_a_warm_up_says_why_no_connection_is_ready(connect: Connect) -> None:
    client = connect(pricing())
    with pytest.raises(client.error) as caught:
        client.warm_up(f"http://127.0.0.1:{free_port()}", 2)
    assert "none of 2 connections is ready" in caught.value.__notes__[0]


def test_a_warm_up_of_a_server_that_keeps_no_connections_is_in_vain(connect: Connect) -> None:
    with Server([answer(200, b"", Connection="close")]) as server, pytest.raises(CallError, match="closes each"):
        connect(pricing()).warm_up(server.url, 2)


def test_a_warm_up_takes_no_longer_than_connections_may(connect: Connect) -> None:
    client = connect(pricing(timeouts=Timeouts(connect=1.0)))
    with Server([hang, answer()]) as server:
        assert client.warm_up(server.url, 2) == 1
        assert server.connections == 2


@pytest.mark.parametrize("connections", [0, -1])
def test_a_warm_up_of_no_connections_is_refused(connect: Connect, connections: int) -> None:
    with pytest.raises(InvalidValue, match="at least 1"):
        connect(pricing()).warm_up("http://127.0.0.1:9", connections)


def _wait(link: Link, seconds: float) -> None:
    link.stopping.wait(seconds)


def holding(kind: str, client: Any, url: str) -> AbstractContextManager[object]:
    """Hold an answer open, and with it its connection."""
    if kind == "httpx":
        return client.client.stream("GET", url)  # type: ignore[no-any-return]
    if kind == "requests":
        return client.session.get(url, stream=True)  # type: ignore[no-any-return]
    stack = ExitStack()
    holder = client.client.stream("GET", url)
    client.runner.run(holder.__aenter__())
    stack.callback(lambda: client.runner.run(holder.__aexit__(None, None, None)))
    return stack
