"""Cache of the zone statuses: polls the store, answers from memory, publishes every change."""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineError, EngineUnavailable, HoldfastError
from holdfast._types import StatusStore, Zone, ZoneState, ZoneStatus
from holdfast.server.status_log import KEPT_CHANGES, StatusLog
from holdfast.status.stores.rules import ABSENT_VERSION, expire_status
from holdfast.status.wire import StatusChange, StatusSnapshot

logger = logging.getLogger("holdfast.status")

START_TIMEOUT_SECONDS = 2.0
"""How long the start waits for the store. Without an answer, the server starts with its log of changes."""

STOP_TIMEOUT_SECONDS = 0.2
"""How long stopping waits for a read in progress: less than the server reserves for closing its databases."""

Key: TypeAlias = tuple[Zone, str | None]


class _KnownStatuses:
    """The known statuses at one revision."""

    __slots__ = ("known", "out", "revision")

    def __init__(self, revision: int, known: dict[Key, ZoneStatus]) -> None:
        self.revision = revision
        self.known = known
        self.out = {key: status for key, status in known.items() if status.state.is_out}


class StatusCache:
    """A StatusStore with a cache, which publishes every change, also those of other writers.

    `read`, `write` and `expire` use the store. All other methods answer from memory, immediately and from any thread.
    While the store is unavailable, the last known statuses stay; after a restart, the last logged ones.
    """

    def __init__(
        self,
        store: StatusStore,
        log: StatusLog,
        *,
        clock: Clock,
        refresh_interval: float,
        on_change: Callable[[StatusChange], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._refresh_interval = refresh_interval
        self._on_change = on_change
        self._run = secrets.token_hex(4)
        self._view = _KnownStatuses(0, {_key(status): status for status in log.latest()})
        """Replaced as a whole, so that readers need no lock."""
        self._changing = threading.Lock()
        """Held while the view changes, so that changes are published in order; never held while the store is used."""
        self._recording = threading.Lock()
        self._writes = 0
        self._read_at: float | None = None
        self._unlogged: deque[tuple[ZoneStatus, float]] = deque(maxlen=KEPT_CHANGES)
        """Changes still to be logged, at most as many as the log keeps."""
        self._is_history_failing = False
        self._answered = threading.Event()
        self._loop = BackgroundLoop(
            "holdfast-status",
            self._keep_reading,
            action="read zone statuses",
            logger=logger,
            backoff=constant_backoff(refresh_interval),
        )

    def read(self) -> Sequence[ZoneStatus]:
        return self._store.read()

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        written = self._store.write(status, expected)
        with self._changing:
            self._writes += 1
            known = self._view.known.get(_key(written))
            if known is None or known.version < written.version:  # otherwise a later write became known first
                self._replace_known({**self._view.known, _key(written): written})
        self._record()
        return written

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        return self._store.expire(now)

    def start(self) -> None:
        """Start polling the store; return when it has answered, or after START_TIMEOUT_SECONDS."""
        self._loop.start()
        self._answered.wait(START_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Stop polling, without waiting long for a read in progress. May be repeated."""
        self._loop.stop(STOP_TIMEOUT_SECONDS)

    @property
    def age(self) -> float | None:
        """Seconds since the store was last read; None before the first time."""
        return None if self._read_at is None else self._clock.monotonic() - self._read_at

    def zones_out_for_any(self) -> frozenset[Zone]:
        """Return the zones that are out for at least one workload."""
        now = self._clock.wall()
        return frozenset(zone for (zone, _), status in self._view.out.items() if status.is_out(now))

    def find_out_status(self, zone: str, workload: str | None) -> ZoneStatus | None:
        """Return the status by which a zone is out, for this workload or for all; None if it is in."""
        out = self._view.out
        if not out:  # the usual case
            return None
        now = self._clock.wall()
        for key in ((Zone(zone), None), (Zone(zone), workload)):
            status = out.get(key)
            if status is not None and status.is_out(now):
                return status
        return None

    def snapshot(self) -> StatusSnapshot:
        """Return all known statuses. Raise EngineUnavailable if no status was ever read or logged."""
        view = self._view
        if self._read_at is None and not view.known:
            raise EngineUnavailable("the store of zone statuses has not answered yet, and the log has no statuses")
        now, statuses = self._clock.wall(), tuple(view.known.values())
        return StatusSnapshot(run=self._run, revision=view.revision, at=now, age=self.age, statuses=statuses)

    def refresh(self) -> None:
        """Read the store once, and publish what other writers changed. Raise the store's errors."""
        try:
            self._read_store()
        finally:
            self._record()

    def _read_store(self) -> None:
        writes, now = self._writes, self._clock.wall()
        found = self._store.read()
        if any(status.has_expired(now) for status in found):
            try:
                self._store.expire(now)
            except EngineError as error:  # only readers that ignore expiry see the zone as out for longer
                logger.warning("cannot clear expired zone statuses from the store, trying again: %s", error)
            found = self._store.read()
        with self._changing:
            self._read_at = self._clock.monotonic()
            if writes == self._writes:  # otherwise a write happened meanwhile: the next read has it
                self._replace_known({_key(status): status for status in found})

    def _replace_known(self, known: dict[Key, ZoneStatus]) -> None:
        """Replace the known statuses, and publish those that changed."""
        now, before = self._clock.wall(), self._view
        removed = [
            _build_removed(status, now)
            for key, status in before.known.items()
            if status.state is not ZoneState.IN and key not in known
        ]
        changed = [status for key, status in known.items() if before.known.get(key) != status]
        self._view = _KnownStatuses(before.revision + len(changed) + len(removed), known)
        for number, status in enumerate((*changed, *removed), start=before.revision + 1):
            if status.version == ABSENT_VERSION:  # written by hand
                status = replace(status, version=_build_version(now), since=status.since or now)  # noqa: PLW2901
            fields = {"zone": status.zone, "workload": status.workload, "state": str(status.state), "by": status.by}
            concerned = status.workload or "all workloads"
            logger.warning(
                "zone %s is %s for %s: %s", status.zone, status.state, concerned, status.reason, extra=fields
            )
            self._on_change(StatusChange(run=self._run, revision=number, at=now, status=status))
            self._unlogged.append((status, now))

    def _record(self) -> None:
        """Log the published changes. Those that cannot be logged now are retried after the next change or read."""
        if not self._recording.acquire(blocking=False):
            return  # another thread is logging
        try:
            while self._unlogged:
                entry = self._unlogged[0]
                self._log.append(*entry)
                if self._unlogged[0] is entry:  # otherwise it was dropped from the full deque
                    self._unlogged.popleft()
            self._is_history_failing = False
        except Conflict:  # another server logged a change at the same time
            pass
        except Exception as error:
            if not self._is_history_failing:
                logger.warning(
                    "cannot record a change of a zone status in the history yet, trying again: %s",
                    error,
                    exc_info=not isinstance(error, HoldfastError),
                )
            self._is_history_failing = True
        finally:
            self._recording.release()

    def _keep_reading(self) -> float:
        try:
            self.refresh()
        finally:
            self._answered.set()
        return self._refresh_interval


def _key(status: ZoneStatus) -> Key:
    return status.zone, status.workload


def _build_removed(status: ZoneStatus, now: float) -> ZoneStatus:
    """Return the status to publish for a zone that was out, and whose status was deleted from the store."""
    # A status written by hand has no version to increment.
    version = _build_version(now) if status.version == ABSENT_VERSION else status.version + 1
    if status.expires is not None and status.has_expired(now):
        return expire_status(status, status.expires, version)  # equal on all servers, so that it is logged once
    reason = "no longer in the store"
    return replace(
        status, state=ZoneState.IN, share=None, since=now, by="unknown", reason=reason, expires=None, version=version
    )


def _build_version(now: float) -> int:
    """Return a version for a status without one. It grows with time, so that late readers can order changes."""
    return int(now * 1000)
