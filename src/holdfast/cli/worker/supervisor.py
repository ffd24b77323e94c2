"""Several worker processes: the supervisor, which restarts processes that crash, and the main function of each process.

A child is `python -m holdfast.cli.worker.supervisor TASK FILE`. Over the pipe FILE it reports that it is ready, or why
it cannot start. Its standard input is a pipe of the supervisor: when that closes, the supervisor is gone, and the child
stops.
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
from typing import NamedTuple

import msgspec

from holdfast._errors import HoldfastError, InvalidValue, MissingExtra, NotFound, SettingsError
from holdfast.cli.worker.work import INTERRUPTED, SignalHandlers, StopRequest, WorkerTask, run_workers
from holdfast.server.logs import configure_logging

logger = logging.getLogger("holdfast.worker")

SPARE_SECONDS = 10.0
"""Seconds beyond `shutdown_timeout`, for releasing messages and ending. Then the process is killed."""
FIRST_PAUSE = 0.5
MAX_PAUSE = 30.0
"""Pauses before a restart, in seconds: a process that crashes immediately must neither use up the CPU with restarts nor
stay down long after the cause is fixed."""
STEADY_SECONDS = 60.0
"""Seconds after which a process counts as stable: a later crash is not related to earlier ones."""
_PERMANENT_ERRORS = (InvalidValue, SettingsError, NotFound, MissingExtra)
"""Errors that occur at every start until the cause is fixed: not worth a restart."""


@dataclass(slots=True, eq=False)
class _Child:
    """The state of one worker process across restarts."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    begun: float = 0.0
    crashes: int = 0
    is_ready: bool = False
    start_at: float | None = 0.0
    """Monotonic time of the next start, or None if it runs or must not be restarted."""


class Supervisor:
    """Runs a task in several processes until it is stopped, and restarts processes that crash.

    `announce` is called once, with the queues and the process ids, when all processes are ready to lease messages.
    """

    def __init__(self, task: WorkerTask, count: int, announce: Callable[[list[str], list[int]], None]) -> None:
        self._task = task
        self._announce: Callable[[list[str], list[int]], None] | None = announce
        self._children = [_Child(number) for number in range(count)]
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._kill_at: float | None = None
        """When the remaining processes are killed, or None until a stop is requested."""
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Run until all processes have ended. Raise a start error of one, or KeyboardInterrupt on a second SIGINT."""
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
        """Return the seconds until the next start or kill, or None if neither is scheduled."""
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
                process_group=0,  # so that an interrupt at the terminal reaches only the supervisor
            )
        finally:
            os.close(writer)
        child.process, child.begun, child.start_at, child.is_ready = process, time.monotonic(), None, False
        threading.Thread(
            target=self._follow, args=(child, process, reader), name=f"holdfast-child-{child.number}", daemon=True
        ).start()

    def _follow(self, child: _Child, process: subprocess.Popen[bytes], reader: int) -> None:
        """Pass the report and the exit of a process to the main loop. Runs in a separate thread."""
        with os.fdopen(reader, "rb") as pipe:
            received = pipe.read()
        if received:
            report = pickle.loads(received)  # noqa: S301 - written by our own process
            self._events.put(lambda: self._on_report(child, report))
        code = process.wait()
        self._events.put(lambda: self._on_exit(child, code))

    def _on_report(self, child: _Child, report: list[str] | HoldfastError) -> None:
        if isinstance(report, _PERMANENT_ERRORS) and self._announce is not None:
            self._failure = self._failure or report
            self._stop()
        elif isinstance(report, HoldfastError):
            logger.error("worker process %d cannot start: %s", child.number, report)
        else:
            child.is_ready = True
            pids = [other.process.pid for other in self._children if other.process is not None and other.is_ready]
            if self._announce is not None and len(pids) == len(self._children):
                self._announce(report, pids)
                self._announce = None

    def _on_exit(self, child: _Child, code: int) -> None:
        assert child.process is not None
        assert child.process.stdin is not None
        child.process.stdin.close()
        child.process = None
        if self._kill_at is not None or (self._task.ends_by_itself and code == 0):
            return
        now = time.monotonic()
        child.crashes, pause = next_pause(child.crashes, now - child.begun)
        child.start_at = now + pause
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        logger.warning("worker process %d %s: restarting it in %.1f s", child.number, how, pause)

    def _stop(self) -> None:
        """Ask all processes to end."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._task.shutdown_timeout + SPARE_SECONDS
            self._send(signal.SIGTERM)
            for child in self._children:
                child.start_at = None

    def _kill_all(self) -> None:
        self._failure = KeyboardInterrupt()
        self._stop()
        self._send(signal.SIGKILL)

    def _kill_overdue(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            logger.warning("worker processes have not ended in time: killing them")
            self._kill_at = time.monotonic() + SPARE_SECONDS
            self._send(signal.SIGKILL)

    def _end(self) -> None:
        """Kill and reap all remaining processes."""
        self._send(signal.SIGKILL)
        for child in self._children:
            if child.process is not None:
                child.process.wait()

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(number)


class Restart(NamedTuple):
    """Consecutive crashes of a process, and the seconds before its next start."""

    crashes: int
    pause: float


def next_pause(crashes: int, ran: float) -> Restart:
    """Count one more crash after `ran` seconds, and return it with the pause, which doubles each time."""
    crashes = 1 if ran >= STEADY_SECONDS else crashes + 1
    return Restart(crashes, min(MAX_PAUSE, FIRST_PAUSE * 2.0 ** min(crashes - 1, 16)))


def main() -> int:
    """Run the task in the arguments. Return the exit code."""
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
                logger.error("%s", error)  # noqa: TRY400 - a traceback would not help
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
