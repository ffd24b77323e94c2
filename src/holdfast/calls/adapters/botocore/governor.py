"""The event handlers of a protected client. Holdfast's refusals are errors of botocore as well."""

import math
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, TypeVar
from zlib import crc32

from botocore.client import BaseClient
from botocore.compat import set_socket_timeout
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ChecksumError

from holdfast._errors import CallError, DeadlineExceeded, HoldfastError, InvalidValue, LimitReached, RetryAfterTooLong
from holdfast._types import Operation
from holdfast.calls.adapters.botocore.operations import is_long_poll, is_repeatable, refine_failure
from holdfast.calls.adapters.rules import MIN_TIMEOUT, ErrorPairs, translate_error
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import Failure, FailureKind
from holdfast.calls.context import current_scope
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.engine import Call
from holdfast.calls.state import DependencyState
from holdfast.calls.timeout import Percentile


class _BotocoreError(BotoCoreError):
    """An error made from a message. Errors of botocore are made from a format and its values."""

    fmt = "{message}"

    def __init__(self, message: str) -> None:
        BotoCoreError.__init__(self, message=message)  # which stores it, and pickles by it


class BotocoreDeadlineExceeded(_BotocoreError, DeadlineExceeded):
    """The deadline passed: before the call began, so that nothing was sent, or before it succeeded.

    If it succeeded, `result` is the response.
    """


class BotocoreRetryAfterTooLong(_BotocoreError, RetryAfterTooLong):
    """Retry-After, with scope `all`, ends past the deadline. Nothing was sent."""


class BotocoreLimitReached(_BotocoreError, LimitReached):
    """The limit of concurrent attempts is reached. Nothing was sent."""


_ERROR_PAIRS: ErrorPairs = (
    (DeadlineExceeded, BotocoreDeadlineExceeded),
    (RetryAfterTooLong, BotocoreRetryAfterTooLong),
    (LimitReached, BotocoreLimitReached),
)


def to_botocore_error(error: CallError) -> HoldfastError:
    """Return the error as a BotoCoreError, or unchanged if it has no counterpart."""
    return translate_error(error, _ERROR_PAIRS) or error


Client = TypeVar("Client")

CONTEXT_KEY = "holdfast"
"""Key of the call in botocore's request context."""
NO_RETRY_REASON_KEY = "HoldfastNote"
"""Key in `error.response["ResponseMetadata"]` of the reason why no further attempt followed."""
MAX_LONG_POLL = 70.0
"""Seconds. SQS responds after 20, Step Functions and SWF after 60; the rest is for the network."""
DEFAULT_READ_TIMEOUT = 60.0
"""Seconds for dependencies without any timeout, and for each read of a stream: botocore's default."""


def client_config(dependency: Dependency) -> Config:
    """Return a client's configuration for `protect`: no retries of botocore, and the dependency's longest timeouts.

    Combine it with your own: `my_config.merge(client_config(dependency))`.
    """
    state = state_of(dependency)
    return Config(
        connect_timeout=min(_max_timeout(state.connect_estimator.policy), state.total),
        read_timeout=_read_timeout(state),
        retries={"mode": "standard", "total_max_attempts": 1},
    )


def protect(client: Client, dependency: Dependency, *, idempotent: Callable[[str], bool] | None = None) -> Client:
    """Apply a dependency's timeouts, retries and budget to a client, and return it. Call it once, before the first use.

    An operation is retried if its model says that this is safe: it reads, it is an HTTP PUT or DELETE, or it has an
    idempotency token, which botocore fills in. If given, `idempotent("PutItem")` decides instead. Other operations are
    retried only if nothing was sent, or if the service throttled them. Raise InvalidValue if the client still retries.
    """
    state = state_of(dependency)
    if not isinstance(client, BaseClient):
        hint = ", such as resource.meta.client of a resource" if hasattr(client, "meta") else ""
        raise InvalidValue(f"{client!r} cannot be protected: expected a client of boto3 or botocore{hint}")
    if idempotent is not None and not callable(idempotent):
        raise InvalidValue(f"idempotent is {idempotent!r}: expected a function of an operation's name, or None")
    _Governor(client, state, idempotent).install()
    return client


def _read_timeout(state: DependencyState) -> float:
    max_seconds = min(_max_timeout(state.attempt_estimator.policy), state.total)
    return DEFAULT_READ_TIMEOUT if max_seconds == math.inf else max_seconds


def _max_timeout(policy: float | Percentile | None) -> float:
    if isinstance(policy, Percentile):
        return policy.ceiling
    return math.inf if policy is None else policy


class _AwsCall(Call):
    """A call whose failures are classified with AWS's service models."""

    def __init__(self, dependency: DependencyState, model: Any, *, repeatable: bool) -> None:
        named = Operation(dependency.name, model.name)
        super().__init__(dependency, named, current_scope(), dependency.runtime.monotonic(), idempotent=repeatable)
        self._model = model
        self._repeatable = repeatable
        self._is_long_poll = is_long_poll(model.service_model.service_name, model.name)
        self.is_over = False
        """Whether botocore has aborted the call, so that no retry can follow."""

    def read_timeout(self, attempt: Attempt, max_read_timeout: float) -> float:
        """Return the seconds that the response to this attempt, and each part of it, may take."""
        if self._is_long_poll:
            return max(MIN_TIMEOUT, min(MAX_LONG_POLL, self.expires - self.dependency.runtime.monotonic()))
        return max(MIN_TIMEOUT, min(max_read_timeout, attempt.timeout))

    def classify_outcome(self, result: Any, error: Exception | None) -> Failure | None:
        failure = super().classify_outcome(result, error)
        if failure is None or error is None:
            return failure
        if self.is_over:
            return Failure(FailureKind.PERMANENT, failure.status, failure.code)
        own = self.dependency.retry.classify
        if own is None or own(error) is None:
            if isinstance(error, ChecksumError):
                failure = Failure(FailureKind.TRANSIENT)
            failure = refine_failure(failure, self._model.error_shapes)
        self.idempotent = self._repeatable or failure.kind is FailureKind.THROTTLED
        return failure

    def learn(self, attempt: Attempt, failure: Failure | None, now: float) -> None:
        if not self._is_long_poll:
            super().learn(attempt, failure, now)


class _CallProgress:
    """The state of one call, in the context that botocore passes from event to event."""

    __slots__ = ("attempt", "call", "error", "is_redirected", "max_read_timeout")

    def __init__(self, call: _AwsCall, max_read_timeout: float) -> None:
        self.call = call
        self.max_read_timeout = max_read_timeout
        self.attempt: Attempt | None = None
        self.error: Exception | None = None
        self.is_redirected = False

    def leave(self) -> Attempt:
        """End the attempt in progress, and return it."""
        attempt, self.attempt = self.attempt, None
        assert attempt is not None
        self.call.leave()
        return attempt

    def __del__(self) -> None:
        if self.attempt is not None:
            self.call.leave()  # interrupted: botocore emits no event for a BaseException such as KeyboardInterrupt


class _Governor:
    """The event handlers of one client. Thread-safe: the state of a call is in its request context."""

    def __init__(self, client: Any, dependency: DependencyState, idempotent: Callable[[str], bool] | None) -> None:
        self._client = weakref.proxy(client)  # it refers to its handlers: a cycle would keep its connections open
        self._dependency = dependency
        self._idempotent = idempotent
        self._events = client.meta.events
        self._service = client.meta.service_model.service_id.hyphenize()

    def install(self) -> None:
        """Remove botocore's retries from the client, check that none remain, and register the handlers."""
        name = f"{self._client.meta.service_model.service_name} client"
        if self._events.emit(CONTEXT_KEY):
            raise InvalidValue(f"{name}: protected already; make another client for another dependency")
        mode = self._client.meta.config.retries["mode"]
        if mode == "adaptive":
            raise InvalidValue(
                f"{name}: its retry mode is adaptive, which limits the rate of requests as well: "
                "expected standard or legacy, as in client_config(dependency)"
            )
        self._events.unregister(f"needs-retry.{self._service}", unique_id=f"retry-config-{self._service}")
        still = self._find_retry_handler()
        if still is not None:
            raise InvalidValue(f"{name}: {still!r} retries as well: remove it, because attempts would multiply")
        self._events.register(CONTEXT_KEY, lambda **_: self._dependency.name)
        # First, because signing may fetch credentials: a call without time left must be refused before that.
        self._events.register_first(f"request-created.{self._service}", self._begin)
        self._events.register(f"needs-retry.{self._service}", self._end_attempt)
        self._events.register(f"after-call-error.{self._service}", self._abandon)

    def _find_retry_handler(self) -> object | None:
        """Return the handler that would retry a 503, or None. Found by emitting a test event, not from settings."""
        model = self._client.meta.service_model
        operation = model.operation_model(model.operation_names[0])
        metadata = {"HTTPStatusCode": 503, "HTTPHeaders": {}}
        parsed = {"Error": {"Code": "ServiceUnavailable", "Message": ""}, "ResponseMetadata": metadata}
        answers = self._events.emit(
            f"needs-retry.{self._service}.{operation.name}",
            response=(SimpleNamespace(status_code=503, headers={}, content=b""), parsed),
            endpoint=None,
            operation=operation,
            attempts=1,
            caught_exception=None,
            request_dict={"context": {"retries": {}}},
        )
        return next((handler for handler, delay in answers if delay is not None and delay is not False), None)

    def _begin(self, request: Any, operation_name: str, **_: Any) -> None:
        """Begin an attempt before it is signed and sent, and set its timeout. Raise if the deadline has passed."""
        context, dependency = request.context, self._dependency
        progress: _CallProgress | None = context.get(CONTEXT_KEY)
        try:
            if progress is None:
                model = self._client.meta.service_model.operation_model(operation_name)
                call = _AwsCall(dependency, model, repeatable=self._is_repeatable(model))
                max_read_timeout = context.get("read_timeout") or self._client.meta.config.read_timeout
                progress = context[CONTEXT_KEY] = _CallProgress(call, max_read_timeout)
                context.setdefault("retries", {})["max"] = 1 if call.owned_by else call.options.retry.max_attempts
                self._wait(call.initial_delay())
            attempt = progress.call.begin(progress.error)
            progress.call.enter(progress.error)
        except CallError as error:
            raise to_botocore_error(error)  # noqa: B904 - it copies the cause
        progress.attempt, progress.error = attempt, None
        context["read_timeout"] = progress.call.read_timeout(attempt, progress.max_read_timeout)

    def _end_attempt(
        self, response: Any, operation: Any, caught_exception: Exception | None, request_dict: Any, **_: Any
    ) -> int | None:
        """Wait, then return 0 for another attempt, or None. Wait here, because botocore would use the system clock."""
        context = request_dict["context"]
        progress: _CallProgress | None = context.get(CONTEXT_KEY)
        if progress is None:
            return None
        attempt = progress.leave()
        if self._is_redirected(progress, context):
            return None
        error = caught_exception or self._build_error(response, operation)
        http_response, parsed = (None, None) if response is None else response
        try:
            delay = progress.call.end_attempt(attempt, parsed, error)
        except CallError as late:
            raise to_botocore_error(late)  # noqa: B904 - it copies the cause
        if delay is None:
            self._explain(parsed, error)
            self._relax_stream_timeout(http_response, operation)
            return None
        progress.error = error
        self._wait(delay)
        return 0

    def _wait(self, seconds: float) -> None:
        if seconds:
            self._dependency.runtime.clock.sleep(seconds)

    def _relax_stream_timeout(self, http_response: Any, operation: Any) -> None:
        """Set the client's read timeout for a stream, which the caller reads after the attempt."""
        if http_response is None or not (operation.has_streaming_output or operation.has_event_stream_output):
            return
        own = self._client.meta.config.read_timeout
        if own == _read_timeout(self._dependency):  # from `client_config`, whose value is meant for attempts
            own = max(own, DEFAULT_READ_TIMEOUT)
        with suppress(AttributeError):  # a short response has no socket any more
            set_socket_timeout(http_response.raw, own)

    def _abandon(self, exception: Exception, context: Any, **_: Any) -> None:
        """Finish a call that botocore aborted without its retry event: signing or parsing the response failed."""
        progress: _CallProgress | None = context.get(CONTEXT_KEY)
        if progress is not None and progress.attempt is not None:
            progress.call.is_over = True
            progress.call.end_attempt(progress.leave(), None, exception)

    def _is_repeatable(self, model: Any) -> bool:
        if self._idempotent is not None:
            return self._idempotent(model.name)
        service = model.service_model.service_name
        return is_repeatable(service, model.name, model.http.get("method", "POST"), model.idempotent_members)

    def _build_error(self, response: Any, operation: Any) -> Exception | None:
        """Return the error that the client will raise, built as it does, or None for a good response."""
        answer, parsed = response
        if answer.status_code >= 300:
            kind = self._client.exceptions.from_code(parsed.get("Error", {}).get("Code"))
            error: Exception = kind(parsed, operation.name)
            return error
        if self._service != "dynamodb":
            return None
        # DynamoDB sends a checksum with every response. The botocore handler that checks it has been removed.
        expected, actual = answer.headers.get("x-amz-crc32"), crc32(answer.content)
        if expected is None or int(expected) == actual:
            return None
        return ChecksumError(checksum_type="crc32", expected_checksum=expected, actual_checksum=str(actual))

    @staticmethod
    def _is_redirected(progress: _CallProgress, context: Any) -> bool:
        """Return whether the bucket is in another region. botocore resends the request there, in the same attempt."""
        before, progress.is_redirected = progress.is_redirected, bool(context.get("s3_redirect", {}).get("redirected"))
        is_new = progress.is_redirected and not before
        progress.call.number -= is_new
        return is_new

    @staticmethod
    def _explain(parsed: Any, error: Exception | None) -> None:
        """Add the note to the response metadata: botocore builds its error later. Raise an error that it would hide."""
        if isinstance(error, ChecksumError):
            raise error
        notes = getattr(error, "__notes__", ())
        if parsed is not None and notes:
            parsed.setdefault("ResponseMetadata", {})[NO_RETRY_REASON_KEY] = notes[-1]
