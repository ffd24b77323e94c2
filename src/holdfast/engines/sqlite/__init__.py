"""SQLite as an embedded store that keeps every write it acknowledged: one writer with group commit, readers beside it.

May import the base and the seam; the only folder that imports apsw. Start reading at `database.py`.
"""

from holdfast.engines.sqlite.connection import MINIMUM_VERSION
from holdfast.engines.sqlite.database import SqliteDatabase

__all__ = ["MINIMUM_VERSION", "SqliteDatabase"]
