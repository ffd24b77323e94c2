"""Decide whether a zone may be evacuated. Each guard says why it refuses, and what would lift it. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast._names import get_region_code
from holdfast._types import Verdict, VerdictKind, Zone, ZoneState
from holdfast.evacuate.action import Discovery
from holdfast.evacuate.journal import OpenRuns, describe_run

MIN_PAUSE = 1800.0
"""Seconds between two evacuations. A second one soon after the first is often a reaction to the first."""
MAX_VERDICT_AGE = 120.0
"""Seconds after which a verdict says nothing about the present: many windows have passed, or detection has stopped."""


class GuardName(StrEnum):
    """A condition of an evacuation, by the name that `--override` takes."""

    OTHER_ZONE = "other-zone"
    """No other zone of the region is out, shifted or being evacuated, by anybody."""
    LAST_ZONE = "last-zone"
    """At least one other zone remains."""
    VERDICT = "verdict"
    """A recent verdict says that this zone fails alone."""
    UNREADABLE = "unreadable"
    """Every account and region could be read."""
    PAUSE = "pause"
    """The last evacuation began long enough ago."""


class GuardResult(Struct, frozen=True):
    """The answer of one guard."""

    name: GuardName
    refusal: str = ""
    """Why the guard refuses; "" if it does not."""
    remedy: str = ""
    """What would lift the refusal."""
    override: str = ""
    """The reason that was given to override the guard."""

    @property
    def holds(self) -> bool:
        """True if the guard prevents the evacuation."""
        return bool(self.refusal) and not self.override


class Situation(Struct, frozen=True, kw_only=True):
    """Everything that guards look at."""

    zone: Zone
    workload: str | None
    zones: Collection[Zone]
    """All zones of the workload, if they are known."""
    now: float
    states: Mapping[Zone, ZoneState]
    """The zones that are not in, by the status store."""
    runs: OpenRuns
    last_started: float | None
    """When the last evacuation began, of any zone."""
    discoveries: Mapping[str, Discovery]
    """What each action found, by its name."""
    verdict: Verdict | None
    """The current verdict of the workload; None without a server."""


def check_guards(situation: Situation, overrides: Mapping[str, str]) -> list[GuardResult]:
    """Return the answer of every guard, in a fixed order. Raise InvalidValue for an override without a reason."""
    for name, reason in overrides.items():
        if name not in list(GuardName):
            raise InvalidValue(f"there is no guard {name}: expected one of {', '.join(GuardName)}")
        if not reason.strip():
            raise InvalidValue(f"the guard {name} is overridden without a reason: say why, it is recorded")
    found = []
    for guard, check in _GUARDS.items():
        refusal, remedy = check(situation)
        found.append(GuardResult(guard, refusal, remedy, overrides.get(guard, "") if refusal else ""))
    return found


def _check_other_zone(situation: Situation) -> tuple[str, str]:
    zone = situation.zone
    signs = [
        f"{other} is {state}"
        for other, state in sorted(situation.states.items())
        if other != zone and get_region_code(other) == get_region_code(zone) and state is not ZoneState.IN
    ]
    signs += [
        describe_run(each, situation.now)
        for each in situation.runs.runs
        if each.zone != zone and each.overlaps(zone, situation.workload)
    ]
    signs += sorted(
        {
            f"{each.source} moved traffic away from {each.zone}"
            for found in situation.discoveries.values()
            for each in found.other_evacuations
            if each.zone != zone
        }
    )
    if not signs:
        return "", ""
    return (
        f"{'; '.join(signs)}: a second zone must not be evacuated",
        "wait until that zone is back, or restore it first",
    )


def _check_last_zone(situation: Situation) -> tuple[str, str]:
    if not situation.zones or set(situation.zones) - {situation.zone}:
        return "", ""
    return f"{situation.zone} is the only zone of the workload", "add another zone to the workload first"


def _check_verdict(situation: Situation) -> tuple[str, str]:
    verdict = situation.verdict
    if verdict is None:
        return "there is no verdict without a server", "ask the server (--server), or look at your own dashboards"
    age = situation.now - verdict.at
    if age > MAX_VERDICT_AGE:
        return f"the verdict is {age:.0f} s old, so it says nothing about now", "check that telemetry arrives"
    if verdict.kind is VerdictKind.ISOLATED and verdict.zone == situation.zone:
        return "", ""
    if verdict.kind is VerdictKind.ISOLATED:
        return f"the verdict names {verdict.zone}, not {situation.zone}", f"evacuate {verdict.zone} instead"
    return (
        f"the verdict is {verdict.kind}: {verdict.summary or 'no zone fails alone'}",
        _REMEDIES.get(verdict.kind, "wait for a verdict that names this zone"),
    )


_REMEDIES = {
    VerdictKind.REGIONAL: "moving traffic does not help if several zones fail",
    VerdictKind.SHARED: "fail the shared resource over, then look again",
    VerdictKind.INSTANCE: "replace the instance",
    VerdictKind.UNKNOWN: "wait until there is enough telemetry",
}


def _check_unreadable(situation: Situation) -> tuple[str, str]:
    found = sorted(
        f"{name} in {each.scope}: {each.reason}"
        for name, discovery in situation.discoveries.items()
        for each in discovery.unreadable
    )
    if not found:
        return "", ""
    return (
        f"cannot read {'; '.join(found)}: whether another zone is evacuated there is unknown",
        "check credentials and network",
    )


def _check_pause(situation: Situation) -> tuple[str, str]:
    if situation.last_started is None or situation.now - situation.last_started >= MIN_PAUSE:
        return "", ""
    waited = max(situation.now - situation.last_started, 0.0)
    return (
        f"the last evacuation began {waited / 60:.0f} minutes ago",
        f"wait {(MIN_PAUSE - waited) / 60:.0f} minutes, to see its effect",
    )


_GUARDS: dict[GuardName, Callable[[Situation], tuple[str, str]]] = {
    GuardName.OTHER_ZONE: _check_other_zone,
    GuardName.LAST_ZONE: _check_last_zone,
    GuardName.VERDICT: _check_verdict,
    GuardName.UNREADABLE: _check_unreadable,
    GuardName.PAUSE: _check_pause,
}


def list_refusals(results: Sequence[GuardResult]) -> list[GuardResult]:
    """Return the guards that prevent the evacuation."""
    return [each for each in results if each.holds]
