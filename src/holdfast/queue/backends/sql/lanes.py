"""Lanes with waiting messages, in the order of their turns, and how far each was searched."""

from holdfast.queue.backends.sql.dialect import Search
from holdfast.queue.backends.sql.message import NEVER, Message
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.rules.leasing import FRESH_FACTOR, MAX_FRESH_LANES, MAX_LANES_BY_RANK, Age
from holdfast.queue.rules.placement import get_rank

SOME = 512
"""Lanes of all ranks together up to which all are examined: as many as most queues have."""
_COLUMNS = "select id, number, ready, newest from holdfast_queue_lane where queue = $1"
_SOME = f"{_COLUMNS} and filled = 1 and turn <= $2 order by rank, turn, id limit {SOME}"
_OF_RANK = (
    f"select * from ({_COLUMNS} and rank = {{rank}} and filled = 1 and turn <= $2 order by turn, id limit {{limit}}) "  # noqa: S608 - constants
    "as rank{rank}"
)
_ALL = " union all ".join(_OF_RANK.format(rank=rank, limit=most) for rank, most in MAX_LANES_BY_RANK.items())
_FRESH = " union all ".join(
    f"select * from ({_OF_RANK.format(rank=rank, limit=MAX_FRESH_LANES)} where newest > $3 "  # noqa: S608 - constants
    f"order by newest desc limit {FRESH_FACTOR * most}) as fresh{rank}"
    for rank, most in MAX_LANES_BY_RANK.items()
)
_NEXT_TURN = " union all ".join(
    f"select min(turn) from holdfast_queue_lane where queue = $1 and rank = {rank} and filled = 1 and turn > $2"  # noqa: S608 - constants
    for rank in MAX_LANES_BY_RANK
)
_EARLIEST = " union all ".join(
    f"select {rank}, min(turn) from holdfast_queue_lane where queue = $1 and rank = {rank} and filled = 1 and turn > 0"  # noqa: S608 - constants
    for rank in MAX_LANES_BY_RANK
)
_ANY = " union all ".join(
    f"select 1 from holdfast_queue_lane where queue = $1 and rank = {rank} and filled = 1 and turn <= $2"  # noqa: S608 - constants
    for rank in MAX_LANES_BY_RANK
)


class Lane:
    """A lane with waiting messages."""

    __slots__ = ("_searched", "id", "is_open", "newest", "number", "ready", "seen")

    def __init__(self, id_: int, number: int, ready: int, newest: int) -> None:
        self.id = id_
        self.number = number
        self.ready = ready
        self.newest = newest
        self.seen = 0
        """Messages that were examined."""
        self.is_open = True
        """Whether its tenant may have more messages, if the lane belongs to one tenant."""
        self._searched: dict[Age, tuple[int, int]] = {}

    def search(self, age: Age, cutoff: int) -> Search:
        """Return where to search next for messages of an age. Messages sent after `cutoff` are fresh."""
        start = (cutoff, NEVER) if age is Age.FRESH else (-1, 0)
        return Search(self.id, *self._searched.get(age, start))

    def searched(self, age: Age, message: Message) -> None:
        """Record that a message was examined: the next search starts after it."""
        self._searched[age] = (message.at, message.id)


def read_lanes(step: Step, cutoff: int) -> tuple[dict[int, list[Lane]], bool]:
    """Return the lanes with waiting messages by rank, longest unserved first, and whether there may be more.

    Messages sent after `cutoff` are fresh.
    """
    found: dict[int, list[Lane]] = {}
    rows = step.transaction.execute(_SOME, (step.queue, step.at))
    is_cut = len(rows) >= SOME
    if is_cut:  # too many to examine all: take the first of each rank, and others with fresh messages
        rows = step.transaction.execute(_ALL, (step.queue, step.at))
        fresh = step.transaction.execute(_FRESH, (step.queue, step.at, cutoff))
        rows = [*{row[0]: row for row in (*rows, *fresh)}.values()]
    for row in rows:
        lane = Lane(*row)
        step.numbers[lane.id] = lane.number
        found.setdefault(get_rank(lane.number), []).append(lane)
    return found, is_cut and any(len(lanes) >= MAX_LANES_BY_RANK[rank] for rank, lanes in found.items())


def next_turn(step: Step) -> int | None:
    """Return the next time at which a filled lane that must not be served now may be served, or None."""
    times = [turn for (turn,) in step.transaction.execute(_NEXT_TURN, (step.queue, step.at)) if turn is not None]
    return min(times, default=None)


def earliest_turns(step: Step) -> dict[int, int]:
    """Return by rank the turn of the filled lane that has waited longest, except those that were never served."""
    return {rank: turn for rank, turn in step.transaction.execute(_EARLIEST, (step.queue,)) if turn is not None}


def has_something(step: Step) -> bool:
    """Return whether a worker that polls now may get a message."""
    if step.next_due is not None and step.next_due <= step.at:
        return True
    return bool(step.transaction.execute(f"select 1 where exists ({_ANY})", (step.queue, step.at)))
