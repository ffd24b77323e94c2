"""The seam between stores and the SQL engine below them, and the statements that a work may run. Pure.

A store hands over a function; the engine runs it inside one transaction. That leaves each engine free to do what
it is good at (one writer with group commit in SQLite, a pool in PostgreSQL) and stores free of threads, locks,
connections and retries.

What both engines promise, and `tests/conformance/database.py` tests:
- A violated constraint is a Conflict, any other statement that cannot be run an EngineError; never the driver's own.
- A statement that failed ends its transaction: `write` raises its error even if the work caught it. Say
  `on conflict` where a conflict is expected.
- An error of the work passes through as the same object, with nothing written.
- A lost reply to a commit is OutcomeUnknown; every other error means that nothing was written.
What portable works keep to: text without NUL, integers of 64 bits, no booleans; no begin, commit or rollback of their
own; and what a write decides upon is named in its `where` or guarded by a constraint, because writes of PostgreSQL
interleave (READ COMMITTED) even though those of SQLite do not.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from holdfast._errors import InvalidValue
from holdfast.engines.migrations import Migration

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Any, ...]
Result = TypeVar("Result")


class Transaction(Protocol):
    """What a store's function may do. Valid only while that function runs, only in its thread."""

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return its rows.

        Parameters are written `$1`, `$2`, ... and must first appear in that order: the one spelling that both
        engines take.
        """

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        """Run one statement once for every row of parameters; returns nothing."""


class Database(Protocol):
    """A place to keep tables. Thread-safe; use as a context manager, or call `close`."""

    @property
    def dialect(self) -> Literal["sqlite", "postgres"]:
        """Which SQL this engine speaks, for the few statements that differ."""

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` on one consistent snapshot. Never waits for writers; writing in it is an error."""

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` in a transaction and return when it is durable.

        Raises what `work` raises, with nothing written. `work` may be run more than once (another caller's
        failure in the same group commit, a lost connection): it must have no effect outside its transaction.
        """

    def write_statement(self, sql: str, parameters: Sequence[Value] = (), *, is_idempotent: bool = False) -> list[Row]:
        """Run one statement that is a transaction of its own, and return its rows when it is durable.

        Like `write` with a work that has one statement, and quicker where every word to a server takes its time. With
        `is_idempotent` a lost reply is no reason to give up: running it twice does no harm.
        """

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        """Bring the subsystem's tables up to date; returns what was applied now. Safe from several processes."""

    def check(self) -> None:
        """Return when the engine answers and its tables are whole; raise EngineError otherwise."""

    def close(self) -> None:
        """Finish what was accepted and let go of everything. May be repeated."""

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
    """Comments are nothing; a text or a quoted name is still something."""
    return " " if match[0].startswith(("--", "/*")) else "''"


@lru_cache(maxsize=1024)
def require_portable(sql: str) -> None:
    """Raise InvalidValue for a statement that only one engine takes, or that would end the transaction."""
    stripped = _QUOTED_OR_COMMENT.sub(_blank_out, sql)
    if _SECOND_STATEMENT.search(stripped) or _OTHER_PARAMETERS.search(stripped):
        raise InvalidValue(f"expected one statement with parameters $1, $2, ..., as every engine takes them: {sql}")
    if _TRANSACTION.search(stripped):
        raise InvalidValue(f"a work must not begin, commit or roll back: the engine does that: {sql}")
    # SQLite numbers $1, $2 by where they first appear, PostgreSQL by the digits.
    first_seen = list(dict.fromkeys(re.findall(r"\$(\d+)", stripped)))
    if first_seen != [str(number + 1) for number in range(len(first_seen))]:
        raise InvalidValue(f"parameters must first appear in the order $1, $2, ...: {sql}")
