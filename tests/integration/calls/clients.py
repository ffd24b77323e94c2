"""Three clients with one face: httpx, httpx in an event loop, and requests, each calling as a dependency says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import requests

from holdfast.calls import Backoff, Dependency, FailureKind, Jitter, Retry, Timeouts
from holdfast.calls.adapters.httpx import AsyncHoldfastTransport, HoldfastTransport
from holdfast.calls.adapters.httpx import call_options as extensions_of
from holdfast.calls.adapters.requests import HoldfastAdapter
from holdfast.calls.adapters.requests import call_options as options_around
from holdfast.calls.events import AttemptEnded, CallEvent


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client got."""

    status: int
    body: bytes
    request_headers: dict[str, str]
    """Of the request as the client's own answer has it."""


class Client(Protocol):
    """One of the clients."""

    error: type[Exception]
    """What all errors of the library are."""

    def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | Iterable[bytes] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 5.0,
        **options: Any,
    ) -> Answer:
        """Send a request, follow redirects, read the answer."""

    def stream(self, url: str) -> list[bytes]:
        """The body of an answer in chunks as they come."""

    def warm_up(self, url: str, connections: int, **how: Any) -> int: ...

    def close(self) -> None: ...


class Httpx:
    """httpx."""

    error: type[Exception] = httpx.HTTPError

    def __init__(self, dependency: Dependency, trusted: str | None, **options: Any) -> None:
        limits = httpx.Limits(max_connections=options.pop("connections", None))
        inner = httpx.HTTPTransport(verify=_trusting(trusted), limits=limits)
        self.transport = HoldfastTransport(dependency, inner, **options)
        self.client = httpx.Client(transport=self.transport, follow_redirects=True)

    def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | Iterable[bytes] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 5.0,
        **options: Any,
    ) -> Answer:
        got = self.client.request(
            method, url, content=content, headers=headers, timeout=timeout, extensions=extensions_of(**options)
        )
        return Answer(got.status_code, got.content, dict(got.request.headers))

    def stream(self, url: str) -> list[bytes]:
        with self.client.stream("GET", url) as got:
            return list(got.iter_raw())

    def warm_up(self, url: str, connections: int, **how: Any) -> int:
        return self.transport.warm_up(url, connections, **how)

    def close(self) -> None:
        self.client.close()


class AsyncHttpx:
    """httpx in an event loop, which runs while there is something to do."""

    error: type[Exception] = httpx.HTTPError

    def __init__(self, dependency: Dependency, trusted: str | None, **options: Any) -> None:
        limits = httpx.Limits(max_connections=options.pop("connections", None))
        inner = httpx.AsyncHTTPTransport(verify=_trusting(trusted), limits=limits)
        self.transport = AsyncHoldfastTransport(dependency, inner, **options)
        self.client = httpx.AsyncClient(transport=self.transport, follow_redirects=True)
        self.runner = asyncio.Runner()

    def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | Iterable[bytes] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 5.0,
        **options: Any,
    ) -> Answer:
        async def send() -> Answer:
            body = content if content is None or isinstance(content, bytes) else _slowly(content)
            got = await self.client.request(
                method, url, content=body, headers=headers, timeout=timeout, extensions=extensions_of(**options)
            )
            return Answer(got.status_code, got.content, dict(got.request.headers))

        return self.runner.run(send())

    def stream(self, url: str) -> list[bytes]:
        async def stream() -> list[bytes]:
            async with self.client.stream("GET", url) as got:
                return [chunk async for chunk in got.aiter_raw()]

        return self.runner.run(stream())

    def warm_up(self, url: str, connections: int, **how: Any) -> int:
        return self.runner.run(self.transport.warm_up(url, connections, **how))

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


class Requests:
    """requests."""

    error: type[Exception] = requests.RequestException

    def __init__(self, dependency: Dependency, trusted: str | None, **options: Any) -> None:
        connections = options.pop("connections", None)
        if connections is not None:
            options |= {"pool_maxsize": connections, "pool_block": True}
        self.adapter = HoldfastAdapter(dependency, **options)
        self.session = requests.Session()
        self.session.trust_env = False
        if trusted is not None:
            self.session.verify = trusted
        self.session.mount("http://", self.adapter)
        self.session.mount("https://", self.adapter)

    def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | Iterable[bytes] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 5.0,
        **options: Any,
    ) -> Answer:
        with options_around(**options):
            got = self.session.request(method, url, data=content, headers=headers, timeout=timeout)
        return Answer(
            got.status_code, got.content, {name.lower(): value for name, value in got.request.headers.items()}
        )

    def stream(self, url: str) -> list[bytes]:
        with self.session.get(url, stream=True, timeout=5.0) as got:
            return list(got.iter_content(None))

    def warm_up(self, url: str, connections: int, **how: Any) -> int:
        return self.adapter.warm_up(url, connections, verify=self.session.verify or False, **how)

    def close(self) -> None:
        self.session.close()


KINDS: dict[str, type[Httpx | AsyncHttpx | Requests]] = {
    "httpx": Httpx,
    "httpx-async": AsyncHttpx,
    "requests": Requests,
}


@contextmanager
def opened(kind: str, dependency: Dependency, trusted: str | None = None, **options: Any) -> Iterator[Client]:
    """A client of a kind, closed in the end."""
    client = KINDS[kind](dependency, trusted, **options)
    try:
        yield client
    finally:
        client.close()


class Events(list[CallEvent]):
    """A sink that keeps everything."""

    def emit(self, event: CallEvent) -> None:
        self.append(event)


def _trusting(trusted: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=trusted)


async def _slowly(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in content:
        await asyncio.sleep(0)
        yield part


AT_ONCE = Backoff(base=0, cap=0, jitter=Jitter.NONE)


def pricing(**options: Any) -> Dependency:
    """A dependency that retries without delay."""
    options.setdefault("timeouts", Timeouts(connect=2.0, attempt=2.0, total=10.0))
    options.setdefault("retry", Retry(max_attempts=3, backoff=AT_ONCE, throttled_backoff=AT_ONCE))
    options.setdefault("sink", Events())
    return Dependency("pricing", **options)


def failures(dependency: Dependency) -> list[FailureKind | None]:
    """How each attempt ended."""
    assert isinstance(dependency.sink, Events)
    return [event.failure for event in dependency.sink if isinstance(event, AttemptEnded)]
