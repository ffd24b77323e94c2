"""Run a function again and again in a background thread, with growing pauses while it fails."""

import logging
import random
import threading
from collections.abc import Callable

from holdfast._backoff import Backoff, Chance, Jitter
from holdfast._errors import HoldfastError
from holdfast._forks import register_after_fork

FAILURE_BACKOFF = Backoff(base=0.1, cap=5.0, jitter=Jitter.EQUAL)
"""From a tenth of a second, so that a short fault is soon over; five seconds add no load to a store that is down."""
RECONNECT_BACKOFF = Backoff(base=1.0, cap=15.0, jitter=Jitter.FULL)
"""For thousands of processes that lose the same server at once: full jitter, of all kinds, spreads them best."""
MAX_WAIT = 3600.0
"""Seconds; a step may return infinity, which `Event.wait` refuses."""


def constant_backoff(seconds: float) -> Backoff:
    """Return a backoff for work that is repeated at the same pace, whether it fails or not."""
    return Backoff(base=seconds, cap=seconds, jitter=Jitter.NONE)


class BackgroundLoop:
    """Call `step` in a daemon thread until `stop`; each call returns the seconds to wait before the next one.

    A step that raises is called again after the pauses of `backoff`. The first failure of a series is logged as
    "cannot {doing}", with a traceback unless it is of an `expected` kind, and so is the end of the series;
    `on_failure` is called for every failure, with the error and the seconds until the next attempt. A step that fails
    after `stop` is not reported: what it uses may be closed.

    `wake` ends the current wait early. `start` and `stop` may be repeated. In the child of a fork the loop runs
    if `continue_after_fork` is true and it ran in the parent.

    `spread` is the share by which each pause differs at random, up or down, so that processes that start together
    drift apart. `wake_spread` is the time in seconds within which a step follows a `wake`, at random, for a wake that
    reaches thousands of processes at once.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        *,
        action: str,
        logger: logging.Logger,
        backoff: Backoff = FAILURE_BACKOFF,
        spread: float = 0.0,
        wake_spread: float = 0.0,
        chance: Chance = random.random,
        expected: tuple[type[Exception], ...] = (HoldfastError, OSError),
        on_failure: Callable[[Exception, float], None] | None = None,
        continue_after_fork: bool = False,
    ) -> None:
        self._name = name
        self._step = step
        self._action = action
        self._logger = logger
        self._backoff = backoff
        self._spread = spread
        self._wake_spread = wake_spread
        self._chance = chance
        self._expected = expected
        self._on_failure = on_failure
        self._continue_after_fork = continue_after_fork
        self._failures = 0
        self._pause = 0.0
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._last: _Run | None = None
        """The run that was stopped last; its thread may not have ended yet."""
        register_after_fork(self)

    @property
    def is_running(self) -> bool:
        """Whether the loop was started and not stopped since."""
        return self._run is not None

    @property
    def is_failing(self) -> bool:
        """Whether the last step failed."""
        return self._failures > 0

    @property
    def is_stopping(self) -> bool:
        """Whether the calling thread belongs to a loop and was told to stop."""
        thread = threading.current_thread()
        return isinstance(thread, _Run) and thread.stopping.is_set()

    def start(self) -> None:
        """Start the thread, unless it runs already."""
        with self._lock:
            if self._run is None:
                run = _Run(self._name, self.run_step, lambda: self._chance() * self._wake_spread)
                run.start()  # may fail where a process has too many threads; then the loop does not run
                self._run = run

    def wake(self) -> None:
        """Take the next step now, or within `wake_spread`."""
        run = self._run
        if run is not None:
            run.woken.set()

    def stop(self, timeout: float | None = 0.0) -> bool:
        """Take no further step, and wait up to `timeout` seconds (None: as long as it takes) for the current one.

        Return whether the thread has ended. Called by a step, it does not wait.
        """
        with self._lock:
            run, self._run = self._run, None
            run = self._last = run or self._last
        return run is None or run.stop(timeout)

    def run_step(self) -> float:
        """Take one step in the calling thread; return the seconds to wait before the next one."""
        try:
            pause = self._step()
        except Exception as error:  # noqa: BLE001 - a loop must survive whatever its step meets
            if self.is_stopping:
                return 0.0
            self._failures += 1
            self._pause = pause = self._backoff.delay(self._failures, self._pause, self._chance)
            self._report(error)
        else:
            if self._failures:
                self._logger.warning("can %s again, after %d failed attempts", self._action, self._failures)
            self._failures, self._pause = 0, 0.0
        return pause * (1 + self._spread * (2 * self._chance() - 1)) if self._spread else pause

    def reset_after_fork(self) -> None:
        """Start anew in the child of a fork, if the loop should run there."""
        was_running = self._run is not None
        self._lock = threading.Lock()
        self._run = self._last = None
        self._failures, self._pause = 0, 0.0
        if was_running and self._continue_after_fork:
            self.start()

    def _report(self, error: Exception) -> None:
        if self._failures == 1:
            self._logger.warning(
                "cannot %s, trying again in %.2f s: %s: %s",
                self._action,
                self._pause,
                type(error).__name__,
                error,
                exc_info=None if isinstance(error, self._expected) else error,
            )
        if self._on_failure is not None:
            try:
                self._on_failure(error, self._pause)
            except Exception:  # must not end the loop either
                self._logger.exception("the failure could not be reported")


class _Run(threading.Thread):
    """One run of a loop, from `start` to `stop`: a loop that is started again must not revive its old thread."""

    def __init__(self, name: str, step: Callable[[], float], wake_delay: Callable[[], float]) -> None:
        super().__init__(name=name, daemon=True)
        self.woken = threading.Event()
        self.stopping = threading.Event()
        self._step = step
        self._wake_delay = wake_delay

    def stop(self, timeout: float | None) -> bool:
        self.stopping.set()
        self.woken.set()
        if self is threading.current_thread():
            return False
        self.join(timeout)
        return not self.is_alive()

    def run(self) -> None:
        while not self.stopping.is_set():
            pause = self._step()
            if pause > 0 and self.woken.wait(min(pause, MAX_WAIT)):
                self.stopping.wait(self._wake_delay())
            self.woken.clear()
