"""Deduplication keys, each stored for a limited time. Pure."""

from collections import Counter
from typing import NamedTuple

from holdfast.queue.backends.memory.ordered import Ordered


class Known(NamedTuple):
    """The message that was sent with a key."""

    message: int
    lane: int
    expires: int


class Keys:
    """The keys of one queue's tenants. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Known] = {}
        self._ends: Ordered[tuple[int, str]] = Ordered()
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, tenant: int, key: str) -> Known | None:
        """Return the message that was sent with a key, or None if there is none or the key has expired."""
        return self._known.get((tenant, key))

    def has_any(self, tenant: int) -> bool:
        """Return whether a tenant has keys."""
        return tenant in self._counts

    def keep(self, tenant: int, key: str, known: Known) -> None:
        """Store a key that is not stored yet."""
        self._counts[tenant] += 1
        self._known[tenant, key] = known
        self._ends.add(known.expires, known.message, (tenant, key))

    def end_by(self, latest: int) -> None:
        """Shorten the time of all keys to end at `latest` or before."""
        for key, known in [item for item in self._known.items() if item[1].expires > latest]:
            self._remove(key)
            self.keep(*key, known._replace(expires=latest))

    def forget(self, now: int) -> None:
        """Delete expired keys."""
        for key in list(self._ends.between(0, now)):
            self._remove(key)

    def _remove(self, key: tuple[int, str]) -> None:
        gone = self._known.pop(key)
        self._ends.remove(gone.expires, gone.message)
        self._counts[key[0]] -= 1
        if not self._counts[key[0]]:
            del self._counts[key[0]]
