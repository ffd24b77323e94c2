"""One request of an httpx client and its attempts: what the synchronous and the asynchronous transport share."""

import math
from dataclasses import dataclass

import httpx

from holdfast._errors import CallError, EngineUnavailable, InvalidValue
from holdfast.calls.adapters.httpx.body import Once
from holdfast.calls.adapters.httpx.progress import Progress, as_httpx
from holdfast.calls.adapters.rules import RequestOptions, add_headers, asked_by, manner_of, origin_of
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import Kind, of_status
from holdfast.calls.state import DependencyState

EXTENSION = "holdfast"
"""Where a request's own options are, among its extensions."""
ASIDE = 65_536
"""Bytes of an answer that may be repeated to read at once, so that its connection is not held while others wait."""
LATER = -1.0


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

    def __init__(self, core: DependencyState, request: httpx.Request, manners: Manners) -> None:
        self._core = core
        self._manners = manners
        self._asked = asked_by(request.extensions.get(EXTENSION))
        repeatable = isinstance(request.stream, httpx.ByteStream)
        self._body = request.stream if repeatable else Once(request.stream)
        self.manner = manner_of(request.method, self._asked, keyed=manners.idempotency_key, repeatable=repeatable)
        self.request = request
        self.response: httpx.Response | None = None
        """The answer as the client gets it."""
        self._shown: httpx.Response | None = None
        self._attempt: Attempt | None = None
        """The last one."""

    def begin(self, attempt: Attempt, *, asynchronous: bool) -> tuple[httpx.Request, Progress]:
        """The request as this attempt sends it: a copy, because the client goes on with the original."""
        request, self._attempt = self.request, attempt
        asked, user_trace = request.extensions.get("timeout", {}), request.extensions.get("trace")
        progress = Progress(attempt, asked, is_cut_off=asynchronous, user_trace=user_trace)
        url, headers = request.url, httpx.Headers(request.headers)
        if self._core.endpoints is not None:
            origin = origin_of(attempt.endpoint.address, url.scheme)
            if headers.get("host") in {None, url.netloc.decode("ascii")}:
                headers["host"] = origin.netloc
            url = url.copy_with(scheme=origin.scheme, host=origin.host, port=origin.port)
        add_headers(headers, attempt, propagate=self._manners.propagate, key=self.manner.key)
        trace = progress.saw_async if asynchronous else progress.saw
        extensions = {**request.extensions, "timeout": progress.timeouts, "trace": trace}
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
        """Return the answer for the dependency's `judge`; raise one of 4xx or 5xx, for which `judge` is asked here."""
        self._shown = shown = self._show(response)
        if response.status_code < 400:
            return shown
        words = f"{self.request.method} answered {response.status_code}"
        error = httpx.HTTPStatusError(words, request=self.request, response=shown)
        judge = self._core.retry.judge
        error.holdfast_failure = None if judge is None else judge(shown)  # type: ignore[attr-defined]
        raise error

    def is_answer(self, error: BaseException) -> bool:
        """Return whether an error of `answered` only carries the answer."""
        return isinstance(error, httpx.HTTPStatusError) and error.response is self._shown

    def raised(self, error: BaseException) -> BaseException:
        """Return an error as httpx knows errors, if it is one of Holdfast's."""
        if not isinstance(error, CallError | EngineUnavailable):
            return error
        return as_httpx(error, queued=self._attempt is not None and self._attempt.queued)

    def result(self) -> httpx.Response:
        """Return what the client gets."""
        assert self.response is not None
        return self.response

    def _show(self, response: httpx.Response) -> httpx.Response:
        """Return a copy for `judge` and `classify`, with its body if that was read: a client streams the original."""
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
