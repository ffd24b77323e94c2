"""What a governed client does, event by event; Holdfast's refusals are errors of botocore as well."""

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
from holdfast.calls.adapters.rules import ErrorPairs, translate_error
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import Failure, FailureKind
from holdfast.calls.context import current_scope
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.engine import Call
from holdfast.calls.state import DependencyState
from holdfast.calls.timeout import Percentile


class _BotocoreError(BotoCoreError):
    """An error with a message of its own; those of botocore are made of a format and what goes into it."""

    fmt = "{message}"

    def __init__(self, message: str) -> None:
        BotoCoreError.__init__(self, message=message)  # it keeps this, and is pickled by it


class BotocoreDeadlineExceeded(_BotocoreError, DeadlineExceeded):
    """The time for the whole of it was over before the call began; nothing was sent."""


class BotocoreRetryAfterTooLong(_BotocoreError, RetryAfterTooLong):
    """The service asked every caller to wait, and longer than there is time; nothing was sent."""


class BotocoreLimitReached(_BotocoreError, LimitReached):
    """As many calls to the dependency as may be are under way; nothing was sent."""


_ERROR_PAIRS: ErrorPairs = (
    (DeadlineExceeded, BotocoreDeadlineExceeded),
    (RetryAfterTooLong, BotocoreRetryAfterTooLong),
    (LimitReached, BotocoreLimitReached),
)


def to_botocore_error(error: CallError) -> HoldfastError:
    """The same error, which is also one of botocore; as it is if it has no counterpart there."""
    return translate_error(error, _ERROR_PAIRS) or error


Client = TypeVar("Client")

CONTEXT_KEY = "holdfast"
"""Where botocore's context of a request keeps the call."""
NOTE_KEY = "HoldfastNote"
"""Where the metadata of an error response says why there was no further attempt."""
MAX_LONG_POLL = 70.0
"""Seconds; SQS answers after 20, Step Functions and SWF after 60, and the way there and back takes its time."""
MIN_TIMEOUT = 0.001
"""Seconds; sockets take none for never."""
DEFAULT_READ_TIMEOUT = 60.0
"""Seconds to read for dependencies without any bound of their own, and for parts of a stream: botocore's default."""


def client_config(dependency: Dependency) -> Config:
    """Return settings for a client to be governed, to `merge` with yours: no retries, and timeouts at their ceiling."""
    state = state_of(dependency)
    return Config(
        connect_timeout=min(_max_timeout(state.connect_estimator.policy), state.total),
        read_timeout=_read_timeout(state),
        retries={"mode": "standard", "total_max_attempts": 1},
    )


def govern(client: Client, dependency: Dependency, *, idempotent: Callable[[str], bool] | None = None) -> Client:
    """Put a client under a dependency's policies, and return it. Do so before it is used, and once.

    An operation is repeated if its model says that this is safe: it reads, it is a PUT or DELETE of HTTP, or it has an
    idempotency token, which botocore fills in. `idempotent("PutItem")` decides instead if given. Others are repeated
    only when nothing was sent, or when the service throttled it. Raise InvalidValue for a client that still retries.
    """
    state = state_of(dependency)
    if not isinstance(client, BaseClient):
        hint = ", which a resource has as resource.meta.client" if hasattr(client, "meta") else ""
        raise InvalidValue(f"{client!r} cannot be governed: expected a client of boto3 or botocore{hint}")
    if idempotent is not None and not callable(idempotent):
        raise InvalidValue(f"idempotent is {idempotent!r}: expected a function of the name of an operation, or None")
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
    """A call whose failures are understood by AWS's own models."""

    def __init__(self, dependency: DependencyState, model: Any, *, repeatable: bool) -> None:
        named = Operation(dependency.name, model.name)
        super().__init__(dependency, named, current_scope(), dependency.runtime.monotonic(), idempotent=repeatable)
        self._model = model
        self._repeatable = repeatable
        self._is_long_poll = is_long_poll(model.service_model.service_name, model.name)
        self.is_over = False
        """Whether botocore has given up already, so that there is nothing left to decide."""

    def read_timeout(self, attempt: Attempt, max_read_timeout: float) -> float:
        """Seconds that the answer to this attempt may take, and each part of it."""
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
    """The attempts of one call, kept where botocore hands it from event to event."""

    __slots__ = ("attempt", "call", "error", "is_redirected", "max_read_timeout")

    def __init__(self, call: _AwsCall, max_read_timeout: float) -> None:
        self.call = call
        self.max_read_timeout = max_read_timeout
        self.attempt: Attempt | None = None
        self.error: Exception | None = None
        self.is_redirected = False

    def leave(self) -> Attempt:
        """End the attempt that is under way."""
        attempt, self.attempt = self.attempt, None
        assert attempt is not None
        self.call.leave()
        return attempt

    def __del__(self) -> None:
        if self.attempt is not None:
            self.call.leave()  # interrupted: botocore tells nobody of what is no Exception


class _Governor:
    """The handlers of one client. What they know of a call is in its context, so threads do not meet here."""

    def __init__(self, client: Any, dependency: DependencyState, idempotent: Callable[[str], bool] | None) -> None:
        self._client = weakref.proxy(client)  # it holds its handlers: nothing should keep its connections open
        self._dependency = dependency
        self._idempotent = idempotent
        self._events = client.meta.events
        self._service = client.meta.service_model.service_id.hyphenize()

    def install(self) -> None:
        """Take botocore's own retries off, make sure that they are, and put the dependency's in their place."""
        name = f"{self._client.meta.service_model.service_name} client"
        if self._events.emit(CONTEXT_KEY):
            raise InvalidValue(f"{name}: it is governed already; make another client for another dependency")
        mode = self._client.meta.config.retries["mode"]
        if mode == "adaptive":
            raise InvalidValue(
                f"{name}: its retry mode is adaptive, which holds requests back by a rate of its own: "
                "expected standard or legacy, such as in client_config(dependency)"
            )
        self._events.unregister(f"needs-retry.{self._service}", unique_id=f"retry-config-{self._service}")
        still = self._find_retry_handler()
        if still is not None:
            raise InvalidValue(f"{name}: {still!r} retries as well: take it off, because attempts would multiply")
        self._events.register(CONTEXT_KEY, lambda **_: self._dependency.name)
        # First, because signing may fetch credentials, for which there should be time left.
        self._events.register_first(f"request-created.{self._service}", self._begin)
        self._events.register(f"needs-retry.{self._service}", self._end_attempt)
        self._events.register(f"after-call-error.{self._service}", self._abandon)

    def _find_retry_handler(self) -> object | None:
        """Who would repeat a request that was answered with 503: the client is asked, not its settings."""
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
        """Before an attempt is signed and sent: refuse it if it is too late, bound it if not."""
        context, dependency = request.context, self._dependency
        progress: _CallProgress | None = context.get(CONTEXT_KEY)
        try:
            if progress is None:
                model = self._client.meta.service_model.operation_model(operation_name)
                call = _AwsCall(dependency, model, repeatable=self._is_repeatable(model))
                max_read_timeout = context.get("read_timeout") or self._client.meta.config.read_timeout
                progress = context[CONTEXT_KEY] = _CallProgress(call, max_read_timeout)
                context.setdefault("retries", {})["max"] = 1 if call.owned_by else dependency.retry.max_attempts
                self._wait(call.initial_delay())
            attempt = progress.call.begin(progress.error)
            progress.call.enter(progress.error)
        except CallError as error:
            raise to_botocore_error(error)  # noqa: B904 - it has the cause that the error has
        progress.attempt, progress.error = attempt, None
        context["read_timeout"] = progress.call.read_timeout(attempt, progress.max_read_timeout)

    def _end_attempt(
        self, response: Any, operation: Any, caught_exception: Exception | None, request_dict: Any, **_: Any
    ) -> int | None:
        """Return 0 when it is time for the next attempt, else None. botocore would wait by the machine's clock only."""
        context = request_dict["context"]
        progress: _CallProgress | None = context.get(CONTEXT_KEY)
        if progress is None:
            return None
        attempt = progress.leave()
        if self._is_redirected(progress, context):
            return None
        error = caught_exception or self._build_error(response, operation)
        delay = progress.call.end_attempt(attempt, None if response is None else response[1], error)
        if delay is None:
            self._explain(response, error)
            self._relax_stream_timeout(response, operation)
            return None
        progress.error = error
        self._wait(delay)
        return 0

    def _wait(self, seconds: float) -> None:
        if seconds:
            self._dependency.runtime.clock.sleep(seconds)

    def _relax_stream_timeout(self, response: Any, operation: Any) -> None:
        """Let the caller read a stream as slowly as the client may: what is left of the attempt is no measure of it."""
        if response is None or not (operation.has_streaming_output or operation.has_event_stream_output):
            return
        own = self._client.meta.config.read_timeout
        if own == _read_timeout(self._dependency):  # from `client_config`, which had attempts in mind
            own = max(own, DEFAULT_READ_TIMEOUT)
        with suppress(AttributeError):  # it has no socket any more, because it was short
            set_socket_timeout(response[0].raw, own)

    def _abandon(self, exception: Exception, context: Any, **_: Any) -> None:
        """The call ends, and botocore asked nobody: it could not sign, or did not understand the answer."""
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
        """What the client will raise, in the way that it does; None for a good answer."""
        answer, parsed = response
        if answer.status_code >= 300:
            kind = self._client.exceptions.from_code(parsed.get("Error", {}).get("Code"))
            error: Exception = kind(parsed, operation.name)
            return error
        if self._service != "dynamodb":
            return None
        # DynamoDB sends a checksum of every answer; who looks at it is botocore's handler, which is off.
        expected, actual = answer.headers.get("x-amz-crc32"), crc32(answer.content)
        if expected is None or int(expected) == actual:
            return None
        return ChecksumError(checksum_type="crc32", expected_checksum=expected, actual_checksum=str(actual))

    @staticmethod
    def _is_redirected(progress: _CallProgress, context: Any) -> bool:
        """Return whether the bucket is in another region: botocore asks there at once, within the same attempt."""
        before, progress.is_redirected = progress.is_redirected, bool(context.get("s3_redirect", {}).get("redirected"))
        is_new = progress.is_redirected and not before
        progress.call.number -= is_new
        return is_new

    @staticmethod
    def _explain(response: Any, error: Exception | None) -> None:
        """Say why it was the last attempt, where botocore makes the error only later; raise what it would not."""
        if isinstance(error, ChecksumError):
            raise error
        notes = getattr(error, "__notes__", ())
        if response is not None and notes:
            response[1].setdefault("ResponseMetadata", {})[NOTE_KEY] = notes[-1]
