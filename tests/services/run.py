"""One run of the tests: where its services live, and how its workers share them."""

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.services.start import Recipe, ServiceFailed, start, stop


@dataclass(frozen=True, slots=True)
class Run:
    """The directory that the controller (or the only process) made for its services, and who that is."""

    directory: Path
    controller: int

    @classmethod
    def begin(cls) -> "Run":
        # Short and under the system's own temporary directory: the path of a Unix socket has at most 107 bytes.
        directory = Path(tempfile.mkdtemp(prefix="holdfast-"))
        _let_through(directory)
        return cls(directory, os.getpid())

    def shared(self, name: str, recipe: Recipe) -> str:
        """The URL of a service that all workers use; the first one to ask starts it."""
        note = self.directory / f"{name}.url"
        with _locked(self.directory / f"{name}.lock"):
            if not note.exists():
                note.write_text(start(recipe, self.private(name), self.controller))
            return note.read_text()

    def start_early(self, recipes: Mapping[str, Recipe]) -> list[threading.Thread]:
        """Start services beside everything else, in the threads that this returns."""

        def start_one(name: str, recipe: Recipe) -> None:
            # The test that needs it tries again, and says what is wrong.
            with suppress(ServiceFailed, OSError):
                self.shared(name, recipe)

        threads = [
            threading.Thread(target=start_one, args=each, name=f"start {each[0]}", daemon=True)
            for each in recipes.items()
        ]
        for thread in threads:
            thread.start()
        return threads

    def private(self, name: str) -> Path:
        """A new directory for a service, removed at the end of the run at the latest."""
        directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))
        _let_through(directory)
        return directory

    def end(self) -> None:
        """End all services of the run and remove what they left."""
        try:
            for lock in self.directory.glob("*.lock"):
                with _locked(lock):  # nothing is starting any more
                    pass
            stop(entry for entry in self.directory.iterdir() if entry.is_dir())
        finally:
            _remove(self.directory)


def _remove(directory: Path) -> None:
    # A killed browser may still be writing its last file into what is being removed.
    for _ in range(50):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.02)
    raise ServiceFailed(f"{directory} cannot be removed")


def _let_through(directory: Path) -> None:
    # PostgreSQL, which refuses to be root, has to reach its own directory in here.
    directory.chmod(0o711)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
