"""Buffer lines in memory, and write them in batches from a background thread: the base of all sinks of lines."""

import logging
import secrets
import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import Self

from holdfast._background import FAILURE_BACKOFF, BackgroundLoop, RetryLater
from holdfast._backoff import Backoff
from holdfast._forks import register_after_fork
from holdfast._names import format_count

logger = logging.getLogger("holdfast.telemetry")

MAX_HELD_LINES = 10_000
"""Lines held while they cannot be written, about 8 MB. Above that the oldest are dropped: fresh ones matter more."""
MAX_HELD_BYTES = 16 * 1024 * 1024
"""Bytes held, for lines that are longer than usual."""
MAX_LINE_BYTES = 1024 * 1024
"""A longer line is dropped: no receiver accepts it, and CloudWatch's limit is the same."""
MAX_BATCH_LINES = 500
MAX_BATCH_BYTES = 512 * 1024
"""Maximum size of a batch: some 400 KB for usual lines, below the server's limit of 1 MiB."""
FLUSH_SECONDS = 0.25
CLOSE_SECONDS = 6.0
"""Seconds that closing waits for the last lines: a little more than one timeout of a connection."""
STOP_SECONDS = 1.0
"""Seconds that closing then waits for the thread. A thread that is blocked by a slow reader is left alone."""


class LineBuffer:
    """Lines in the order in which they were emitted, bounded in number and bytes. Thread-safe.

    Its lock is reentrant: the garbage collector may end a request, and so emit a line, in the middle of `append`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def is_full(self) -> bool:
        """Whether the next line drops the oldest."""
        return len(self._lines) >= MAX_HELD_LINES or self._bytes >= MAX_HELD_BYTES

    def append(self, line: bytes) -> None:
        """Add a line. Drop the oldest lines if there are too many, or the line itself if it is too long."""
        size = len(line)
        with self._lock:
            if size > MAX_LINE_BYTES:
                self.dropped += 1
                return
            self._bytes += size
            self._lines.append(line)
            while len(self._lines) > MAX_HELD_LINES or self._bytes > MAX_HELD_BYTES:
                self._bytes -= len(self._lines.popleft())
                self.dropped += 1

    def take(self, max_lines: int) -> list[bytes]:
        """Remove and return the oldest lines, as many as a batch may have."""
        taken: list[bytes] = []
        size = 0
        with self._lock:
            while self._lines and len(taken) < max_lines:
                size += len(self._lines[0])
                if taken and size > MAX_BATCH_BYTES:
                    break
                taken.append(self._lines.popleft())
                self._bytes -= len(taken[-1])
        return taken

    def put_back(self, lines: list[bytes]) -> None:
        """Make `lines` the oldest ones again. They may exceed the bound until the next line is added."""
        with self._lock:
            self._lines.extendleft(reversed(lines))
            self._bytes += sum(map(len, lines))

    def count_dropped(self, count: int) -> None:
        """Count lines that are dropped after they were taken."""
        with self._lock:
            self.dropped += count


class Batch:
    """Lines that are written together. Its id stays the same when it is sent again."""

    __slots__ = ("id", "lines")

    def __init__(self, lines: list[bytes]) -> None:
        self.id = secrets.token_hex(16)
        self.lines = lines


class BufferedSink(ABC):
    """A sink of lines that a background thread writes. Thread-safe; a context manager, or call `start` and `close`.

    `emit` never blocks and never raises. While lines cannot be written, they are held up to a bound; above it the
    oldest are dropped and counted. After a fork, the child drops inherited lines, which the parent writes, and writes
    its own if the parent was started.
    """

    def __init__(
        self, *, action: str, expected: tuple[type[Exception], ...] = (OSError,), backoff: Backoff = FAILURE_BACKOFF
    ) -> None:
        self._action = action
        self._reset()
        register_after_fork(self)  # before the loop, so that the child's thread finds no lines of the parent
        self._loop = BackgroundLoop(
            "holdfast-sink",
            self._step,
            action=action,
            logger=logger,
            backoff=backoff,
            expected=expected,
            continue_after_fork=True,
        )

    def _reset(self) -> None:
        self._buffer = LineBuffer()
        self._batch: Batch | None = None
        """The batch that is being written, or is to be written again."""
        self._max_batch_lines = MAX_BATCH_LINES
        self._steps = threading.Condition()
        self._begun_steps = self._ended_steps = 0
        self.sent_lines = 0
        """Lines that were written."""

    def reset_after_fork(self) -> None:
        self._disconnect()  # the parent's connection stays open
        self._reset()

    @property
    def held_lines(self) -> int:
        """Lines that are still to be written."""
        batch = self._batch
        return len(self._buffer) + (0 if batch is None else len(batch.lines))

    @property
    def dropped_lines(self) -> int:
        """Lines dropped because the buffer was full, or because they are too long."""
        return self._buffer.dropped

    def emit(self, event: bytes) -> None:
        self._buffer.append(event)

    def start(self) -> Self:
        self._loop.start()
        return self

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Write all lines now, and wait up to `timeout` seconds. Return whether none is left.

        For functions that are frozen after each event, such as those of AWS Lambda. Never raises.
        """
        if self._loop.is_running:
            with self._steps:
                awaited = self._begun_steps + 1  # a step that has begun may not see the newest line
                self._loop.wake()
                self._steps.wait_for(lambda: self._ended_steps >= awaited, timeout)
        else:
            try:
                self._write_held()
            except Exception as error:  # noqa: BLE001 - a sink never raises
                held = format_count(self.held_lines, "line")
                logger.warning("cannot %s, %s not sent: %s", self._action, held, error)
        return not self.held_lines

    def close(self) -> None:
        """Try once more to write the remaining lines, then stop. May be repeated."""
        was_running = self._loop.is_running
        if not self.flush() and was_running:
            logger.warning("cannot %s, %s not sent", self._action, format_count(self.held_lines, "line"))
        if self._loop.stop(STOP_SECONDS):
            self._disconnect()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def _write(self, batch: Batch) -> None:
        """Write the batch. Call `_count_sent` for every line that was written, and `_drop` for every line that is lost.

        If it raises, the rest of the batch is written again. If it returns, the rest becomes part of the next batch.
        """

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connection or file, if there is one. It is opened again for the next batch."""

    def _count_sent(self, batch: Batch, count: int) -> None:
        """Remove the first `count` lines from the batch: they were written."""
        del batch.lines[:count]
        self.sent_lines += count

    def _drop(self, batch: Batch, count: int) -> None:
        """Remove the first `count` lines from the batch, and count them as dropped."""
        del batch.lines[:count]
        self._buffer.count_dropped(count)

    def _step(self) -> float:
        self._begun_steps += 1
        try:
            self._write_held()
        finally:
            with self._steps:
                self._ended_steps += 1
                self._steps.notify_all()
        return FLUSH_SECONDS

    def _write_held(self) -> None:
        while True:
            if self._batch is None:
                lines = self._buffer.take(self._max_batch_lines)
                if not lines:
                    return
                self._batch = Batch(lines)
            batch = self._batch
            try:
                self._write(batch)
            except Exception as error:
                if not isinstance(error, RetryLater):
                    self._disconnect()
                if self._buffer.is_full:  # newer lines would be dropped otherwise
                    self._drop(batch, len(batch.lines))
                    self._batch = None
                raise
            self._buffer.put_back(batch.lines)
            self._batch = None
