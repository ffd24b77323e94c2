"""One request of an httpx client and its attempts: what the synchronous and the asynchronous transport share."""

import math
from dataclasses import dataclass

import httpx

from holdfast._errors import CallError, EngineUnavailable, InvalidValue
from holdfast.calls.adapters.httpx.body import SingleUseBody
from holdfast.calls.adapters.httpx.progress import Progress, to_httpx_error
from holdfast.calls.adapters.rules import RequestOptions, add_headers, parse_options, parse_origin, plan_call
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import FailureKind, of_status
from holdfast.calls.state import DependencyState

EXTENSION = "holdfast"
"""Where a request's own options are, among its extensions."""
MAX_RETRYABLE_BYTES = 65_536
"""Bytes of an answer that may be repeated to read at once, so that its connection is not held while others wait."""
READ_LATER = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """How a transport treats every request."""

    idempotency_key: bool
    propagate: bool
    max_buffered_bytes: int


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


class HttpxExchange:
    """One request, which may take several attempts, and the answer that came last."""

    def __init__(self, dependency: DependencyState, request: httpx.Request, options: TransportOptions) -> None:
        self._dependency = dependency
        self._options = options
        self._request_options = parse_options(request.extensions.get(EXTENSION))
        is_repeatable = isinstance(request.stream, httpx.ByteStream)
        self._body = request.stream if is_repeatable else SingleUseBody(request.stream)
        self.plan = plan_call(
            request.method, self._request_options, accepts_keys=options.idempotency_key, is_repeatable=is_repeatable
        )
        self.request = request
        self.response: httpx.Response | None = None
        """The answer as the client gets it."""
        self._classified: httpx.Response | None = None
        self._attempt: Attempt | None = None
        """The last one."""

    def begin(self, attempt: Attempt, *, asynchronous: bool) -> tuple[httpx.Request, Progress]:
        """The request as this attempt sends it: a copy, because the client goes on with the original."""
        request, self._attempt = self.request, attempt
        asked, user_trace = request.extensions.get("timeout", {}), request.extensions.get("trace")
        progress = Progress(attempt, asked, is_cancellable=asynchronous, user_trace=user_trace)
        url, headers = request.url, httpx.Headers(request.headers)
        if self._dependency.endpoints is not None:
            origin = parse_origin(attempt.endpoint.address, url.scheme)
            if headers.get("host") in {None, url.netloc.decode("ascii")}:
                headers["host"] = origin.netloc
            url = url.copy_with(scheme=origin.scheme, host=origin.host, port=origin.port)
        add_headers(headers, attempt, propagate=self._options.propagate, send_key=self.plan.send_key)
        trace = progress.on_step_async if asynchronous else progress.on_step
        extensions = {**request.extensions, "timeout": progress.timeouts, "trace": trace}
        sent = httpx.Request(request.method, url, headers=headers, stream=self._body, extensions=extensions)
        return sent, progress

    def bytes_to_read(self, attempt: Attempt, response: httpx.Response) -> float:
        """Bytes of the body to read within the attempt; less than 0: all of it is read later, by the client."""
        stream = self._request_options.stream
        if self._may_retry(attempt, response.status_code):
            return MAX_RETRYABLE_BYTES
        if stream is not None:
            return READ_LATER if stream else math.inf
        declared = response.headers.get("content-length", "")
        return math.inf if declared.isdecimal() and int(declared) <= self._options.max_buffered_bytes else READ_LATER

    def raise_for_status(self, response: httpx.Response) -> httpx.Response:
        """Return a copy of the answer for `classify_result`; raise it here if its status is 4xx or 5xx."""
        self._classified = classified = self._copy_for_classify(response)
        if response.status_code < 400:
            return classified
        words = f"{self.request.method} answered {response.status_code}"
        error = httpx.HTTPStatusError(words, request=self.request, response=classified)
        classify_result = self._dependency.retry.classify_result
        error.holdfast_failure = None if classify_result is None else classify_result(classified)  # type: ignore[attr-defined]
        raise error

    def is_answer(self, error: BaseException) -> bool:
        """Return whether an error of `raise_for_status` only carries the answer."""
        return isinstance(error, httpx.HTTPStatusError) and error.response is self._classified

    def translate(self, error: BaseException) -> BaseException:
        """Return an error as httpx knows errors, if it is one of Holdfast's."""
        if not isinstance(error, CallError | EngineUnavailable):
            return error
        return to_httpx_error(error, is_queued=self._attempt is not None and self._attempt.is_queued)

    def get_response(self) -> httpx.Response:
        """Return what the client gets."""
        assert self.response is not None
        return self.response

    def _copy_for_classify(self, response: httpx.Response) -> httpx.Response:
        """Return a copy for the classifiers, with its body if that was read: a client streams the original."""
        retry = self._dependency.retry
        if (retry.classify_result is None and retry.classify is None) or not isinstance(
            response.stream, httpx.ByteStream
        ):
            return response
        classified = httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=self.request,
            extensions=response.extensions,
        )
        classified.read()
        return classified

    def _may_retry(self, attempt: Attempt, status: int) -> bool:
        """Whether another attempt may follow this status."""
        retry = self._dependency.retry
        if attempt.number >= retry.max_attempts:
            return False
        failure = of_status(status, {}, self._dependency.runtime.clock.wall)
        return failure is not None and (failure.kind is not FailureKind.PERMANENT or status in retry.eventual)
