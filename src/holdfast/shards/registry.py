"""Which number a tenant has, and where that is kept: each tenant of a design needs one of its own. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from holdfast._errors import CapacityExhausted, Conflict, NotFound
from holdfast.shards.names import encode_name, encode_names, format_name

MAX_TENANTS = (1 << 63) - 1
"""The most numbers there are: what a store can keep. Designs may have more shards."""


class StoredLayout(NamedTuple):
    """One version of how shards are made, as it is kept: see `holdfast.shards.Layout`."""

    version: int
    """1 for the first, and one more for each that followed."""
    at: float
    """Since when it holds, as wall time."""
    text: bytes


class ShardStore(Protocol):
    """Where tenants' numbers and layouts are kept. Safe for processes; a call is done whole or not at all."""

    def find(self, tenants: Sequence[bytes]) -> list[int | None]:
        """The number of each tenant, in order; None for one that has none."""

    def assign(self, tenants: Sequence[bytes], limit: int) -> list[int]:
        """The number of each tenant, in order; one that has none gets the lowest that is free.

        Raises CapacityExhausted, assigning none, for a number of `limit` or more, or past the newest layout.
        """

    def remove(self, tenants: Sequence[bytes]) -> int:
        """Take the numbers of tenants back, to be given to others; returns how many had one."""

    def count(self) -> int:
        """How many tenants have a number."""

    def list_tenants(self, after: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        """Tenants and their numbers, in the order of their names: so many of those that come after one, or first."""

    def list_layouts(self, after: int) -> list[StoredLayout]:
        """The layouts of a version above `after`, oldest first."""

    def write_layout(self, text: bytes, expected_version: int, at: float, capacity: int) -> StoredLayout:
        """Keep a layout, which holds from now on; never from before the one that it follows.

        From then on nobody gets a number of `capacity` or more. Raises Conflict if a tenant has one, or if the newest
        version is not `expected_version`.
        """

    def forget_layouts(self, before: float) -> int:
        """Remove layouts that another had followed by then; returns how many. The newest stays."""


class TenantRegistry:
    """Numbers for the tenants of one design, from 0 to its capacity. Thread-safe as far as the store is."""

    def __init__(self, store: ShardStore, capacity: int) -> None:
        self._store = store
        self._capacity = capacity

    def assign(self, tenant: str | bytes) -> int:
        """The number of a tenant, which gets one if it has none. Raises CapacityExhausted."""
        return self._store.assign([encode_name(tenant)], self._capacity)[0]

    def assign_many(self, tenants: Iterable[str | bytes]) -> list[int]:
        """The same for many at once, which is much quicker."""
        return self._store.assign(encode_names(tenants), self._capacity)

    def find(self, tenant: str | bytes) -> int:
        """The number of a tenant that has one. Raises NotFound, and assigns nothing."""
        [found] = self._store.find([encode_name(tenant)])
        if found is None:
            raise NotFound(f"tenant {format_name(encode_name(tenant))} has no number yet")
        return found

    def remove(self, tenants: Iterable[str | bytes]) -> int:
        """Take numbers back; returns how many tenants had one. Whoever comes next may get their shards."""
        return self._store.remove(encode_names(tenants))

    @property
    def remaining(self) -> int:
        """How many more tenants there is room for."""
        return self._capacity - self._store.count()


def capacity_error(limit: int, wanted: int, taken: int) -> CapacityExhausted:
    """What a store raises when there are not enough numbers for those who want one."""
    return CapacityExhausted(
        f"{wanted} tenants want a shard, and {max(0, limit - taken)} of {limit} are left: remove tenants that are "
        "gone, or make a design with more shards"
    )


def too_few_shards_error(capacity: int, highest: int) -> Conflict:
    """What a store raises when a layout has no shard for somebody who has a number."""
    return Conflict(
        f"a layout of {capacity} shards, and a tenant has number {highest}: somebody came meanwhile; plan again, with "
        "more shards"
    )


def version_conflict(expected_version: int, found: int) -> Conflict:
    """What a store raises when the newest layout is not the one that was expected."""
    return Conflict(
        f"the layout of shards is at version {found}, and {expected_version} was expected: somebody changed it "
        "meanwhile; plan again from what there is"
    )
