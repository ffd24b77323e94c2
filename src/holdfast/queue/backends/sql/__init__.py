"""Messages in SQLite or PostgreSQL.

May import the engines' interface and the queue's rules. One table of messages has two partial indexes: waiting messages
by lane and age, and leased or delayed ones by `until`. A message that becomes backlog is not moved: it is at the other
end of the same index. Depths are counters, changed in the same transaction. Start reading at `backend.py`.
"""

import holdfast.queue.backends.sql.addresses  # noqa: F401 - registers the schemes
from holdfast.queue.backends.sql.backend import SqlBackend

__all__ = ["SqlBackend"]
