"""Take zones out and bring them in: the rules that apply to operators and detectors alike.

Taking a zone out is a two-phase write, because no store can lock a region: write a provisional status, which expires
after PROVISIONAL_SECONDS; read all statuses again; then confirm it, or undo it if another zone was taken out meanwhile.
A writer that crashes or loses the store between the phases leaves nothing permanent behind.
"""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineError, InvalidValue, OutcomeUnknown
from holdfast._names import CONTROL_CHARACTERS, get_region_code
from holdfast._types import StatusStore, Zone, ZoneState, ZoneStatus
from holdfast.status.stores.rules import ABSENT_VERSION

MAX_REASON_CHARACTERS = 500
"""A sentence or two, not a log."""
REASON_PATTERN = rf"^[^{CONTROL_CHARACTERS}]*[^\s{CONTROL_CHARACTERS}][^{CONTROL_CHARACTERS}]*$"
"""One line that is not blank, without control characters."""
EVACUATION_PREFIX = "hf-"
"""The ids of evacuations begin with it. A status that was written `by` one is undone by `holdfast zone restore`."""
PROVISIONAL_SECONDS = 30.0
"""Duration of a provisional status: longer than a slow store takes for three requests."""
MAX_ATTEMPTS = 20
"""Write conflicts on one status before the caller gets the Conflict. Two writers in lockstep collide a few times before
one of them succeeds."""


def find_others_out(statuses: Iterable[ZoneStatus], zone: Zone, workload: str | None, now: float) -> frozenset[Zone]:
    """Return the other zones of the region that are not fully in for `workload` or for all; None means any workload."""
    return frozenset(
        status.zone
        for status in statuses
        if status.zone != zone
        and get_region_code(status.zone) == get_region_code(zone)
        and status.state_at(now) is not ZoneState.IN
        and (workload is None or status.workload is None or status.workload == workload)
    )


def find_states(statuses: Iterable[ZoneStatus], workload: str | None, now: float) -> dict[Zone, ZoneState]:
    """Return the state of each zone that is not in, for `workload` or for all; the stricter of the two.

    Without a workload, return the strictest state that any workload has.
    """
    found: dict[Zone, ZoneState] = {}
    for status in statuses:
        state = status.state_at(now)
        if (workload is None or status.workload in (None, workload)) and state is not ZoneState.IN:
            known = found.get(status.zone, state)
            found[status.zone] = min(known, state, key=_STRICTEST_FIRST.index)
    return found


_STRICTEST_FIRST = (ZoneState.OUT, ZoneState.DRAINING, ZoneState.RETURNING)


class StatusWriter:
    """Takes zones out and brings them in. Never takes a second zone of a region out for a workload, unless forced.

    `take_out` writes twice: first a provisional status, which expires after 30 s; then, if no other zone was taken out
    meanwhile, the final one. If `store` publishes every write, pass the store below it as `unpublished_store`, which
    gets the provisional status, so that only the final one is published. As thread-safe as its store.
    """

    def __init__(self, store: StatusStore, clock: Clock, *, unpublished_store: StatusStore | None = None) -> None:
        self.store = store
        self._clock = clock
        self._unpublished_store = unpublished_store or store

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
        any_workload: bool = False,
    ) -> ZoneStatus:
        """Mark a zone as out, for `seconds` or until it is brought in.

        If the zone is out already, it gets the new reason and expiry; with `renew` false it stays unchanged. Raise
        Conflict while another zone of the region is out for any affected workload, unless `force` is true; with
        `any_workload`, all workloads are affected. Raise OutcomeUnknown if the store fails between the two phases: then
        the zone is out, but perhaps provisionally.
        """
        now = self._clock.wall()
        wanted = ZoneStatus(
            zone=zone,
            workload=workload,
            state=ZoneState.OUT,
            since=now,
            by=by,
            reason=check_reason(reason),
            expires=None if seconds is None else now + seconds,
        )
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._take_out(wanted, None if any_workload else workload, force=force, renew=renew)
            except _WriteConflict as error:  # another writer changed the status of the same zone
                if attempt == MAX_ATTEMPTS - 1:
                    raise Conflict(str(error)) from error
        raise AssertionError  # the loop returns or raises

    def _take_out(self, wanted: ZoneStatus, affected: str | None, *, force: bool, renew: bool) -> ZoneStatus:
        """Take the zone out. `affected` is the workload for which no other zone may be out; None means any."""
        now = self._clock.wall()
        statuses = self.store.read()
        known = _find(statuses, wanted.zone, wanted.workload)
        version = ABSENT_VERSION if known is None else known.version
        before = known if known is not None and known.is_out(now) else None
        if before is not None:
            if not renew:
                return before
            wanted = replace(wanted, since=before.since)  # renewing does not change since when the zone is out
        if force:
            return _write(self.store, wanted, version)
        others = find_others_out(statuses, wanted.zone, affected, now)
        if others:
            them = "it" if len(others) == 1 else "them"
            raise Conflict(
                f"{_format_zones(others, 'is', 'are')} out, and only one zone of a region may be out: bring {them} in "
                "first, or force the change (--force, or `force` in the API) if the other zones can carry all traffic"
            )
        end = min(wanted.expires or math.inf, now + PROVISIONAL_SECONDS)
        if before is not None:  # a failed renewal must not bring the zone in earlier than before
            end = max(before.expires or math.inf, end)
        claim = replace(wanted, expires=None if end == math.inf else end)
        provisional = _write(self._unpublished_store, claim, version)
        was_in = known is None or known.state_at(now) is ZoneState.IN
        try:
            return self._confirm(wanted, affected, provisional, None if was_in else known)
        except EngineError as error:
            raise OutcomeUnknown(
                f"zone {wanted.zone} was taken out, perhaps only for {PROVISIONAL_SECONDS:.0f} s: check its status, "
                f"then take it out again ({error})"
            ) from error

    def _confirm(
        self, wanted: ZoneStatus, affected: str | None, provisional: ZoneStatus, before: ZoneStatus | None
    ) -> ZoneStatus:
        """Replace the provisional status by the wanted one, or undo it if another zone was taken out meanwhile."""
        others = find_others_out(self.store.read(), wanted.zone, affected, self._clock.wall())
        if others:
            self._undo(provisional, before)
            raise Conflict(
                f"{_format_zones(others, 'was', 'were')} taken out at the same time, so {wanted.zone} was not: check "
                "both, then decide"
            )
        return _write(self.store, wanted, provisional.version)

    def bring_in(
        self, zone: Zone, workload: str | None = None, *, by: str, reason: str, force: bool = False
    ) -> ZoneStatus:
        """Mark a zone as in, for one workload or for all. A zone that is in already stays unchanged.

        Brought in for all, it stays out for single workloads that have their own status. Raise Conflict if the zone
        is out for all and `workload` is given, or is out only for single workloads and `workload` is None; also if an
        evacuation took it out, unless `force` is true.
        """
        now = self._clock.wall()
        wanted = ZoneStatus(
            zone=zone, workload=workload, state=ZoneState.IN, since=now, by=by, reason=check_reason(reason)
        )
        for attempt in range(MAX_ATTEMPTS):
            statuses = self.store.read()
            known = _find(statuses, zone, workload)
            out = {status.workload for status in statuses if status.zone == zone and status.is_out(now)}
            if workload is not None and None in out:
                raise Conflict(f"{zone} is out for all workloads: it cannot be brought in for {workload} alone")
            if known is None or known.state is ZoneState.IN:
                if workload is None and out:
                    named = ", ".join(sorted(map(str, out)))
                    raise Conflict(f"{zone} is not out for all workloads, but for {named}: name the workload")
                return known or wanted
            if known.is_out(now) and known.by.startswith(EVACUATION_PREFIX) and not force:
                raise Conflict(
                    f"{zone} was evacuated by run {known.by}: bring it back with `holdfast zone restore {zone}`, which "
                    "also restores its resources. Force the change only if the journal of that run is lost"
                )
            try:
                return self.store.write(wanted, known.version)
            except Conflict:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        raise AssertionError  # the loop returns or raises

    def _undo(self, provisional: ZoneStatus, before: ZoneStatus | None) -> None:
        """Restore `before`, the status of a zone that was not in, or bring the zone in."""
        reason = "another zone was taken out at the same time"
        back = replace(provisional, state=ZoneState.IN, share=None, expires=None, reason=reason)
        with suppress(Conflict):  # another writer has changed the status since, and is responsible for it
            self.store.write(before or back, provisional.version)


class _WriteConflict(Exception):
    """Another writer changed the same status first."""


def _write(store: StatusStore, status: ZoneStatus, expected: int) -> ZoneStatus:
    try:
        return store.write(status, expected)
    except Conflict as error:
        raise _WriteConflict(str(error)) from error


def check_reason(text: str) -> str:
    """Return a reason without spaces around it. Raise InvalidValue if it is blank, too long or not one line."""
    text = text.strip()
    if not text or len(text) > MAX_REASON_CHARACTERS:
        raise InvalidValue(f"reason of {len(text)} characters: expected 1 to {MAX_REASON_CHARACTERS}")
    if not re.search(REASON_PATTERN, text):
        raise InvalidValue(f"reason {text[:80]!r}: expected one line of text without control characters")
    return text


def _find(statuses: Iterable[ZoneStatus], zone: Zone, workload: str | None) -> ZoneStatus | None:
    return next((each for each in statuses if each.zone == zone and each.workload == workload), None)


def _format_zones(zones: frozenset[Zone], singular: str, plural: str) -> str:
    noun, verb = ("zone", singular) if len(zones) == 1 else ("zones", plural)
    return f"{noun} {', '.join(sorted(zones))} {verb}"
