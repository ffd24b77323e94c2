"""A disk that fills up, fails to sync, or loses power: fault injection below SQLite."""

from pathlib import Path
from typing import Any, Self

import apsw

__all__ = ["FaultyDisk"]


class FaultyDisk:
    """While entered, every SQLite file opened in this process goes through it. Not for several at once.

    `full`: writes find no room. `full_for_copies`: only the log has room left. `failing`: a sync ends in an
    input/output error. `cut_power` makes the files as they would be found after a power cut in which nothing survived
    that had not been synced.
    """

    _NAME = "holdfast-faulty-disk"

    def __init__(self) -> None:
        self.full = False
        self.full_for_copies = False
        self.failing = False
        self.syncs = 0
        self._synced: dict[Path, bytes] = {}
        self._system: _System | None = None

    def cut_power(self, database: Path, into: Path) -> Path:
        """Copy what was synced of `database` and its log into the folder `into`; returns the copy to open."""
        database = database.resolve()
        for suffix in ("", "-wal"):
            source = database.with_name(database.name + suffix)
            if source in self._synced:
                (into / source.name).write_bytes(self._synced[source])
        return into / database.name

    def synced(self, path: Path) -> None:
        """Remember the file as it is now: this much survives."""
        self.syncs += 1
        if path.exists():
            self._synced[path] = path.read_bytes()

    def deleted(self, path: Path) -> None:
        """Forget a file that was removed."""
        self._synced.pop(path, None)

    def __enter__(self) -> Self:
        self._system = _System(self._NAME, self)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._system is not None:
            self._system.unregister()
            self._system = None


class _System(apsw.VFS):
    def __init__(self, name: str, disk: FaultyDisk) -> None:
        self._disk = disk
        self._below = apsw.vfs_names()[0]
        super().__init__(name, base=self._below, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> "_File":  # noqa: N802 - SQLite's own name
        return _File(self._disk, self._below, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's own name
        self._disk.deleted(Path(filename))
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, below: str, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        super().__init__(below, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's own name
        if self._disk.full or (self._disk.full_for_copies and not self._path.name.endswith("-wal")):
            raise apsw.FullError("no room left on the faulty disk")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's own name
        if self._disk.failing:
            raise apsw.IOError("the faulty disk did not sync")
        super().xSync(flags)
        self._disk.synced(self._path)
