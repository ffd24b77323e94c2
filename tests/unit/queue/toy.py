"""A backend from outside of the package, which can do less than the built-in ones."""

import pytest

from holdfast import NotFound
from holdfast._clock import Clock
from holdfast.queue.backend import Capabilities
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.open import BACKENDS

LIMITED = Capabilities(
    groups=False,
    deduplication=False,
    topics=False,
    exact_counts=False,
    fleet_limits=False,
    max_delay=60.0,
    max_lease=10.0,
)


class LimitedBackend(MemoryBackend):
    """Stays open until the test ends, as a server would that several processes use."""

    @property
    def capabilities(self) -> Capabilities:
        return LIMITED

    def close(self) -> None:
        pass


class ToyKind:
    """Every address is the same backend."""

    def __init__(self, backend: LimitedBackend) -> None:
        self._backend = backend

    def open(self, url: str, *, clock: Clock | None, timeout: float, max_connections: int) -> LimitedBackend:
        return self._backend

    def describe(self, url: str) -> str:
        return url.partition("?")[0]

    def require_queues(self, url: str, *, timeout: float) -> None:
        if not self._backend.list_queues():
            raise NotFound(f"there are no queues in {self.describe(url)}")


def installed(monkeypatch: pytest.MonkeyPatch) -> LimitedBackend:
    """Register the kind under `toy:`, as an entry point would; return its backend."""
    backend = LimitedBackend()
    monkeypatch.setitem(BACKENDS._registered, "toy", ToyKind(backend))
    return backend
