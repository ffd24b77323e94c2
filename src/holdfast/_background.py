"""Call a function repeatedly in a background thread, with growing pauses while it fails."""

import logging
import random
import threading
from collections.abc import Callable

from holdfast._backoff import Backoff, Chance, Jitter
from holdfast._errors import HoldfastError
from holdfast._forks import register_after_fork

FAILURE_BACKOFF = Backoff(base=0.1, cap=5.0, jitter=Jitter.EQUAL)
"""A first retry after 0.1 s keeps short faults short; a retry every 5 s adds no load to a store that is down."""
RECONNECT_BACKOFF = Backoff(base=1.0, cap=15.0, jitter=Jitter.FULL)
"""For thousands of processes that lose the same server at the same moment: full jitter spreads them best."""
MAX_WAIT = 3600.0
"""Maximum seconds of one wait. A step may return infinity, which `Event.wait` rejects."""


def constant_backoff(seconds: float) -> Backoff:
    """Return a backoff that always waits `seconds`, for work that is repeated at the same pace when it fails."""
    return Backoff(base=seconds, cap=seconds, jitter=Jitter.NONE)


class RetryLater(Exception):
    """Raised by a step that is to be called again in `seconds`, and not after the pause of the backoff."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds


class BackgroundLoop:
    """A daemon thread that calls `step` until `stop`. Each call returns the seconds to wait before the next call.

    If a step raises, it is called again after a pause given by `backoff`, or by the RetryLater that it raised. The loop
    logs the first failure of a series as "cannot {action}", with a traceback unless the error is an instance of
    `expected`, and the end of the series. It calls `on_failure` for every failure, with the error and the seconds until
    the next attempt. A failure after `stop` is not reported, because the objects that the step uses may be closed.

    `wake` ends the current wait early. `start` and `stop` may be repeated. In the child of a fork the loop runs
    if `continue_after_fork` is true and it ran in the parent.

    Each pause is varied at random by up to the fraction `spread`, so that processes that start together drift apart.
    After a `wake`, the step runs after a random delay of up to `wake_spread` seconds, for a wake that reaches thousands
    of processes at the same moment.
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
        """The most recently stopped run. Its thread may not have ended yet."""
        register_after_fork(self)

    @property
    def is_running(self) -> bool:
        """True from `start` to `stop`."""
        return self._run is not None

    @property
    def is_failing(self) -> bool:
        """True if the last step failed."""
        return self._failures > 0

    @property
    def is_stopping(self) -> bool:
        """True if the calling thread belongs to a loop that was stopped."""
        thread = threading.current_thread()
        return isinstance(thread, _Run) and thread.stopping.is_set()

    def start(self) -> None:
        """Start the thread. Do nothing if it is running."""
        with self._lock:
            if self._run is None:
                run = _Run(self._name, self.run_step, lambda: self._chance() * self._wake_spread)
                run.start()  # may raise if the process has too many threads: then the loop is not running
                self._run = run

    def wake(self) -> None:
        """Run the next step now, or within `wake_spread` seconds."""
        run = self._run
        if run is not None:
            run.woken.set()

    def stop(self, timeout: float | None = 0.0) -> bool:
        """Start no further step, and wait up to `timeout` seconds for the current one; None means without limit.

        Return whether the thread has ended. If a step calls this method, it does not wait.
        """
        with self._lock:
            run, self._run = self._run, None
            run = self._last = run or self._last
        return run is None or run.stop(timeout)

    def run_step(self) -> float:
        """Run one step in the calling thread. Return the seconds to wait before the next one."""
        try:
            pause = self._step()
        except Exception as error:  # noqa: BLE001 - a loop must survive every error of its step
            if self.is_stopping:
                return 0.0
            self._failures += 1
            self._pause = pause = self._backoff.delay(self._failures, self._pause, self._chance)
            if isinstance(error, RetryLater):
                self._pause = pause = error.seconds
            self._report(error)
        else:
            if self._failures:
                attempts = "1 failed attempt" if self._failures == 1 else f"{self._failures} failed attempts"
                self._logger.warning("can %s again, after %s", self._action, attempts)
            self._failures, self._pause = 0, 0.0
        return pause * (1 + self._spread * (2 * self._chance() - 1)) if self._spread else pause

    def reset_after_fork(self) -> None:
        """Reset the state in the child of a fork. Start the loop again if it should run there."""
        was_running = self._run is not None
        self._lock = threading.Lock()
        self._run = self._last = None
        self._failures, self._pause = 0, 0.0
        if was_running and self._continue_after_fork:
            self.start()

    def _report(self, error: Exception) -> None:
        if self._failures == 1:
            # The class of a RetryLater says nothing about the failure.
            reason = str(error) if isinstance(error, RetryLater) else f"{type(error).__name__}: {error}"
            self._logger.warning(
                "cannot %s, trying again in %.2f s: %s",
                self._action,
                self._pause,
                reason,
                exc_info=None if isinstance(error, (*self._expected, RetryLater)) else error,
            )
        if self._on_failure is not None:
            try:
                self._on_failure(error, self._pause)
            except Exception:  # must not end the loop either
                self._logger.exception("cannot report a failure of the background loop %s", self._name)


class _Run(threading.Thread):
    """One run of a loop, from `start` to `stop`. A restarted loop gets a new run, so its old thread stays stopped."""

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
