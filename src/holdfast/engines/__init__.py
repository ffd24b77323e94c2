"""The databases and clouds that Holdfast stands on: opening, versions, one writer, migrations, sessions.

May import the base only. Start reading at `database.py`, the seam that SQLite and PostgreSQL share; each
engine has a folder, and its third-party package is imported nowhere else.
"""

from holdfast.engines.database import Database, Row, Transaction, Value
from holdfast.engines.migrations import Migration

__all__ = ["Database", "Migration", "Row", "Transaction", "Value"]
