"""One attempt, as the function that makes it sees it: how long it may take, and what to send with it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast._errors import AttemptTimedOut, CallError, ConnectTimedOut, DeadlineExceeded
from holdfast._types import Carrier
from holdfast.calls.scope import IDEMPOTENCY_KEY_HEADER, Scope, build_headers, find_trace

if TYPE_CHECKING:
    from holdfast.calls.endpoints import Endpoint

NEGLIGIBLE_WAIT = 0.001
"""Seconds of waiting for a connection that are not given back: that would take a timer for every attempt."""


class CallState(msgspec.Struct, eq=False):
    """What all attempts of one call share, if any of them asked for it."""

    idempotency_key: str | None = None
    endpoint: "Endpoint | None" = None
    """Where the attempt that is under way goes."""
    tried: tuple[str, ...] = ()
    """The addresses of the attempts before it."""

    def start_next_attempt(self) -> None:
        """Another attempt begins: it goes somewhere else."""
        if self.endpoint is not None:
            self.tried = (*self.tried, self.endpoint.address)
            self.endpoint = None


class Attempt(Scope, eq=False, gc=False):
    """An attempt under way; what nobody asks of it costs nothing. Without reference cycles, hence `gc=False`."""

    dependency: Any = None
    """The dependency that is called."""
    call_expires: float = math.inf
    """Monotonic time until which the whole call must be over."""
    number: int = 1
    call_state: CallState | None = None
    setup_seconds: float = 0.0
    """Seconds that went into connections: they are no latency of the dependency."""
    connecting_since: float | None = None
    is_queued: bool = False
    """Whether it ended while it waited for a connection of a pool to be free: nothing was sent."""

    @property
    def timeout(self) -> float:
        """Seconds that are left for this attempt: hand them to the client that makes it."""
        left: float = self.expires - self.dependency.runtime.monotonic()
        return max(0.0, left)

    @property
    def connect_timeout(self) -> float:
        """Seconds that a new connection may take; they count apart from `timeout`."""
        max_seconds: float = self.dependency.connect_estimator.value
        return min(max_seconds, self.call_timeout)

    @property
    def call_timeout(self) -> float:
        """Seconds that are left for the whole call."""
        left: float = self.call_expires - self.dependency.runtime.monotonic()
        return max(0.0, left)

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of one call: a server that knows it does the work once."""
        call_state = self._get_call_state()
        if call_state.idempotency_key is None:
            call_state.idempotency_key = uuid4().hex
        return call_state.idempotency_key

    @property
    def endpoint(self) -> "Endpoint":
        """Where to: another one than those that this call has tried, in a zone that is not out."""
        call_state = self._get_call_state()
        if call_state.endpoint is None:
            call_state.endpoint = self.dependency.endpoint(call_state.tried)
        endpoint: Endpoint = call_state.endpoint
        return endpoint

    @property
    def chosen_endpoint(self) -> "Endpoint | None":
        """The endpoint, if it was asked for."""
        return None if self.call_state is None else self.call_state.endpoint

    @property
    def carrier(self) -> Carrier:
        """What crosses to the process that is called."""
        left = None if self.expires == math.inf else self.timeout
        return Carrier(trace=find_trace(self), remaining=left, retry_owner=self.retry_owner)

    def headers(self, *, idempotency_key: bool = False) -> dict[str, str]:
        """The HTTP headers that tell the other side the deadline, who retries and, if asked for, the key."""
        found = build_headers(self.carrier)
        if idempotency_key:
            found[IDEMPOTENCY_KEY_HEADER] = self.idempotency_key
        return found

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Around what sets a connection up: it is measured and bounded apart; the attempt's time begins after it."""
        self.begin_connect()
        try:
            yield
        except Exception:
            # The function may go on with another connection, so that from here on anything may have been sent.
            now = self.dependency.runtime.monotonic()
            if now >= self.expires:
                self.dependency.learn_connect(math.inf)
            self.connecting_since = None
            self._set_expires(now + self.dependency.timeout)
            raise
        self.end_connect()

    def begin_connect(self) -> None:
        """The same in two halves, for clients that tell by callbacks; it may begin again before it has ended."""
        if self.connecting_since is None:
            self.connecting_since = now = self.dependency.runtime.monotonic()
            self._set_expires(now + self.dependency.connect_estimator.value)

    def end_connect(self) -> None:
        """A connection is ready. One that did not come about has not ended: it tells that nothing was sent."""
        if self.connecting_since is None:
            return
        now = self.dependency.runtime.monotonic()
        self.dependency.learn_connect(now - self.connecting_since)
        self.setup_seconds += now - self.connecting_since
        self.connecting_since = None
        self._set_expires(now + self.dependency.timeout)

    def connection_ready(self, since: float) -> None:
        """There is a connection, waited for since then: that is no latency, and the attempt's time begins now."""
        now = self.dependency.runtime.monotonic()
        if self.connecting_since is not None:
            self.end_connect()
        elif now - since > NEGLIGIBLE_WAIT:
            self._set_expires(now + self.dependency.timeout)
        self.setup_seconds = now - since

    def _get_call_state(self) -> CallState:
        if self.call_state is None:
            self.call_state = CallState()
        return self.call_state

    def timeout_error(self) -> CallError:
        """Return what to raise when the attempt's time is over."""
        name = self.dependency.name
        if self.expires >= self.call_expires:
            return DeadlineExceeded(f"{name}: cut off, because the deadline has passed during attempt {self.number}")
        if self.is_queued:
            return ConnectTimedOut(f"{name}: no connection was free in {self.dependency.timeout:.3f} s")
        if self.connecting_since is not None:
            return ConnectTimedOut(f"{name}: no connection in {self.dependency.connect_estimator.value:.3f} s")
        return AttemptTimedOut(f"{name}: attempt {self.number} was cut off after {self.dependency.timeout:.3f} s")

    def _set_expires(self, expires: float) -> None:
        self.expires = min(self.call_expires, expires)


class TimedAttempt(Attempt, eq=False, gc=True):
    """An attempt in an event loop, which can be cut off. A task that never ends refers to it, and it to the task."""

    expiries: Any = None
    """What cuts it off in an event loop, and is told when `expires` moves."""
    task: Any = None
    """Whom to cancel then."""
    cancelling: int = 0
    """Cancellations that the task had been asked for before."""
    was_cancelled: bool = False
    timer: Any = None
    """A timer of its own, if the one for all of the dependency's attempts does not serve it."""

    def _set_expires(self, expires: float) -> None:
        super()._set_expires(expires)
        if self.expires == math.inf:
            return
        if self.expiries is None:  # it had no bound before
            from holdfast.calls.expiries import arm_timeout

            arm_timeout(self)
        else:
            self.expiries.arm_one(self)
