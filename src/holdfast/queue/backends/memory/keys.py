"""Deduplication keys, each for a while. Pure."""

from typing import NamedTuple

from holdfast.queue.backends.memory.ordered import Ordered


class Known(NamedTuple):
    """The message that came with a key."""

    message: int
    lane: int
    expires: int


class Keys:
    """The keys of one queue's tenants. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Known] = {}
        self._ends: Ordered[tuple[int, str]] = Ordered()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, tenant: int, key: str) -> Known | None:
        """The message that came with a key; None: there is none, or it was too long ago."""
        return self._known.get((tenant, key))

    def keep(self, tenant: int, key: str, known: Known) -> None:
        """Remember a key that is not known."""
        self._known[tenant, key] = known
        self._ends.add(known.expires, known.message, (tenant, key))

    def end_by(self, latest: int) -> None:
        """Remember none for longer than until then."""
        for key, known in [item for item in self._known.items() if item[1].expires > latest]:
            self._ends.remove(known.expires, known.message)
            self.keep(*key, known._replace(expires=latest))

    def forget(self, now: int) -> None:
        """Forget those whose time is over."""
        for key in list(self._ends.between(0, now)):
            gone = self._known.pop(key)
            self._ends.remove(gone.expires, gone.message)
