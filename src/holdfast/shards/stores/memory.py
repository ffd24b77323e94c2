"""Tenants' numbers in the memory of one process, for tests and for trying things out."""

import heapq
import threading
from collections.abc import Sequence

from holdfast.shards.registry import exhausted


class MemoryNumberStore:
    """Numbers that end with the process. Thread-safe; see `holdfast.shards.NumberStore`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] = {}
        self._free: list[int] = []
        self._next = 0

    def find(self, tenants: Sequence[bytes]) -> list[int | None]:
        with self._lock:
            return [self._numbers.get(tenant) for tenant in tenants]

    def assign(self, tenants: Sequence[bytes], limit: int) -> list[int]:
        with self._lock:
            missing = list(dict.fromkeys(tenant for tenant in tenants if tenant not in self._numbers))
            reused = heapq.nsmallest(len(missing), self._free)
            fresh = range(self._next, self._next + len(missing) - len(reused))
            numbers = [*reused, *fresh]
            if numbers and max(numbers) >= limit:
                raise exhausted(limit)
            self._free = [number for number in self._free if number not in set(reused)]
            self._next += len(fresh)
            self._numbers.update(zip(missing, numbers, strict=True))
            return [self._numbers[tenant] for tenant in tenants]

    def release(self, tenants: Sequence[bytes]) -> int:
        with self._lock:
            gone = [self._numbers.pop(tenant) for tenant in dict.fromkeys(tenants) if tenant in self._numbers]
            self._free += gone
            return len(gone)

    def count(self) -> int:
        return len(self._numbers)
