"""The servers of the queue benchmark: one PostgreSQL and one Valkey for all, started when they are first needed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import psycopg
from valkey import Valkey

from tests.services.postgres import postgres
from tests.services.run import Run
from tests.services.start import Order
from tests.services.valkey import valkey

NOT_DURABLE = ("fsync=off", "full_page_writes=off")
"""What tests turn off, and a queue must not."""


Engine: TypeAlias = Literal["sqlite", "postgres", "valkey"]


def durable_postgres(directory: Path, port: int) -> Order:
    """PostgreSQL as it is by default, which loses nothing that it has acknowledged."""
    order = postgres(directory, port)
    words = list(order.command)
    for setting in NOT_DURABLE:
        place = words.index(setting)  # an error, if tests turn off something else one day
        del words[place - 1 : place + 1]
    return replace(order, command=words)


class Servers:
    """Where the contenders keep their messages. Every one has a file or a database of its own, and begins anew."""

    def __init__(self) -> None:
        self._run = Run(Path(tempfile.mkdtemp(prefix="holdfast-")), os.getpid())
        self._run.directory.chmod(0o711)  # PostgreSQL does not run as root, and has to come through
        self._count = 0

    def close(self) -> None:
        self._run.end()

    @cached_property
    def _postgres(self) -> str:
        url = self._run.shared("postgres", durable_postgres)
        with psycopg.connect(url, autocommit=True) as connection:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                found = connection.execute(f"show {setting}").fetchone()
                if found != ("on",):
                    raise RuntimeError(f"{setting} is {found}: expected on")
        return url

    @cached_property
    def _valkey(self) -> str:
        return self._run.shared("valkey", valkey)

    @contextmanager
    def store(self, engine: Engine) -> Iterator[str]:
        """The address of something empty."""
        match engine:
            case "sqlite":
                with self.file() as path:
                    yield f"sqlite:{path}"
            case "postgres":
                with self.database() as url:
                    yield url
            case "valkey":
                with Valkey.from_url(self._valkey) as client:
                    client.flushall()
                yield self._valkey

    @contextmanager
    def file(self) -> Iterator[str]:
        """The path of a file that is not there yet."""
        folder = self._run.private("file")
        try:
            yield str(folder / "work.sqlite")
        finally:
            shutil.rmtree(folder)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The address of an empty database."""
        self._count += 1
        name = f"contender_{self._count}"
        with psycopg.connect(self._postgres, autocommit=True) as connection:
            connection.execute(f"create database {name}")
            try:
                yield self._postgres.rpartition("/")[0] + f"/{name}"
            finally:
                connection.execute(f"drop database {name} with (force)")
                connection.execute("checkpoint")  # nobody pays for what another has written
