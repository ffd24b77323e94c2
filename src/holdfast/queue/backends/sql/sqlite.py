"""The SQL for SQLite. Only one transaction writes at a time: there is nothing to lock or to skip."""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.engines import Database, Transaction
from holdfast.queue.backends.sql.dialect import Kept, LaneChange, Plain, Saved, Search, Taken, TenantChange, taken
from holdfast.queue.backends.sql.message import SECOND, NewMessage, columns, milliseconds
from holdfast.queue.backends.sql.tenant import COLUMNS
from holdfast.queue.rules.placement import LaneLoad, find_least_loaded

_IDS = "update holdfast_queue_sequence set following = following + $1 returning following"
_INSERT = (
    "insert into holdfast_queue_message (id, queue, lane, tenant, at, until, expires, party, extra, body) "
    "values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)
# SQLite has no lateral join, so use a list of ids for each lane.
_TAKE = (
    f"select {columns()}, m.body from json_each($1) as one join holdfast_queue_message m on m.id in ("  # noqa: S608 - constants
    "select w.id from holdfast_queue_message w where w.lane = json_extract(one.value, '$[0]') and w.until is null "
    "and (w.at, w.id) > (json_extract(one.value, '$[1]'), json_extract(one.value, '$[2]')) and w.at <= $2 "
    "order by w.at, w.id limit $3) limit $4"
)
_TENANT = (
    "update holdfast_queue_tenant set ready = ready + $1, spilled = spilled + $2, leased = leased + $3, "
    "delayed = delayed + $4, dead = dead + $5, magnitude = iif(ready + $1 > 0, length(ready + $1), 0), used = $6 "
    "where id = $7"
)
_BUCKETS = (
    "update holdfast_queue_tenant set rate_full_at = $1, max_rate_full_at = $2, pressure_full_at = $3, "
    "spill_full_at = $4, run_full_at = $5, lease_full_at = $6 where id = $7"
)
_LANE = (
    "update holdfast_queue_lane set ready = ready + $1, leased = leased + $2, delayed = delayed + $3, "
    "dead = dead + $4, turn = iif($5 < 0, turn, $5), newest = iif($6 < 0, -$6, max(newest, $6)), "
    "filled = ready + $1 > 0 where id = $7"
)
_PLAIN = (
    f"select {COLUMNS}, queue from holdfast_queue_tenant where queue = (select q.id from holdfast_queue q "  # noqa: S608 - constants
    "where q.name = $1 and q.policy = $2 and abs(q.seen - $3) < $4) and name = $5"
)
_SPEND = (
    "update holdfast_queue_tenant set rate_full_at = $1, max_rate_full_at = $2, pressure_full_at = $3 where id = $4"
)
_HAND = (
    "select number, ready, turn, id from holdfast_queue_lane where queue = $1 "
    "and number in (select value from json_each($2))"
)


class SqliteDialect:
    """See `Dialect`."""

    has_locks = has_clock = False
    time = "0.0"
    contains = "instr"

    def lock(self, table: str) -> str:  # noqa: ARG002
        return ""

    skip = lock

    def among(self, place: str) -> str:
        return f"in (select value from json_each({place}))"  # noqa: S608 - a number

    named = among

    def within(self, select: str) -> str:
        return f"in ({select})"

    def each(self, place: str) -> str:
        return f"json_each({place}) as one"

    def numbers(self, values: Iterable[int]) -> str:
        return f"[{','.join(map(str, values))}]"

    def texts(self, values: Iterable[str]) -> str:
        return msgspec.json.encode(list(values)).decode()

    def next_ids(self, transaction: Transaction, count: int) -> Sequence[int]:
        [(following,)] = transaction.execute(_IDS, (count,))
        return range(following - count, following)

    def insert(self, transaction: Transaction, queue: int, messages: Sequence[NewMessage]) -> Sequence[int]:
        ids = self.next_ids(transaction, len(messages))
        transaction.execute_many(_INSERT, ((id_, queue, *one) for id_, one in zip(ids, messages, strict=True)))
        return ids

    def take(self, transaction: Transaction, searches: Sequence[Search], each: int, up_to: int, most: int) -> Taken:
        lists = f"[{','.join([f'[{one.lane},{one.at},{one.id}]' for one in searches])}]"
        rows, asked = taken(transaction.execute(_TAKE, (lists, up_to, each, most)), searches, each, most)
        # The messages of a lane come in the order of their ids: if it was cut short, older ones may be missing.
        places = {search.lane: place for place, search in enumerate(searches[:asked])}
        rows = [row for row in rows if row[1] in places]
        rows.sort(key=lambda row: (places[row[1]], row[6], row[0]))
        return Taken(rows, asked)

    def save(
        self, transaction: Transaction, tenants: Sequence[TenantChange], lanes: Sequence[LaneChange], at: int
    ) -> Saved:
        if tenants:
            transaction.execute_many(_TENANT, ((*one[1:6], at, one.id) for one in tenants))
        spent = [(*one.buckets, one.id) for one in tenants if one.buckets is not None]
        if spent:
            transaction.execute_many(_BUCKETS, spent)
        if lanes:
            transaction.execute_many(_LANE, ((*one[1:], one.id) for one in lanes))
        return Saved(len(tenants))  # no other transaction can have deleted one, and `wake` does nothing

    def keep(self, database: Database, plain: Plain) -> Kept | None:
        return database.write(lambda transaction: self._keep(transaction, plain))

    def _keep(self, transaction: Transaction, plain: Plain) -> Kept | None:
        assert plain.now is not None, "there is no server that could say it"
        at = milliseconds(plain.now)
        found = transaction.execute(_PLAIN, (plain.queue, plain.policy, at, SECOND, plain.tenant))
        if not found:
            return None
        [row] = found
        tenant, limits, ready, delayed, queue = row[0], row[2], row[3], row[6], row[-1]
        room, spent = plain.room, None
        if limits is not None:
            decided = plain.decide(row, plain.now)
            if decided is None:
                return None
            room, spent = decided
        if ready + delayed >= room:
            return None
        lanes = transaction.execute(_HAND, (queue, self.numbers(plain.lanes)))
        if len(lanes) < len(plain.lanes):
            return None  # the existing lanes were created by other tenants, and are loaded
        ids = {number: id_ for number, _, _, id_ in lanes}
        number = find_least_loaded([*ids], {number: LaneLoad(depth, turn) for number, depth, turn, _ in lanes})
        expires = None if plain.ttl is None else at + plain.ttl
        message = NewMessage(ids[number], tenant, at, None, expires, None, plain.extra, plain.body)
        [id_] = self.insert(transaction, queue, [message])
        if spent is not None:
            transaction.execute(_SPEND, (*spent.after, tenant))
        lane = LaneChange(ids[number], 1, 0, 0, 0, -1, at)
        self.save(transaction, [TenantChange(tenant, 1, 0, 0, 0, 0)], [lane], at)
        return Kept(id_, number, ready + delayed + 1, limits)

    def wake(self, transaction: Transaction, queue: str) -> None:
        pass  # workers watch the file itself
