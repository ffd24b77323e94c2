"""Taking a zone out and bringing it in: the rules that hold for operators and for detectors alike."""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineError, InvalidValue, OutcomeUnknown
from holdfast._names import get_region_code
from holdfast._types import StatusStore, Zone, ZoneState, ZoneStatus

MAX_REASON_CHARACTERS = 500
"""Longest reason: a sentence or two, not a log."""
REASON_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
"""One line, and not of blanks alone: a terminal shows it, and what else it could be told to do is left out."""
CLAIM_SECONDS = 30.0
"""How long a zone is out before it is certain that no other is: longer than a slow store takes for three requests."""
MAX_ATTEMPTS = 20
"""Writes of the same status that may collide before somebody must look. Two who are in step overtake each other a few
times before one of them gets through."""


def find_others_out(statuses: Iterable[ZoneStatus], zone: Zone, workload: str | None, now: float) -> frozenset[Zone]:
    """Return the other zones of the region that do not take all of their traffic, for any workload concerned."""
    return frozenset(
        status.zone
        for status in statuses
        if status.zone != zone
        and get_region_code(status.zone) == get_region_code(zone)
        and status.state_at(now) is not ZoneState.IN
        and (workload is None or status.workload is None or status.workload == workload)
    )


class StatusWriter:
    """Changes statuses in a store, within the rules. Thread-safe as far as the store is.

    `claim_store` is the same store, where it would tell everybody of every write: what is not certain yet is written
    there.
    """

    def __init__(self, store: StatusStore, clock: Clock, *, claim_store: StatusStore | None = None) -> None:
        self._store = store
        self._clock = clock
        self._claim_store = claim_store or store

    def take_out(
        self,
        zone: Zone,
        workload: str | None = None,
        *,
        by: str,
        reason: str,
        seconds: float | None = None,
        force: bool = False,
        renew: bool = True,
    ) -> ZoneStatus:
        """Mark a zone as out, for `seconds` or until it is brought in.

        One that is out already gets the new reason and end, or with `renew` false stays as it is. Raises Conflict
        while another zone of the region is out for any workload concerned, unless by `force`. Raises OutcomeUnknown if
        the store fails half-way: then the zone is out for half a minute at the most.
        """
        now = self._clock.wall()
        wanted = ZoneStatus(
            zone=zone,
            workload=workload,
            state=ZoneState.OUT,
            since=now,
            by=by,
            reason=_check_reason(reason),
            expires=None if seconds is None else now + seconds,
        )
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._take_out(wanted, force=force, renew=renew)
            except _WriteConflict as error:  # somebody took the same zone out at the same moment
                if attempt == MAX_ATTEMPTS - 1:
                    raise Conflict(str(error)) from error
        raise AssertionError  # the loop returns or raises

    def _take_out(self, wanted: ZoneStatus, *, force: bool, renew: bool) -> ZoneStatus:
        now = self._clock.wall()
        statuses = self._store.read()
        known = _find(statuses, wanted.zone, wanted.workload)
        version = 0 if known is None else known.version
        before = known if known is not None and known.is_out(now) else None
        if before is not None:
            if not renew:
                return before
            wanted = replace(wanted, since=before.since)  # one that is out stays so since it first was
        if force:
            return _write(self._store, wanted, version)
        others = find_others_out(statuses, wanted.zone, wanted.workload, now)
        if others:
            raise Conflict(
                f"{_format_zones(others)} is out: never a second zone while one is. Bring it in first, or use force if "
                "the zones that are left can carry everything"
            )
        # For a moment at first, and for good only after another look: somebody may have taken another zone out between
        # our look and our write. Whoever dies in between, or cannot go on, leaves nothing behind that stays.
        end = min(wanted.expires or math.inf, now + CLAIM_SECONDS)
        if before is not None:  # what was out already does not come back because somebody fails to renew it
            end = max(before.expires or math.inf, end)
        claim = _write(self._claim_store, replace(wanted, expires=None if end == math.inf else end), version)
        try:
            others = find_others_out(self._store.read(), wanted.zone, wanted.workload, self._clock.wall())
            if others:
                was_in = known is None or known.state_at(now) is ZoneState.IN
                self._undo_claim(claim, None if was_in else known)
                raise Conflict(
                    f"{_format_zones(others)} was taken out at the same moment, so {wanted.zone} was not: look, "
                    "then decide"
                )
            return _write(self._store, wanted, claim.version)
        except EngineError as error:
            raise OutcomeUnknown(
                f"{wanted.zone} was taken out, it is not certain for how long: look, then take it out again ({error})"
            ) from error

    def bring_in(self, zone: Zone, workload: str | None = None, *, by: str, reason: str) -> ZoneStatus:
        """Mark a zone as in, for one workload or for all; one that is in already stays as it is.

        What is out for single workloads stays so when the zone is brought in for all. Raises Conflict where the zone is
        not out for all but for single ones, and the other way round.
        """
        now = self._clock.wall()
        wanted = ZoneStatus(
            zone=zone, workload=workload, state=ZoneState.IN, since=now, by=by, reason=_check_reason(reason)
        )
        for attempt in range(MAX_ATTEMPTS):
            statuses = self._store.read()
            known = _find(statuses, zone, workload)
            out = {status.workload for status in statuses if status.zone == zone and status.is_out(now)}
            if workload is not None and None in out:
                raise Conflict(f"{zone} is out for all workloads: it cannot be brought in for {workload} alone")
            if known is None or known.state is ZoneState.IN:
                if workload is None and out:
                    named = ", ".join(sorted(map(str, out)))
                    raise Conflict(f"{zone} is not out for all workloads, but for {named}: name the workload")
                return known or wanted
            try:
                return self._store.write(wanted, known.version)
            except Conflict:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        raise AssertionError  # the loop returns or raises

    def _undo_claim(self, claim: ZoneStatus, before: ZoneStatus | None) -> None:
        """Undo a claim, so that there are never two zones out. A zone that was not in before is as it was."""
        reason = "another zone was taken out at the same moment"
        back = replace(claim, state=ZoneState.IN, share=None, expires=None, reason=reason)
        with suppress(Conflict):  # somebody else has changed it since, and looks after it
            self._store.write(before or back, claim.version)


class _WriteConflict(Exception):
    """Somebody else wrote the same status first."""


def _write(store: StatusStore, status: ZoneStatus, expected: int) -> ZoneStatus:
    try:
        return store.write(status, expected)
    except Conflict as error:
        raise _WriteConflict(str(error)) from error


def _check_reason(text: str) -> str:
    text = text.strip()
    if not text or len(text) > MAX_REASON_CHARACTERS:
        raise InvalidValue(f"reason of {len(text)} characters: expected 1 to {MAX_REASON_CHARACTERS}")
    if not re.search(REASON_PATTERN, text):
        raise InvalidValue(f"reason {text[:80]!r}: expected one line of text")
    return text


def _find(statuses: Iterable[ZoneStatus], zone: Zone, workload: str | None) -> ZoneStatus | None:
    return next((each for each in statuses if each.zone == zone and each.workload == workload), None)


def _format_zones(zones: frozenset[Zone]) -> str:
    return ("zone " if len(zones) == 1 else "zones ") + ", ".join(sorted(zones))
