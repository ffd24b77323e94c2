"""`holdfast queue list|depth`: list queues, and show their messages by state."""

from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast._names import format_count
from holdfast.cli.output import Json, print_json, print_note, print_result, print_table
from holdfast.cli.queue.limits import format_limits
from holdfast.cli.queue.rates import format_age
from holdfast.cli.queue.store import QUEUES, QueueOptions
from holdfast.queue.backend import QueueSnapshot
from holdfast.queue.depth import STATES, compute_age, count_by_state
from holdfast.queue.rules.placement import get_priority


def list_(*, options: QueueOptions = QUEUES, json: Json = False) -> None:
    """List the queues of the store, one name per line.

    Example: holdfast queue list
    """
    with options.open() as store:
        names, address = store.names(), store.address
    print_result(names, "\n".join(names) or f"there are no queues in {address} yet", as_json=json)


def depth(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Only this queue; without it, all.")] = None,
    /,
    *,
    top: Annotated[
        int, Parameter(validator=Number(gte=0, lte=1000), help="Number of tenants with the most waiting messages.")
    ] = 10,
    lanes: Annotated[bool, Parameter(help="Also show every lane that is not empty.")] = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Show the messages of queues by state, the age of the oldest one, and the tenants with the most messages.

    Does not count messages one by one: it takes as long for millions of them as for none.
    Example: holdfast queue depth mail --lanes
    """
    with options.open() as store:
        snapshots = store.inspect(store.select(queue), top=top)
        address, is_exact = store.address, store.is_exact
        if not json:  # JSON has it in every object
            store.note_estimates(as_json=False)
    if json:
        print_json([{**_to_json(snapshot, with_lanes=lanes), "is_exact": is_exact} for snapshot in snapshots])
        return
    if not snapshots:
        print(f"there are no queues in {address} yet")
        return
    print_table(
        ("queue", *STATES, "oldest age", "lanes in use"),
        [
            (
                snapshot.queue,
                *count_by_state(snapshot.totals).values(),
                format_age(compute_age(snapshot, snapshot.totals.oldest_since)),
                snapshot.totals.lanes_in_use,
            )
            for snapshot in snapshots
        ],
    )
    _show_tenants(snapshots)
    if lanes:
        _show_lanes(snapshots)
    for snapshot in snapshots if lanes else ():
        if snapshot.lanes_left_out:
            print_note(
                f"{snapshot.queue}: {format_count(snapshot.lanes_left_out, 'lane')} not listed, because there are too "
                "many; the deepest are listed, and the sums include all",
                as_json=False,
            )


def _show_tenants(snapshots: list[QueueSnapshot]) -> None:
    rows = [
        (snapshot.queue, one.tenant, *count_by_state(one).values(), format_limits(one.limits))
        for snapshot in snapshots
        for one in snapshot.tenants
    ]
    if rows:
        print()
        print_table(("queue", "tenant", *STATES, "own limits"), rows)


def _show_lanes(snapshots: list[QueueSnapshot]) -> None:
    print()
    print_table(
        ("queue", "lane", "priority", "ready", "leased", "delayed", "dead", "oldest age"),
        [
            (
                snapshot.queue,
                lane.lane,
                get_priority(lane.lane),
                lane.ready,
                lane.leased,
                lane.delayed,
                lane.dead,
                format_age(compute_age(snapshot, lane.oldest_since)),
            )
            for snapshot in snapshots
            for lane in sorted(snapshot.lanes, key=lambda lane: lane.lane)
        ],
    )


def _to_json(snapshot: QueueSnapshot, *, with_lanes: bool) -> dict[str, object]:
    totals = snapshot.totals
    found: dict[str, object] = {
        "queue": snapshot.queue,
        **count_by_state(totals),
        "lanes_in_use": totals.lanes_in_use,
        "oldest_age": compute_age(snapshot, totals.oldest_since),
        "at": snapshot.at,
        "tenants": snapshot.tenants,
        "topics": snapshot.topics,
        "lanes_left_out": snapshot.lanes_left_out,
        "policy": msgspec.structs.asdict(snapshot.policy),
    }
    return {**found, "lanes": snapshot.lanes} if with_lanes else found
