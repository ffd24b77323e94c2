"""Tenants' numbers and layouts in SQLite or PostgreSQL."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engines import Database, Migration, Row, Transaction, Value
from holdfast.shards.registry import MAX_TENANTS, StoredLayout, capacity_error, too_few_shards_error, version_conflict

SUBSYSTEM = "shards"

MIGRATIONS = (
    Migration(
        1,
        "numbers of tenants",
        (
            "create table holdfast_shard_registry (name text primary key, next_number bigint not null)",
            """create table holdfast_shard_tenant (
                registry text not null,
                tenant bytea not null,
                number bigint not null,
                primary key (registry, tenant),
                unique (registry, number)
            )""",
            """create table holdfast_shard_free (
                registry text not null,
                number bigint not null,
                primary key (registry, number)
            )""",
        ),
    ),
    Migration(
        2,
        "layouts of shards",
        (
            """create table holdfast_shard_layout (
                registry text not null,
                version bigint not null,
                at double precision not null,
                capacity bigint not null,
                layout bytea not null,
                primary key (registry, version)
            )""",
        ),
    ),
)

_FIND = "select tenant, number from holdfast_shard_tenant where registry = $1 and tenant in ({})"
_BATCH_SIZE = 256
"""Names per statement: enough to make its fixed cost negligible, and few enough for every engine."""
_COUNT = "select count(*) from holdfast_shard_tenant where registry = $1"
_CREATE = "insert into holdfast_shard_registry (name, next_number) values ($1, 0) on conflict do nothing"
# Other transactions that change the registry wait here until this one ends.
_LOCK = "update holdfast_shard_registry set next_number = next_number where name = $1 returning next_number"
_FREE = "select number from holdfast_shard_free where registry = $1 order by number limit $2"
_TAKE = "delete from holdfast_shard_free where registry = $1 and number = $2"
_GIVE = "insert into holdfast_shard_free (registry, number) values ($1, $2)"
_ADVANCE = "update holdfast_shard_registry set next_number = $1 where name = $2"
_ASSIGN = "insert into holdfast_shard_tenant (registry, tenant, number) values ($1, $2, $3)"
_REMOVE = "delete from holdfast_shard_tenant where registry = $1 and tenant = $2 returning number"
_FIRST_TENANTS = "select tenant, number from holdfast_shard_tenant where registry = $1 order by tenant limit $2"
_TENANTS = (
    "select tenant, number from holdfast_shard_tenant where registry = $1 and tenant > $2 order by tenant limit $3"
)
_LAYOUTS = "select version, at, layout from holdfast_shard_layout where registry = $1 and version > $2 order by version"
_NEWEST = "select version, at, capacity from holdfast_shard_layout where registry = $1 order by version desc limit 1"
_HIGHEST = "select coalesce(max(number), -1) from holdfast_shard_tenant where registry = $1"
_WRITE = "insert into holdfast_shard_layout (registry, version, at, capacity, layout) values ($1, $2, $3, $4, $5)"
_FORGET = (
    "delete from holdfast_shard_layout where registry = $1 and exists (select 1 from holdfast_shard_layout later "
    "where later.registry = $1 and later.version > holdfast_shard_layout.version and later.at < $2) "
    "returning version"
)


class _NewestLayout(NamedTuple):
    version: int = 0
    at: float = -float("inf")
    capacity: int = MAX_TENANTS


class SqlShardStore:
    """The tenant numbers and layouts stored under `name`, such as that of a service. See `holdfast.shards.ShardStore`.

    A database can have several names.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def find(self, tenants: Sequence[bytes]) -> list[int | None]:
        return self._database.read(lambda transaction: self._find(transaction, tenants))

    def assign(self, tenants: Sequence[bytes], limit: int) -> list[int]:
        known = dict(zip(tenants, self.find(tenants), strict=True))
        missing = [tenant for tenant, number in known.items() if number is None]
        if missing:  # rare: otherwise no transaction waits for another
            known.update(self._database.write(lambda transaction: self._assign(transaction, missing, limit)))
        return [number for tenant in tenants if (number := known[tenant]) is not None]

    def remove(self, tenants: Sequence[bytes]) -> int:
        return self._database.write(lambda transaction: self._remove(transaction, tenants))

    def count(self) -> int:
        [(count,)] = self._rows(_COUNT)
        return int(count)

    def list_tenants(self, after: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        rows = self._rows(_FIRST_TENANTS, limit) if after is None else self._rows(_TENANTS, after, limit)
        return [(bytes(tenant), number) for tenant, number in rows]

    def list_layouts(self, after: int) -> list[StoredLayout]:
        return [StoredLayout(version, at, bytes(text)) for version, at, text in self._rows(_LAYOUTS, after)]

    def write_layout(self, text: bytes, expected_version: int, at: float, capacity: int) -> StoredLayout:
        return self._database.write(lambda transaction: self._write(transaction, text, expected_version, at, capacity))

    def delete_old_layouts(self, before: float) -> int:
        return len(self._database.write(lambda transaction: transaction.execute(_FORGET, (self._name, before))))

    def _rows(self, statement: str, *values: Value) -> Sequence[Row]:
        return self._database.read(lambda transaction: transaction.execute(statement, (self._name, *values)))

    def _write(
        self, transaction: Transaction, text: bytes, expected_version: int, at: float, capacity: int
    ) -> StoredLayout:
        self._lock(transaction)
        newest = self._newest(transaction)
        if newest.version != expected_version:
            raise version_conflict(expected_version, newest.version)
        [(highest,)] = transaction.execute(_HIGHEST, (self._name,))
        if highest >= capacity:  # it is -1 without tenants
            raise too_few_shards_error(capacity, highest)
        stored = StoredLayout(newest.version + 1, max(at, newest.at), text)
        transaction.execute(_WRITE, (self._name, stored.version, stored.at, min(capacity, MAX_TENANTS), text))
        return stored

    def _lock(self, transaction: Transaction) -> int:
        """Block other changes of this registry until the transaction ends, and return its next number."""
        transaction.execute(_CREATE, (self._name,))
        [(following,)] = transaction.execute(_LOCK, (self._name,))
        return int(following)

    def _newest(self, transaction: Transaction) -> _NewestLayout:
        """Return the newest layout, or one of version 0 if there is none."""
        rows = transaction.execute(_NEWEST, (self._name,))
        return _NewestLayout(*(rows[0] if rows else ()))

    def _find(self, transaction: Transaction, tenants: Sequence[bytes]) -> list[int | None]:
        numbers: dict[bytes, int] = {}
        for start in range(0, len(tenants), _BATCH_SIZE):
            some = tenants[start : start + _BATCH_SIZE]
            # Padded with the last name to a power of two, so that there are few different statements.
            count = 1 << (len(some) - 1).bit_length()
            marks = ", ".join(f"${number}" for number in range(2, count + 2))
            values: list[Value] = [self._name, *some, *[some[-1]] * (count - len(some))]
            numbers.update((bytes(name), number) for name, number in transaction.execute(_FIND.format(marks), values))
        return [numbers.get(tenant) for tenant in tenants]

    def _assign(self, transaction: Transaction, tenants: Sequence[bytes], limit: int) -> dict[bytes, int]:
        """Return the numbers of tenants that had none before the lock, assigning them now."""
        following = self._lock(transaction)
        limit = min(limit, self._newest(transaction).capacity)
        known = dict(zip(tenants, self._find(transaction, tenants), strict=True))
        missing = [tenant for tenant, number in known.items() if number is None]
        reused = [number for (number,) in transaction.execute(_FREE, (self._name, len(missing)))]
        fresh = range(following, following + len(missing) - len(reused))
        numbers = [*reused, *fresh]
        if numbers and max(numbers) >= limit:
            [(taken,)] = transaction.execute(_COUNT, (self._name,))
            raise capacity_error(limit, len(missing), taken)
        transaction.execute_many(_TAKE, [(self._name, number) for number in reused])
        transaction.execute(_ADVANCE, (following + len(fresh), self._name))
        assigned = dict(zip(missing, numbers, strict=True))
        transaction.execute_many(_ASSIGN, [(self._name, *entry) for entry in assigned.items()])
        found = {tenant: number for tenant, number in known.items() if number is not None}
        return found | assigned

    def _remove(self, transaction: Transaction, tenants: Sequence[bytes]) -> int:
        self._lock(transaction)
        removed = [transaction.execute(_REMOVE, (self._name, tenant)) for tenant in tenants]
        gone = [number for rows in removed for (number,) in rows]
        transaction.execute_many(_GIVE, [(self._name, number) for number in gone])
        return len(gone)
