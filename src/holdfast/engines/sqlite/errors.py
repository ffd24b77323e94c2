"""What SQLite's errors mean to a caller, and who holds a lock."""

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
    """The Holdfast error for one of SQLite's, to be raised `from` it. Nothing was written in any of these cases."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return DatabaseLocked(
                f"{path} is locked{_describe_lock_holder(path)}; waited {waited_seconds:g} s. "
                "End that process, or wait for it: "
                "only one process can write at a time"
            )
        case apsw.FullError():
            return DatabaseFull(f"no room to write to {path}: free some space on its disk; nothing was written")
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
            return EngineError(f"{path} cannot be written here{_describe_owner(path)}: {error}")
        case _:
            return EngineError(f"{path}: {error}")


def translate_commit(error: apsw.Error, path: Path) -> EngineError | Conflict:
    """The same for COMMIT, where an input/output error leaves open whether the commit record reached the disk."""
    if isinstance(error, apsw.IOError):
        return OutcomeUnknown(f"the disk failed while {path} was being committed ({error}): look before repeating it")
    return translate(error, path)


def _describe_owner(path: Path) -> str:
    """` (which belongs to root)`, where it is somebody else's: often root ran a command that made it."""
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
    """` by process 123 (name)`, where the system can tell (Linux)."""
    try:
        inode = path.with_name(path.name + "-shm").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            # 3: POSIX  ADVISORY  WRITE 4242 fe:00:131 120 120
            words = line.replace("-> ", "").split()
            if words[3] != "WRITE" or words[5].rpartition(":")[2] != str(inode):
                continue
            if words[6].isdigit() and int(words[6]) <= _WRITE_LOCK_BYTE:
                command = Path(f"/proc/{words[4]}/comm").read_text().strip()
                return f" by process {words[4]} ({command})"
    except (OSError, IndexError, UnicodeDecodeError):
        pass
    return " by another process"
