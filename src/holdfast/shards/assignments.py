"""The shards of tenants by name, from numbers and layouts in a store. Changes of layout are planned, then applied."""

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from holdfast._clock import Clock, SystemClock
from holdfast._errors import CapacityExhausted, Conflict, InvalidValue, NotFound
from holdfast._names import format_count
from holdfast.shards.layout import Layout, NumberedTenant
from holdfast.shards.names import encode_name, encode_names, format_name
from holdfast.shards.plan import Plan, plan
from holdfast.shards.registry import ShardStore, version_conflict
from holdfast.shards.shard import Shard
from holdfast.shards.suspects import Suspect, find_suspects

_PAGE_SIZE = 10_000
"""Tenants per read of the store: a million tenants take a hundred reads, and few are in memory at a time."""


@dataclass(frozen=True)
class LayoutVersion:
    """One version of a layout, and the wall time `at` from which it is in effect."""

    number: int
    at: float
    text: bytes = field(repr=False)
    """The layout as JSON, from which `layout` is parsed."""

    @cached_property
    def layout(self) -> Layout:
        """The layout, parsed at first use: most former layouts are never needed."""
        return replace(Layout.from_json(self.text), version=self.number)


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A planned change of layout. It can be applied as long as no other change is applied first."""

    layout: Layout
    plan: Plan[NumberedTenant]
    """The tenants that move, without those assigned after the plan was made."""
    expected_version: int
    """The version that it was planned from; 0 if there was no layout yet."""


class Assignments:
    """The shards of tenants by name, the same in every process that uses the same store. Thread-safe.

    A tenant keeps its shard until a change that moves it is applied. Other processes see the change within
    `refresh_interval` seconds. Until then they may send a tenant's work to its former workers: see `find_previous`.
    """

    def __init__(self, store: ShardStore, *, refresh_interval: float = 1.0, clock: Clock | None = None) -> None:
        if not refresh_interval >= 0:
            raise InvalidValue(f"refresh_interval {refresh_interval} s: expected 0 or more")
        self._store = store
        self._clock = clock or SystemClock()
        self._refresh_interval = refresh_interval
        self._lock = threading.Lock()
        self._versions: tuple[LayoutVersion, ...] = ()  # oldest first
        self._refreshed_at = -float("inf")

    @property
    def current(self) -> LayoutVersion:
        """The layout version in effect. Raises NotFound before a first layout is applied."""
        versions = self._read_versions()
        if not versions:
            raise NotFound("there is no layout of shards yet: apply one, as with `holdfast shards plan FILE --apply`")
        return versions[-1]

    @property
    def layout(self) -> Layout:
        """The layout in effect. Raises NotFound before a first layout is applied."""
        return self.current.layout

    def refresh(self) -> None:
        """Read the changes of other processes immediately, instead of within `refresh_interval` seconds."""
        self._read_versions(now=True)

    def assign(self, tenant: str | bytes) -> Shard:
        """Return the shard of a tenant, assigning one if it has none. Raise CapacityExhausted if none is left."""
        return self.assign_many([tenant])[0]

    def assign_many(self, tenants: Iterable[str | bytes]) -> list[Shard]:
        """Return the shards of tenants, in order. As `assign` for each, but much faster, and assigning all or none."""
        layout = self.layout
        names = encode_names(tenants)
        try:
            numbers = self._store.assign(names, layout.capacity)
        except CapacityExhausted:
            layout = self._read_versions(now=True)[-1].layout  # another process may have applied a larger one
            try:
                numbers = self._store.assign(names, layout.capacity)
            except CapacityExhausted as error:
                raise CapacityExhausted(f"{error}: {layout.sharding.advice}") from error
        return self._shards(layout, [NumberedTenant(name, number) for name, number in zip(names, numbers, strict=True)])

    def find(self, tenant: str | bytes) -> Shard:
        """Return the shard of a tenant. Raise NotFound if it has none; nothing is assigned."""
        return self._shards(self.layout, [self._find_tenant(tenant)])[0]

    def find_previous(self, tenant: str | bytes, lookback: float) -> list[Shard]:
        """Return the former shards of a tenant in the last `lookback` seconds, latest first: they may have old data.

        If its number was reused, shards of the removed tenant are included. Raise NotFound if it has no shard.
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
                if {*shard.workers} not in [{*other.workers} for other in found]:
                    found.append(shard)
        return found[1:]

    def iter_tenants(self) -> Iterator[NumberedTenant]:
        """Yield all tenants that have a shard, sorted by name, with few of them in memory."""
        after: bytes | None = None
        while page := self._store.list_tenants(after, _PAGE_SIZE):
            for name, number in page:
                yield NumberedTenant(name, number)
            after, _ = page[-1]

    def count(self) -> int:
        """Return the number of tenants that have a shard."""
        return self._store.count()

    def remove(self, tenants: Iterable[str | bytes]) -> int:
        """Free the shards of tenants and return how many had one. Raise Conflict, freeing none, if one is isolated."""
        names = encode_names(tenants)
        for version in self._read_versions(now=True)[-1:]:
            for name in names:
                if version.layout.is_isolated(name):
                    raise Conflict(f"tenant {format_name(name)} is isolated: release it before it is removed")
        return self._store.remove(names)

    def plan(self, layout: Layout) -> LayoutChange:
        """Plan the change to `layout`, which must be the first one or derived from the current one.

        Raise Conflict if it was derived from an older one, CapacityExhausted if it has no shard for some tenant.
        """
        versions = self._read_versions(now=True)
        newest = versions[-1].number if versions else 0
        if layout.version != newest:
            raise version_conflict(layout.version, newest)
        old = versions[-1].layout if versions else layout
        try:
            return LayoutChange(layout, plan(old, layout, self.iter_tenants()), newest)
        except CapacityExhausted as error:
            shards, tenants = format_count(layout.capacity, "shard"), format_count(self.count(), "tenant")
            raise CapacityExhausted(
                f"{shards} for {tenants}, and a tenant has a number of {layout.capacity} or more: "
                f"{layout.sharding.advice}; or remove tenants that are gone"
            ) from error

    def apply(self, change: LayoutChange) -> LayoutVersion:
        """Put a planned layout into effect. Raise Conflict if another change was applied first: plan again."""
        return self._apply(change.layout, change.expected_version)

    def isolate(self, tenant: str | bytes, count: int | None = None) -> Shard:
        """Move a tenant to spare workers of its own, as `Layout.isolate`. Raise NotFound if it has no shard."""
        self._read_versions(now=True)
        known, current = self._find_tenant(tenant), self.current
        return self._apply(current.layout.isolate(known.name, count), current.number).layout.shard(known)

    def release(self, tenant: str | bytes) -> Shard | None:
        """Move an isolated tenant back to its shard, and return the shard. Raise NotFound if it is not isolated.

        Return None if the tenant has no shard any more, because another process has removed it.
        """
        self._read_versions(now=True)
        current, name = self.current, encode_name(tenant)
        layout = self._apply(current.layout.release(name), current.number).layout
        [number] = self._store.find([name])
        return None if number is None else layout.shard(NumberedTenant(name, number))

    def find_suspects(self, failing: Collection[str], *, limit: int = 10) -> list[Suspect[bytes]]:
        """Return the tenants whose workers match the failing ones best. Raise NotFound for an unknown worker."""
        layout = self.layout
        for worker in failing:
            layout.fleet.find_index(worker)
        shards = ((tenant.name, layout.shard(tenant).workers) for tenant in self.iter_tenants())
        return find_suspects(failing, shards, limit=limit)

    def delete_old_layouts(self, lookback: float) -> int:
        """Delete layouts that were replaced more than `lookback` seconds ago, and return how many. Tenants stay."""
        if lookback < 0:
            raise InvalidValue(f"a lookback of {lookback} s: expected 0 or more")
        self._read_versions(now=True)  # otherwise all versions known here might be deleted, and none be left
        gone = self._store.delete_old_layouts(self._clock.wall() - lookback)
        with self._lock:
            kept = {entry.version for entry in self._store.list_layouts(0)}
            self._versions = tuple(version for version in self._versions if version.number in kept)
        return gone

    def _apply(self, layout: Layout, expected_version: int) -> LayoutVersion:
        stored = self._store.write_layout(layout.to_json(), expected_version, self._clock.wall(), layout.capacity)
        written = LayoutVersion(*stored)
        return next((version for version in self._read_versions(now=True) if version == written), written)

    def _shards(self, layout: Layout, tenants: Sequence[NumberedTenant]) -> list[Shard]:
        """Return the shards of tenants, by a newer layout if this one has no shard for one of their numbers."""
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
        """Return all versions, oldest first. Read new ones if `now` is set or the refresh interval has passed."""
        with self._lock:
            if now or self._clock.monotonic() >= self._refreshed_at + self._refresh_interval:
                known = self._versions
                found = self._store.list_layouts(known[-1].number if known else 0)
                self._versions = (*known, *(LayoutVersion(*stored) for stored in found))
                self._refreshed_at = self._clock.monotonic()
            return self._versions
