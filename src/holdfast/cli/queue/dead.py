"""`holdfast queue dead-letters|redrive|discard`: show dead letters with their reasons; put them back or delete them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError, InvalidValue
from holdfast._names import escape_unprintable
from holdfast.cli.output import (
    Json,
    create_progress,
    format_time,
    print_json,
    print_note,
    print_result,
    print_table,
)
from holdfast.cli.queue.store import QUEUES, QueueArgument, QueueOptions
from holdfast.cli.queue.sweep import parse_moment
from holdfast.queue.backend import Backend, DeadLetter, DeadLetterQuery
from holdfast.queue.job import unpack_call

PAGE = 100
"""Dead letters that are read or redriven in one transaction: a body may be a megabyte."""

MAX_LETTERS = 1 << 40
_RESOLUTION = 0.001
"""Seconds: stored times are whole milliseconds."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """The options that select dead letters."""

    tenant: Annotated[str | None, Parameter(help="Only those of this tenant.")] = None
    reason: Annotated[str | None, Parameter(help="Only those whose reason contains this text.")] = None
    ids: Annotated[
        list[int] | None,
        Parameter(name="--id", help="Only the dead letter with this id; repeat the option for several."),
    ] = None
    before: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="Only those buried before a time such as 2026-01-31T12:00Z, or longer ago than 90s, 2h30m, 7d.",
        ),
    ] = None

    def query(self, queue: str, now: float, latest: float | None, **page: int) -> DeadLetterQuery:
        """Return the query. `latest` replaces --before if that is not given."""
        buried = latest if self.before is None else parse_moment(self.before, now)
        ids = tuple(self.ids or ())
        return DeadLetterQuery(
            queue=queue, tenant=self.tenant, reason=self.reason, ids=ids, buried_before=buried, **page
        )


ANY_LETTER = DeadLetterOptions()
AllOption = Annotated[bool, Parameter(name="--all", help="All of them. Required if no filter is given.")]
DryRunOption = Annotated[bool, Parameter(help="Only count them.")]


def dead_letters(
    queue: QueueArgument,
    /,
    *,
    which: DeadLetterOptions = ANY_LETTER,
    after: Annotated[int, Parameter(help="Only ids above this one: pass the last id of the previous page.")] = 0,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000), help="Maximum number.")] = 20,
    body: Annotated[bool, Parameter(help="Show the bodies: a call, text, or bytes.")] = False,
    detail: Annotated[bool, Parameter(help="Show the traceback of the last failure.")] = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Show dead letters with their reasons. Fix the cause, then use `redrive` to put them back, or `discard`.

    Example: holdfast queue dead-letters mail --tenant tenant-a --detail
    """
    with options.open() as store:
        name = store.require(queue)
        now = store.backend.inspect(name, top=0).at
        query = which.query(name, now, None, after=after, limit=limit + 1)  # one more, to see whether there are more
        found = list(read_letters(store.backend, query))
    are_more, found = len(found) > limit, found[:limit]
    if json:
        print_json([_to_json(letter, with_body=body, with_detail=detail) for letter in found])
    elif not found:
        print(f"{name} has no such dead letters")
    elif body or detail:
        for letter in found:
            _show(letter, with_body=body, with_detail=detail)
    else:
        print_table(
            ("id", "tenant", "attempts", "sent", "buried", "reason"),
            [
                (
                    letter.id,
                    letter.tenant,
                    letter.attempts,
                    format_time(letter.sent_at),
                    format_time(letter.buried_at),
                    letter.reason,
                )
                for letter in found
            ],
        )
    if are_more:
        print_note(f"there are more: continue with --after {found[-1].id}, or raise --limit", as_json=json)


def _show(letter: DeadLetter, *, with_body: bool, with_detail: bool) -> None:
    tenant, buried = escape_unprintable(letter.tenant), format_time(letter.buried_at)
    print(f"message {letter.id} of {tenant}, buried {buried}, attempts {letter.attempts}")
    print(f"  reason: {escape_unprintable(letter.reason)}")
    print(f"  trace: {escape_unprintable(letter.trace)}")
    if with_body:
        print(f"  body: {format_body(letter.body)}")
    if with_detail:
        for line in letter.detail.splitlines():
            print(f"  | {escape_unprintable(line)}")
    print()


def _to_json(letter: DeadLetter, *, with_body: bool, with_detail: bool) -> dict[str, object]:
    found: dict[str, object] = msgspec.structs.asdict(letter)
    if not with_body:
        del found["body"]
    else:
        found["text"] = format_body(letter.body)
    if not with_detail:
        del found["detail"]
    return found


def read_letters(backend: Backend, query: DeadLetterQuery) -> Iterator[DeadLetter]:
    """Yield all dead letters that match a query, in the order of their ids, up to its limit."""
    left = query.limit
    while left > 0:
        page = backend.list_dead_letters(msgspec.structs.replace(query, limit=min(PAGE, left)))
        yield from page
        left -= len(page)
        if len(page) < PAGE:
            return
        query = msgspec.structs.replace(query, after=page[-1].id)


def format_body(body: bytes) -> str:
    """Return a body for people: as a call, as text, or as escaped bytes."""
    try:
        called = unpack_call(body)
        arguments = msgspec.json.encode(msgspec.msgpack.decode(called.arguments)).decode()
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    else:
        return f"{called.job} {arguments}"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return repr(body)
    return text if text.isprintable() else repr(text)


def redrive(
    queue: QueueArgument,
    /,
    *,
    which: DeadLetterOptions = ANY_LETTER,
    all_: AllOption = False,
    rate: Annotated[
        float | None, Parameter(help="Maximum messages per second, so that they do not all come back together.")
    ] = None,
    dry_run: DryRunOption = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Put dead letters back into their queue, as if they had just been sent.

    Messages that are buried again meanwhile stay dead letters. If interrupted, it reports what was done; repeat it for
    the rest.
    Example: holdfast queue redrive mail --reason ConnectionError --rate 50
    """
    if rate is not None and not 0 < rate <= 1e6:
        raise InvalidValue(f"--rate {rate:g}: expected messages per second, more than 0 and at most a million")
    _remove(queue, which, options, rate, all_=all_, discard=False, dry_run=dry_run, json=json)


def discard(
    queue: QueueArgument,
    /,
    *,
    which: DeadLetterOptions = ANY_LETTER,
    all_: AllOption = False,
    dry_run: DryRunOption = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Delete dead letters forever.

    If interrupted, it reports what was done; repeat it for the rest.
    Example: holdfast queue discard mail --before 30d
    """
    _remove(queue, which, options, None, all_=all_, discard=True, dry_run=dry_run, json=json)


def _remove(
    queue: str,
    which: DeadLetterOptions,
    options: QueueOptions,
    rate: float | None,
    *,
    all_: bool,
    discard: bool,
    dry_run: bool,
    json: bool,
) -> None:
    """Put dead letters back, or delete them if `discard`."""
    if not (all_ or which.tenant or which.reason or which.ids or which.before):
        raise InvalidValue("no filter: give --tenant, --reason, --id or --before, or --all")
    with options.open() as store:
        name = store.require(queue)
        now = store.backend.inspect(name, top=0).at
        # Exclude messages that fail again meanwhile, or this would never end.
        query = which.query(name, now, now + _RESOLUTION, limit=MAX_LETTERS)
        if dry_run:
            count = sum(1 for _ in read_letters(store.backend, query))
        else:
            count = _run_redrive(Redrive(store.backend, query, rate, discard=discard), as_json=json)
    found = {"queue": name, "count": count, "discarded": discard, "dry_run": dry_run}
    print_result(found, _describe_result(count, name, discard=discard, dry_run=dry_run), as_json=json)


def _describe_result(count: int, name: str, *, discard: bool, dry_run: bool) -> str:
    done = "deleted" if discard else f"put back into {name}"
    return f"{count:,} would be {done}" if dry_run else f"{count:,} {done}"


class Redrive:
    """Redrives dead letters in small steps, at a limited rate."""

    def __init__(
        self, backend: Backend, query: DeadLetterQuery, rate: float | None, *, discard: bool, clock: Clock | None = None
    ) -> None:
        self._backend = backend
        # A step is at most what comes in half a second, so that workers see a steady rate.
        step = PAGE if rate is None else max(1, min(PAGE, round(rate / 2)))
        self.query = msgspec.structs.replace(query, limit=step)
        self.discard = discard
        self._rate = rate
        self._clock = clock or SystemClock()
        self._begun = self._clock.monotonic()
        self.done = 0

    def step(self) -> bool:
        """Redrive one step, after the wait that the rate requires. Return whether there may be more."""
        if self._rate is not None:
            self._clock.sleep(max(0.0, self._begun + self.done / self._rate - self._clock.monotonic()))
        count = self._backend.redrive(self.query, discard=self.discard)
        self.done += count
        return count > 0


def _run_redrive(work: Redrive, *, as_json: bool) -> int:
    from rich.progress import TextColumn

    try:
        with create_progress(TextColumn("{task.completed:,.0f} done")) as shown:
            task = shown.add_task("")
            while work.step():
                shown.update(task, completed=work.done)
    except (HoldfastError, KeyboardInterrupt):
        print_note(_describe_result(work.done, work.query.queue, discard=work.discard, dry_run=False), as_json=as_json)
        raise
    return work.done
