"""The databases and cloud services that Holdfast uses: connections, transactions, migrations, sessions.

May import the base only. Start reading at `database.py`, the interface of SQLite and PostgreSQL. Each engine has a
folder, and only that folder imports its third-party package.
"""

from holdfast.engines.database import Database, Row, Transaction, Value
from holdfast.engines.migrations import Migration

__all__ = ["Database", "Migration", "Row", "Transaction", "Value"]
