"""What the two engines say in different words. PostgreSQL locks rows, and does in one statement what would be many."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from holdfast.engines import Database, Row, Transaction
from holdfast.queue.backends.sql.message import NewMessage


class TenantChange(NamedTuple):
    """By how much the counters of a tenant change, and what its buckets are now."""

    id: int
    ready: int
    spilled: int
    leased: int
    delayed: int
    dead: int
    buckets: "Buckets | None" = None
    """None: as they were."""


Buckets: TypeAlias = tuple[int, int, int, int, int, int]
"""When each is full again, in the order of the columns."""


class LaneChange(NamedTuple):
    """By how much the counters of a lane change, and when it has its next turn."""

    id: int
    ready: int
    leased: int
    delayed: int
    dead: int
    turn: int
    """Below 0: as it was."""
    newest: int
    """When what came was sent; below 0, where nothing is locked: nothing that was sent after that time waits there."""


class Search(NamedTuple):
    """Where in a lane to look for messages that wait: after one of them, up to a time."""

    lane: int
    at: int
    id: int


class Spent(NamedTuple):
    """Buckets of a tenant, `rate`, `max_rate` and that of backpressure, before it sends a message and after it."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class Decided(NamedTuple):
    """What it takes to keep a message of a tenant that has limits."""

    room: int
    spent: Spent


class Plain(NamedTuple):
    """A message that has nothing out of the ordinary, and what must be so that it can be kept as such."""

    queue: str
    policy: bytes
    """As it is kept: another one may say something else."""
    tenant: str
    room: int
    """How many messages a tenant without limits may have, due or not, before anything is counted."""
    is_counted: bool
    """Whether the tenant has limits, as far as is known."""
    decide: Callable[[Row, float], Decided | None]
    """Of a tenant with limits, as it was read, and the time: whether the message is kept as it is; None: it is not."""
    lanes: Sequence[int]
    """The hand of the tenant."""
    now: float | None
    """None: as the server says."""
    ttl: int | None
    extra: bytes | None
    body: bytes


class Kept(NamedTuple):
    """What became of it: its number, that of its lane, how many its tenant has now, and the tenant's own limits."""

    id: int
    lane: int
    waiting: int
    limits: bytes | None


class Taken(NamedTuple):
    """Messages that were found, and in how many of the lanes all was found that was looked for."""

    rows: list[Row]
    asked: int


def taken(rows: list[Row], searches: Sequence[Search], each: int, most: int) -> Taken:
    """Where a search has come to an end: if there were as many as it may find, perhaps in the middle of a lane."""
    if len(rows) < most:
        return Taken(rows, len(searches))
    last = rows[-1][1]
    asked = next(place for place, search in enumerate(searches) if search.lane == last)
    return Taken(rows, asked + (sum(row[1] == last for row in rows) == each))


class Dialect(Protocol):
    """How one engine says what the other says otherwise. Statements about tenants and lanes go through them by id."""

    has_locks: bool
    """Whether others write at the same time, so that rows must be locked before one decides upon them."""
    has_clock: bool
    """Whether there is a server, whose time all can go by."""
    time: str
    """The server's time in seconds, where there is a server."""
    contains: str
    """The function that finds a text in another."""

    def lock(self, table: str) -> str:
        """What is added to a select whose rows are about to be changed."""

    def skip(self, table: str) -> str:
        """The same, without waiting for rows that somebody else is about to change."""

    def among(self, place: str) -> str:
        """A condition on a column: that it is among the numbers of a parameter, which `numbers` has made."""

    def named(self, place: str) -> str:
        """A condition on a column: that it is among the texts of a parameter, which `texts` has made."""

    def within(self, select: str) -> str:
        """A condition on a column: that it is among what a select finds, which is run once."""

    def each(self, place: str) -> str:
        """A table `one` with a column `value`: the numbers of a parameter, which `numbers` has made."""

    def numbers(self, values: Iterable[int]) -> str:
        """Numbers as one parameter."""

    def texts(self, values: Iterable[str]) -> str:
        """Texts as one parameter."""

    def next_ids(self, transaction: Transaction, count: int) -> Sequence[int]:
        """Numbers that no message has had."""

    def insert(self, transaction: Transaction, queue: int, messages: Sequence[NewMessage]) -> Sequence[int]:
        """Keep messages; the ids that they were given, which grow."""

    def take(self, transaction: Transaction, searches: Sequence[Search], each: int, up_to: int, most: int) -> "Taken":
        """The messages that wait the longest, lane after lane: so many `each`, with their bodies, `most` in all."""

    def save(
        self, transaction: Transaction, tenants: Sequence[TenantChange], lanes: Sequence[LaneChange]
    ) -> Sequence[tuple[int, int]]:
        """Change counters and buckets; how many wait in each lane afterwards, if anybody needs to know."""

    def keep(self, database: Database, plain: Plain) -> Kept | None:
        """Keep one message, in a transaction of its own; None: it cannot be kept like that, and nothing was done."""

    def wake(self, transaction: Transaction, queue: str) -> None:
        """Tell workers of other processes, when the transaction is committed, that the queue has something."""
