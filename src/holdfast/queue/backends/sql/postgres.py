"""The SQL for PostgreSQL. A round trip costs as much as twenty rows: rows are sent as arrays."""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.engines import Database, Transaction
from holdfast.queue.backends.sql.dialect import (
    Kept,
    LaneChange,
    Plain,
    Saved,
    Search,
    Spent,
    Taken,
    TenantChange,
    taken,
)
from holdfast.queue.backends.sql.message import NewMessage, columns, milliseconds
from holdfast.queue.backends.sql.tenant import COLUMNS

_TIME = "extract(epoch from clock_timestamp())::double precision"
CHANNEL = "holdfast_queue"
"""The channel of notifications that a queue has messages."""
_IDS = "select nextval('holdfast_queue_sequence') from generate_series(1, $1::bigint)"
# Ids are assigned in the order of the messages: groups depend on it.
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
# Rows are locked in the order of their ids, because another order could deadlock. Lanes are locked only after all
# tenants, which the count of tenants ensures.
_SAVE = (
    "with tenant as (select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], "
    "$6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], "
    "$12::bigint[]) as each(id, ready, spilled, leased, delayed, dead, rate, max_rate, pressure, spill, run, lease)), "
    "locked_tenant as (select id from holdfast_queue_tenant where id = any($1::bigint[]) order by id for update), "
    "saved as (update holdfast_queue_tenant t set ready = t.ready + tenant.ready, "
    "spilled = t.spilled + tenant.spilled, leased = t.leased + tenant.leased, "
    "delayed = t.delayed + tenant.delayed, dead = t.dead + tenant.dead, "
    "rate_full_at = coalesce(tenant.rate, t.rate_full_at), "
    "max_rate_full_at = coalesce(tenant.max_rate, t.max_rate_full_at), "
    "pressure_full_at = coalesce(tenant.pressure, t.pressure_full_at), "
    "spill_full_at = coalesce(tenant.spill, t.spill_full_at), "
    "run_full_at = coalesce(tenant.run, t.run_full_at), lease_full_at = coalesce(tenant.lease, t.lease_full_at), "
    "magnitude = case when t.ready + tenant.ready > 0 then length((t.ready + tenant.ready)::text) else 0 end, "
    "used = $13::bigint "
    "from tenant join locked_tenant using (id) where t.id = tenant.id returning t.id), "
    "lane as (select * from unnest($14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], "
    "$19::bigint[], $20::bigint[]) as each(id, ready, leased, delayed, dead, turn, newest)), "
    "locked_lane as (select id from holdfast_queue_lane where id = any($14::bigint[]) "
    "and (select count(*) from saved) >= 0 order by id for update), "
    "filled as (update holdfast_queue_lane l set ready = l.ready + lane.ready, leased = l.leased + lane.leased, "
    "delayed = l.delayed + lane.delayed, dead = l.dead + lane.dead, "
    "turn = case when lane.turn < 0 then l.turn else lane.turn end, newest = greatest(l.newest, lane.newest), "
    "filled = case when l.ready + lane.ready > 0 then 1 else 0 end "
    "from lane join locked_lane using (id) where l.id = lane.id returning l.id, l.ready) "
    "select (select count(*) from saved), filled.id, filled.ready from (values (0)) as one left join filled on true"
)
_NO_BUCKETS = (None,) * 6
_TENANT = (
    f"select {COLUMNS}, {_TIME} from holdfast_queue_tenant "  # noqa: S608 - constants
    "where queue = (select id from holdfast_queue where name = $1) and name = $2"
)
# All that `send.py` does with a plain message. Here, too, tenants are locked before lanes: each part depends on the
# result of the one before. The tenant is changed first, because a sweep may have deleted it; its buckets must be
# unchanged since the decision. The lane is chosen as by `find_least_loaded`, among all lanes of the hand: if some do
# not exist yet, the existing ones are loaded by other tenants.
_KEEP = (
    f"with q as (select id, coalesce($1::bigint, round({_TIME} * 1000)::bigint) as at from holdfast_queue "  # noqa: S608 - constants
    "where name = $2 and policy = $3::bytea), "
    "hand as (select l.id, l.ready, l.turn from holdfast_queue_lane l join q on l.queue = q.id "
    "where l.number = any($4::bigint[])), "
    "l as (select id from hand where (select count(*) from hand) = cardinality($4::bigint[]) "
    "order by ready, turn limit 1), "
    "counted as (update holdfast_queue_tenant t set ready = t.ready + 1, magnitude = length((t.ready + 1)::text), "
    "used = q.at{spend} from q, l where t.queue = q.id and t.name = {name} and t.ready + t.delayed < {room}::bigint "
    "and t.limits is not distinct from {limits}::bytea{unspent} returning t.id, t.ready + t.delayed as waiting), "
    "m as (insert into holdfast_queue_message (id, queue, lane, tenant, at, expires, extra, body) "
    "select nextval('holdfast_queue_sequence'), q.id, l.id, counted.id, q.at, q.at + {ttl}::bigint, {extra}::bytea, "
    "{body}::bytea from q, l, counted returning id), "
    "filled as (update holdfast_queue_lane f set ready = f.ready + 1, newest = greatest(f.newest, q.at), filled = 1 "
    "from q, l, counted where f.id = l.id returning f.number, f.ready) "
    "select m.id, filled.number, counted.waiting, case when filled.ready = 1 then pg_notify('{channel}', $2)::text end "
    "from m, counted, filled"
)
_KEEP_FREE = _KEEP.format(
    spend="", name="$5", room="$6", limits="$7", unspent="", ttl="$8", extra="$9", body="$10", channel=CHANNEL
)
_KEEP_COUNTED = _KEEP.format(
    spend=", rate_full_at = $5::bigint, max_rate_full_at = $6::bigint, pressure_full_at = $7::bigint",
    name="$8",
    room="$9",
    limits="$10",
    # The update sees tokens that were spent meanwhile.
    unspent=" and t.rate_full_at = $11::bigint and t.max_rate_full_at = $12::bigint "
    "and t.pressure_full_at = $13::bigint",
    ttl="$14",
    extra="$15",
    body="$16",
    channel=CHANNEL,
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

    def save(
        self, transaction: Transaction, tenants: Sequence[TenantChange], lanes: Sequence[LaneChange], at: int
    ) -> Saved:
        spent = [(*one[:6], *(one.buckets or _NO_BUCKETS)) for one in tenants]
        arrays = (map(self.numbers, columns) for columns in (_columns(spent, 12), _columns(lanes, 7)))
        rows = transaction.execute(_SAVE, [*next(arrays), at, *next(arrays)])
        return Saved(rows[0][0], [(id_, ready) for _, id_, ready in rows if id_ is not None])

    def keep(self, database: Database, plain: Plain) -> Kept | None:
        statement, limits, room, spent = _KEEP_FREE, None, plain.room, Spent((), ())
        if plain.is_counted:
            found = database.write_statement(_TENANT, (plain.queue, plain.tenant), is_idempotent=True)
            decided = plain.decide(found[0], found[0][-1] if plain.now is None else plain.now) if found else None
            if decided is None:
                return None
            statement, limits, room, spent = _KEEP_COUNTED, found[0][2], decided.room, decided.spent
        at = None if plain.now is None else milliseconds(plain.now)
        where = (at, plain.queue, plain.policy, self.numbers(plain.lanes), *spent.after)
        who = (plain.tenant, room, limits, *spent.before)
        rows = database.write_statement(statement, (*where, *who, plain.ttl, plain.extra, plain.body))
        return Kept(rows[0][0], rows[0][1], rows[0][2], limits) if rows else None

    def wake(self, transaction: Transaction, queue: str) -> None:
        transaction.execute("select pg_notify($1, $2)", (CHANNEL, queue))


def _columns(rows: Sequence[Sequence[int | None]], count: int) -> Iterable[Sequence[int | None]]:
    """Return the columns of the rows; `count` empty ones if there are no rows."""
    return zip(*rows, strict=True) if rows else ((),) * count


def _bytes(values: Iterable[bytes | None]) -> str:
    """Return an array of bytes in PostgreSQL's notation."""
    return f"{{{','.join(['NULL' if value is None else _quoted(value) for value in values])}}}"


def _quoted(value: bytes) -> str:
    return f'"\\\\x{value.hex()}"'
