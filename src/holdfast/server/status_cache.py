"""What the server knows of zones: read from its store again and again, kept in memory, told to everybody."""

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
from holdfast.status.stores.rules import expire_status
from holdfast.status.wire import StatusChange, StatusSnapshot

logger = logging.getLogger("holdfast.status")

FIRST_SECONDS = 2.0
"""How long starting waits for the first answer of the store. Without one, the server begins with its record."""

LAST_SECONDS = 0.2
"""How long stopping waits for a reading to end: less than the server keeps back for closing its databases."""

Key: TypeAlias = tuple[Zone, str | None]


class _KnownStatuses:
    """What is known at one revision."""

    __slots__ = ("known", "out", "revision")

    def __init__(self, revision: int, known: dict[Key, ZoneStatus]) -> None:
        self.revision = revision
        self.known = known
        self.out = {key: status for key, status in known.items() if status.out}


class StatusCache:
    """A StatusStore that remembers, and that tells what changed, whoever changed it.

    `read`, `write` and `expire` go to the store. Everything else answers from memory, at once, from any thread. When
    the store is away, what was last known stays; after a restart, what was last recorded.
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
        """Held while what is known changes, so that changes are told in their order; never while a store is asked."""
        self._recording = threading.Lock()
        self._writes = 0
        self._read_at: float | None = None
        self._unlogged: deque[tuple[ZoneStatus, float]] = deque(maxlen=KEPT_CHANGES)
        """What is still to be recorded; as much as the record keeps."""
        self._is_held_up = False
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
            if known is None or known.version < written.version:  # else a later one came to be known first
                self._take({**self._view.known, _key(written): written})
        self._record()
        return written

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        return self._store.expire(now)

    def start(self) -> None:
        """Begin to read the store; returns when it has answered, or not answered in time."""
        self._loop.start()
        self._answered.wait(FIRST_SECONDS)

    def close(self) -> None:
        """Stop reading; a reading that takes long is left behind. May be repeated."""
        self._loop.stop(LAST_SECONDS)

    @property
    def age(self) -> float | None:
        """Seconds since the store was last read; None before the first time."""
        return None if self._read_at is None else self._clock.monotonic() - self._read_at

    def out(self) -> list[Zone]:
        """Return the zones that are out for all workloads."""
        now = self._clock.wall()
        return [zone for (zone, workload), status in self._view.out.items() if workload is None and status.is_out(now)]

    def find_out_status(self, zone: str, workload: str | None) -> ZoneStatus | None:
        """The status by which a zone is out for a workload, or for all; None if it is in."""
        out = self._view.out
        if not out:  # as nearly always
            return None
        now = self._clock.wall()
        for key in ((Zone(zone), None), (Zone(zone), workload)):
            status = out.get(key)
            if status is not None and status.is_out(now):
                return status
        return None

    def snapshot(self) -> StatusSnapshot:
        """All that is known. Raises EngineUnavailable if that is nothing: not even that no zone is out."""
        view = self._view
        if self._read_at is None and not view.known:
            raise EngineUnavailable("the store of zone statuses has not answered yet, and nothing was recorded before")
        now, statuses = self._clock.wall(), tuple(view.known.values())
        return StatusSnapshot(run=self._run, revision=view.revision, at=now, age=self.age, statuses=statuses)

    def refresh(self) -> None:
        """Read the store once, and tell what others changed in it. Raises what the store raises."""
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
            except EngineError as error:  # readers here know about expiry: only others are told late
                logger.warning("what has expired cannot be cleared away: %s", error)
            found = self._store.read()
        with self._changing:
            self._read_at = self._clock.monotonic()
            if writes == self._writes:  # else it was read before something that is known already: next time
                self._take({_key(status): status for status in found})

    def _take(self, known: dict[Key, ZoneStatus]) -> None:
        """Replace what is known, and tell what is new in it."""
        now, before = self._clock.wall(), self._view
        gone = [
            _build_removed(status, now)
            for key, status in before.known.items()
            if status.state is not ZoneState.IN and key not in known
        ]
        changed = [status for key, status in known.items() if before.known.get(key) != status]
        self._view = _KnownStatuses(before.revision + len(changed) + len(gone), known)
        for number, status in enumerate((*changed, *gone), start=before.revision + 1):
            told = status if status.version else replace(status, version=_build_version(now), since=status.since or now)
            fields = {"zone": told.zone, "workload": told.workload, "state": str(told.state), "by": told.by}
            logger.warning("zone %s is %s: %s", told.zone, told.state, told.reason, extra=fields)
            self._on_change(StatusChange(run=self._run, revision=number, at=now, status=told))
            self._unlogged.append((told, now))

    def _record(self) -> None:
        """Write down what was told. What cannot be now, is with the next change or reading."""
        if not self._recording.acquire(blocking=False):
            return  # somebody is at it
        try:
            while self._unlogged:
                entry = self._unlogged[0]
                self._log.append(*entry)
                if self._unlogged[0] is entry:  # else it was too old to be kept
                    self._unlogged.popleft()
            self._is_held_up = False
        except Conflict:  # another server recorded something at the same moment
            pass
        except Exception as error:
            if not self._is_held_up:
                logger.warning(
                    "a change of status cannot be recorded yet: %s",
                    error,
                    exc_info=not isinstance(error, HoldfastError),
                )
            self._is_held_up = True
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
    """What to say of a status that was out and is no longer in the store."""
    # One that was written by hand has no version to count on from.
    version = status.version + 1 if status.version else _build_version(now)
    if status.expires is not None and status.has_expired(now):
        return expire_status(status, status.expires, version)  # the same for all servers, so that it is recorded once
    reason = "no longer in the store"
    return replace(
        status, state=ZoneState.IN, share=None, since=now, by="unknown", reason=reason, expires=None, version=version
    )


def _build_version(now: float) -> int:
    """A version for what has none: later ones are greater, so that whoever is told late is not told wrong."""
    return int(now * 1000)
