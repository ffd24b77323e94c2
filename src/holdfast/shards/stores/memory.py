"""Tenants' numbers and layouts in the memory of one process, for tests and experiments."""

import heapq
import threading
from collections.abc import Sequence

from holdfast.shards.registry import MAX_TENANTS, StoredLayout, capacity_error, too_few_shards_error, version_conflict


class MemoryShardStore:
    """A store that ends with its process. Thread-safe; see `holdfast.shards.ShardStore`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] = {}
        self._free: list[int] = []
        self._next = 0
        self._layouts: list[StoredLayout] = []
        self._capacity = MAX_TENANTS

    def find(self, tenants: Sequence[bytes]) -> list[int | None]:
        with self._lock:
            return [self._numbers.get(tenant) for tenant in tenants]

    def assign(self, tenants: Sequence[bytes], limit: int) -> list[int]:
        with self._lock:
            missing = list(dict.fromkeys(tenant for tenant in tenants if tenant not in self._numbers))
            if not missing:
                return [self._numbers[tenant] for tenant in tenants]
            limit = min(limit, self._capacity)
            reused = heapq.nsmallest(len(missing), self._free)
            fresh = range(self._next, self._next + len(missing) - len(reused))
            numbers = [*reused, *fresh]
            if max(numbers) >= limit:
                raise capacity_error(limit, len(missing), len(self._numbers))
            self._free = sorted({*self._free} - {*reused})
            self._next += len(fresh)
            self._numbers.update(zip(missing, numbers, strict=True))
            return [self._numbers[tenant] for tenant in tenants]

    def remove(self, tenants: Sequence[bytes]) -> int:
        with self._lock:
            gone = [self._numbers.pop(tenant) for tenant in dict.fromkeys(tenants) if tenant in self._numbers]
            self._free += gone
            return len(gone)

    def count(self) -> int:
        return len(self._numbers)

    def list_tenants(self, after: bytes | None, limit: int) -> list[tuple[bytes, int]]:
        with self._lock:
            listed = ((name, number) for name, number in self._numbers.items() if after is None or name > after)
            return heapq.nsmallest(limit, listed)

    def list_layouts(self, after: int) -> list[StoredLayout]:
        with self._lock:
            return [layout for layout in self._layouts if layout.version > after]

    def write_layout(self, text: bytes, expected_version: int, at: float, capacity: int) -> StoredLayout:
        with self._lock:
            newest = self._layouts[-1].version if self._layouts else 0
            if newest != expected_version:
                raise version_conflict(expected_version, newest)
            highest = max(self._numbers.values(), default=-1)
            if highest >= capacity:
                raise too_few_shards_error(capacity, highest)
            self._capacity = min(capacity, MAX_TENANTS)
            since = max([at, *(layout.at for layout in self._layouts[-1:])])
            self._layouts.append(StoredLayout(newest + 1, since, text))
            return self._layouts[-1]

    def delete_old_layouts(self, before: float) -> int:
        with self._lock:
            kept = [
                layout
                for index, layout in enumerate(self._layouts)
                if all(later.at >= before for later in self._layouts[index + 1 :])
            ]
            gone = len(self._layouts) - len(kept)
            self._layouts = kept
            return gone
