"""`holdfast telemetry send`: send telemetry from files and standard input to a server."""

import logging
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Annotated, Any, Self

from cyclopts import Parameter

from holdfast._errors import EngineUnavailable, HoldfastError, InvalidValue
from holdfast._names import format_count
from holdfast.cli.output import (
    STANDARD_INPUT,
    Json,
    create_progress,
    describe_input,
    print_note,
    print_result,
    require_file,
)
from holdfast.cli.remote import read_token
from holdfast.telemetry.follow import FileFollower, LineSplitter
from holdfast.telemetry.sinks.buffered import MAX_HELD_LINES
from holdfast.telemetry.sinks.server import ServerSink

POLL_SECONDS = 0.25
"""Interval at which input is read: as often as a sink sends."""
GIVE_UP_SECONDS = 10.0
"""How long the command waits for a server that accepts no line, before it ends or drops the oldest lines."""
_WAIT_SECONDS = 0.02
_BLOCK_BYTES = 65_536


def send(
    *files: Annotated[
        str,
        Parameter(help="Files with lines of embedded metric format; - is standard input.", allow_leading_hyphen=True),
    ],
    server: Annotated[str, Parameter(help="The server's URL. $HOLDFAST_TOKEN has the token of a credential.")],
    follow: Annotated[
        bool, Parameter(help="Follow the files from their end, through rotation. A file may be a quoted pattern.")
    ] = False,
    json: Json = False,
) -> None:
    """Send lines of embedded metric format to a server, which checks them. Without FILES, send standard input.

    SIGTERM and SIGINT end the command after it has sent all lines that it has read.
    Example: holdfast telemetry send emf.log --server http://127.0.0.1:8470
    """
    for path in files:
        require_file(path)
    if follow and (not files or STANDARD_INPUT in files):
        raise InvalidValue("--follow is for files: standard input is always read until it ends")
    sink = ServerSink(server, token=read_token())
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        stack.enter_context(_print_warnings(as_json=json))
        lines: FollowedLines | FileLines
        if follow:
            lines = FollowedLines(stack.enter_context(FileFollower(files)), as_json=json)
        else:
            lines = FileLines([_open(path, stack) for path in files or (STANDARD_INPUT,)])
        with sink, create_progress() as progress:
            sender = LineSender(sink, can_drop=lines.is_live)
            task = progress.add_task("", total=None)
            for part in lines.read(stop):
                if not sender.send(part, stop):
                    break
                progress.update(task, description=f"{format_count(sink.sent_lines, 'line')} sent")
    _print_summary(sink, lines.overlong_lines, as_json=json)


def _print_summary(sink: ServerSink, overlong_lines: int, *, as_json: bool) -> None:
    """Print the counts of lines and requests. Raise HoldfastError if the server has not got or kept them all."""
    sent, refused = sink.sent_lines, sink.refused_lines
    dropped = sink.dropped_lines + sink.held_lines + overlong_lines
    text = f"{format_count(sent, 'line')} sent, {refused:,} of them refused by the server; {dropped:,} not sent"
    late, too_late = sink.late_requests, sink.too_late_requests
    if late or too_late:
        text += (
            f"\n{format_count(late, 'request')} arrived late: stored, but not judged; "
            f"{too_late:,} too late: dropped by the server"
        )
    counts = {"sent": sent, "refused": refused, "dropped": dropped, "late": late, "too_late": too_late}
    print_result(counts, text, as_json=as_json)
    sys.stdout.flush()  # before an error goes to standard error
    if sink.held_lines:
        raise EngineUnavailable("the server is unavailable: check that it runs, and send the input again")
    if refused or dropped:
        raise HoldfastError(f"{format_count(refused, 'line')} refused and {dropped:,} not sent: see the messages above")
    if too_late:
        raise HoldfastError(
            f"the server dropped {format_count(too_late, 'request')}, more than a minute after their bin: "
            "send lines as they are written, or look at old ones with `holdfast replay`"
        )


class StopSignals:
    """Notes a SIGTERM or SIGINT, while it is entered."""

    def __init__(self) -> None:
        self.is_requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *exception: object) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _request(self, _: int, __: FrameType | None) -> None:
        self.is_requested = True


class FileLines:
    """The lines of files and pipes, up to their ends."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._descriptors = descriptors
        self._splitters = [LineSplitter() for _ in descriptors]
        self.is_live = not all(stat.S_ISREG(os.fstat(each).st_mode) for each in descriptors)
        """Whether a program may be writing them. It must not wait long for a server that is unavailable."""

    @property
    def overlong_lines(self) -> int:
        """Lines that were skipped because they are too long."""
        return sum(splitter.overlong_lines for splitter in self._splitters)

    def read(self, stop: StopSignals) -> Iterator[list[bytes]]:
        """Yield lines until all files end, or a stop is requested."""
        for descriptor, splitter in zip(self._descriptors, self._splitters, strict=True):
            while not stop.is_requested:
                if not select.select([descriptor], [], [], POLL_SECONDS)[0]:
                    continue  # not waiting in `read`, which no signal would end
                data = os.read(descriptor, _BLOCK_BYTES)
                if not data:
                    break
                yield splitter.split(data)
            yield splitter.finish()


class FollowedLines:
    """The lines that are added to followed files."""

    is_live = True

    def __init__(self, follower: FileFollower, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> None:
        self._follower = follower
        self._as_json = as_json
        self._sleep = sleep

    @property
    def overlong_lines(self) -> int:
        """Lines that were skipped because they are too long."""
        return self._follower.overlong_lines

    def read(self, stop: StopSignals) -> Iterator[list[bytes]]:
        """Yield lines until a stop is requested. Print each problem of a file once, until it is solved."""
        known: dict[str, str] = {}
        while True:
            is_last = stop.is_requested
            yield self._follower.read()
            for path, reason in self._follower.problems.items():
                if known.get(path) != reason:
                    print_note(f"{path} cannot be read, trying again: {reason}", as_json=self._as_json)
            known = dict(self._follower.problems)
            if is_last:
                return
            self._sleep(POLL_SECONDS)


class LineSender:
    """Passes lines to a sink, no faster than the server accepts them.

    If the server accepts none for `GIVE_UP_SECONDS`, the sender gives up. With `can_drop`, it does not give up or wait:
    the sink drops its oldest lines until the server accepts lines again.
    """

    def __init__(
        self,
        sink: ServerSink,
        *,
        can_drop: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sink = sink
        self._can_drop = can_drop
        self._clock = clock
        self._sleep = sleep
        self._sent = 0
        self._progress_at = clock()

    def send(self, lines: Iterable[bytes], stop: StopSignals) -> bool:
        """Send lines, except empty ones. Return False if the server accepts none."""
        for line in lines:
            if not line.strip():
                continue
            while self._is_behind() and not stop.is_requested:
                if self._clock() - self._progress_at < GIVE_UP_SECONDS:
                    self._sleep(_WAIT_SECONDS)
                elif self._can_drop:
                    break
                else:
                    return False
            self._sink.emit(line)
        return True

    def _is_behind(self) -> bool:
        is_behind = self._sink.held_lines >= MAX_HELD_LINES // 2
        if not is_behind or self._sink.sent_lines > self._sent:
            self._sent, self._progress_at = self._sink.sent_lines, self._clock()
        return is_behind


def _open(path: str, stack: ExitStack) -> int:
    """Open a file for reading. Raise InvalidValue if that fails."""
    try:
        if path == STANDARD_INPUT:
            if sys.stdin is None:  # the parent process closed it
                raise InvalidValue("standard input is closed: pipe data into it, or name a file")
            return sys.stdin.fileno()
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidValue(f"{describe_input(path)} cannot be read: {error.strerror}") from error
    stack.callback(os.close, descriptor)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise InvalidValue(f"{path} is a folder: name the files in it")
    return descriptor


@contextmanager
def _print_warnings(*, as_json: bool) -> Iterator[None]:
    """Print the warnings of sinks to standard error."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print_note(record.getMessage(), as_json=as_json)

    logger, handler = logging.getLogger("holdfast.telemetry"), Handler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
