"""SQLite as an embedded, durable Database: one writer with group commit, and concurrent readers.

May import the base and the interface of engines; the only folder that imports apsw. Start reading at `database.py`.
"""

from holdfast.engines.sqlite.connection import MINIMUM_VERSION
from holdfast.engines.sqlite.database import SqliteDatabase

__all__ = ["MINIMUM_VERSION", "SqliteDatabase"]
