"""Bringing the latest state to a receiver: one at a time, in order, until it has arrived or is old."""

import logging
import math
import random
import threading
from typing import Protocol

from holdfast._background import RECONNECT_BACKOFF, BackgroundLoop
from holdfast._backoff import Backoff
from holdfast.agent.state import AgentState

logger = logging.getLogger("holdfast.agent")


class StateReceiver(Protocol):
    """Where states are brought."""

    def receive(self, state: AgentState, stopping: threading.Event) -> bool:
        """Take a state in; false if that failed, and it should be brought again. Ends soon after `stopping` is set."""


class StateDelivery:
    """Brings states to one receiver, from a thread of its own, and never one that was superseded meanwhile.

    A state that failed to arrive is brought again, after pauses that grow, until it arrives or has changed.
    """

    def __init__(self, receiver: StateReceiver, name: str, backoff: Backoff = RECONNECT_BACKOFF) -> None:
        self._receiver = receiver
        self._backoff = backoff
        self._lock = threading.Lock()
        self._latest: AgentState | None = None
        self._known: AgentState | None = None
        """The state that arrived, or was brought last, arrived or not."""
        self._has_delivered = False
        self._failures = 0
        self._stopping = threading.Event()
        self._loop = BackgroundLoop(name, self._deliver, action="tell the host", logger=logger)

    def start(self, arrived: AgentState) -> None:
        """Begin; `arrived` needs not be brought."""
        with self._lock:
            self._known = arrived
            self._latest = self._latest or arrived
        self._loop.start()

    def submit(self, state: AgentState) -> None:
        """Bring this next. Returns at once; also before `start`."""
        with self._lock:
            self._latest = state
        self._loop.wake()

    def deliver_once(self) -> None:
        """Bring the latest state although it had arrived at `start`; nothing if one was brought since."""
        with self._lock:
            if not self._has_delivered:
                self._known = None
        self._loop.wake()

    def stop(self) -> None:
        """Bring nothing more. May be repeated."""
        self._stopping.set()
        self._loop.stop()

    def join(self, timeout: float) -> None:
        """Wait, after `stop`, until the bringing that was under way has ended."""
        self._loop.stop(timeout)

    def _deliver(self) -> float:
        with self._lock:
            if self._latest != self._known:
                self._failures = 0
            elif not self._failures:
                return math.inf
            state = self._known = self._latest
            self._has_delivered = True
        assert state is not None  # known since `start`
        try:
            has_arrived = self._receiver.receive(state, self._stopping)
        except Exception:
            logger.exception("telling the host failed")
            has_arrived = False
        self._failures = 0 if has_arrived else self._failures + 1
        return math.inf if has_arrived else self._backoff.delay(self._failures, 0.0, random.random)
