"""One attempt, as the function that makes it sees it: how long it may take, and what to send with it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast._errors import AttemptTimedOut, CallError, ConnectTimedOut, DeadlineExceeded
from holdfast._types import Carrier
from holdfast.calls.scope import IDEMPOTENCY_KEY, Scope, headers_of, trace_of

if TYPE_CHECKING:
    from holdfast.calls.endpoints import Endpoint

NEGLIGIBLE = 0.001
"""Seconds of waiting for a connection that are not given back: that would take a timer for every attempt."""


class Errand(msgspec.Struct, eq=False):
    """What all attempts of one call share, if any of them asked for it."""

    key: str | None = None
    place: "Endpoint | None" = None
    """Where the attempt that is under way goes."""
    tried: tuple[str, ...] = ()
    """The addresses of the attempts before it."""

    def move_on(self) -> None:
        """Another attempt begins: it goes somewhere else."""
        if self.place is not None:
            self.tried = (*self.tried, self.place.address)
            self.place = None


class Attempt(Scope, eq=False, gc=False):
    """An attempt under way; what nobody asks of it costs nothing. Without reference cycles, hence `gc=False`."""

    core: Any = None
    """The dependency that is called."""
    limit: float = math.inf
    """Monotonic time until which the whole call must be over."""
    number: int = 1
    shared: Errand | None = None
    setup: float = 0.0
    """Seconds that went into connections: they are no latency of the dependency."""
    connecting_since: float | None = None
    queued: bool = False
    """Whether it ended while it waited for a connection of a pool to be free: nothing was sent."""

    @property
    def timeout(self) -> float:
        """Seconds that are left for this attempt: hand them to the client that makes it."""
        left: float = self.expires - self.core.runtime.monotonic()
        return max(0.0, left)

    @property
    def connect_timeout(self) -> float:
        """Seconds that a new connection may take; they count apart from `timeout`."""
        longest: float = self.core.connect_estimator.value
        return min(longest, self.call_timeout)

    @property
    def call_timeout(self) -> float:
        """Seconds that are left for the whole call."""
        left: float = self.limit - self.core.runtime.monotonic()
        return max(0.0, left)

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of one call: a server that knows it does the work once."""
        errand = self._errand()
        if errand.key is None:
            errand.key = uuid4().hex
        return errand.key

    @property
    def endpoint(self) -> "Endpoint":
        """Where to: another one than those that this call has tried, in a zone that is not out."""
        errand = self._errand()
        if errand.place is None:
            errand.place = self.core.endpoint(errand.tried)
        place: Endpoint = errand.place
        return place

    @property
    def place(self) -> "Endpoint | None":
        """The endpoint, if it was asked for."""
        return None if self.shared is None else self.shared.place

    @property
    def carrier(self) -> Carrier:
        """What crosses to the process that is called."""
        left = None if self.expires == math.inf else self.timeout
        return Carrier(trace=trace_of(self), remaining=left, retry_owner=self.owner)

    def headers(self, *, idempotency_key: bool = False) -> dict[str, str]:
        """The HTTP headers that tell the other side the deadline, who retries and, if asked for, the key."""
        found = headers_of(self.carrier)
        if idempotency_key:
            found[IDEMPOTENCY_KEY] = self.idempotency_key
        return found

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Around what sets a connection up: it is measured and bounded apart; the attempt's time begins after it."""
        self.connect_began()
        try:
            yield
        except Exception:
            # The function may go on with another connection, so that from here on anything may have been sent.
            now = self.core.runtime.monotonic()
            if now >= self.expires:
                self.core.learn_connect(math.inf)
            self.connecting_since = None
            self._move(now + self.core.timeout)
            raise
        self.connect_ended()

    def connect_began(self) -> None:
        """The same in two halves, for clients that tell by callbacks; it may begin again before it has ended."""
        if self.connecting_since is None:
            self.connecting_since = now = self.core.runtime.monotonic()
            self._move(now + self.core.connect_estimator.value)

    def connect_ended(self) -> None:
        """A connection is ready. One that did not come about has not ended: it tells that nothing was sent."""
        if self.connecting_since is None:
            return
        now = self.core.runtime.monotonic()
        self.core.learn_connect(now - self.connecting_since)
        self.setup += now - self.connecting_since
        self.connecting_since = None
        self._move(now + self.core.timeout)

    def ready(self, since: float) -> None:
        """There is a connection, waited for since then: that is no latency, and the attempt's time begins now."""
        now = self.core.runtime.monotonic()
        if self.connecting_since is not None:
            self.connect_ended()
        elif now - since > NEGLIGIBLE:
            self._move(now + self.core.timeout)
        self.setup = now - since

    def _errand(self) -> Errand:
        if self.shared is None:
            self.shared = Errand()
        return self.shared

    def timed_out(self) -> CallError:
        """Return what to raise when the attempt's time is over."""
        name = self.core.name
        if self.expires >= self.limit:
            return DeadlineExceeded(f"{name}: cut off, because the deadline has passed during attempt {self.number}")
        if self.queued:
            return ConnectTimedOut(f"{name}: no connection was free in {self.core.timeout:.3f} s")
        if self.connecting_since is not None:
            return ConnectTimedOut(f"{name}: no connection in {self.core.connect_estimator.value:.3f} s")
        return AttemptTimedOut(f"{name}: attempt {self.number} was cut off after {self.core.timeout:.3f} s")

    def _move(self, expires: float) -> None:
        self.expires = min(self.limit, expires)


class TimedAttempt(Attempt, eq=False, gc=True):
    """An attempt in an event loop, which can be cut off. A task that never ends refers to it, and it to the task."""

    expiries: Any = None
    """What cuts it off in an event loop, and is told when `expires` moves."""
    task: Any = None
    """Whom to cancel then."""
    cancelling: int = 0
    """Cancellations that the task had been asked for before."""
    was_cut: bool = False
    timer: Any = None
    """A timer of its own, if the one for all of the dependency's attempts does not serve it."""

    def _move(self, expires: float) -> None:
        super()._move(expires)
        if self.expires == math.inf:
            return
        if self.expiries is None:  # it had no bound before
            from holdfast.calls.expiries import watch

            watch(self)
        else:
            self.expiries.arm_one(self)
