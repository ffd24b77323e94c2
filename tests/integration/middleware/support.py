"""What tests of both servers need around the application."""

import http.client
import queue

from holdfast._types import Outcome, Zone, ZoneState, ZoneStatus
from holdfast.status import ZoneTracker
from holdfast.testing import FakeClock

HERE = Zone("use1-az1")
PATIENCE = 20.0
"""Real seconds until a test that waits for an outcome is taken to have failed."""


class WaitingSink:
    """A sink that a test can wait at."""

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def emit(self, event: Outcome) -> None:
        self._outcomes.put(event)

    def next(self) -> Outcome:
        return self._outcomes.get(timeout=PATIENCE)

    def is_empty(self) -> bool:
        return self._outcomes.empty()


def classes(outcome: Outcome) -> tuple[int, int, int, int]:
    """How many of 2xx, 3xx, 4xx and 5xx."""
    return outcome.count_2xx, outcome.count_3xx, outcome.count_4xx, outcome.count_5xx


OK, LEFT, FAULT = (1, 0, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)


class Status:
    """A real tracker, which is told what a source would tell it."""

    def __init__(self) -> None:
        self._clock = FakeClock()
        self.tracker = ZoneTracker("http://127.0.0.1:1", clock=self._clock)

    def say(self, *, out: bool) -> None:
        now = self._clock.wall()
        status = ZoneStatus(
            zone=HERE,
            state=ZoneState.OUT if out else ZoneState.IN,
            since=now,
            by="test",
            reason="test",
            workload="shop",
        )
        self.tracker.receive(0, [status], now)
        self.tracker.decide()


def connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)


def ask(port: int, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = connect(port)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    finally:
        connection.close()
