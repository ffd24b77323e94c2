"""`holdfast queue send`: put messages into a queue."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import Parameter

from holdfast._clock import SystemClock
from holdfast._errors import HoldfastError, InvalidValue
from holdfast.cli.duration import seconds_of
from holdfast.cli.output import DataDirectory, Json, SettingsFile, print_json, print_note
from holdfast.cli.queue.lines import Sender, Told
from holdfast.cli.queue.store import At, QueueArgument, open_store
from holdfast.queue import Outgoing, Refused
from holdfast.queue.message import BODY_BYTES, NORMAL
from holdfast.queue.queue import refused

STANDARD_INPUT = "-"
TOGETHER = 500
"""Messages of one step: enough that its own cost does not count, few enough that nobody waits long for it."""


def send(
    queue: QueueArgument,
    file: Annotated[
        str,
        Parameter(name="FILE", allow_leading_hyphen=True, help="What to send; without it, or with -, standard input."),
    ] = STANDARD_INPUT,
    /,
    *,
    tenant: Annotated[str, Parameter(help="Whose work it is.")],
    priority: Annotated[int, Parameter(help="0, the most urgent, to 3.")] = NORMAL,
    delay: Annotated[str | None, Parameter(help="Not to be handled before 90s, 30m, 2h30m, 1d are over.")] = None,
    group: Annotated[str | None, Parameter(help="Handled after all that was sent to this group before.")] = None,
    key: Annotated[
        str | None,
        Parameter(
            help="Of several messages with one key, sent within minutes, one is kept. With --lines, each line has the "
            "key KEY:NUMBER."
        ),
    ] = None,
    ttl: Annotated[str | None, Parameter(help="Dropped, unhandled, after this time. As the queue has it.")] = None,
    lines: Annotated[bool, Parameter(negative="", help="Send every line that is not empty, as a message.")] = False,
    patience: Annotated[
        str, Parameter(help="With --lines: how long to wait while the tenant has sent too much, before giving up.")
    ] = "1m",
    at: At = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Send a message, or one for each line, to a queue, and say what became of it.

    When it returns, the message is kept. Code 3 if the tenant has sent too much: the error says when to try again.
    Example: holdfast queue send mail welcome.json --tenant tenant-a
    """
    message = Outgoing(
        tenant=tenant,
        body=b"",
        priority=priority,
        delay=0.0 if delay is None else seconds_of(delay),
        group=group,
        key=key,
        ttl=None if ttl is None else seconds_of(ttl),
    )
    seconds = seconds_of(patience)
    with _opened(file) as source, open_store(at, settings, data_directory) as store:
        name = store.require(queue)
        if lines:
            _send_lines(Sender(store.backend, name, SystemClock(), seconds), message, source, as_json=json)
            return
        body = source.read(BODY_BYTES + 1)  # one more, so that what is too large is told from what fits
        [result] = store.backend.send(name, [msgspec.structs.replace(message, body=body)])
    if isinstance(result, Refused):
        raise refused(name, result)
    if json:
        print_json({**msgspec.structs.asdict(result), "is_spilled": result.is_spilled})
        return
    what = "was there already, with the same key" if result.is_duplicate else "is kept"
    apart = ", apart from others until there is room" if result.is_spilled else ""
    print(f"message {result.id} {what}, in lane {result.lane} of {result.queue}{apart}; trace {result.trace}")


def _send_lines(sender: Sender, message: Outgoing, source: BinaryIO, *, as_json: bool) -> None:
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    columns = (TextColumn("{task.description} {task.completed:,.0f} sent"),)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as shown:
            task = shown.add_task("")
            for batch in _batches(_messages(message, source)):
                sender.send(batch, lambda wait: shown.update(task, description=f"waiting {wait:.1f} s,"))
                shown.update(task, completed=sender.told.sent, description="")
    except (HoldfastError, KeyboardInterrupt):
        print_note(_summary(sender.told), as_json=as_json)
        raise
    if as_json:
        print_json(sender.told)
    else:
        print(_summary(sender.told))


def _summary(told: Told) -> str:
    parts = [f"{told.sent:,} sent to {told.queue}"]
    parts += [f"{told.duplicates:,} of them were there already"] * bool(told.duplicates)
    parts += [f"{told.spilled:,} wait apart until there is room"] * bool(told.spilled)
    return ", ".join(parts)


def _messages(message: Outgoing, source: BinaryIO) -> Iterator[Outgoing]:
    for number, line in enumerate(source, start=1):
        body = line.rstrip(b"\r\n")
        if body:
            key = None if message.key is None else f"{message.key}:{number}"
            yield msgspec.structs.replace(message, body=body, key=key)


def _batches(messages: Iterator[Outgoing]) -> Iterator[list[Outgoing]]:
    while some := list(islice(messages, TOGETHER)):
        yield some


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    if file.startswith("-"):  # let through because of that one
        raise InvalidValue(f"{file}: expected a file, and not an option; a file of this name is ./{file}")
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - closed below; what goes wrong while it is open is another matter
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}; name another file") from error
    with source:
        yield source
