"""The interface between stores and SQL engines, and a check that statements are portable. Pure.

A store passes a function, called `work`, and the engine runs it in one transaction. So each engine can do what it is
good at (one writer with group commit in SQLite, a pool in PostgreSQL), and stores need no threads, locks, connections
or retries.

Both engines guarantee, and `tests/conformance/database.py` tests:
- A violated constraint raises Conflict, any other failed statement EngineError; never an error of the driver.
- A failed statement ends its transaction: `write` raises its error even if `work` caught it. Use `on conflict` where
  a conflict is expected.
- An error that `work` raises reaches the caller as the same object, with nothing written.
- A lost reply to a commit raises OutcomeUnknown; every other error means that nothing was written.
To be portable, `work` uses text without NUL, integers of 64 bits and no booleans, and does not begin, commit or roll
back. The rows that a write depends on are named in its `where` or protected by a constraint, because writes of
PostgreSQL interleave (READ COMMITTED), although those of SQLite do not.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from holdfast._errors import InvalidValue
from holdfast.engines.migrations import Migration

Value: TypeAlias = int | float | str | bytes | None
"""A value that statements take as parameter."""
Row: TypeAlias = tuple[Any, ...]
"""A row of a result."""
Result = TypeVar("Result")


class Transaction(Protocol):
    """The transaction that `work` runs in. Valid only while `work` runs, and only in its thread."""

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return its rows.

        Parameters are written `$1`, `$2`, ... and must first appear in that order: both engines accept only this form.
        """

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        """Run one statement once for every row of parameters. Return nothing."""


class Database(Protocol):
    """A SQL database. Thread-safe. Use it as a context manager, or call `close`."""

    @property
    def dialect(self) -> Literal["sqlite", "postgres"]:
        """The SQL dialect of this engine, for the few statements that differ."""

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` on one consistent snapshot. Never waits for writers. Raise an error if `work` writes."""

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` in a transaction and return when it is durable.

        Raise the error that `work` raises, with nothing written. `work` may run more than once (after another caller's
        failure in the same group commit, or a lost connection), so it must have no effect outside its transaction.
        """

    def write_statement(self, sql: str, parameters: Sequence[Value] = (), *, is_idempotent: bool = False) -> list[Row]:
        """Run one statement as a transaction, and return its rows when it is durable.

        Does the same as `write` with one statement, in fewer round trips to a server. With `is_idempotent`, the
        statement is run again if the reply was lost.
        """

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        """Bring the subsystem's tables up to date. Return the applied steps. Several processes may call it."""

    def check(self) -> None:
        """Raise EngineError if the engine does not answer, or its tables are damaged."""

    def close(self) -> None:
        """Finish the accepted transactions, then release all resources. May be repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


_QUOTED_OR_COMMENT = re.compile(
    r"'[^']*'|\"[^\"]*\"|\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_OTHER_PARAMETERS = re.compile(r"\?|(?<![\w:]):[A-Za-z_]")
_SECOND_STATEMENT = re.compile(r";\s*\S")
_TRANSACTION = re.compile(
    r"^\s*(?:begin|start|commit|end|rollback|abort|savepoint|release|prepare)\b|\bor\s+rollback\b", re.IGNORECASE
)


def _blank_out(match: re.Match[str]) -> str:
    """Replace a comment by a space, and a string or quoted name by an empty string."""
    return " " if match[0].startswith(("--", "/*")) else "''"


@lru_cache(maxsize=1024)
def require_portable(sql: str) -> None:
    """Raise InvalidValue if only one engine accepts the statement, or if it would end the transaction."""
    stripped = _QUOTED_OR_COMMENT.sub(_blank_out, sql)
    if _SECOND_STATEMENT.search(stripped) or _OTHER_PARAMETERS.search(stripped):
        raise InvalidValue(f"expected one statement with parameters $1, $2, ..., as every engine accepts them: {sql}")
    if _TRANSACTION.search(stripped):
        raise InvalidValue(f"a statement must not begin, commit or roll back, because the engine does: {sql}")
    # SQLite numbers $1, $2 by their first appearance, PostgreSQL by their digits.
    first_seen = list(dict.fromkeys(re.findall(r"\$(\d+)", stripped)))
    if first_seen != [str(number + 1) for number in range(len(first_seen))]:
        raise InvalidValue(f"parameters must first appear in the order $1, $2, ...: {sql}")
