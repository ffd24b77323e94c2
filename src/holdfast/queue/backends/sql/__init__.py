"""Messages in SQLite or PostgreSQL.

May import the engines' seam and the queue's rules. One table of messages with two partial indexes: those that wait, by
lane and age, and those that are held, by until when. A message that is old moves nowhere: it is the other end of the
same index. Depths are counters beside the rows, changed in the same transaction. Start reading at `backend.py`.
"""

import holdfast.queue.backends.sql.addresses  # noqa: F401 - registers the schemes
from holdfast.queue.backends.sql.backend import SqlBackend

__all__ = ["SqlBackend"]
