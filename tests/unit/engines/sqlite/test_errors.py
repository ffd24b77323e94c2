"""What SQLite's errors mean to a caller."""

from pathlib import Path

import apsw

from holdfast import (
    Conflict,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseLocked,
    EngineError,
    HoldfastError,
    OutcomeUnknown,
)
from holdfast.engines.sqlite.errors import translate, translate_commit
from tests.table import rows

PATH = Path("nowhere/test.sqlite")


@rows(
    ("error", "kind", "advice"),
    [
        (apsw.BusyError(), DatabaseLocked, "by another process; waited 5 s"),
        (apsw.LockedError(), DatabaseLocked, "only one process can write"),
        (apsw.FullError(), DatabaseFull, "free some space"),
        (apsw.CorruptError(), DatabaseCorrupt, "restore it from a backup"),
        (apsw.NotADBError(), DatabaseCorrupt, "not a database"),
        (apsw.ConstraintError("unique"), Conflict, "unique"),
        (apsw.CantOpenError(), EngineError, "folder must exist"),
        (apsw.ReadOnlyError(), EngineError, "is read-only for this user"),
        (apsw.SQLError("no such table"), EngineError, "no such table"),
    ],
)
def test_an_error_says_what_happened_to_which_file_and_what_to_do(
    error: apsw.Error, kind: type[HoldfastError], advice: str
) -> None:
    translated = translate(error, PATH, 5.0)
    assert type(translated) is kind
    assert "test.sqlite" in str(translated)
    assert advice in str(translated)


def test_a_disk_that_fails_at_the_commit_leaves_the_outcome_open() -> None:
    assert type(translate_commit(apsw.IOError(), PATH)) is OutcomeUnknown
    assert type(translate_commit(apsw.FullError(), PATH)) is DatabaseFull
