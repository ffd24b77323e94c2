"""From an address to what keeps the messages."""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast._clock import Clock
from holdfast._errors import InvalidValue
from holdfast._forks import renew_after_fork

if TYPE_CHECKING:
    from holdfast.queue.backend import Backend

_SQLITE = re.compile(r"sqlite:(?://)?(?P<path>[^?#]+)")


def open_backend(url: str, *, clock: Clock | None = None, patience: float = 5.0, connections: int = 10) -> "Backend":
    """What keeps messages at an address: `memory:`, `sqlite:work.sqlite` or `postgresql://user@host/name`.

    A path after `sqlite:` is relative to where the process runs, unless it begins with `/`; `sqlite:///work.sqlite` is
    absolute, as everywhere. `patience` is how many seconds to wait for a lock or an absent server; `connections` is
    for PostgreSQL. Without a `clock`, time is that of the server, where there is one, so that machines need not agree.
    """
    scheme = url.partition(":")[0]
    if scheme == "memory":
        from holdfast.queue.backends.memory import MemoryBackend

        return MemoryBackend(clock)
    if scheme == "sqlite":
        match = _SQLITE.fullmatch(url)
        if match is None:
            raise InvalidValue("sqlite: without a file: expected an address such as sqlite:work.sqlite")
        from holdfast.engines.sqlite import SqliteDatabase
        from holdfast.queue.backends.sql import SqlBackend

        return SqlBackend(SqliteDatabase(Path(match["path"]), patience=patience, clock=clock), clock)
    if scheme in ("postgresql", "postgres"):
        from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
        from holdfast.queue.backends.sql import SqlBackend

        options = PostgresOptions(url=url, pool_maximum=connections, patience=patience)
        return SqlBackend(PostgresDatabase(options, clock=clock), clock)
    # Not the rest of it: there may be a password in it.
    raise InvalidValue(f"a queue at {scheme}:...: expected memory:, sqlite:FILE or postgresql://USER@HOST/NAME")


class Opening:
    """An address that is opened when it is first needed, and again in a forked child; or a backend, left as it is.

    Thread-safe. Without a clock it goes by the time of the server, where there is one. `prepare` is called with what
    was opened, or given, before anybody gets it.
    """

    def __init__(
        self, at: "Backend | str", clock: Clock | None, prepare: "Callable[[Backend], object]" = lambda _: None
    ) -> None:
        self._at = at
        self._clock = clock
        self._prepare = prepare
        self._lock = threading.Lock()
        self._opened: tuple[int, Backend] | None = None
        self._inherited: list[Backend] = []
        renew_after_fork(self)

    def get(self) -> "Backend":
        """What is there."""
        opened = self._opened
        if opened is not None and opened[0] == os.getpid():
            return opened[1]
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                if self._opened is not None:
                    # The parent's. It must not be closed here, and so not be forgotten either.
                    self._inherited.append(self._opened[1])
                self._opened = (os.getpid(), self._open())
            return self._opened[1]

    @property
    def place(self) -> str:
        """The address, for people: a file by its whole path, and no password."""
        if not isinstance(self._at, str):
            return type(self._at).__name__
        match = _SQLITE.fullmatch(self._at)
        if match is not None:
            return f"sqlite:{Path(match['path']).absolute()}"
        parts = urlsplit(self._at)
        return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else f"{parts.scheme}:"

    def close(self) -> None:
        """Let go of what was opened. May be repeated; the next one who needs it opens it again."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                return
            backend, self._opened = self._opened[1], None
        if isinstance(self._at, str):
            backend.close()

    def renew(self) -> None:
        """In a forked child: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def _open(self) -> "Backend":
        if not isinstance(self._at, str):
            self._prepare(self._at)
            return self._at
        backend = open_backend(self._at, clock=self._clock)
        try:
            self._prepare(backend)
        except BaseException:
            backend.close()
            raise
        return backend
