"""Messages in the memory of one process: for tests, for trials, and for work that may be lost with the process.

May import the queue's rules, which decide here as they do in a database. Every change of a message also changes its
counters, in `book.py`; start reading there, or at `backend.py` for the methods.
"""

from holdfast._clock import Clock
from holdfast._errors import NotFound
from holdfast.queue.backends.memory.backend import MemoryBackend
from holdfast.queue.open import BACKENDS

__all__ = ["MemoryBackend"]


class _MemoryKind:
    """Queues in the memory of the process that opens them. Every `open` creates a separate store."""

    def open(self, url: str, *, clock: Clock | None, timeout: float, max_connections: int) -> MemoryBackend:  # noqa: ARG002
        return MemoryBackend(clock)

    def describe(self, url: str) -> str:  # noqa: ARG002
        return "memory:"

    def require_queues(self, url: str, *, timeout: float) -> None:  # noqa: ARG002
        raise NotFound("there are no queues in memory: queues in the memory of another process cannot be reached")


BACKENDS.register("memory")(_MemoryKind())
