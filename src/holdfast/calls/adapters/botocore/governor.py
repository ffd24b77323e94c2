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

from holdfast._errors import CallError, DeadlineExceeded, HeldBack, HoldfastError, InvalidValue, LimitReached
from holdfast._types import Operation
from holdfast.calls.adapters.botocore.operations import is_long_poll, is_repeatable, refined
from holdfast.calls.adapters.rules import Twins, twin_of
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import Failure, Kind
from holdfast.calls.context import around
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.engine import Call
from holdfast.calls.state import DependencyState
from holdfast.calls.timeout import Percentile


class _OfBotocore(BotoCoreError):
    """An error with a message of its own; those of botocore are made of a format and what goes into it."""

    fmt = "{message}"

    def __init__(self, message: str) -> None:
        BotoCoreError.__init__(self, message=message)  # it keeps this, and is pickled by it


class BotocoreDeadlineExceeded(_OfBotocore, DeadlineExceeded):
    """The time for the whole of it was over before the call began; nothing was sent."""


class BotocoreHeldBack(_OfBotocore, HeldBack):
    """The service asked every caller to wait, and longer than there is time; nothing was sent."""


class BotocoreLimitReached(_OfBotocore, LimitReached):
    """As many calls to the dependency as may be are under way; nothing was sent."""


_TWINS: Twins = (
    (DeadlineExceeded, BotocoreDeadlineExceeded),
    (HeldBack, BotocoreHeldBack),
    (LimitReached, BotocoreLimitReached),
)


def as_botocore(error: CallError) -> HoldfastError:
    """The same error, which is also one of botocore; as it is if it has no counterpart there."""
    return twin_of(error, _TWINS) or error


Client = TypeVar("Client")

KEY = "holdfast"
"""Where botocore's context of a request keeps the call."""
NOTE = "HoldfastNote"
"""Where the metadata of an error response says why there was no further attempt."""
LONGEST_POLL = 70.0
"""Seconds; SQS answers after 20, Step Functions and SWF after 60, and the way there and back takes its time."""
SHORTEST = 0.001
"""Seconds; sockets take none for never."""
UNBOUNDED = 60.0
"""Seconds to read for dependencies without any bound of their own, and for parts of a stream: botocore's default."""


def config(dependency: Dependency) -> Config:
    """Return settings for a client to be governed, to `merge` with yours: no retries, and timeouts at their ceiling."""
    state = state_of(dependency)
    return Config(
        connect_timeout=min(_longest(state.connect_estimator.policy), state.total),
        read_timeout=_reading(state),
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


def _reading(state: DependencyState) -> float:
    longest = min(_longest(state.attempt_estimator.policy), state.total)
    return UNBOUNDED if longest == math.inf else longest


def _longest(policy: float | Percentile | None) -> float:
    if isinstance(policy, Percentile):
        return policy.ceiling
    return math.inf if policy is None else policy


class _AwsCall(Call):
    """A call whose failures are understood by AWS's own models."""

    def __init__(self, core: DependencyState, model: Any, *, repeatable: bool) -> None:
        named = Operation(core.name, model.name)
        super().__init__(core, named, around(), core.runtime.monotonic(), idempotent=repeatable)
        self._model = model
        self._repeatable = repeatable
        self._is_long_poll = is_long_poll(model.service_model.service_name, model.name)
        self.is_over = False
        """Whether botocore has given up already, so that there is nothing left to decide."""

    def read_timeout(self, attempt: Attempt, most: float) -> float:
        """Seconds that the answer to this attempt may take, and each part of it."""
        if self._is_long_poll:
            return max(SHORTEST, min(LONGEST_POLL, self.expires - self.core.runtime.monotonic()))
        return max(SHORTEST, min(most, attempt.timeout))

    def understand(self, result: Any, error: Exception | None) -> Failure | None:
        failure = super().understand(result, error)
        if failure is None or error is None:
            return failure
        if self.is_over:
            return Failure(Kind.PERMANENT, failure.status, failure.code)
        own = self.core.retry.classify
        if own is None or own(error) is None:
            if isinstance(error, ChecksumError):
                failure = Failure(Kind.TRANSIENT)
            failure = refined(failure, self._model.error_shapes)
        self.idempotent = self._repeatable or failure.kind is Kind.THROTTLED
        return failure

    def learn(self, attempt: Attempt, failure: Failure | None, now: float) -> None:
        if not self._is_long_poll:
            super().learn(attempt, failure, now)


class _Turns:
    """The attempts of one call, kept where botocore hands it from event to event."""

    __slots__ = ("attempt", "call", "error", "is_redirected", "most")

    def __init__(self, call: _AwsCall, most: float) -> None:
        self.call = call
        self.most = most
        self.attempt: Attempt | None = None
        self.error: Exception | None = None
        self.is_redirected = False

    def leave(self) -> Attempt:
        """End the attempt that is under way."""
        attempt, self.attempt = self.attempt, None
        assert attempt is not None
        self.call.left()
        return attempt

    def __del__(self) -> None:
        if self.attempt is not None:
            self.call.left()  # interrupted: botocore tells nobody of what is no Exception


class _Governor:
    """The handlers of one client. What they know of a call is in its context, so threads do not meet here."""

    def __init__(self, client: Any, core: DependencyState, idempotent: Callable[[str], bool] | None) -> None:
        self._client = weakref.proxy(client)  # it holds its handlers: nothing should keep its connections open
        self._core = core
        self._idempotent = idempotent
        self._events = client.meta.events
        self._service = client.meta.service_model.service_id.hyphenize()

    def install(self) -> None:
        """Take botocore's own retries off, make sure that they are, and put the dependency's in their place."""
        name = f"{self._client.meta.service_model.service_name} client"
        if self._events.emit(KEY):
            raise InvalidValue(f"{name}: it is governed already; make another client for another dependency")
        mode = self._client.meta.config.retries["mode"]
        if mode == "adaptive":
            raise InvalidValue(
                f"{name}: its retry mode is adaptive, which holds requests back by a rate of its own: "
                "expected standard or legacy, such as in config(dependency)"
            )
        self._events.unregister(f"needs-retry.{self._service}", unique_id=f"retry-config-{self._service}")
        still = self._who_retries()
        if still is not None:
            raise InvalidValue(f"{name}: {still!r} retries as well: take it off, because attempts would multiply")
        self._events.register(KEY, lambda **_: self._core.name)
        # First, because signing may fetch credentials, for which there should be time left.
        self._events.register_first(f"request-created.{self._service}", self._begin)
        self._events.register(f"needs-retry.{self._service}", self._settle)
        self._events.register(f"after-call-error.{self._service}", self._abandon)

    def _who_retries(self) -> object | None:
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
        context, core = request.context, self._core
        turns: _Turns | None = context.get(KEY)
        try:
            if turns is None:
                model = self._client.meta.service_model.operation_model(operation_name)
                call = _AwsCall(core, model, repeatable=self._is_repeatable(model))
                most = context.get("read_timeout") or self._client.meta.config.read_timeout
                turns = context[KEY] = _Turns(call, most)
                context.setdefault("retries", {})["max"] = 1 if call.owned_by else core.retry.attempts
                self._wait(call.hold())
            attempt = turns.call.begin(turns.error)
            turns.call.enter(turns.error)
        except CallError as error:
            raise as_botocore(error)  # noqa: B904 - it has the cause that the error has
        turns.attempt, turns.error = attempt, None
        context["read_timeout"] = turns.call.read_timeout(attempt, turns.most)

    def _settle(
        self, response: Any, operation: Any, caught_exception: Exception | None, request_dict: Any, **_: Any
    ) -> int | None:
        """Return 0 when it is time for the next attempt, else None. botocore would wait by the machine's clock only."""
        context = request_dict["context"]
        turns: _Turns | None = context.get(KEY)
        if turns is None:
            return None
        attempt = turns.leave()
        if self._is_redirected(turns, context):
            return None
        error = caught_exception or self._error_of(response, operation)
        delay = turns.call.settle(attempt, None if response is None else response[1], error)
        if delay is None:
            self._explain(response, error)
            self._hand_over(response, operation)
            return None
        turns.error = error
        self._wait(delay)
        return 0

    def _wait(self, seconds: float) -> None:
        if seconds:
            self._core.runtime.clock.sleep(seconds)

    def _hand_over(self, response: Any, operation: Any) -> None:
        """Let the caller read a stream as slowly as the client may: what is left of the attempt is no measure of it."""
        if response is None or not (operation.has_streaming_output or operation.has_event_stream_output):
            return
        own = self._client.meta.config.read_timeout
        if own == _reading(self._core):  # from `config`, which had attempts in mind
            own = max(own, UNBOUNDED)
        with suppress(AttributeError):  # it has no socket any more, because it was short
            set_socket_timeout(response[0].raw, own)

    def _abandon(self, exception: Exception, context: Any, **_: Any) -> None:
        """The call ends, and botocore asked nobody: it could not sign, or did not understand the answer."""
        turns: _Turns | None = context.get(KEY)
        if turns is not None and turns.attempt is not None:
            turns.call.is_over = True
            turns.call.settle(turns.leave(), None, exception)

    def _is_repeatable(self, model: Any) -> bool:
        if self._idempotent is not None:
            return self._idempotent(model.name)
        service = model.service_model.service_name
        return is_repeatable(service, model.name, model.http.get("method", "POST"), model.idempotent_members)

    def _error_of(self, response: Any, operation: Any) -> Exception | None:
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
    def _is_redirected(turns: _Turns, context: Any) -> bool:
        """Return whether the bucket is in another region: botocore asks there at once, within the same attempt."""
        before, turns.is_redirected = turns.is_redirected, bool(context.get("s3_redirect", {}).get("redirected"))
        is_new = turns.is_redirected and not before
        turns.call.number -= is_new
        return is_new

    @staticmethod
    def _explain(response: Any, error: Exception | None) -> None:
        """Say why it was the last attempt, where botocore makes the error only later; raise what it would not."""
        if isinstance(error, ChecksumError):
            raise error
        notes = getattr(error, "__notes__", ())
        if response is not None and notes:
            response[1].setdefault("ResponseMetadata", {})[NOTE] = notes[-1]
