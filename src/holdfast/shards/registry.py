"""The numbers of tenants, and the protocol of stores. Each tenant of a design needs its own number. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from holdfast._errors import CapacityExhausted, Conflict, NotFound
from holdfast._names import format_count
from holdfast.shards.names import encode_name, encode_names, format_name

MAX_TENANTS = (1 << 63) - 1
"""The most tenants that a store can number. Designs may have more shards."""


class StoredLayout(NamedTuple):
    """One version of a layout, as it is stored. `LayoutVersion` is the same version with its parsed layout."""

    version: int
    """1 for the first layout, and one more for each change."""
    at: float
    """Wall time from which it is in effect."""
    text: bytes


class ShardStore(Protocol):
    """A store of tenants' numbers and of layouts. Several processes may use it; each call is atomic."""

    def find(self, tenants: Sequence[bytes]) -> list[int | None]:
        """Return the number of each tenant, in order, or None for a tenant without one."""

    def assign(self, tenants: Sequence[bytes], limit: int) -> list[int]:
        """Return the number of each tenant, in order. A tenant without one gets the lowest free number.

        Raise CapacityExhausted, assigning none, if a number would reach `limit` or the capacity of the newest layout.
        """

    def remove(self, tenants: Sequence[bytes]) -> int:
        """Free the numbers of tenants for other tenants and return how many had one."""

    def count(self) -> int:
        """Return the number of tenants that have a number."""

    def list_tenants(self, after: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        """Return up to `limit` tenants and their numbers, sorted by name, from the first or the one after `after`."""

    def list_layouts(self, after: int) -> list[StoredLayout]:
        """Return the layouts with a version above `after`, oldest first."""

    def write_layout(self, text: bytes, expected_version: int, at: float, capacity: int) -> StoredLayout:
        """Store a layout, in effect from `at`, or from the time of the previous layout if that is later.

        From then on no tenant gets a number of `capacity` or more. Raise Conflict if a tenant has such a number, or if
        the newest version is not `expected_version`.
        """

    def delete_old_layouts(self, before: float) -> int:
        """Delete layouts that were replaced before this time and return how many. The newest layout stays."""


class TenantRegistry:
    """The numbers of the tenants of one design, below its capacity. Thread-safe if the store is."""

    def __init__(self, store: ShardStore, capacity: int) -> None:
        self._store = store
        self._capacity = capacity

    def assign(self, tenant: str | bytes) -> int:
        """Return the number of a tenant, assigning one if it has none. Raise CapacityExhausted if none is left."""
        return self._store.assign([encode_name(tenant)], self._capacity)[0]

    def assign_many(self, tenants: Iterable[str | bytes]) -> list[int]:
        """Return the numbers of tenants in order, assigning missing ones. Much faster than `assign` for each."""
        return self._store.assign(encode_names(tenants), self._capacity)

    def find(self, tenant: str | bytes) -> int:
        """Return the number of a tenant. Raise NotFound if it has none; nothing is assigned."""
        [found] = self._store.find([encode_name(tenant)])
        if found is None:
            raise NotFound(f"tenant {format_name(encode_name(tenant))} has no number yet")
        return found

    def remove(self, tenants: Iterable[str | bytes]) -> int:
        """Free the numbers of tenants and return how many had one. New tenants may get their shards."""
        return self._store.remove(encode_names(tenants))

    @property
    def remaining(self) -> int:
        """Number of tenants that can still be assigned."""
        return self._capacity - self._store.count()


def capacity_error(limit: int, wanted: int, taken: int) -> CapacityExhausted:
    """Return the error of a store with fewer free numbers than tenants that need one."""
    return CapacityExhausted(
        f"too few shards for {format_count(wanted, 'more tenant')}, {max(0, limit - taken)} of {limit} are left: "
        "remove tenants that are gone, or make a design with more shards"
    )


def too_few_shards_error(capacity: int, highest: int) -> Conflict:
    """Return the error of a store for a layout without a shard for the highest number of a tenant."""
    return Conflict(
        f"a layout of {format_count(capacity, 'shard')}, and a tenant has number {highest}: it was assigned after the "
        "plan; plan again, with more shards"
    )


def version_conflict(expected_version: int, found: int) -> Conflict:
    """Return the error of a store whose newest layout is not the expected one."""
    return Conflict(
        f"the layout of shards is at version {found}, and {expected_version} was expected: another process changed it; "
        "plan again from the current layout"
    )
