"""Taking a zone out and bringing it in: the rules that hold for operators and for detectors alike."""

from collections.abc import Iterable
from dataclasses import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict, InvalidValue
from holdfast._types import StatusStore, Zone, ZoneStatus

REASON_CHARACTERS = 500
"""Longest reason: a sentence or two, not a log."""
_TRIES = 3
"""Writes of the same status that may collide before somebody must look: operators do not write faster than that."""


def others_out(statuses: Iterable[ZoneStatus], zone: Zone, workload: str | None, now: float) -> frozenset[Zone]:
    """The other zones that are out for somebody for whom this one is meant to be."""
    return frozenset(
        status.zone
        for status in statuses
        if status.zone != zone
        and status.is_out(now)
        and (workload is None or status.workload is None or status.workload == workload)
    )


class Changes:
    """Changes statuses in a store, within the rules. Thread-safe as far as the store is."""

    def __init__(self, store: StatusStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def take_out(
        self,
        zone: Zone,
        workload: str | None = None,
        *,
        by: str,
        reason: str,
        seconds: float | None = None,
        force: bool = False,
    ) -> ZoneStatus:
        """Mark a zone as out, for `seconds` or until it is brought in. One that is out already gets the new reason.

        Raises Conflict while another zone is out for anybody concerned, unless by `force`: two of three zones are
        rarely left with capacity enough.
        """
        now = self._clock.wall()
        wanted = ZoneStatus(
            zone=zone,
            workload=workload,
            out=True,
            since=now,
            by=by,
            reason=_reason(reason),
            expires=None if seconds is None else now + seconds,
        )
        before, written = self._write(wanted, force=force)
        others = frozenset() if force else others_out(self._store.read(), zone, workload, now)
        if others:
            # Somebody took another zone out between our look and our write, and may have seen ours, or not. Only if
            # whoever sees the other's steps back, there are never two. A zone that was out before is as it was.
            reason = "another zone was taken out at the same moment"
            back = replace(written, out=False, expires=None, by=by, reason=reason)
            self._store.write(back if before is None else before, written.version)
            raise Conflict(f"{_names(others)} was taken out at the same moment, so {zone} was not: look, then decide")
        return written

    def bring_in(self, zone: Zone, workload: str | None = None, *, by: str, reason: str) -> ZoneStatus:
        """Mark a zone as in; one that is in already stays as it is. Raises Conflict where that would not make it so."""
        now = self._clock.wall()
        for attempt in range(_TRIES):
            statuses = self._store.read()
            out = [status for status in statuses if status.zone == zone and status.is_out(now)]
            if workload is not None and any(status.workload is None for status in out):
                raise Conflict(f"{zone} is out for all workloads: it cannot be brought in for {workload} alone")
            known = _find(statuses, zone, workload)
            wanted = ZoneStatus(
                zone=zone,
                workload=workload,
                out=False,
                since=now,
                by=by,
                reason=_reason(reason),
                version=_version(known),
            )
            if known is None or not known.out:
                if out:
                    named = ", ".join(sorted(str(status.workload) for status in out))
                    raise Conflict(f"{zone} is not out for all workloads, but for {named}: name the workload")
                return known or wanted
            try:
                return self._store.write(wanted, known.version)
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError  # the loop returns or raises

    def _write(self, wanted: ZoneStatus, *, force: bool) -> tuple[ZoneStatus | None, ZoneStatus]:
        """What was out before, if the zone was, and what was written."""
        for attempt in range(_TRIES):
            statuses = self._store.read()
            others = others_out(statuses, wanted.zone, wanted.workload, wanted.since)
            if others and not force:
                raise Conflict(
                    f"{_names(others)} is out: never a second zone while one is. Bring it in first, or use force if "
                    "the zones that are left can carry everything"
                )
            known = _find(statuses, wanted.zone, wanted.workload)
            # One that is out stays so since it first was.
            before = known if known is not None and known.is_out(wanted.since) else None
            since = wanted.since if before is None else before.since
            try:
                return before, self._store.write(replace(wanted, since=since), _version(known))
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError  # the loop returns or raises


def _reason(text: str) -> str:
    text = text.strip()
    if not text or len(text) > REASON_CHARACTERS:
        raise InvalidValue(
            f"reason of {len(text)} characters: expected 1 to {REASON_CHARACTERS}, for whoever comes next"
        )
    return text


def _find(statuses: Iterable[ZoneStatus], zone: Zone, workload: str | None) -> ZoneStatus | None:
    return next((each for each in statuses if each.zone == zone and each.workload == workload), None)


def _version(known: ZoneStatus | None) -> int:
    return 0 if known is None else known.version


def _names(zones: frozenset[Zone]) -> str:
    return ("zone " if len(zones) == 1 else "zones ") + ", ".join(sorted(zones))
