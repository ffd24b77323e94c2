"""One request of an httpx client and its attempts, for the synchronous and the asynchronous transport."""

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
"""Key of a request's own options in its extensions."""
MAX_RETRYABLE_BYTES = 65_536
"""Bytes to read of a response after which a retry may follow, so that its connection is free in the meantime."""
READ_LATER = -1.0
"""Instead of a number of bytes: the client reads the body, and the attempt none of it. Less than any size read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """The options of a transport, for all its requests."""

    idempotency_key: bool
    propagate: bool
    max_buffered_bytes: int


def call_options(
    *, idempotent: bool | None = None, operation: str | None = None, stream: bool | None = None
) -> dict[str, RequestOptions]:
    """Return httpx extensions with options for one request: `client.post(url, extensions=call_options(...))`."""
    return {EXTENSION: RequestOptions(idempotent=idempotent, operation=operation, stream=stream)}


def refuse_retries(transport: object) -> None:
    """Raise InvalidValue if a transport retries: attempts of two layers multiply."""
    retries = getattr(getattr(transport, "_pool", None), "_retries", 0)
    if retries:
        raise InvalidValue(f"the transport has retries={retries}: expected 0, because the dependency retries")


class HttpxExchange:
    """One request with its attempts, and the last response."""

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
        """The last response, which the client gets."""
        self._classified: httpx.Response | None = None
        self._attempt: Attempt | None = None
        """The last attempt."""

    def begin(self, attempt: Attempt, *, asynchronous: bool) -> tuple[httpx.Request, Progress]:
        """Return a copy of the request for this attempt, and its progress. The client keeps using the original."""
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
        """Return the bytes of the body to read within the attempt: infinity for all, READ_LATER for none."""
        stream = self._request_options.stream
        if self._may_retry(attempt, response.status_code):
            return MAX_RETRYABLE_BYTES
        if stream is not None:
            return READ_LATER if stream else math.inf
        declared = response.headers.get("content-length", "")
        return math.inf if declared.isdecimal() and int(declared) <= self._options.max_buffered_bytes else READ_LATER

    def raise_for_status(self, response: httpx.Response) -> httpx.Response:
        """Return a copy of the response for `classify_result`. Raise HTTPStatusError with it for 4xx and 5xx."""
        self._classified = classified = self._copy_for_classify(response)
        if response.status_code < 400:
            return classified
        message = f"{self.request.method} returned {response.status_code}"
        error = httpx.HTTPStatusError(message, request=self.request, response=classified)
        classify_result = self._dependency.retry.classify_result
        error.holdfast_failure = None if classify_result is None else classify_result(classified)  # type: ignore[attr-defined]
        raise error

    def carries_response(self, error: BaseException) -> bool:
        """Return whether an error is that of `raise_for_status`, so that the client gets the response instead."""
        return isinstance(error, httpx.HTTPStatusError) and error.response is self._classified

    def translate(self, error: BaseException) -> BaseException:
        """Return an error of Holdfast as an error of httpx, and other errors unchanged."""
        if not isinstance(error, CallError | EngineUnavailable):
            return error
        return to_httpx_error(error, timed_out_in_pool=self._attempt is not None and self._attempt.timed_out_in_pool)

    def get_response(self) -> httpx.Response:
        """Return the last response."""
        assert self.response is not None
        return self.response

    def _copy_for_classify(self, response: httpx.Response) -> httpx.Response:
        """Return a copy with its body for the classifiers; without any, or an unread body, the response itself."""
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
        """Return whether another attempt may follow a response with this status."""
        retry = attempt.options.retry
        if attempt.number >= retry.max_attempts:
            return False
        failure = of_status(status, {}, self._dependency.runtime.clock.wall)
        return failure is not None and (
            failure.kind is not FailureKind.PERMANENT or status in retry.eventually_consistent
        )
