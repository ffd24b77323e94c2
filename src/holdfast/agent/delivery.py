"""Deliver the latest state to a receiver: one at a time, in order, until it succeeds or the state is outdated."""

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
    """A destination of states: the state file or the hook."""

    def receive(self, state: AgentState, stopping: threading.Event) -> bool:
        """Receive a state; return False if that failed and should be repeated. Return soon after `stopping` is set."""


class StateDelivery:
    """A delivery of states to one receiver, from its own thread, that skips outdated states.

    A failed delivery is repeated, after growing pauses, until it succeeds or the state has changed. `name` is the
    setting of the receiver: `file` or `hook`.
    """

    def __init__(self, receiver: StateReceiver, name: str, backoff: Backoff = RECONNECT_BACKOFF) -> None:
        self._receiver = receiver
        self._backoff = backoff
        self._lock = threading.Lock()
        self._latest: AgentState | None = None
        self._known: AgentState | None = None
        """The state of the last delivery, successful or not."""
        self._has_delivered = False
        self._failures = 0
        self._stopping = threading.Event()
        self._name = name
        self._loop = BackgroundLoop(
            f"holdfast-{name}", self._deliver, action=f"deliver the state to agent.{name}", logger=logger
        )

    def start(self, arrived: AgentState) -> None:
        """Start the thread. `arrived` is the state that the receiver already has, so it is not delivered again."""
        with self._lock:
            self._known = arrived
            self._latest = self._latest or arrived
        self._loop.start()

    def submit(self, state: AgentState) -> None:
        """Deliver `state` next. Returns immediately. May be called before `start`."""
        with self._lock:
            self._latest = state
        self._loop.wake()

    def deliver_once(self) -> None:
        """Deliver the latest state even if it is the one given to `start`, unless one was delivered since."""
        with self._lock:
            if not self._has_delivered:
                self._known = None
        self._loop.wake()

    def stop(self) -> None:
        """Deliver nothing more. May be repeated."""
        self._stopping.set()
        self._loop.stop()

    def join(self, timeout: float) -> None:
        """After `stop`, wait for a delivery in progress."""
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
            logger.exception("could not deliver the state to agent.%s", self._name)
            has_arrived = False
        self._failures = 0 if has_arrived else self._failures + 1
        return math.inf if has_arrived else self._backoff.delay(self._failures, 0.0, random.random)
