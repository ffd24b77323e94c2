"""Tell an address of the user's choice that detection is alive, so that somebody notices when it is not."""

import logging
from collections.abc import Callable

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import Clock, SystemClock
from holdfast.alerts.alerter import SEND_SECONDS, build_dependency
from holdfast.alerts.http import send_request

logger = logging.getLogger("holdfast.alerts")

POLL_SECONDS = 1.0


class Heartbeat:
    """Requests a URL while windows are evaluated, from a background thread of the process that evaluates them.

    `get_evaluated_at` returns when the oldest of all workloads was last evaluated: a wall time, or None if one was not
    yet. A window that is older than `max_age` seconds is no sign of life. Use as a context manager.
    """

    def __init__(
        self,
        url: str,
        get_evaluated_at: Callable[[], float | None],
        *,
        interval: float,
        max_age: float,
        clock: Clock | None = None,
    ) -> None:
        self._url = url
        self._get_evaluated_at = get_evaluated_at
        self._interval = interval
        self._max_age = max_age
        self._clock = clock or SystemClock()
        self._sent_at: float | None = None
        self._is_stale = False
        self._dependency = build_dependency("heartbeat")
        self._loop = BackgroundLoop(
            "holdfast-heartbeat",
            self._step,
            action="send the heartbeat",
            logger=logger,
            backoff=constant_backoff(min(interval, 10.0)),
        )

    def __enter__(self) -> "Heartbeat":
        self._loop.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.stop()

    def _step(self) -> float:
        self.send_if_due()
        return POLL_SECONDS

    def send_if_due(self) -> bool:
        """Send a heartbeat if the interval is over and windows are evaluated. Return whether it was sent."""
        evaluated_at, now = self._get_evaluated_at(), self._clock.monotonic()
        is_alive = evaluated_at is not None and self._clock.wall() - evaluated_at <= self._max_age
        if not is_alive and not self._is_stale and evaluated_at is not None:
            logger.warning("the heartbeat stops: no window was evaluated for %.0f s", self._max_age)
        self._is_stale = not is_alive and evaluated_at is not None
        if not is_alive or (self._sent_at is not None and now - self._sent_at < self._interval):
            return False
        self._dependency.run(lambda: send_request("GET", self._url, SEND_SECONDS), idempotent=True, operation="send")
        self._sent_at = now
        return True
