"""Messages in the memory of one process: for tests, for trying things out, and for work that may end with the process.

May import the queue's rules, which decide here as they do in a database. Whatever changes a message changes its
counters in the same place, `book.py`; start reading there, or at `backend.py` for the methods.
"""

from holdfast.queue.backends.memory.backend import MemoryBackend

__all__ = ["MemoryBackend"]
