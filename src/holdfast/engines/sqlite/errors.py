"""Translate errors of SQLite into errors of Holdfast, and find the process that holds a lock."""

import os
import pwd
from pathlib import Path

import apsw

from holdfast._errors import (
    Conflict,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseLocked,
    EngineError,
    OutcomeUnknown,
)

# The byte of the -shm file that a writer locks in WAL mode: https://sqlite.org/walformat.html#wal_locks
_WRITE_LOCK_BYTE = 120


def translate(error: apsw.Error, path: Path, waited_seconds: float = 0.0) -> EngineError | Conflict:
    """Return the Holdfast error for an error of SQLite, to be raised `from` it. Nothing was written in any case."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return DatabaseLocked(
                f"{path} is locked{_describe_lock_holder(path)}; waited {waited_seconds:g} s. "
                "End that process, or wait for it: only one process can write at a time"
            )
        case apsw.FullError():
            return DatabaseFull(f"no space left to write to {path}: free some space on its disk; nothing was written")
        case apsw.CorruptError() | apsw.NotADBError():
            return DatabaseCorrupt(f"{path} is damaged or not a database ({error}): restore it from a backup")
        case apsw.ConstraintError():
            return Conflict(f"{path}: {error}")
        case apsw.CantOpenError() | apsw.PermissionsError():
            return EngineError(
                f"cannot open {path} ({error}): its folder must exist, and this user must be able to write to the "
                f"folder and to the file{_describe_owner(path)}"
            )
        case apsw.ReadOnlyError():
            return EngineError(f"{path}{_describe_owner(path)} is read-only for this user: {error}")
        case _:
            return EngineError(f"{path}: {error}")


def translate_commit(error: apsw.Error, path: Path) -> EngineError | Conflict:
    """Return the Holdfast error for a failed COMMIT: after an I/O error, it is unknown whether it reached the disk."""
    if isinstance(error, apsw.IOError):
        return OutcomeUnknown(f"the disk failed during a commit to {path} ({error}): check before you repeat it")
    return translate(error, path)


def _describe_owner(path: Path) -> str:
    """Return ` (which belongs to root)` if another user owns the file, often because root ran a command; else ""."""
    try:
        number = path.stat().st_uid
    except OSError:
        return ""
    if number == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = f"user {number}"
    return f" (which belongs to {name})"


def _describe_lock_holder(path: Path) -> str:
    """Return ` by process 123 (name)` on Linux, ` by another process` if the process is unknown."""
    try:
        inode = path.with_name(path.name + "-shm").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            # 3: POSIX  ADVISORY  WRITE 4242 fe:00:131 120 120
            access, process, file, first_byte = line.replace("-> ", "").split()[3:7]
            if access != "WRITE" or file.rpartition(":")[2] != str(inode):
                continue
            if first_byte.isdigit() and int(first_byte) <= _WRITE_LOCK_BYTE:
                command = Path(f"/proc/{process}/comm").read_text().strip()
                return f" by process {process} ({command})"
    except (OSError, ValueError):  # no such files, or another format
        pass
    return " by another process"
