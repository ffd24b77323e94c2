"""`holdfast queue dead`: what was given up, and why."""

from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast.cli.output import (
    DataDirectory,
    Json,
    SettingsFile,
    moment,
    print_json,
    print_note,
    print_table,
    printable,
)
from holdfast.cli.queue.buried import Before, Ids, Reason, Tenant, body_text, letters
from holdfast.cli.queue.store import At, QueueArgument, open_store
from holdfast.cli.queue.times import moment_of
from holdfast.queue.backend import DeadLetter, DeadQuery


def dead(
    queue: QueueArgument,
    /,
    *,
    tenant: Tenant = None,
    reason: Reason = None,
    id_: Ids = None,
    before: Before = None,
    after: Annotated[int, Parameter(help="Only those with a greater number: the last of the page before.")] = 0,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000), help="How many at the most.")] = 20,
    body: Annotated[bool, Parameter(negative="", help="Show what they say: a call, text, or bytes.")] = False,
    detail: Annotated[bool, Parameter(negative="", help="Show the tracebacks of what went wrong last.")] = False,
    at: At = None,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Show messages that were given up, with the reason; once it is mended, `redrive` puts them back.

    Example: holdfast queue dead mail --tenant tenant-a --detail
    """
    with open_store(at, settings, data_directory) as store:
        name = store.require(queue)
        buried = None if before is None else moment_of(before, store.backend.look(name, top=0).at)
        query = DeadQuery(
            queue=name,
            tenant=tenant,
            reason=reason,
            ids=tuple(id_ or ()),
            buried_before=buried,
            after=after,
            limit=limit + 1,  # to know whether there are more
        )
        found = list(letters(store.backend, query))
    are_more, found = len(found) > limit, found[:limit]
    if json:
        print_json([_as_object(letter, with_body=body, with_detail=detail) for letter in found])
    elif not found:
        print(f"{name} has no such dead letters")
    elif body or detail:
        for letter in found:
            _show(letter, with_body=body, with_detail=detail)
    else:
        print_table(
            ("id", "tenant", "attempts", "sent", "buried", "reason"),
            [
                (letter.id, letter.tenant, letter.attempts, moment(letter.sent), moment(letter.buried), letter.reason)
                for letter in found
            ],
        )
    if are_more:
        print_note(f"there are more: go on with --after {found[-1].id}, or raise --limit", as_json=json)


def _show(letter: DeadLetter, *, with_body: bool, with_detail: bool) -> None:
    tenant, buried = printable(letter.tenant), moment(letter.buried)
    print(f"message {letter.id} of {tenant}, buried {buried}, attempts {letter.attempts}")
    print(f"  reason: {printable(letter.reason)}")
    print(f"  trace: {printable(letter.trace)}")
    if with_body:
        print(f"  body: {body_text(letter.body)}")
    if with_detail:
        for line in letter.detail.splitlines():
            print(f"  | {printable(line)}")
    print()


def _as_object(letter: DeadLetter, *, with_body: bool, with_detail: bool) -> dict[str, object]:
    found: dict[str, object] = msgspec.structs.asdict(letter)
    if not with_body:
        del found["body"]
    else:
        found["shown"] = body_text(letter.body)
    if not with_detail:
        del found["detail"]
    return found
