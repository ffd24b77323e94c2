"""Decide whether a zone may be evacuated. Each guard says what it found, and what would lift a refusal. Pure."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast._names import format_count, get_region_code
from holdfast._types import Verdict, VerdictKind, Zone, ZoneState
from holdfast.evacuate.action import Discovery
from holdfast.evacuate.capacity import MARGIN, CapacityResult, ServiceCapacity, check_capacity
from holdfast.evacuate.journal import RecordedRuns, describe_run

MIN_PAUSE = 1800.0
"""Seconds between two evacuations. A second one soon after the first is often a reaction to the first."""
MAX_VERDICT_AGE = 120.0
"""Seconds after which a verdict says nothing about the present: many windows have passed, or detection has stopped."""


MAX_SIGNS = 3
"""Signs of another evacuation that a guard lists. With many shifted resources, the others say the same."""


class GuardName(StrEnum):
    """A condition of an evacuation, by the name that `--override` takes."""

    OTHER_ZONE = "other-zone"
    """No other zone of the region is out, shifted or being evacuated, by anybody."""
    LAST_ZONE = "last-zone"
    """At least one other zone remains."""
    VERDICT = "verdict"
    """A recent verdict says that this zone fails alone."""
    UNREADABLE = "unreadable"
    """Every account, region and status store could be read."""
    CAPACITY = "capacity"
    """The other zones can carry the highest load of the last days."""
    PAUSE = "pause"
    """The last evacuation began long enough ago."""


class GuardResult(Struct, frozen=True, kw_only=True):
    """The answer of one guard."""

    name: GuardName
    passed: bool
    finding: str
    """The facts that the guard found, with numbers."""
    remedy: str = ""
    """The change that would lift a refusal."""
    override: str = ""
    """The reason that was given to override a refusal."""

    @property
    def refuses(self) -> bool:
        """True if the guard prevents the evacuation."""
        return not self.passed and not self.override


class Situation(Struct, frozen=True, kw_only=True):
    """Everything that guards look at."""

    zone: Zone
    workload: str | None
    zones: Collection[Zone]
    """All zones of the workload, if they are known."""
    now: float
    states: Mapping[Zone, ZoneState]
    """The zones that are not in, by the status store."""
    runs: RecordedRuns
    discoveries: Mapping[str, Discovery]
    """The resources and signs that each action found, by its name."""
    verdict: Verdict | None
    """The current verdict of the workload; None if there is no detection."""
    has_status_store: bool = True
    """Whether there is a status store, so that `states` says something."""


class _Finding(NamedTuple):
    passed: bool
    text: str
    remedy: str = ""


def check_guards(situation: Situation, overrides: Mapping[str, str]) -> list[GuardResult]:
    """Return the answer of every guard, in a fixed order. Raise InvalidValue for an override without a reason."""
    for name, reason in overrides.items():
        if name not in list(GuardName):
            raise InvalidValue(f"there is no guard {name}: expected one of {', '.join(GuardName)}")
        if not reason.strip():
            raise InvalidValue(f"the guard {name} is overridden without a reason: give one, because it is recorded")
    results = []
    for guard, check in _GUARDS.items():
        found = check(situation)
        results.append(
            GuardResult(
                name=guard,
                passed=found.passed,
                finding=found.text,
                remedy=found.remedy,
                override="" if found.passed else overrides.get(guard, ""),
            )
        )
    return results


def list_refusals(results: Sequence[GuardResult]) -> list[GuardResult]:
    """Return the guards that prevent the evacuation."""
    return [each for each in results if each.refuses]


def describe_refusals(results: Sequence[GuardResult]) -> str:
    """Return why the evacuation is refused, and what lifts it, in one line."""
    return "; ".join(f"{each.name}: {each.finding} ({each.remedy})" for each in list_refusals(results))


def _check_other_zone(situation: Situation) -> _Finding:
    zone, code = situation.zone, get_region_code(situation.zone)
    signs = [
        f"{other} is {state}"
        for other, state in sorted(situation.states.items())
        if other != zone and get_region_code(other) == code and state is not ZoneState.IN
    ]
    signs += [
        describe_run(each, situation.now)
        for each in situation.runs.open
        if each.zone != zone and each.is_in_region(zone)
    ]
    signs += sorted(
        {
            f"traffic was moved away from {each.zone} by {each.source}"
            for found in situation.discoveries.values()
            for each in found.other_evacuations
            if each.zone != zone
        }
    )
    if not signs:
        resources = format_count(sum(len(found.resources) for found in situation.discoveries.values()), "resource")
        if not situation.has_status_store:
            text = f"no other zone is shifted, according to the journal and {resources}"
            return _Finding(
                True, f"{text}; NOT CHECKED: there is no status store here that could say which zones are out"
            )
        return _Finding(
            True, f"no other zone is out or shifted, according to the journal, the status store and {resources}"
        )
    if len(signs) > MAX_SIGNS:
        signs = [*signs[:MAX_SIGNS], f"and {format_count(len(signs) - MAX_SIGNS, 'more sign')}"]
    return _Finding(
        False,
        f"{'; '.join(signs)}: a second zone must not be evacuated",
        "wait until that zone is back, or restore it first",
    )


def _check_last_zone(situation: Situation) -> _Finding:
    others = sorted(set(situation.zones) - {situation.zone})
    if not situation.zones:
        return _Finding(True, "NOT CHECKED: no workload of the settings has this zone")
    if others:
        return _Finding(True, f"{format_count(len(others), 'other zone')}: {', '.join(others)}")
    return _Finding(
        False, f"{situation.zone} is the only zone of the workload", "add another zone to the workload first"
    )


def _check_verdict(situation: Situation) -> _Finding:
    verdict = situation.verdict
    if verdict is None:
        return _Finding(
            False,
            "there is no verdict: detection does not run here, or has not judged the workload yet",
            "ask the server that watches the workload (--server URL), or decide yourself, by your own dashboards",
        )
    age = max(situation.now - verdict.at, 0.0)
    if age > MAX_VERDICT_AGE:
        return _Finding(
            False,
            f"the verdict is {age:.0f} s old, more than {MAX_VERDICT_AGE:.0f} s: it says nothing about the present",
            "check that the server runs and that telemetry arrives",
        )
    if verdict.kind is VerdictKind.ISOLATED and verdict.zone == situation.zone:
        return _Finding(
            True, f"only {verdict.zone} fails, by the verdict of {age:.0f} s ago: {verdict.summary}".rstrip(": ")
        )
    if verdict.kind is VerdictKind.ISOLATED:
        return _Finding(
            False,
            f"the verdict says that {verdict.zone} fails, not {situation.zone}",
            f"evacuate {verdict.zone} instead",
        )
    return _Finding(
        False,
        f"the verdict is {verdict.kind}: {verdict.summary or 'no zone fails alone'}",
        _REMEDIES.get(verdict.kind, "wait for a verdict that names this zone"),
    )


_REMEDIES = {
    VerdictKind.REGIONAL: "do not evacuate: moving traffic does not help if several zones fail",
    VerdictKind.SHARED: "fail the shared resource over, then ask for a plan again",
    VerdictKind.INSTANCE: "replace the instance",
    VerdictKind.UNKNOWN: "wait until there is enough telemetry",
}


def _check_unreadable(situation: Situation) -> _Finding:
    actions: dict[tuple[str, str], list[str]] = {}
    for name, discovery in situation.discoveries.items():
        for each in discovery.unreadable:
            actions.setdefault((each.scope, each.reason), []).append(name)
    found = sorted(f"{', '.join(names)} cannot read {scope}: {reason}" for (scope, reason), names in actions.items())
    if not found:
        return _Finding(
            True, f"{format_count(len(situation.discoveries), 'action')} could read all accounts and stores"
        )
    return _Finding(
        False,
        f"{'; '.join(found)}. So it is unknown whether another zone is evacuated there",
        "check credentials and network",
    )


def _check_capacity(situation: Situation) -> _Finding:
    services = [each for found in situation.discoveries.values() for each in found.capacities]
    if not services:
        return _Finding(
            True,
            "NOT CHECKED: the action `capacity`, which measures it, is not configured, or found nothing in the zone",
        )
    results = [(each, check_capacity(each, situation.zone)) for each in services]
    lacking = [_describe_lack(each, found) for each, found in results if not found.suffices]
    weak = sum(each.is_weak for each in services)
    hint = f" (for {weak} of them, the load is only estimated)" if weak else ""
    if not lacking:
        service, closest = min(results, key=lambda each: each[1].remaining / max(each[1].needed, 1e-9))
        return _Finding(
            True,
            f"enough for {format_count(len(services), 'group and ECS service', 'groups and ECS services')} without "
            f"{situation.zone}{hint}. Smallest reserve: {_describe_units(service, closest)} ({service.basis})",
        )
    if len(lacking) > MAX_SIGNS:
        lacking = [*lacking[:MAX_SIGNS], f"and {format_count(len(lacking) - MAX_SIGNS, 'more service')}"]
    return _Finding(
        False,
        "; ".join(lacking),
        "add capacity in the other zones by hand, or set `scale_out_first = true` for the action `capacity`; if it is "
        "set already, raise the limit that is named, or spread the units evenly over the zones",
    )


def _describe_lack(service: ServiceCapacity, found: CapacityResult) -> str:
    weak = "; this is weak evidence, because the load is only estimated" if service.is_weak else ""
    limit = f"; Holdfast cannot add enough: {service.limit}" if service.limit else ""
    return f"{_describe_units(service, found)} ({service.basis}{weak}{limit})"


def _describe_units(service: ServiceCapacity, found: CapacityResult) -> str:
    added = f", {_format_units(service.added)} of which this evacuation starts first" if service.added else ""
    spread = "" if service.is_cross_zone else " (cross-zone load balancing is off, so the smallest zone decides)"
    return (
        f"{service.name} has {_format_units(found.remaining)} healthy units in the other zones{added}{spread}, and "
        f"needs {_format_units(found.needed)} with the margin of {MARGIN * 100:g} %"
    )


def _format_units(units: float) -> str:
    """Return a number of units, rounded up to tenths: a need must never look smaller than it is."""
    return f"{math.ceil(round(units * 10, 6)) / 10:,.1f}".removesuffix(".0")


def _check_pause(situation: Situation) -> _Finding:
    zone, code = situation.zone, get_region_code(situation.zone)
    started = [
        each.started
        for each in situation.runs.runs
        # The same zone may be evacuated for several workloads, one after the other.
        if get_region_code(each.zone) == code and (each.zone != zone or each.overlaps(zone, situation.workload))
    ]
    if not started:
        return _Finding(True, "the journal has no earlier evacuation in this region")
    waited = max(situation.now - max(started), 0.0)
    text = f"the last evacuation began {format_count(round(waited / 60), 'minute')} ago"
    if waited >= MIN_PAUSE:
        return _Finding(True, f"{text}, more than {MIN_PAUSE / 60:.0f}")
    left = format_count(round((MIN_PAUSE - waited) / 60), "minute")
    return _Finding(
        False,
        f"{text}; at least {MIN_PAUSE / 60:.0f} must pass",
        f"wait {left}, and watch the effect of that evacuation",
    )


_GUARDS: dict[GuardName, Callable[[Situation], _Finding]] = {
    GuardName.OTHER_ZONE: _check_other_zone,
    GuardName.LAST_ZONE: _check_last_zone,
    GuardName.VERDICT: _check_verdict,
    GuardName.UNREADABLE: _check_unreadable,
    GuardName.CAPACITY: _check_capacity,
    GuardName.PAUSE: _check_pause,
}
