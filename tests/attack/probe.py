"""Ask a server for its health and a status again and again, while something else attacks it."""

import http.client
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.integration.server.process import HoldfastServer

PATHS = ("/health", "/status/use1-az1")
TIMEOUT = 5.0
"""Seconds after which a probe has failed: as a patient orchestrator."""
PAUSE = 0.1


@dataclass
class Probe:
    """Ask in a thread, on a new connection each time, until the context ends; and note the memory of the server."""

    server: HoldfastServer
    answered: int = 0
    slowest_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    megabytes_before: float = 0.0
    megabytes_peak: float = 0.0

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")  # resets the peak
        self.megabytes_before = self._megabytes("VmRSS")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.megabytes_peak = self._megabytes("VmHWM")

    def figures(self) -> dict[str, object]:
        return {
            "probes": self.answered,
            "slowest_probe_seconds": round(self.slowest_seconds, 3),
            "megabytes_before": self.megabytes_before,
            "megabytes_peak": self.megabytes_peak,
        }

    def violations(self, max_growth: float) -> list[str]:
        """Return failed probes, and growth by more than `max_growth` MB."""
        found = [f"{len(self.failures)} probes failed, the first with {self.failures[0]}"] if self.failures else []
        if not self.answered:
            found.append("no probe was answered")
        growth = self.megabytes_peak - self.megabytes_before
        if growth > max_growth:
            found.append(f"the server grew by {growth:.0f} MB, expected at most {max_growth:.0f} MB")
        return found

    def _run(self) -> None:
        while not self._stop.is_set():
            for path in PATHS:
                begun = time.monotonic()
                try:
                    status = get_status(self.server.port, path)
                except OSError as error:
                    self.failures.append(f"{path}: {error!r}")
                else:
                    self.answered += 1
                    if status != 200:
                        self.failures.append(f"{path}: {status}")
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - begun)
            self._stop.wait(PAUSE)

    def _megabytes(self, name: str) -> float:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None
        return round(int(found[1]) / 1024, 1)


def get_status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()
