"""Whether anybody has committed to a SQLite file since."""

import threading
from pathlib import Path
from typing import Any

import apsw

from holdfast._errors import EngineError
from holdfast.engines.sqlite.connection import connect

_PATIENCE = 1.0
"""Seconds to wait for a lock when opening: it is taken by nobody for longer than the file is being repaired."""


class ChangeCounter:
    """Asks SQLite, on a connection of its own: microseconds, and it never waits for a writer. Thread-safe.

    A look into the shared memory beside the file would be quicker, but to open it and close it again would take away
    the locks that SQLite holds there: https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gate = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._is_open = True

    def read(self) -> int | None:
        """A number that is another one after every commit of anybody; None: it cannot be told now, so look yourself."""
        with self._gate:
            if not self._is_open:
                return None
            try:
                if self._connection is None:
                    self._connection = connect(self._path, _PATIENCE, reader=True)
                rows: list[tuple[Any, ...]] = self._connection.execute("pragma data_version").fetchall()
            except (apsw.Error, EngineError):
                self._hang_up()
                return None
            return int(rows[0][0])

    def close(self) -> None:
        """Let go of the file. May be repeated."""
        with self._gate:
            self._is_open = False
            self._hang_up()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)
