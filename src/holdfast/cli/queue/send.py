"""`holdfast queue send`: send one message, or many for one tenant as fast as its limits allow."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from cyclopts import Parameter

from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError, InvalidValue
from holdfast.cli.duration import parse_duration
from holdfast.cli.output import (
    STANDARD_INPUT,
    Json,
    create_progress,
    print_json,
    print_note,
    print_result,
    require_file,
    split_into_batches,
)
from holdfast.cli.queue.store import QUEUES, QueueArgument, QueueOptions
from holdfast.queue import OutgoingMessage, RefusedMessage, SentMessage
from holdfast.queue.backend import Backend, require_support
from holdfast.queue.job import encode_call
from holdfast.queue.message import DEFAULT_PRIORITY, MAX_BODY_BYTES, BatchKeys, check_message
from holdfast.queue.queue import build_backpressure

MIN_WAIT = 0.05
"""Minimum pause in seconds, so that many short ones do not become a busy loop."""


class SendSummary(msgspec.Struct, kw_only=True):
    """Counts of the messages sent so far."""

    queue: str
    sent: int = 0
    duplicates: int = 0
    spilled: int = 0


class Sender:
    """Sends batches in order. Sends refused messages again when the queue allows it, before any others.

    Raises Backpressure if no message was accepted for `timeout` seconds.
    """

    def __init__(self, backend: Backend, queue: str, clock: Clock, timeout: float) -> None:
        self.summary = SendSummary(queue=queue)
        self._backend = backend
        self._clock = clock
        self._timeout = timeout

    def send(self, messages: Sequence[OutgoingMessage], waiting: Callable[[float], None]) -> None:
        """Send all messages. Calls `waiting` with the seconds of every pause before it."""
        begun = self._clock.monotonic()
        while messages:
            results = self._backend.send(self.summary.queue, messages)
            left = [
                message for message, result in zip(messages, results, strict=True) if isinstance(result, RefusedMessage)
            ]
            self._count([result for result in results if isinstance(result, SentMessage)])
            now = self._clock.monotonic()
            if len(left) < len(messages):
                begun = now
            messages = left
            if messages:
                first = next(result for result in results if isinstance(result, RefusedMessage))
                pause = max(MIN_WAIT, first.retry_after)
                if now + pause - begun > self._timeout:
                    raise build_backpressure(self.summary.queue, first)
                waiting(pause)
                self._clock.sleep(pause)

    def _count(self, results: Sequence[SentMessage]) -> None:
        self.summary.sent += len(results)
        self.summary.duplicates += sum(result.is_duplicate for result in results)
        self.summary.spilled += sum(result.is_spilled and not result.is_duplicate for result in results)


BATCH_SIZE = 500
"""Messages per transaction: enough to make its fixed cost negligible, few enough to be quick."""


def send(
    queue: QueueArgument,
    file: Annotated[
        str,
        Parameter(
            name="FILE",
            allow_leading_hyphen=True,
            help="The body, or with --job its arguments. Without it, or with -, standard input.",
        ),
    ] = STANDARD_INPUT,
    /,
    *,
    tenant: Annotated[str, Parameter(help="The tenant of the message.")],
    job: Annotated[
        str | None, Parameter(help="Call the job of this name. FILE has its arguments, a JSON object.")
    ] = None,
    arguments: Annotated[str | None, Parameter(help="With --job: the arguments, instead of FILE; {} for none.")] = None,
    priority: Annotated[int, Parameter(help="0, the most urgent, to 3.")] = DEFAULT_PRIORITY,
    delay: Annotated[str | None, Parameter(help="Time before it may be handled, such as 90s, 30m, 2h30m, 1d.")] = None,
    group: Annotated[str | None, Parameter(help="Handled after all earlier messages of this group.")] = None,
    key: Annotated[
        str | None,
        Parameter(
            help="Deduplication key: of several messages with one key, sent within minutes, only the first is stored. "
            "With --lines, each line gets its own key, derived from KEY and its content."
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        Parameter(help="Time to live: the message is dropped if it was not handled by then. Default: the queue's ttl."),
    ] = None,
    lines: Annotated[bool, Parameter(help="Send every line that is not empty as a message.")] = False,
    timeout: Annotated[
        str, Parameter(help="With --lines: maximum time to wait while messages are refused by backpressure.")
    ] = "1m",
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Send a message, or one for each line, to a queue, and print the result.

    When it returns, the message is stored. Exit code 3 if the tenant exceeds a limit: the error says when to try again.
    Job names and arguments are checked by workers: an invalid call becomes a dead letter.
    Example: holdfast queue send mail welcome.json --tenant tenant-a --job welcome
    """
    _require_compatible(file, job, arguments, lines=lines)
    message = OutgoingMessage(
        tenant=tenant,
        body=b"",
        priority=priority,
        delay=0.0 if delay is None else parse_duration(delay),
        group=group,
        key=key,
        ttl=None if ttl is None else parse_duration(ttl),
    )
    check_message(message)  # without a body yet, so that invalid options fail before anything is opened or sent
    seconds = parse_duration(timeout)
    given = None if job is None or arguments is None else _encode_call(job, arguments)
    with _open_source(file) as source, options.open() as store:
        name = store.require(queue)
        require_support(store.backend, [message])
        if lines:
            bodies = _read_bodies(source, job)
            _send_lines(Sender(store.backend, name, SystemClock(), seconds), message, bodies, as_json=json)
            return
        body = _read_body(source, job) if given is None else given
        [result] = store.backend.send(name, [msgspec.structs.replace(message, body=body)])
    if isinstance(result, RefusedMessage):
        raise build_backpressure(name, result)
    if json:
        print_json({**msgspec.structs.asdict(result), "is_spilled": result.is_spilled})
        return
    what = "was sent before, with the same key" if result.is_duplicate else "accepted"
    spilled = " (spilled)" if result.is_spilled else ""
    print(f"message {result.id} {what}, in lane {result.lane} of {result.queue}{spilled}; trace {result.trace}")


def _require_compatible(file: str, job: str | None, arguments: str | None, *, lines: bool) -> None:
    if job == "":
        raise InvalidValue("--job '': expected the name of a job: that of its function, or its `name`")
    if arguments is None:
        return
    if job is None:
        raise InvalidValue("--arguments without --job: give both, or the body in a file or on standard input")
    if lines or file != STANDARD_INPUT:
        other = "--lines" if lines else file
        raise InvalidValue(f"--arguments and {other}: give only one of them, each has the arguments of {job}")


def _read_body(source: BinaryIO, job: str | None) -> bytes:
    if job is None:
        return source.read(MAX_BODY_BYTES + 1)  # one more, to detect a body that is too large
    return _encode_call(job, source.read())


def _read_bodies(source: BinaryIO, job: str | None) -> Iterator[bytes]:
    """Yield every line that is not empty or, with a job, the call with the arguments in that line."""
    for number, line in enumerate(source, start=1):
        text = line.rstrip(b"\r\n")
        if text:
            yield text if job is None else _encode_call(job, text, f"line {number}: ")


def _encode_call(job: str, text: bytes | str, where: str = "") -> bytes:
    try:
        arguments: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidValue(
            f'{where}arguments of {job}: {error}: expected a JSON object, such as {{"address": "a@example.com"}}'
        ) from error
    try:
        return encode_call(job, arguments)
    except InvalidValue as error:
        raise InvalidValue(f"{where}{error}") from error


def _send_lines(sender: Sender, message: OutgoingMessage, bodies: Iterator[bytes], *, as_json: bool) -> None:
    from rich.progress import TextColumn

    try:
        with create_progress(TextColumn("{task.description} {task.completed:,.0f} sent")) as shown:
            task = shown.add_task("")
            for batch in split_into_batches(_build_messages(message, bodies), BATCH_SIZE):
                sender.send(batch, lambda wait: shown.update(task, description=f"waiting {wait:.1f} s,"))
                shown.update(task, completed=sender.summary.sent, description="")
    except (HoldfastError, KeyboardInterrupt):
        print_note(_describe(sender.summary), as_json=as_json)
        raise
    print_result(sender.summary, _describe(sender.summary), as_json=as_json)


def _describe(summary: SendSummary) -> str:
    parts = [f"{summary.sent:,} sent to {summary.queue}"]
    parts += [f"{summary.duplicates:,} of them had been sent before"] * bool(summary.duplicates)
    parts += [f"{summary.spilled:,} spilled"] * bool(summary.spilled)
    return ", ".join(parts)


def _build_messages(message: OutgoingMessage, bodies: Iterator[bytes]) -> Iterator[OutgoingMessage]:
    keys = None if message.key is None else BatchKeys(message.key)
    for body in bodies:
        one = msgspec.structs.replace(message, body=body)
        yield one if keys is None else msgspec.structs.replace(one, key=keys.next_key(one))


@contextmanager
def _open_source(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    require_file(file)
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - closed below; only errors of opening are handled here
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}; name another file") from error
    with source:
        yield source
