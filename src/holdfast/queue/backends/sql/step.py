"""The work of one transaction on one queue: the rows that it has read, and the counters that it changes.

Where others write concurrently, rows are locked in one order, so that transactions do not deadlock: messages first,
skipping those that others have locked; then tenants by id; lanes by id at the end. Parked messages, which wait for
earlier ones of their group, are locked after their tenants, never before: a transaction that removes the message before
them must wait for them. Counters are only added to, which needs no lock on a tenant. A tenant is locked, with all
others of the step, if a decision depends on it: on its limits, groups and keys, and on lanes that do not exist yet.

A sweep may delete a tenant that has no messages after a step has read it. The step notices when it locks or saves it,
raises TenantDeleted, and is run again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from holdfast._errors import NotFound
from holdfast.engines import Row, Transaction
from holdfast.queue.backends.sql.dialect import Dialect, LaneChange
from holdfast.queue.backends.sql.message import milliseconds
from holdfast.queue.backends.sql.tenant import COLUMNS, TenantRow
from holdfast.queue.backends.sql.time import keep_time
from holdfast.queue.policy import QueuePolicy, decode_policy
from holdfast.queue.rules.placement import LaneLoad, get_rank

_NEXT = (
    "(select m.until from holdfast_queue_message m where m.queue = q.id and m.until is not null "
    "order by m.until limit 1)"
)
_TENANTS = f"select {COLUMNS} from holdfast_queue_tenant where "  # noqa: S608 - constants
_ADD_TENANT = "insert into holdfast_queue_tenant (queue, name) values ($1, $2) on conflict do nothing"
_LANES = "select id, number, ready, turn from holdfast_queue_lane where queue = $1 and number "
_ADD_LANE = "insert into holdfast_queue_lane (queue, number, rank) values ($1, $2, $3) on conflict do nothing"


class TenantDeleted(Exception):
    """A sweep has deleted a tenant that this transaction has read: run the transaction again."""


class Tally:
    """A change of a lane's counters."""

    __slots__ = ("dead", "delayed", "leased", "newest", "ready", "turn")

    def __init__(self) -> None:
        self.ready = self.leased = self.delayed = self.dead = self.newest = 0
        self.turn = -1
        """When the lane may be served next, or -1 if that does not change."""


class Step:
    """The work of a transaction on one queue. `is_read` if it only reads."""

    def __init__(
        self,
        transaction: Transaction,
        dialect: Dialect,
        queue: str | int,
        wall: float | None,
        *,
        due: bool = False,
        is_read: bool = False,
    ) -> None:
        self.transaction = transaction
        self.dialect = dialect
        rows = transaction.execute(
            _find_queue(dialect.time, due=due, by="name" if isinstance(queue, str) else "id"), (queue,)
        )
        if not rows:
            raise NotFound(f"there is no queue {queue}: create it first, by opening it with holdfast.queue.Queue")
        self.queue: int
        self.name: str
        self.origin: int
        """The random number of the queue, from which traces are derived."""
        self.next_due: int | None
        """When the first leased or delayed message is due, if `due` was requested."""
        self.seen: int
        """The latest time that was stored: see `time.py`."""
        self.queue, self.name, self.origin, policy, self.seen, server, self.next_due = rows[0]
        self.policy = policy_of(bytes(policy))
        self.now: float = server if wall is None else wall
        self.at = milliseconds(self.now)
        self.tenants: dict[int, TenantRow] = {}
        self.numbers: dict[int, int] = {}
        """The numbers of lanes that the step has read, by id."""
        self._lane_ids: dict[int, int] = {}
        self._depths: dict[int, LaneLoad] = {}
        self._lanes: dict[int, Tally] = {}
        self._is_locked = False
        if not dialect.has_clock and not is_read:
            keep_time(self)

    # Tenants

    def meet(self, names: Collection[str]) -> dict[str, TenantRow]:
        """Return tenants by name. Create unknown ones."""
        statement = f"{_TENANTS}queue = $1 and name {self.dialect.named('$2')}"
        found = self._read(statement, (self.queue, self.dialect.texts(names)))
        missing = sorted(set(names).difference(row.name for row in found))
        if missing:
            self.transaction.execute_many(_ADD_TENANT, [(self.queue, name) for name in missing])
            found += self._read(statement, (self.queue, self.dialect.texts(missing)))
            if len(found) < len(names):
                raise TenantDeleted
        return {row.name: row for row in found}

    def know(self, numbers: Iterable[int]) -> None:
        """Read the tenants with these ids, unless the step has read them."""
        missing = {number for number in numbers if number not in self.tenants}
        if missing:
            self._read(f"{_TENANTS}id {self.dialect.among('$1')}", (self.dialect.numbers(missing),))

    def lock(self) -> None:
        """Lock all tenants that the step has read, and read them again: from now on they do not change."""
        if self._is_locked or not self.dialect.has_locks or not self.tenants:
            return
        statement = f"{_TENANTS}id {self.dialect.among('$1')} order by id{self.dialect.lock('holdfast_queue_tenant')}"
        rows = self.transaction.execute(statement, (self.dialect.numbers(self.tenants),))
        if len(rows) < len(self.tenants):
            raise TenantDeleted
        for row in rows:
            self.tenants[row[0]].refresh(row)
        self._is_locked = True

    def _read(self, statement: str, parameters: tuple[Any, ...]) -> list[TenantRow]:
        rows = [TenantRow(row, self.policy) for row in self.transaction.execute(statement, parameters)]
        self.tenants |= {row.id: row for row in rows}
        return rows

    # Lanes

    def depths(self, numbers: Collection[int]) -> dict[int, LaneLoad]:
        """Return the loads of lanes. Create missing lanes."""
        self.lane_ids(numbers)
        return {number: self._depths[number] for number in numbers}

    def lane_ids(self, numbers: Iterable[int]) -> Mapping[int, int]:
        """Return the ids of lanes by number. Create missing lanes."""
        missing = {number for number in numbers if number not in self._lane_ids}
        if missing:
            self._read_lanes(missing)
            new = sorted(missing.difference(self._lane_ids))
            if new:
                self.lock()
                self.transaction.execute_many(_ADD_LANE, [(self.queue, number, get_rank(number)) for number in new])
                self._read_lanes(new)
        return self._lane_ids

    def _read_lanes(self, numbers: Iterable[int]) -> None:
        statement = f"{_LANES}{self.dialect.among('$2')}"
        for id_, number, ready, turn in self.transaction.execute(
            statement, (self.queue, self.dialect.numbers(numbers))
        ):
            self._lane_ids[number] = id_
            self.numbers[id_] = number
            self._depths[number] = LaneLoad(ready, turn)

    def lane(self, id_: int) -> Tally:
        """Return the pending change of a lane, by id."""
        found = self._lanes.get(id_)
        if found is None:
            found = self._lanes[id_] = Tally()
        return found

    def count(
        self, lane: int, tenant: int, *, ready: int = 0, leased: int = 0, delayed: int = 0, dead: int = 0
    ) -> None:
        """Change the counters of a lane, and of a tenant with messages there."""
        tally, row = self.lane(lane), self.tenants[tenant]
        tally.ready += ready
        tally.leased += leased
        tally.delayed += delayed
        tally.dead += dead
        row.ready += ready
        row.leased += leased
        row.delayed += delayed
        row.dead += dead
        if ready and self.numbers[lane] < 0:
            row.spilled += ready

    def save(self) -> list[int]:
        """Write all changes, at the end of the step. Return the lanes in which no message waited before."""
        tenants = [change for _, row in sorted(self.tenants.items()) if (change := row.change()) is not None]
        lanes = [
            LaneChange(id_, one.ready, one.leased, one.delayed, one.dead, one.turn, one.newest)
            for id_, one in sorted(self._lanes.items())
        ]
        if not tenants and not lanes:
            return []
        saved = self.dialect.save(self.transaction, tenants, lanes, self.at)
        if saved.tenants < len(tenants):
            raise TenantDeleted
        return [id_ for id_, ready in saved.ready if 0 < ready <= self._lanes[id_].ready]


def with_ids(step: Step, statement: str, ids: Sequence[int], *parameters: Any) -> list[Row]:
    """Run a statement on messages. `{ids}` in it is the condition on their ids, whose parameter is the last."""
    place = f"${len(parameters) + 1}"
    return step.transaction.execute(
        statement.format(ids=step.dialect.among(place)), (*parameters, step.dialect.numbers(ids))
    )


@lru_cache(maxsize=8)
def _find_queue(time: str, *, due: bool, by: str) -> str:
    following = _NEXT if due else "null"
    columns = f"q.id, q.name, q.origin, q.policy, q.seen, {time}, {following}"
    return f"select {columns} from holdfast_queue q where q.{by} = $1"  # noqa: S608 - constants


@lru_cache(maxsize=256)
def policy_of(kept: bytes) -> QueuePolicy:
    """Return a stored policy."""
    return decode_policy(kept)
