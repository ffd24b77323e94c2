"""The SQL for PostgreSQL. A round trip costs as much as twenty rows: rows are sent as arrays."""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.engines import Database, Transaction
from holdfast.queue.backends.sql.dialect import Kept, LaneChange, Plain, Search, Spent, Taken, TenantChange, taken
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
    "magnitude = case when t.ready + tenant.ready > 0 then length((t.ready + tenant.ready)::text) else 0 end "
    "from tenant join locked_tenant using (id) where t.id = tenant.id returning t.id), "
    "lane as (select * from unnest($13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], "
    "$18::bigint[], $19::bigint[]) as each(id, ready, leased, delayed, dead, turn, newest)), "
    "locked_lane as (select id from holdfast_queue_lane where id = any($13::bigint[]) "
    "and (select count(*) from saved) >= 0 order by id for update) "
    "update holdfast_queue_lane l set ready = l.ready + lane.ready, leased = l.leased + lane.leased, "
    "delayed = l.delayed + lane.delayed, dead = l.dead + lane.dead, "
    "turn = case when lane.turn < 0 then l.turn else lane.turn end, newest = greatest(l.newest, lane.newest), "
    "filled = case when l.ready + lane.ready > 0 then 1 else 0 end "
    "from lane join locked_lane using (id) where l.id = lane.id returning l.id, l.ready"
)
_NO_BUCKETS = (None,) * 6
_TENANT = (
    f"select {COLUMNS}, {_TIME} from holdfast_queue_tenant "  # noqa: S608 - constants
    "where queue = (select id from holdfast_queue where name = $1) and name = $2"
)
# All that `send.py` does with a plain message. Here, too, tenants are locked before lanes: each part depends on the
# result of the one before. The buckets of a tenant must be unchanged since the decision. The lane is chosen as by
# `find_least_loaded`, among all lanes of the hand: if some do not exist yet, the existing ones are loaded by other
# tenants.
_KEEP = (
    f"with q as (select id, coalesce($1::bigint, round({_TIME} * 1000)::bigint) as at from holdfast_queue "  # noqa: S608 - constants
    "where name = $2 and policy = $3::bytea), "
    "t as (select t.id from holdfast_queue_tenant t join q on t.queue = q.id "
    "where t.name = $4 and t.ready + t.delayed < $5::bigint and t.limits is not distinct from $6::bytea{unspent}), "
    "hand as (select l.id, l.ready, l.turn from holdfast_queue_lane l join q on l.queue = q.id "
    "where l.number = any({hand}::bigint[])), "
    "l as (select id from hand where (select count(*) from hand) = cardinality({hand}::bigint[]) "
    "order by ready, turn limit 1), "
    "m as (insert into holdfast_queue_message (id, queue, lane, tenant, at, expires, extra, body) "
    "select nextval('holdfast_queue_sequence'), q.id, l.id, t.id, q.at, q.at + {ttl}::bigint, {extra}::bytea, "
    "{body}::bytea from q, t, l returning id), "
    "counted as (update holdfast_queue_tenant c set ready = c.ready + 1, "
    "magnitude = length((c.ready + 1)::text){spend} from t, m where c.id = t.id "
    "returning c.ready + c.delayed as waiting), "
    "filled as (update holdfast_queue_lane f set ready = f.ready + 1, newest = greatest(f.newest, q.at), filled = 1 "
    "from q, l, counted where f.id = l.id returning f.number, f.ready) "
    "select m.id, filled.number, counted.waiting, case when filled.ready = 1 then pg_notify('{channel}', $2)::text end "
    "from m, counted, filled"
)
_KEEP_FREE = _KEEP.format(unspent="", hand="$7", ttl="$8", extra="$9", body="$10", spend="", channel=CHANNEL)
_KEEP_COUNTED = _KEEP.format(
    # Locked, so that tokens spent meanwhile are seen.
    unspent=" and t.rate_full_at = $7::bigint and t.max_rate_full_at = $8::bigint and t.pressure_full_at = $9::bigint "
    "for update of t",
    hand="$10",
    ttl="$11",
    extra="$12",
    body="$13",
    spend=", rate_full_at = $14::bigint, max_rate_full_at = $15::bigint, pressure_full_at = $16::bigint",
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
        self, transaction: Transaction, tenants: Sequence[TenantChange], lanes: Sequence[LaneChange]
    ) -> Sequence[tuple[int, int]]:
        spent = [(*one[:6], *(one.buckets or _NO_BUCKETS)) for one in tenants]
        columns = (*_columns(spent, 12), *_columns(lanes, 7))
        rows = transaction.execute(_SAVE, [self.numbers(column) for column in columns])
        return [(id_, ready) for id_, ready in rows]

    def keep(self, database: Database, plain: Plain) -> Kept | None:
        statement, limits, room, spent = _KEEP_FREE, None, plain.room, Spent((), ())
        if plain.is_counted:
            found = database.write_statement(_TENANT, (plain.queue, plain.tenant), is_idempotent=True)
            decided = plain.decide(found[0], found[0][-1] if plain.now is None else plain.now) if found else None
            if decided is None:
                return None
            statement, limits, room, spent = _KEEP_COUNTED, found[0][2], decided.room, decided.spent
        at = None if plain.now is None else milliseconds(plain.now)
        where = (at, plain.queue, plain.policy, plain.tenant, room, limits)
        what = (self.numbers(plain.lanes), plain.ttl, plain.extra, plain.body)
        rows = database.write_statement(statement, (*where, *spent.before, *what, *spent.after))
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
