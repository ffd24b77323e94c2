"""One request of an httpx client and its attempts: what the synchronous and the asynchronous transport share."""

import math
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import httpx

from holdfast._errors import InvalidValue
from holdfast.calls.adapters.httpx.body import Once
from holdfast.calls.adapters.httpx.progress import Progress
from holdfast.calls.adapters.rules import RequestOptions, asked_by, manner_of, origin_of
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import Kind, of_status
from holdfast.calls.scope import IDEMPOTENCY_KEY, TRACEPARENT
from holdfast.calls.state import DependencyState

EXTENSION = "holdfast"
"""Where a request's own options are, among its extensions."""
ASIDE = 65_536
"""Bytes of an answer that may be repeated to read at once, so that its connection is not held while others wait."""
LATER = -1.0

Tell = Callable[[str, MutableMapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a transport treats every request."""

    idempotency_key: bool
    propagate: bool
    whole: int


def call_options(
    *, idempotent: bool | None = None, operation: str | None = None, stream: bool | None = None
) -> dict[str, RequestOptions]:
    """The extensions that ask for something for one request: `client.post(url, extensions=call_options(...))`."""
    return {EXTENSION: RequestOptions(idempotent=idempotent, operation=operation, stream=stream)}


def refuse_retries(transport: object) -> None:
    """Raise InvalidValue if a transport repeats requests by itself: attempts of two layers multiply."""
    retries = getattr(getattr(transport, "_pool", None), "_retries", 0)
    if retries:
        raise InvalidValue(f"the transport has retries={retries}: expected 0, because the dependency retries")


class Exchange:
    """One request, which may take several attempts, and the answer that came last."""

    __slots__ = (
        "_asked",
        "_body",
        "_core",
        "_manners",
        "_shown",
        "_user_trace",
        "manner",
        "progress",
        "request",
        "response",
    )

    def __init__(self, core: DependencyState, request: httpx.Request, manners: Manners) -> None:
        self._core = core
        self._manners = manners
        self._asked = asked_by(request.extensions.get(EXTENSION))
        self._user_trace: Tell | None = request.extensions.get("trace")
        repeatable = isinstance(request.stream, httpx.ByteStream)
        self._body = request.stream if repeatable else Once(request.stream)
        self.manner = manner_of(request.method, self._asked, keyed=manners.idempotency_key, repeatable=repeatable)
        self.request = request
        self.progress: Progress | None = None
        """Of the last attempt."""
        self.response: httpx.Response | None = None
        """The answer as the client gets it."""
        self._shown: httpx.Response | None = None

    @property
    def is_queued(self) -> bool:
        """Whether the last attempt ended while it waited for a connection of the pool."""
        return self.progress is not None and self.progress.is_queued

    def begin(self, attempt: Attempt, *, asynchronous: bool) -> tuple[httpx.Request, Progress]:
        """The request as this attempt sends it: a copy, because the client goes on with the original."""
        request = self.request
        self.progress = progress = Progress(attempt, request.extensions.get("timeout", {}), is_cut_off=asynchronous)
        url, headers = request.url, httpx.Headers(request.headers)
        if self._core.endpoints is not None:
            origin = origin_of(attempt.endpoint.address, url.scheme)
            if headers.get("host") in {None, url.netloc.decode("ascii")}:
                headers["host"] = origin.netloc
            url = url.copy_with(scheme=origin.scheme, host=origin.host, port=origin.port)
        if self._manners.propagate:
            for name, value in attempt.headers().items():
                if name != TRACEPARENT or name not in headers:  # instrumentation may have set its own
                    headers[name] = value
        if self.manner.key and IDEMPOTENCY_KEY not in headers:
            headers[IDEMPOTENCY_KEY] = attempt.idempotency_key
        extensions = {
            **request.extensions,
            "timeout": progress.timeouts,
            "trace": self._trace_async(progress) if asynchronous else self._trace(progress),
        }
        sent = httpx.Request(request.method, url, headers=headers, stream=self._body, extensions=extensions)
        return sent, progress

    def part(self, attempt: Attempt, response: httpx.Response) -> float:
        """Bytes of the body to read within the attempt; less than 0: all of it is read later, by the client."""
        stream = self._asked.stream
        if self._may_follow(attempt, response.status_code):
            return ASIDE
        if stream is not None:
            return LATER if stream else math.inf
        declared = response.headers.get("content-length", "")
        return math.inf if declared.isdecimal() and int(declared) <= self._manners.whole else LATER

    def answered(self, response: httpx.Response) -> httpx.Response:
        """The answer as judgements see it; raises one that is a failure, so that the dependency understands it as such.

        `judge` is asked here about answers of 4xx and 5xx, and by the dependency about others: once about each.
        """
        self._shown = shown = self._show(response)
        if response.status_code < 400:
            return shown
        error = httpx.HTTPStatusError(
            f"{self.request.method} answered {response.status_code}", request=self.request, response=shown
        )
        judge = self._core.retry.judge
        error.holdfast_failure = None if judge is None else judge(shown)  # type: ignore[attr-defined]
        raise error

    def is_ours(self, error: httpx.HTTPStatusError) -> bool:
        """Whether an error only carries the answer."""
        return error.response is self._shown

    def result(self) -> httpx.Response:
        """What the client gets."""
        assert self.response is not None
        return self.response

    def _show(self, response: httpx.Response) -> httpx.Response:
        """The answer for `judge` and `classify`, with its body if that was read: a copy, which leaves it to the client.

        A client reads an answer by itself, and streams it perhaps, which it could not if it had been read before.
        """
        retry = self._core.retry
        if (retry.judge is None and retry.classify is None) or not isinstance(response.stream, httpx.ByteStream):
            return response
        shown = httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=self.request,
            extensions=response.extensions,
        )
        shown.read()
        return shown

    def _may_follow(self, attempt: Attempt, status: int) -> bool:
        """Whether another attempt may follow this status."""
        retry = self._core.retry
        if attempt.number >= retry.attempts:
            return False
        failure = of_status(status, {}, self._core.runtime.clock.wall)
        return failure is not None and (failure.kind is not Kind.PERMANENT or status in retry.eventual)

    def _trace(self, progress: Progress) -> Tell:
        user = self._user_trace

        def tell(name: str, about: MutableMapping[str, Any]) -> None:
            progress.saw(name, about)
            if user is not None:
                user(name, about)

        return tell

    def _trace_async(self, progress: Progress) -> Tell:
        user = self._user_trace

        async def tell(name: str, about: MutableMapping[str, Any]) -> None:
            await progress.saw_async(name, about)
            if user is not None:
                await user(name, about)

        return tell
