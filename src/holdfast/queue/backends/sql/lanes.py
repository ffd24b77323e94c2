"""Lanes that have something, in the order of their turns, and up to where each was searched."""

from holdfast.queue.backends.sql.dialect import Search
from holdfast.queue.backends.sql.message import NEVER, Message
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.rules.leasing import FRESH_FACTOR, MAX_FRESH_LANES, MAX_LANES_BY_RANK, Age
from holdfast.queue.rules.placement import get_rank

SOME = 512
"""Lanes of all ranks together up to which all are looked at: as many as most queues have at all."""
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
_ANY = " union all ".join(
    f"select 1 from holdfast_queue_lane where queue = $1 and rank = {rank} and filled = 1 and turn <= $2"  # noqa: S608 - constants
    for rank in MAX_LANES_BY_RANK
)


class Lane:
    """A lane in which messages wait."""

    __slots__ = ("_searched", "id", "is_open", "newest", "number", "ready", "seen")

    def __init__(self, id_: int, number: int, ready: int, newest: int) -> None:
        self.id = id_
        self.number = number
        self.ready = ready
        self.newest = newest
        self.seen = 0
        """Messages that were looked at."""
        self.is_open = True
        """Whether its tenant may have more, if it has the lane for itself."""
        self._searched: dict[Age, tuple[int, int]] = {}

    def search(self, age: Age, cutoff: int) -> Search:
        """Where to look next for messages of an age: `cutoff` is when the oldest fresh one was sent."""
        start = (cutoff, NEVER) if age is Age.FRESH else (-1, 0)
        return Search(self.id, *self._searched.get(age, start))

    def searched(self, age: Age, message: Message) -> None:
        """A message was looked at: the next comes after it."""
        self._searched[age] = (message.at, message.id)


def read_lanes(step: Step, cutoff: int) -> tuple[dict[int, list[Lane]], bool]:
    """Lanes that have something, by rank, whose turn was the longest ago first; and whether there may be more.

    What was sent after `cutoff` is fresh.
    """
    found: dict[int, list[Lane]] = {}
    rows = step.transaction.execute(_SOME, (step.queue, step.at))
    is_cut = len(rows) >= SOME
    if is_cut:  # there are more than one would look at: so many of each rank, and what others are fresh
        rows = step.transaction.execute(_ALL, (step.queue, step.at))
        fresh = step.transaction.execute(_FRESH, (step.queue, step.at, cutoff))
        rows = [*{row[0]: row for row in (*rows, *fresh)}.values()]
    for row in rows:
        lane = Lane(*row)
        step.numbers[lane.id] = lane.number
        found.setdefault(get_rank(lane.number), []).append(lane)
    return found, is_cut and any(len(lanes) >= MAX_LANES_BY_RANK[rank] for rank, lanes in found.items())


def next_turn(step: Step) -> int | None:
    """When a lane that has something, and is not to be looked at now, has its turn."""
    times = [turn for (turn,) in step.transaction.execute(_NEXT_TURN, (step.queue, step.at)) if turn is not None]
    return min(times, default=None)


def has_something(step: Step) -> bool:
    """Whether a worker that asks now may be given something."""
    if step.next_due is not None and step.next_due <= step.at:
        return True
    return bool(step.transaction.execute(f"select 1 where exists ({_ANY})", (step.queue, step.at)))
