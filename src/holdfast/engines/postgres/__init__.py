"""PostgreSQL 14 and newer as a Database: a pool, transactions that survive a lost connection, migrations.

May import the base and the interface in `holdfast.engines`; psycopg is imported nowhere else. Start reading at
`database.py`; `errors.py` translates the errors of PostgreSQL.
"""

from holdfast._errors import MissingExtra

try:
    import psycopg as _psycopg  # noqa: F401 - only to check that it is installed
except ImportError as error:
    raise MissingExtra("the PostgreSQL engine", "postgres") from error

from holdfast.engines.postgres.connection import PostgresOptions
from holdfast.engines.postgres.database import PostgresDatabase

__all__ = ["PostgresDatabase", "PostgresOptions"]
