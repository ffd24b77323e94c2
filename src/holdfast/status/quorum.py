"""Which zones are out, when several sources are asked and some lie, lag or are silent. Pure.

A zone is out when a majority of the configured sources say so, and in when a majority say that. Between the two, too
many are silent: then `WhenSilent` decides. So with five sources, three that say out, one that says in and one that is
silent make it out; and two that lie change nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from holdfast._types import Zone

Key: TypeAlias = tuple[Zone, str | None]


class WhenSilent(StrEnum):
    """What to hold true while too few sources are heard."""

    KEEP = "keep"
    """What was last decided: an outage of the status service changes nothing."""
    RETURN = "return"
    """Every zone is in."""
    LEAVE = "leave"
    """What was last decided, and the own zone is out: a host that hears nobody may be what is broken."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What a source said when it was last heard. Times are monotonic."""

    heard: float
    out: Mapping[Key, float]
    """The keys that are out, each with the time until which it is."""
    about: frozenset[Zone] | None = None
    """The zones that it was asked about: of all others it says nothing. None stands for all zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How votes are counted."""

    sources: int
    stale_after: float
    """Seconds of silence after which a source no longer counts."""
    when_silent: WhenSilent = WhenSilent.KEEP
    own_zone: Zone | None = None
    started: float = 0.0
    """When counting began: before `stale_after` is over, silence means nothing."""

    @property
    def majority(self) -> int:
        return self.sources // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is held to be true."""

    out: Mapping[str | None, frozenset[Zone]] = field(default_factory=lambda: {None: frozenset()})
    """By workload; None stands for all workloads, and for every one that is not listed."""
    until: Mapping[Key, float] = field(default_factory=dict)
    """For each zone that is out, by workload: when it is in again if nothing more is heard."""
    heard: int = 0
    """How many sources count."""
    review_at: float = math.inf
    """When time alone may change the decision."""


def decide(votes: Sequence[Vote | None], rules: Rules, previous: Decision, now: float) -> Decision:
    """Count the votes. `previous` is what was decided before; the first time, an empty Decision."""
    fresh = [vote for vote in votes if vote is not None and now < vote.heard + rules.stale_after]
    keys = {key for vote in fresh for key in vote.out} | set(previous.until)
    zones, workloads = {zone for zone, _ in keys}, {workload for _, workload in keys} | {None}
    until = {
        (zone, workload): end
        for workload in workloads
        for zone in zones
        if (end := _out_until(fresh, rules, previous, (zone, workload), now)) > now
    }
    left, patience = _left(len(fresh), rules, now)
    moments = [patience, *until.values(), *(vote.heard + rules.stale_after for vote in fresh)]
    moments += [end for vote in fresh for end in vote.out.values()]
    return Decision(
        out=_by_workload(until, workloads, left),
        until=until,
        heard=len(fresh),
        review_at=min((moment for moment in moments if moment > now), default=math.inf),
    )


def _left(heard: int, rules: Rules, now: float) -> tuple[frozenset[Zone], float]:
    """The own zone, if it is to be left because too few are heard; and when that may come to be so."""
    if rules.when_silent is not WhenSilent.LEAVE or rules.own_zone is None or heard >= rules.majority:
        return frozenset(), math.inf
    patience = rules.started + rules.stale_after
    return frozenset({rules.own_zone}) if now >= patience else frozenset(), patience


def _out_until(fresh: Sequence[Vote], rules: Rules, previous: Decision, key: Key, now: float) -> float:
    """Until when a zone is out for a workload; nothing later than now if it is in."""
    zone, workload = key
    said = [vote for vote in fresh if vote.about is None or zone in vote.about]
    ends = sorted(
        (
            end
            for vote in said
            if (end := max(vote.out.get((zone, None), -math.inf), vote.out.get((zone, workload), -math.inf))) > now
        ),
        reverse=True,
    )
    if len(ends) >= rules.majority:
        return ends[rules.majority - 1]  # until then a majority says so
    if len(said) - len(ends) >= rules.majority or rules.when_silent is WhenSilent.RETURN:
        return -math.inf
    # A workload that had no entry of its own was decided with all the others.
    return max(previous.until.get(key, -math.inf), previous.until.get((zone, None), -math.inf))


def _by_workload(
    keys: Iterable[Key], workloads: Iterable[str | None], left: frozenset[Zone]
) -> dict[str | None, frozenset[Zone]]:
    listed = list(keys)
    by_workload = {each: left.union(zone for zone, workload in listed if workload == each) for each in workloads}
    everywhere = by_workload[None]
    return {each: zones for each, zones in by_workload.items() if each is None or zones != everywhere}
