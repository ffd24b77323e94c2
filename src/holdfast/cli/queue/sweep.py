"""`holdfast queue sweep`: drop what is too old to be worth anything."""

from typing import Annotated

from cyclopts import Parameter

from holdfast.cli.output import DataDirectory, Json, SettingsFile, moment, print_json
from holdfast.cli.queue.store import At, QueueArgument, open_store
from holdfast.cli.queue.times import moment_of


def sweep(
    queue: QueueArgument,
    /,
    *,
    before: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="Drop what was sent before a time such as 2026-01-31T12:00Z, or longer ago than 90s, 2h30m, 7d.",
        ),
    ],
    at: At = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Drop messages that nobody holds and that were sent before a time: after a full sync, older deltas are worthless.

    Drops what has outlived its ttl as well. Dropped is dropped: these are not kept among the dead.
    Example: holdfast queue sweep mail --before 2h
    """
    with open_store(at, settings, data_directory) as store:
        name = store.require(queue)
        limit = moment_of(before, store.backend.look(name, top=0).at)
        dropped = store.backend.sweep(name, limit)
    if json:
        print_json({"queue": name, "before": limit, "dropped": dropped})
    else:
        print(f"{dropped:,} of {name} dropped that were sent before {moment(limit)}")
