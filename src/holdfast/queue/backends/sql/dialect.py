"""The SQL that differs between the engines. PostgreSQL locks rows, and combines many statements into one."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from holdfast.engines import Database, Row, Transaction
from holdfast.queue.backends.sql.message import NewMessage


class TenantChange(NamedTuple):
    """A change of a tenant's counters, and its new buckets."""

    id: int
    ready: int
    spilled: int
    leased: int
    delayed: int
    dead: int
    buckets: "Buckets | None" = None
    """None means unchanged."""


Buckets: TypeAlias = tuple[int, int, int, int, int, int]
"""When each bucket is full again, in the order of the columns."""


class LaneChange(NamedTuple):
    """A change of a lane's counters, and its next turn."""

    id: int
    ready: int
    leased: int
    delayed: int
    dead: int
    turn: int
    """When the lane may be served next; negative if unchanged."""
    newest: int
    """When the newest message was sent. A negative value, used only without locks, is the negated time after which no
    waiting message was sent."""


class Search(NamedTuple):
    """Where to search a lane for waiting messages: after one of them, up to a time."""

    lane: int
    at: int
    id: int


class Spent(NamedTuple):
    """The buckets of `spill_rate`, `max_rate` and backpressure of a tenant, before and after it sends a message."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class Decided(NamedTuple):
    """What is needed to store a message of a tenant with limits."""

    room: int
    spent: Spent


class Plain(NamedTuple):
    """An ordinary message, and the conditions under which it can be stored as such."""

    queue: str
    policy: bytes
    """The policy in its stored form. If it has changed, the decision may be different."""
    tenant: str
    room: int
    """Messages that a tenant without limits may have, due or not, before anything must be counted."""
    is_counted: bool
    """Whether the tenant is known to have limits."""
    decide: Callable[[Row, float], Decided | None]
    """Decides from the row of a tenant with limits, and the time, how to store the message; None if it is not plain."""
    lanes: Sequence[int]
    """The hand of the tenant."""
    now: float | None
    """The time, or None for that of the server."""
    ttl: int | None
    extra: bytes | None
    body: bytes


class Kept(NamedTuple):
    """The stored message: its id, the number of its lane, its tenant's messages now, and the tenant's own limits."""

    id: int
    lane: int
    waiting: int
    limits: bytes | None


class Saved(NamedTuple):
    """The number of tenants that were changed, and the ready messages by lane afterwards, if `wake` needs them."""

    tenants: int
    ready: Sequence[tuple[int, int]] = ()


class Taken(NamedTuple):
    """The messages that were found, and the number of lanes that were searched to the end."""

    rows: list[Row]
    asked: int


def taken(rows: list[Row], searches: Sequence[Search], each: int, most: int) -> Taken:
    """Return how far a search came: if it found as many as it may, it may have stopped in the middle of a lane."""
    if len(rows) < most:
        return Taken(rows, len(searches))
    last = rows[-1][1]
    asked = next(place for place, search in enumerate(searches) if search.lane == last)
    return Taken(rows, asked + (sum(row[1] == last for row in rows) == each))


class Dialect(Protocol):
    """The SQL of one engine, where engines differ. Statements process tenants and lanes in the order of their ids."""

    has_locks: bool
    """Whether others write concurrently, so that rows must be locked before deciding."""
    has_clock: bool
    """Whether there is a server whose time all processes can use."""
    time: str
    """The SQL expression for the server's time in seconds."""
    contains: str
    """The SQL function that finds a text in another."""

    def lock(self, table: str) -> str:
        """Return the suffix of a select that locks its rows for a change."""

    def skip(self, table: str) -> str:
        """Return the suffix of a select that locks its rows, and skips rows that others have locked."""

    def among(self, place: str) -> str:
        """Return the condition that a column is among the numbers of a parameter made by `numbers`."""

    def named(self, place: str) -> str:
        """Return the condition that a column is among the texts of a parameter made by `texts`."""

    def within(self, select: str) -> str:
        """Return the condition that a column is in the result of a select, which runs once."""

    def each(self, place: str) -> str:
        """Return a table `one` with a column `value`: the numbers of a parameter made by `numbers`."""

    def numbers(self, values: Iterable[int]) -> str:
        """Return numbers as one parameter."""

    def texts(self, values: Iterable[str]) -> str:
        """Return texts as one parameter."""

    def next_ids(self, transaction: Transaction, count: int) -> Sequence[int]:
        """Return ids that no message has had."""

    def insert(self, transaction: Transaction, queue: int, messages: Sequence[NewMessage]) -> Sequence[int]:
        """Store messages, and return their ids, which are ascending."""

    def take(self, transaction: Transaction, searches: Sequence[Search], each: int, up_to: int, most: int) -> "Taken":
        """Find the oldest waiting messages with their bodies, lane by lane: up to `each` per lane, `most` in all."""

    def save(
        self, transaction: Transaction, tenants: Sequence[TenantChange], lanes: Sequence[LaneChange], at: int
    ) -> "Saved":
        """Change counters and buckets at a time."""

    def keep(self, database: Database, plain: Plain) -> Kept | None:
        """Store one message in its own transaction. Return None, and do nothing, if the conditions are not met."""

    def wake(self, transaction: Transaction, queue: str) -> None:
        """Notify workers of other processes, on commit, that the queue has messages."""
