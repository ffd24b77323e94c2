"""`holdfast queue sweep`: drop old messages."""

from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from holdfast._errors import InvalidValue
from holdfast._names import format_count
from holdfast.cli.duration import parse_duration
from holdfast.cli.output import Json, format_time, print_result
from holdfast.cli.queue.store import QUEUES, QueueArgument, QueueOptions


def sweep(
    queue: QueueArgument,
    /,
    *,
    before: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="Drop messages sent before a time such as 2026-01-31T12:00Z, or longer ago than 90s, 2h30m, 7d.",
        ),
    ],
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Drop messages that are not leased and were sent before a time: after a full sync, older deltas are obsolete.

    Also drops messages older than their ttl. Dropped messages are deleted, not moved to the dead letters.
    Example: holdfast queue sweep mail --before 2h
    """
    with options.open() as store:
        name = store.require(queue)
        limit = parse_moment(before, store.backend.inspect(name, top=0).at)
        dropped = store.backend.sweep(name, limit)
    print_result(
        {"queue": name, "before": limit, "dropped": dropped},
        f"{format_count(dropped, 'message')} of {name} dropped: sent before {format_time(limit)}",
        as_json=json,
    )


def parse_moment(text: str, now: float) -> float:
    """Return the seconds since the epoch of a time such as 2026-01-31T12:00Z, or of an age such as 2h30m.

    A time without a zone is UTC, as all times are shown. Raise InvalidValue for any other text or a future time.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        moment = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if moment > now:
            raise InvalidValue(f"{text} is in the future: expected a past time")
        return moment
    try:
        return now - parse_duration(text)
    except InvalidValue as error:
        raise InvalidValue(
            f"{text[:40]!r}: expected a time such as 2026-01-31T12:00Z, or an age such as 90s, 2h30m or 7d"
        ) from error
