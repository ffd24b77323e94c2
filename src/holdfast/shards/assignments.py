"""Who has which workers, kept: tenants by name, layouts that follow each other, and changes that are planned first."""

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from holdfast._clock import Clock, SystemClock
from holdfast._errors import CapacityExhausted, Conflict, InvalidValue, NotFound
from holdfast.shards.layout import Layout, NumberedTenant
from holdfast.shards.names import encode_name, encode_names, format_name
from holdfast.shards.plan import Plan, plan
from holdfast.shards.registry import ShardStore, version_conflict
from holdfast.shards.shard import Shard
from holdfast.shards.suspects import Suspect, find_suspects

_PAGE_SIZE = 10_000
"""Tenants that are read from the store at once: a million are a hundred reads, and none holds many in memory."""


@dataclass(frozen=True)
class LayoutVersion:
    """A layout that holds, or held, since some time."""

    number: int
    at: float
    text: bytes = field(repr=False)

    @cached_property
    def layout(self) -> Layout:
        """Made when it is first asked for: most of those that held once never are."""
        return replace(Layout.from_json(self.text), version=self.number)


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A layout that is to hold, and what it moves, as long as no other change comes first."""

    layout: Layout
    plan: Plan[NumberedTenant]
    """Who moves. Tenants that come between the plan and the change are not in it."""
    expected_version: int
    """The version that it was planned from; 0 if there was none."""


class Assignments:
    """The shards of tenants by name, the same in every process that uses the same store. Thread-safe.

    A tenant keeps its shard until a plan that moves it is applied. Other processes notice that within
    `refresh_interval` seconds, and until then may send a tenant's work to where it was: see `find_previous`.
    """

    def __init__(self, store: ShardStore, *, refresh_interval: float = 1.0, clock: Clock | None = None) -> None:
        if not refresh_interval >= 0:
            raise InvalidValue(f"notice of {refresh_interval} s: expected 0 or more")
        self._store = store
        self._clock = clock or SystemClock()
        self._refresh_interval = refresh_interval
        self._lock = threading.Lock()
        self._versions: tuple[LayoutVersion, ...] = ()
        self._refreshed_at = -float("inf")

    @property
    def current(self) -> LayoutVersion:
        """What holds. Raises NotFound if there is nothing yet: apply a change to a first layout."""
        versions = self._read_versions()
        if not versions:
            raise NotFound("there is no layout of shards yet: make one, and apply it")
        return versions[-1]

    @property
    def layout(self) -> Layout:
        """Return the layout of `current`."""
        return self.current.layout

    def refresh(self) -> None:
        """Look at once for what others applied, instead of within `refresh_interval` seconds."""
        self._read_versions(now=True)

    def assign(self, tenant: str | bytes) -> Shard:
        """The shard of a tenant, which gets one if it has none. Raises CapacityExhausted."""
        return self.assign_many([tenant])[0]

    def assign_many(self, tenants: Iterable[str | bytes]) -> list[Shard]:
        """The same for many at once, which is much quicker."""
        layout = self.layout
        names = encode_names(tenants)
        try:
            numbers = self._store.assign(names, layout.capacity)
        except CapacityExhausted:
            layout = self._read_versions(now=True)[-1].layout  # somebody may have made room
            try:
                numbers = self._store.assign(names, layout.capacity)
            except CapacityExhausted as error:
                raise CapacityExhausted(f"{error}; {layout.sharding.advice}") from error
        return self._shards(layout, [NumberedTenant(name, number) for name, number in zip(names, numbers, strict=True)])

    def find(self, tenant: str | bytes) -> Shard:
        """The shard of a tenant that has one. Raises NotFound, and assigns nothing."""
        return self._shards(self.layout, [self._find_tenant(tenant)])[0]

    def find_previous(self, tenant: str | bytes, lookback: float) -> list[Shard]:
        """Where a tenant was in the last `lookback` seconds and is no longer, latest first: what it left may be there.

        Raises NotFound if it has no shard. Where a tenant that was removed had its number before, that one's counts.
        """
        known = self._find_tenant(tenant)
        versions, since = self._read_versions(), self._clock.wall() - lookback
        found = self._shards(versions[-1].layout, [known]) if versions else [self.find(tenant)]
        for version, following in zip(reversed(versions[:-1]), reversed(versions[1:]), strict=True):
            if following.at < since:
                break
            layout = version.layout
            if known.number < layout.capacity or layout.is_isolated(known.name):
                shard = layout.shard(known)
                if {*shard.workers} not in [{*one.workers} for one in found]:
                    found.append(shard)
        return found[1:]

    def iter_tenants(self) -> Iterator[NumberedTenant]:
        """All tenants that have a shard, in the order of their names, read little by little."""
        after: bytes | None = None
        while page := self._store.list_tenants(after, _PAGE_SIZE):
            for name, number in page:
                yield NumberedTenant(name, number)
            after = page[-1][0]

    def count(self) -> int:
        """How many tenants have a shard."""
        return self._store.count()

    def remove(self, tenants: Iterable[str | bytes]) -> int:
        """Take the shards of tenants; returns how many had one. Raises Conflict, taking none, if one is isolated."""
        names = encode_names(tenants)
        for version in self._read_versions(now=True)[-1:]:
            for name in names:
                if version.layout.is_isolated(name):
                    raise Conflict(f"tenant {format_name(name)} is isolated: release it before it is removed")
        return self._store.remove(names)

    def plan(self, layout: Layout) -> LayoutChange:
        """What moves if another layout is to hold, the first one or one that was made from the present one.

        Raises Conflict if it was made from an older one, CapacityExhausted if it has no shard for some tenant.
        """
        versions = self._read_versions(now=True)
        newest = versions[-1].number if versions else 0
        if layout.version != newest:
            raise version_conflict(layout.version, newest)
        old = versions[-1].layout if versions else layout
        try:
            return LayoutChange(layout, plan(old, layout, self.iter_tenants()), newest)
        except CapacityExhausted as error:
            raise CapacityExhausted(
                f"{layout.capacity} shards for {self.count()} tenants, some of whom have higher numbers: "
                f"{layout.sharding.advice}; or remove tenants that are gone"
            ) from error

    def apply(self, change: LayoutChange) -> LayoutVersion:
        """Let a layout hold from now on. Raises Conflict if another change came first: plan again."""
        return self._apply(change.layout, change.expected_version)

    def isolate(self, tenant: str | bytes, count: int | None = None) -> Shard:
        """Move a tenant to spare workers of its own: as `Layout.isolate`. Raises NotFound if it has no shard."""
        self._read_versions(now=True)
        known, current = self._find_tenant(tenant), self.current
        return self._apply(current.layout.isolate(known.name, count), current.number).layout.shard(known)

    def release(self, tenant: str | bytes) -> Shard | None:
        """Move an isolated tenant back to its shard, None if it was removed. Raises NotFound if it is not isolated."""
        self._read_versions(now=True)
        current, name = self.current, encode_name(tenant)
        layout = self._apply(current.layout.release(name), current.number).layout
        [number] = self._store.find([name])
        return None if number is None else layout.shard(NumberedTenant(name, number))

    def find_suspects(self, failing: Collection[str], *, limit: int = 10) -> list[Suspect[bytes]]:
        """The tenants that explain best that these workers fail. Raises NotFound for a worker that there is not."""
        layout = self.layout
        for worker in failing:
            layout.fleet.find_index(worker)
        shards = ((tenant.name, layout.shard(tenant).workers) for tenant in self.iter_tenants())
        return find_suspects(failing, shards, limit=limit)

    def forget(self, lookback: float) -> int:
        """Drop layouts that ended more than `lookback` seconds ago; returns how many."""
        if lookback < 0:
            raise InvalidValue(f"a lookback of {lookback} s: expected 0 or more")
        self._read_versions(now=True)  # else all that is known here might be forgotten
        gone = self._store.forget_layouts(self._clock.wall() - lookback)
        with self._lock:
            kept = {entry.version for entry in self._store.list_layouts(0)}
            self._versions = tuple(version for version in self._versions if version.number in kept)
        return gone

    def _apply(self, layout: Layout, expected_version: int) -> LayoutVersion:
        stored = self._store.write_layout(layout.to_json(), expected_version, self._clock.wall(), layout.capacity)
        written = LayoutVersion(*stored)
        return next((version for version in self._read_versions(now=True) if version == written), written)

    def _shards(self, layout: Layout, tenants: Sequence[NumberedTenant]) -> list[Shard]:
        """The shards of tenants; by a newer layout, if one of them has a number that this one has no shard for."""
        if any(tenant.number >= layout.capacity for tenant in tenants):
            layout = self._read_versions(now=True)[-1].layout
        return [layout.shard(tenant) for tenant in tenants]

    def _find_tenant(self, tenant: str | bytes) -> NumberedTenant:
        name = encode_name(tenant)
        [number] = self._store.find([name])
        if number is None:
            raise NotFound(f"tenant {format_name(name)} has no shard yet")
        return NumberedTenant(name, number)

    def _read_versions(self, *, now: bool = False) -> tuple[LayoutVersion, ...]:
        """All versions, after reading what others applied, if it is time to."""
        with self._lock:
            if now or self._clock.monotonic() >= self._refreshed_at + self._refresh_interval:
                known = self._versions
                found = self._store.list_layouts(known[-1].number if known else 0)
                self._versions = (*known, *(LayoutVersion(*one) for one in found))
                self._refreshed_at = self._clock.monotonic()
            return self._versions
