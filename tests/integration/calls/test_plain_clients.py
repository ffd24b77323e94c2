"""Clients without an adapter, in functions that a dependency calls: their errors are known by what they prove."""

import http.client
import ssl
import urllib.request
from collections.abc import Callable

import httpx
import pytest
import requests
import trustme
import urllib3

from holdfast.calls import FailureKind, Retry
from holdfast.calls.runtime import Runtime
from holdfast.testing import FakeClock
from tests.integration.calls.clients import failures, pricing
from tests.integration.calls.servers import Act, Link, Seen, Server, answer, drop, drop_in_body, hang
from tests.services.start import free_port

Fetch = Callable[[str], object]


def by_urllib(url: str) -> object:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=0.3) as response:
        return response.read()


def by_http_client(url: str) -> object:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=0.3)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def by_urllib3(url: str) -> object:
    """With its own retries, as it comes, but without its pauses."""
    with urllib3.PoolManager(
        retries=urllib3.Retry(1, status_forcelist=[429, 503], respect_retry_after_header=False), timeout=0.3
    ) as pool:
        return pool.request("GET", url).data


def post_by_urllib(url: str) -> object:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(url, data=b"pay", method="POST"), timeout=2.0) as response:
        return response.read()


def post_by_urllib3(url: str) -> object:
    with urllib3.PoolManager(timeout=2.0) as pool:
        return pool.request("POST", url, body=b"pay", retries=urllib3.Retry(1)).data


def post_by_urllib3_without_retries_of_connections(url: str) -> object:
    with urllib3.PoolManager(timeout=2.0) as pool:
        return pool.request("POST", url, body=b"pay", retries=urllib3.Retry(connect=False)).data


def post_by_requests(url: str) -> object:
    with requests.Session() as session:
        session.trust_env = False
        return session.post(url, data=b"pay", timeout=2.0).content


def post_by_httpx(url: str) -> object:
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=2.0) as client:
        return client.post(url, content=b"pay").content


ALL: list[Fetch] = [by_urllib, by_http_client, by_urllib3]


def babble(link: Link, _: Seen) -> bool:
    """Answer with something that is not HTTP."""
    link.send(b"hello\r\n\r\n")
    return False


def classified(fetch: Fetch, url: str) -> list[FailureKind | None]:
    """How a dependency sees the failure of a request."""
    dependency = pricing(retry=Retry(max_attempts=1))
    with pytest.raises(Exception):  # noqa: B017, PT011 - of any of the clients
        dependency.run(fetch, url, idempotent=True)
    return failures(dependency)


@pytest.mark.parametrize("fetch", ALL)
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (drop, FailureKind.TRANSIENT),
        (drop_in_body, FailureKind.TRANSIENT),
        (babble, FailureKind.TRANSIENT),
        (hang, FailureKind.TIMEOUT),
    ],
)
def test_an_answer_that_does_not_come_whole_is_worth_another_attempt(
    fetch: Fetch, act: Act, expected: FailureKind
) -> None:
    with Server([act]) as server:
        assert classified(fetch, server.url) == [expected]


@pytest.mark.parametrize("fetch", [by_urllib, by_urllib3])
@pytest.mark.parametrize(("status", "expected"), [(503, FailureKind.TRANSIENT), (429, FailureKind.THROTTLED)])
def test_a_status_is_found_in_the_error(fetch: Fetch, status: int, expected: FailureKind) -> None:
    with Server([answer(status)]) as server:
        assert classified(fetch, server.url) == [expected]


def test_a_servers_hint_is_found_in_the_error_of_urllib() -> None:
    clock = FakeClock()
    dependency = pricing(runtime=Runtime(clock, lambda: 0.0))
    with Server([answer(503, Retry_After="7"), answer()]) as server:
        assert dependency.run(by_urllib, server.url, idempotent=True) == b"fine"
    assert clock.sleeps == [7]


@pytest.mark.parametrize("fetch", [by_http_client, post_by_requests, post_by_httpx])
def test_a_refused_connection_is_repeated_even_if_the_call_is_not_idempotent(fetch: Fetch) -> None:
    dependency = pricing()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any of the clients
        dependency.run(fetch, f"http://127.0.0.1:{free_port()}", idempotent=False)
    assert "3 attempts" in caught.value.__notes__[0]
    assert failures(dependency) == [FailureKind.UNSENT] * 3


@pytest.mark.parametrize(
    "fetch",
    [
        post_by_urllib,
        post_by_urllib3,
        post_by_urllib3_without_retries_of_connections,
        post_by_requests,
        post_by_httpx,
    ],
)
def test_a_request_that_was_carried_out_is_not_repeated_if_the_redirect_after_it_leads_nowhere(fetch: Fetch) -> None:
    dependency = pricing()
    with (
        Server([answer(303, Location=f"http://127.0.0.1:{free_port()}/paid")]) as server,
        pytest.raises(Exception) as caught,  # noqa: PT011 - of any of the clients
    ):
        dependency.run(fetch, server.url, idempotent=False)
    assert [seen.method for seen in server.seen] == ["POST"]
    assert failures(dependency) == [FailureKind.TRANSIENT]
    assert "not idempotent" in caught.value.__notes__[0]


@pytest.mark.parametrize("fetch", [by_urllib, by_urllib3])
def test_a_certificate_that_is_not_trusted_is_not_tried_again(fetch: Fetch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    with Server([answer()], tls=tls) as server:
        assert classified(fetch, server.url) == [FailureKind.PERMANENT]
