"""One attempt, as seen by the function that makes it: how long it may take, and what to send with it."""

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast._errors import AttemptTimedOut, CallError, ConnectTimedOut, DeadlineExceeded
from holdfast._types import Carrier
from holdfast.calls.histogram import TIMED_OUT
from holdfast.calls.scope import IDEMPOTENCY_KEY_HEADER, Scope, build_headers, find_options, find_trace

if TYPE_CHECKING:
    from holdfast.calls.endpoints import Endpoint

NEGLIGIBLE_WAIT = 0.001
"""Seconds. A shorter wait for a connection does not extend the attempt: that would take a timer for each attempt."""


class CallState(msgspec.Struct, eq=False):
    """The state that the attempts of one call share. Made when an attempt first needs it."""

    idempotency_key: str | None = None
    endpoint: "Endpoint | None" = None
    """The endpoint of the current attempt."""
    tried: tuple[str, ...] = ()
    """The addresses of the attempts before it."""

    def start_next_attempt(self) -> None:
        """Record the address as tried, and clear the endpoint for the next attempt."""
        if self.endpoint is not None:
            self.tried = (*self.tried, self.endpoint.address)
            self.endpoint = None


class Attempt(Scope, eq=False, gc=False):
    """An attempt in progress: how long it may take, which endpoint to call, and what to send with it."""

    # Optional values are made on first use. There are no reference cycles, hence `gc=False`.
    dependency: Any = None
    """The DependencyState of the dependency that is called."""
    call_expires: float = math.inf
    """Monotonic time at which the whole call times out."""
    number: int = 1
    call_state: CallState | None = None
    setup_seconds: float = 0.0
    """Seconds spent on connections, which are not part of the dependency's latency."""
    connecting_since: float | None = None
    timed_out_in_pool: bool = False
    """Whether it ended while it waited for a free connection of the pool: nothing was sent."""

    @property
    def timeout(self) -> float:
        """Seconds left for this attempt. Pass them to the client that makes it."""
        left: float = self.expires - self.dependency.runtime.monotonic()
        return max(0.0, left)

    @property
    def connect_timeout(self) -> float:
        """Seconds that a new connection may take, which `timeout` does not include."""
        max_seconds: float = self.dependency.connect_estimator.value
        return min(max_seconds, self.call_timeout)

    @property
    def call_timeout(self) -> float:
        """Seconds left for the whole call."""
        left: float = self.call_expires - self.dependency.runtime.monotonic()
        return max(0.0, left)

    @property
    def idempotency_key(self) -> str:
        """A random key, equal in all attempts of one call: a server that honours it does the work once."""
        call_state = self._get_call_state()
        if call_state.idempotency_key is None:
            call_state.idempotency_key = uuid4().hex
        return call_state.idempotency_key

    @property
    def endpoint(self) -> "Endpoint":
        """The endpoint for this attempt: never in a zone that is out and, if possible, one that was not tried yet."""
        call_state = self._get_call_state()
        if call_state.endpoint is None:
            call_state.endpoint = self.dependency.endpoint(call_state.tried)
        endpoint: Endpoint = call_state.endpoint
        return endpoint

    @property
    def chosen_endpoint(self) -> "Endpoint | None":
        """The endpoint, or None if `endpoint` was not read in this attempt."""
        return None if self.call_state is None else self.call_state.endpoint

    @property
    def carrier(self) -> Carrier:
        """The deadline, retry owner and trace to send to the callee."""
        left = None if self.expires == math.inf else self.timeout
        return Carrier(trace=find_trace(self), remaining=left, retry_owner=self.retry_owner)

    def headers(self, *, idempotency_key: bool = False) -> dict[str, str]:
        """Return HTTP headers with the deadline, the retry owner, the trace and, on request, the idempotency key."""
        found = build_headers(self.carrier)
        if idempotency_key:
            found[IDEMPOTENCY_KEY_HEADER] = self.idempotency_key
        return found

    def connecting(self) -> AbstractContextManager[None]:
        """Time a connection set-up, which has its own timeout. The attempt's timeout starts after the block."""
        return _Connecting(self)

    def begin_connect(self) -> None:
        """Begin a connection set-up, for clients with callbacks. Repeating it before `end_connect` has no effect."""
        if self.connecting_since is None:
            self.connecting_since = now = self.dependency.runtime.monotonic()
            self._set_expires(now + self.dependency.connect_estimator.value)

    def fail_connect(self) -> None:
        """End a connection set-up that failed, where the function may continue on another connection."""
        now = self.dependency.runtime.monotonic()
        if now >= self.expires:
            self.dependency.learn_connect(TIMED_OUT)
        self.connecting_since = None  # from here on, something may have been sent
        self._set_expires(now + self.options.timeout)

    def end_connect(self) -> None:
        """End a connection set-up that succeeded. Do not call it after a failure: the attempt must count as unsent."""
        if self.connecting_since is None:
            return
        now = self.dependency.runtime.monotonic()
        self.dependency.learn_connect(now - self.connecting_since)
        self.setup_seconds += now - self.connecting_since
        self.connecting_since = None
        self._set_expires(now + self.options.timeout)

    def connection_ready(self, since: float) -> None:
        """Start the attempt's timeout now. The wait for a connection since `since` does not count as latency."""
        now = self.dependency.runtime.monotonic()
        if self.connecting_since is not None:
            self.end_connect()
        elif now - since > NEGLIGIBLE_WAIT:
            self._set_expires(now + self.options.timeout)
        self.setup_seconds = now - since

    @property
    def options(self) -> Any:
        """The options of its call: the DependencyState, or OverriddenOptions."""
        return find_options(self.dependency, self.enclosing)

    def _get_call_state(self) -> CallState:
        if self.call_state is None:
            self.call_state = CallState()
        return self.call_state

    def timeout_error(self) -> CallError:
        """Return the error to raise when the attempt has timed out."""
        name = self.dependency.name
        if self.expires >= self.call_expires:
            return DeadlineExceeded(f"{name}: the deadline passed during attempt {self.number}")
        if self.timed_out_in_pool:
            return ConnectTimedOut(f"{name}: no connection was free in {self.options.timeout:.3f} s")
        if self.connecting_since is not None:
            return ConnectTimedOut(f"{name}: no connection in {self.dependency.connect_estimator.value:.3f} s")
        return AttemptTimedOut(f"{name}: attempt {self.number} timed out after {self.options.timeout:.3f} s")

    def _set_expires(self, expires: float) -> None:
        self.expires = min(self.call_expires, expires)


class _Connecting(AbstractContextManager[None]):
    """The block of `connecting`. A generator would do, but contextlib sets an attribute of errors: some are frozen."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def __enter__(self) -> None:
        self._attempt.begin_connect()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._attempt.end_connect()
        elif isinstance(error, Exception):
            self._attempt.fail_connect()


class TimedAttempt(Attempt, eq=False, gc=True):
    """An attempt in an event loop, which cancels it on timeout. Needs `gc=True`: it and a hanging task form a cycle."""

    expiries: Any = None
    """The Expiries of the event loop that cancels it; notified when `expires` changes."""
    task: Any = None
    """The task to cancel on timeout."""
    cancelling: int = 0
    """Cancellation requests that the task had before."""
    was_cancelled: bool = False
    timer: Any = None
    """Its own timer, if it does not use the shared timer of the dependency's attempts."""

    def _set_expires(self, expires: float) -> None:
        super()._set_expires(expires)
        if self.expires == math.inf:
            return
        if self.expiries is None:  # it had no timeout before
            from holdfast.calls.expiries import arm_timeout

            arm_timeout(self)
        else:
            self.expiries.arm_one(self)
