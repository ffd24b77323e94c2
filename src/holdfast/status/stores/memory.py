"""Zone statuses in the memory of one process, for tests and experiments."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from holdfast._types import Zone, ZoneStatus
from holdfast.status.stores.rules import ABSENT_VERSION, build_conflict, check_status, expire_status


class MemoryStatusStore:
    """Zone statuses that are lost when the process ends. Thread-safe; see `holdfast.StatusStore`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[tuple[Zone, str | None], ZoneStatus] = {}

    def read(self) -> Sequence[ZoneStatus]:
        with self._lock:
            return list(self._statuses.values())

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        key = (check_status(status).zone, status.workload)
        with self._lock:
            known = self._statuses.get(key)
            if expected != (ABSENT_VERSION if known is None else known.version):
                raise build_conflict(status, expected)
            self._statuses[key] = replace(status, version=expected + 1)
            return self._statuses[key]

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        with self._lock:
            expired = {key: status for key, status in self._statuses.items() if status.has_expired(now)}
            changed = {key: expire_status(status, now, status.version + 1) for key, status in expired.items()}
            self._statuses.update(changed)
            return list(changed.values())
