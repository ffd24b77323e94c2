"""What PostgreSQL is told. A round trip costs as much as twenty rows: rows go there by the array."""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.engines import Database, Transaction
from holdfast.queue.backends.sql.dialect import Kept, LaneChange, Plain, Search, Taken, TenantChange, taken
from holdfast.queue.backends.sql.message import NewMessage, columns

_TIME = "extract(epoch from clock_timestamp())::double precision"
CHANNEL = "holdfast_queue"
"""On which it is told which queue has something."""
_IDS = "select nextval('holdfast_queue_sequence') from generate_series(1, $1::bigint)"
# The numbers are dealt in the order of the messages: groups go by it.
_INSERT = (
    "insert into holdfast_queue_message (id, queue, lane, tenant, at, until, expires, party, extra, body) "
    "select nextval('holdfast_queue_sequence'), $1::integer, one.lane, one.tenant, one.at, one.until, one.expires, "
    "one.party, one.extra, one.body from (select * from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], "
    "$6::bigint[], $7::bigint[], $8::bytea[], $9::bytea[]) with ordinality as "
    "each(lane, tenant, at, until, expires, party, extra, body, place) order by place) as one returning id"
)
_TAKE = (
    "select found.* from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as one(lane, at, id) cross join lateral ("  # noqa: S608 - constants
    f"select {columns()}, m.body from holdfast_queue_message m where m.lane = one.lane and m.until is null "
    "and (m.at, m.id) > (one.at, one.id) and m.at <= $4::bigint order by m.at, m.id limit $5::bigint "
    "for update skip locked) as found limit $6::bigint"
)
# Rows are locked by number first: whoever comes in another order would wait in a circle.
_TENANTS = (
    "with change as (select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) "
    "as each(id, ready, spilled, leased, dead)), locked as (select id from holdfast_queue_tenant "
    "where id = any($1::bigint[]) order by id for update) "
    "update holdfast_queue_tenant t set ready = t.ready + change.ready, spilled = t.spilled + change.spilled, "
    "leased = t.leased + change.leased, dead = t.dead + change.dead from change join locked using (id) "
    "where t.id = change.id"
)
_LANES = (
    "with change as (select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], "
    "$6::bigint[], $7::bigint[]) as each(id, ready, leased, delayed, dead, turn, newest)), locked as ("
    "select id from holdfast_queue_lane where id = any($1::bigint[]) order by id for update) "
    "update holdfast_queue_lane l set ready = l.ready + change.ready, leased = l.leased + change.leased, "
    "delayed = l.delayed + change.delayed, dead = l.dead + change.dead, "
    "turn = case when change.turn < 0 then l.turn else change.turn end, newest = greatest(l.newest, change.newest) "
    "from change join locked using (id) where l.id = change.id returning l.id, l.ready"
)
# All of what `send.py` does with a plain message. Here, too, tenants are locked before lanes: each part waits for what
# it has from others. The lane is chosen as by `least_deep`.
_KEEP = (
    f"with q as (select id, coalesce($1::bigint, round({_TIME} * 1000)::bigint) as at from holdfast_queue "  # noqa: S608 - constants
    "where name = $2 and policy = $3::bytea), "
    "t as (select t.id from holdfast_queue_tenant t join q on t.queue = q.id "
    "where t.name = $4 and t.limits is null and t.ready < $5::bigint), "
    "hand as (select l.id, l.number, l.ready, l.turn, count(*) over () as many from holdfast_queue_lane l "
    "join q on l.queue = q.id where l.number = any($6::bigint[])), "
    "l as (select id, number from hand where many = cardinality($6::bigint[]) order by ready, turn limit 1), "
    "m as (insert into holdfast_queue_message (id, queue, lane, tenant, at, expires, extra, body) "
    "select nextval('holdfast_queue_sequence'), q.id, l.id, t.id, q.at, q.at + $7::bigint, $8::bytea, $9::bytea "
    "from q, t, l returning id), "
    "counted as (update holdfast_queue_tenant c set ready = c.ready + 1 from t, m where c.id = t.id "
    "returning c.ready), "
    "filled as (update holdfast_queue_lane f set ready = f.ready + 1, newest = greatest(f.newest, q.at) "
    "from q, l, counted where f.id = l.id returning f.number, f.ready) "
    "select m.id, filled.number, counted.ready, case when filled.ready = 1 then pg_notify($10, $11)::text end "
    "from m, counted, filled"
)


class PostgresDialect:
    """See `Dialect`."""

    has_locks = has_clock = True
    time = _TIME
    contains = "strpos"

    def lock(self, table: str) -> str:
        return f" for update of {table}"

    def skip(self, table: str) -> str:
        return f" for update of {table} skip locked"

    def among(self, place: str) -> str:
        return f"= any({place}::bigint[])"

    def named(self, place: str) -> str:
        return f"in (select jsonb_array_elements_text({place}::jsonb))"

    def within(self, select: str) -> str:
        return f"= any(array({select}))"

    def each(self, place: str) -> str:
        return f"unnest({place}::bigint[]) as one(value)"

    def numbers(self, values: Iterable[int | None]) -> str:
        return f"{{{','.join(['NULL' if value is None else str(value) for value in values])}}}"

    def texts(self, values: Iterable[str]) -> str:
        return msgspec.json.encode(list(values)).decode()

    def next_ids(self, transaction: Transaction, count: int) -> Sequence[int]:
        return [number for (number,) in transaction.execute(_IDS, (count,))]

    def insert(self, transaction: Transaction, queue: int, messages: Sequence[NewMessage]) -> Sequence[int]:
        *numbers, extras, bodies = zip(*messages, strict=True)
        arrays = (*map(self.numbers, numbers), _bytes(extras), _bytes(bodies))
        return sorted(number for (number,) in transaction.execute(_INSERT, (queue, *arrays)))

    def take(self, transaction: Transaction, searches: Sequence[Search], each: int, up_to: int, most: int) -> Taken:
        arrays = map(self.numbers, zip(*searches, strict=True))
        rows = transaction.execute(_TAKE, (*arrays, up_to, each, most))
        return taken(rows, searches, each, most)

    def add_to_tenants(self, transaction: Transaction, changes: Sequence[TenantChange]) -> None:
        transaction.execute(_TENANTS, [self.numbers(column) for column in zip(*changes, strict=True)])

    def add_to_lanes(self, transaction: Transaction, changes: Sequence[LaneChange]) -> Sequence[tuple[int, int]]:
        rows = transaction.execute(_LANES, [self.numbers(column) for column in zip(*changes, strict=True)])
        return [(id_, ready) for id_, ready in rows]

    def keep(self, database: Database, plain: Plain) -> Kept | None:
        where = (plain.at, plain.queue, plain.policy, plain.tenant, plain.room, self.numbers(plain.lanes))
        what = (plain.ttl, plain.extra, plain.body)
        rows = database.write_one(_KEEP, (*where, *what, CHANNEL, plain.queue))
        return Kept(*rows[0][:3]) if rows else None

    def wake(self, transaction: Transaction, queue: str) -> None:
        transaction.execute("select pg_notify($1, $2)", (CHANNEL, queue))


def _bytes(values: Iterable[bytes | None]) -> str:
    """Bytes as an array in the notation of PostgreSQL."""
    return f"{{{','.join(['NULL' if value is None else _quoted(value) for value in values])}}}"


def _quoted(value: bytes) -> str:
    return f'"\\\\x{value.hex()}"'
