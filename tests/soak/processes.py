"""The processes of a soak: started, killed, and started again."""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.ledger import now

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 30.0


@dataclass(slots=True)
class Child:
    """A process, and what it does."""

    name: str
    role: str
    """The module that it runs."""
    arguments: tuple[str, ...]
    process: "subprocess.Popen[bytes]"
    ledger: Path
    errors: Path

    @property
    def is_at_work(self) -> bool:
        """Whether it has written something down."""
        return self.ledger.exists() and self.ledger.stat().st_size > 0


@dataclass(slots=True)
class Processes:
    """All processes of a soak. Use as a context manager: none of them outlives it."""

    directory: Path
    running: list[Child] = field(default_factory=list)
    killed: dict[str, int] = field(default_factory=dict)
    """When each was killed, by name."""
    complaints: list[str] = field(default_factory=list)
    """What was wrong with processes that nobody killed."""
    _started: int = 0

    def start(self, role: str, url: str, *arguments: str) -> Child:
        self._started += 1
        name = f"{role}-{self._started}"
        errors = self.directory / f"{name}.errors"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tests.soak.{role}", url, str(self.directory), name, *arguments],
                stdin=subprocess.PIPE,  # it is closed when we are gone, and the child ends with it
                stderr=file,
                cwd=ROOT,
            )
        child = Child(name, role, arguments, process, self.directory / f"{name}.ledger", errors)
        self.running.append(child)
        return child

    def of(self, role: str) -> list[Child]:
        return [child for child in self.running if child.role == role]

    def kill(self, child: Child) -> None:
        """With SIGKILL, and wait until it is gone: what it holds is free then."""
        child.process.kill()
        self._end(child)
        self.killed[child.name] = now()

    def freeze(self, child: Child) -> None:
        """Let it stand still, with all that it holds."""
        child.process.send_signal(signal.SIGSTOP)

    def thaw(self, child: Child) -> None:
        """Let it go on as if nothing had happened, if it is still there."""
        if child in self.running:
            child.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Let all of them end in good order."""
        for child in self.running:
            child.process.terminate()
            self.thaw(child)
        until = time.monotonic() + STOP_SECONDS
        for child in list(self.running):
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.complaints.append(f"{child.name} did not stop within {STOP_SECONDS:g} s")
                child.process.kill()
            self._judge(child)

    def ended(self) -> list[Child]:
        """Those that have ended by themselves since."""
        found = [child for child in self.running if child.process.poll() is not None]
        for child in found:
            self._judge(child)
        return found

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exception: object) -> None:
        for child in list(self.running):
            child.process.kill()
            self._end(child)

    def _judge(self, child: Child) -> None:
        status = self._end(child)
        was_too_early = status == -signal.SIGTERM and not child.ledger.exists()  # it was about to begin
        if status != 0 and not was_too_early:
            said = child.errors.read_text(errors="replace").strip()[-2000:]
            self.complaints.append(f"{child.name} ended with {status}: {said}")

    def _end(self, child: Child) -> int:
        status = child.process.wait()
        if child.process.stdin is not None:
            child.process.stdin.close()
        self.running.remove(child)
        return status
