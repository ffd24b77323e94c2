"""Copying a SQLite file while it is in use."""

import os
from collections.abc import Callable
from pathlib import Path

import apsw

from holdfast._errors import Conflict
from holdfast.engines.sqlite.faults import translate

_PAGES_PER_STEP = 1024
"""4 MiB at the usual page size: often enough for a progress bar, rarely enough to cost nothing."""


def back_up(source: apsw.Connection, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Copy what `source` sees now into `target`, which must not exist and appears only when it is complete.

    The copy is made inside one read transaction: SQLite would start over whenever somebody else writes, and under
    steady writes never end, if the source's snapshot were not held.
    """
    if target.exists():
        raise Conflict(f"{target} exists already: a backup does not overwrite; name a new file")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        _copy(source, partial, progress)
        partial.replace(target)
        _sync_folder(target.parent)
    except apsw.Error as error:
        raise translate(error, target) from error
    finally:
        partial.unlink(missing_ok=True)


def _copy(source: apsw.Connection, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    source.execute("begin").fetchall()
    source.execute("select count(*) from sqlite_schema").fetchall()  # takes the snapshot
    partial.touch(mode=0o600)  # as closed to other users as what it is a copy of
    destination = apsw.Connection(str(partial))
    try:
        with destination.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_PER_STEP)
                if progress is not None:
                    progress(backup.page_count - backup.remaining, backup.page_count)
        # The copy carries the mark of WAL mode; as a single file it can be moved and opened anywhere.
        destination.execute("pragma journal_mode = delete").fetchall()
    finally:
        destination.close(True)
        source.execute("rollback").fetchall()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
