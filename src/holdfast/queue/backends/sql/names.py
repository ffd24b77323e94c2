"""Which queues a database has, for people and pages that look at all of them; the seam of queues needs no such list."""

from holdfast.engines import Database

_NAMES = "select name from holdfast_queue"


def queue_names(database: Database) -> list[str]:
    """The names of all queues in a database that a `SqlBackend` was opened on, in the order of the alphabet."""
    return sorted(name for (name,) in database.read(lambda transaction: transaction.execute(_NAMES)))
