"""A journal in memory, for tests and simulations."""

import threading
from collections.abc import Sequence

from holdfast._types import Zone
from holdfast.evacuate.journal import Entry, RecordedRuns, Run, build_conflict, build_lease_lost


class MemoryJournal:
    """A journal in this process. See `holdfast.evacuate.journal.Journal`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = RecordedRuns(0, ())
        self._entries: dict[tuple[Zone, str, str], Entry] = {}

    def read_runs(self) -> RecordedRuns:
        return self._runs

    def write_runs(self, runs: Sequence[Run], expected: int) -> RecordedRuns:
        with self._lock:
            if self._runs.version != expected:
                raise build_conflict(expected)
            self._runs = RecordedRuns(expected + 1, tuple(runs))
            return self._runs

    def write_entries(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                known = self._entries.get(_get_key(entry))
                if known is not None and known.number > entry.number:
                    raise build_lease_lost(entry)
                self._entries[_get_key(entry)] = entry

    def read_entries(self, zone: Zone | None = None, *, type: str | None = None) -> Sequence[Entry]:  # noqa: A002
        with self._lock:
            found = list(self._entries.values())
        return [each for each in found if zone in (None, each.zone) and type in (None, each.type)]

    def delete_entries(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                self._entries.pop(_get_key(entry), None)


def _get_key(entry: Entry) -> tuple[Zone, str, str]:
    return entry.zone, entry.resource, entry.run
