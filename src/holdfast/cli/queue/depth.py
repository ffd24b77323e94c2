"""`holdfast queue list|depth`: which queues there are, and what waits in them."""

from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from holdfast.cli.output import Json, print_json, print_note, print_result, print_table
from holdfast.cli.queue.limits import format_limits
from holdfast.cli.queue.rates import format_age
from holdfast.cli.queue.store import QUEUES, QueueOptions
from holdfast.queue.backend import QueueSnapshot
from holdfast.queue.depth import STATES, compute_age, count_by_state
from holdfast.queue.rules.placement import get_priority


def list_(*, options: QueueOptions = QUEUES, json: Json = False) -> None:
    """List the queues of the store, a name each line.

    Example: holdfast queue list
    """
    with options.open() as store:
        names, address = store.names(), store.address
    print_result(names, "\n".join(names) or f"there is no queue in {address} yet", as_json=json)


def depth(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Only this one; without it, all.")] = None,
    /,
    *,
    top: Annotated[
        int, Parameter(validator=Number(gte=0, lte=1000), help="How many tenants with the most waiting.")
    ] = 10,
    lanes: Annotated[bool, Parameter(help="Show every lane that is not empty as well.")] = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Show what waits in queues, what workers hold, what is dead, how old the oldest is, and who has the most.

    Counts no messages: it takes as long for millions of them as for none.
    Example: holdfast queue depth mail --lanes
    """
    with options.open() as store:
        looks = store.inspect(store.select(queue), top=top)
        address, is_exact = store.address, store.is_exact
        if not json:  # which has it in every object
            store.note_estimates(as_json=False)
    if json:
        print_json([{**_to_json(look, with_lanes=lanes), "is_exact": is_exact} for look in looks])
        return
    if not looks:
        print(f"there is no queue in {address} yet")
        return
    print_table(
        ("queue", *STATES, "oldest", "lanes"),
        [
            (
                look.queue,
                *count_by_state(look.totals).values(),
                format_age(compute_age(look, look.totals.oldest_since)),
                look.totals.lanes_in_use,
            )
            for look in looks
        ],
    )
    _show_tenants(looks)
    if lanes:
        _show_lanes(looks)
    for look in looks if lanes else ():
        if look.lanes_left_out:
            print_note(
                f"{look.queue}: {look.lanes_left_out:,} lanes of single tenants are not listed, because there are so "
                "many; they are not the deepest, and they are in the sums",
                as_json=False,
            )


def _show_tenants(looks: list[QueueSnapshot]) -> None:
    rows = [
        (look.queue, one.tenant, *count_by_state(one).values(), format_limits(one.limits))
        for look in looks
        for one in look.tenants
    ]
    if rows:
        print()
        print_table(("queue", "tenant", *STATES, "own limits"), rows)


def _show_lanes(looks: list[QueueSnapshot]) -> None:
    print()
    print_table(
        ("queue", "lane", "priority", "ready", "leased", "delayed", "dead", "oldest"),
        [
            (
                look.queue,
                lane.lane,
                get_priority(lane.lane),
                lane.ready,
                lane.leased,
                lane.delayed,
                lane.dead,
                format_age(compute_age(look, lane.oldest_since)),
            )
            for look in looks
            for lane in sorted(look.lanes, key=lambda lane: lane.lane)
        ],
    )


def _to_json(look: QueueSnapshot, *, with_lanes: bool) -> dict[str, object]:
    totals = look.totals
    found: dict[str, object] = {
        "queue": look.queue,
        **count_by_state(totals),
        "lanes_in_use": totals.lanes_in_use,
        "oldest_age": compute_age(look, totals.oldest_since),
        "at": look.at,
        "tenants": look.tenants,
        "topics": look.topics,
        "lanes_left_out": look.lanes_left_out,
        "policy": msgspec.structs.asdict(look.policy),
    }
    return {**found, "lanes": look.lanes} if with_lanes else found
