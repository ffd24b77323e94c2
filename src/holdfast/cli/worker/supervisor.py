"""Several worker processes: the supervisor that starts them again when they die, and what each of them runs.

A child is `python -m holdfast.cli.worker.supervisor TASK FILE`. It says over the pipe FILE that it is ready, or why it
cannot be. Its standard input is the supervisor's: when that ends, nobody looks after the child any more, and it stops.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import msgspec

from holdfast._errors import HoldfastError, InvalidValue, MissingExtra, NotFound, SettingsError
from holdfast.cli.worker.work import INTERRUPTED, SignalHandlers, StopRequest, WorkerTask, run_workers
from holdfast.server.logs import configure_logging

logger = logging.getLogger("holdfast.worker")

SPARE_SECONDS = 10.0
"""Beyond `grace`, for handing back and for ending, before a process that does not end is killed."""
FIRST_PAUSE = 0.5
MAX_PAUSE = 30.0
"""One that dies at once must not keep a machine busy with starting; and not be forgotten when its trouble is over."""
STEADY_SECONDS = 60.0
"""One that ran for this long was all right: its death has nothing to do with the one before."""
_PERMANENT_ERRORS = (InvalidValue, SettingsError, NotFound, MissingExtra)
"""Errors that are the same at every start: somebody has to mend them first."""


@dataclass(slots=True, eq=False)
class _Child:
    """A process, and those that were in its place before it."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    begun: float = 0.0
    deaths: int = 0
    is_ready: bool = False
    start_at: float | None = 0.0
    """When it is to be started; None: it runs, or is not to be started again."""


class Supervisor:
    """Runs a task in several processes until it is told to stop, and starts those anew that die.

    `announce` is called with the queues and the processes' numbers when all of them take messages for the first time.
    """

    def __init__(self, task: WorkerTask, count: int, announce: Callable[[list[str], list[int]], None]) -> None:
        self._task = task
        self._announce: Callable[[list[str], list[int]], None] | None = announce
        self._children = [_Child(number) for number in range(count)]
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._kill_at: float | None = None
        """When those that still run are killed; None: nobody has said to stop."""
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Until all have ended. Raises what keeps them from starting, and KeyboardInterrupt when told twice."""
        configure_logging(self._task.load().settings.log, with_pid=True)
        with SignalHandlers(lambda: self._events.put(self._stop), lambda: self._events.put(self._kill_all)):
            try:
                while self._is_active():
                    self._start_due()
                    try:
                        self._events.get(timeout=self._seconds_until_due())()
                    except Empty:
                        self._kill_overdue()
            finally:
                self._end()
        if self._failure is not None:
            raise self._failure

    def _is_active(self) -> bool:
        return any(child.process is not None or child.start_at is not None for child in self._children)

    def _seconds_until_due(self) -> float | None:
        """Seconds until something is due."""
        times = [child.start_at for child in self._children if child.start_at is not None]
        if self._kill_at is not None:
            times.append(self._kill_at)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _start_due(self) -> None:
        for child in self._children:
            if child.start_at is not None and child.start_at <= time.monotonic():
                self._start(child)

    def _start(self, child: _Child) -> None:
        reader, writer = os.pipe()
        try:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "holdfast.cli.worker.supervisor",
                    msgspec.json.encode(self._task.for_process(child.number)).decode(),
                    str(writer),
                ],
                stdin=subprocess.PIPE,
                pass_fds=[writer],
                process_group=0,  # an interrupt at the terminal is for the supervisor, which tells the others
            )
        finally:
            os.close(writer)
        child.process, child.begun, child.start_at, child.is_ready = process, time.monotonic(), None, False
        threading.Thread(
            target=self._follow, args=(child, process, reader), name=f"holdfast-child-{child.number}", daemon=True
        ).start()

    def _follow(self, child: _Child, process: subprocess.Popen[bytes], reader: int) -> None:
        """In a thread of its own: hand on what a process says and how it ends."""
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
        if said:
            word = pickle.loads(said)  # noqa: S301 - a process of our own has written it
            self._events.put(lambda: self._on_report(child, word))
        code = process.wait()
        self._events.put(lambda: self._on_exit(child, code))

    def _on_report(self, child: _Child, word: list[str] | HoldfastError) -> None:
        if isinstance(word, _PERMANENT_ERRORS) and self._announce is not None:
            self._failure = self._failure or word
            self._stop()
        elif isinstance(word, HoldfastError):
            logger.error("worker process %d cannot begin: %s", child.number, word)
        else:
            child.is_ready = True
            pids = [other.process.pid for other in self._children if other.process is not None and other.is_ready]
            if self._announce is not None and len(pids) == len(self._children):
                self._announce(word, pids)
                self._announce = None

    def _on_exit(self, child: _Child, code: int) -> None:
        assert child.process is not None
        assert child.process.stdin is not None
        child.process.stdin.close()
        child.process = None
        if self._kill_at is not None or (self._task.until_empty and code == 0):
            return
        now = time.monotonic()
        child.deaths, pause = next_pause(child.deaths, now - child.begun)
        child.start_at = now + pause
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        logger.warning("worker process %d %s: it is started again in %.1f s", child.number, how, pause)

    def _stop(self) -> None:
        """Ask all to end."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._task.grace + SPARE_SECONDS
            self._send(signal.SIGTERM)
            for child in self._children:
                child.start_at = None

    def _kill_all(self) -> None:
        self._failure = KeyboardInterrupt()
        self._stop()
        self._send(signal.SIGKILL)

    def _kill_overdue(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            logger.warning("worker processes have not ended in time, and are killed")
            self._kill_at = time.monotonic() + SPARE_SECONDS
            self._send(signal.SIGKILL)

    def _end(self) -> None:
        """Leave no process behind, whatever has happened here."""
        self._send(signal.SIGKILL)
        for child in self._children:
            if child.process is not None:
                child.process.wait()

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(number)


def next_pause(deaths: int, ran: float) -> tuple[int, float]:
    """Deaths in a row after one more, and the seconds before the next start, twice as many each time."""
    deaths = 1 if ran >= STEADY_SECONDS else deaths + 1
    return deaths, min(MAX_PAUSE, FIRST_PAUSE * 2.0 ** min(deaths - 1, 16))


def main() -> int:
    """Work as the arguments say; returns the exit code."""
    task = msgspec.json.decode(sys.argv[1], type=WorkerTask)
    pipe = os.fdopen(int(sys.argv[2]), "wb")
    stop = StopRequest()

    def ready(queues: list[str]) -> None:
        with pipe:
            pickle.dump(queues, pipe)

    threading.Thread(target=_follow_parent, args=(stop,), name="holdfast-parent", daemon=True).start()
    with SignalHandlers(stop.request, lambda: os._exit(INTERRUPTED)):
        try:
            run_workers(task, stop, ready)
        except HoldfastError as error:
            if pipe.closed:
                logger.error("%s", error)  # noqa: TRY400 - where it was raised helps nobody
                return 1
            with pipe:
                pickle.dump(error, pipe)
            return 1
    return 0


def _follow_parent(stop: StopRequest) -> None:
    while os.read(0, 1024):
        pass
    stop.request()


if __name__ == "__main__":
    sys.exit(main())
