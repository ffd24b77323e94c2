"""Which zones are out, when several sources are asked and some lie, lag or are silent. Pure.

A zone is out when a majority of the configured sources say so, and in when a majority say that. Between the two, too
many are silent: then `SilencePolicy` decides. So with five sources, three that say out, one that says in and one that
is silent make it out; and two that lie change nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from holdfast._types import Zone

Key: TypeAlias = tuple[Zone, str | None]


class SilencePolicy(StrEnum):
    """What to hold true while too few sources are heard."""

    KEEP = "keep"
    """What was last decided: an outage of the status service changes nothing."""
    ALL_IN = "all_in"
    """Every zone is in."""
    OWN_ZONE_OUT = "own_zone_out"
    """What was last decided, and the own zone is out: a host that hears nobody may be what is broken."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What a source said when it was last heard. Times are monotonic."""

    heard_at: float
    out_until: Mapping[Key, float]
    """The keys that are out, each with the time until which it is."""
    zones: frozenset[Zone] | None = None
    """The zones that it was asked about: of all others it says nothing. None stands for all zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumRules:
    """How votes are counted."""

    sources: int
    stale_after: float
    """Seconds of silence after which a source no longer counts."""
    when_silent: SilencePolicy = SilencePolicy.KEEP
    own_zone: Zone | None = None
    started_at: float = 0.0
    """When counting began: before `stale_after` is over, silence means nothing."""

    @property
    def majority(self) -> int:
        return self.sources // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDecision:
    """What is held to be true."""

    zones_out: Mapping[str | None, frozenset[Zone]] = field(default_factory=lambda: {None: frozenset()})
    """By workload; None stands for all workloads, and for every one that is not listed."""
    out_until: Mapping[Key, float] = field(default_factory=dict)
    """For each zone that is out, by workload: when it is in again if nothing more is heard."""
    heard_sources: int = 0
    """How many sources count."""
    review_at: float = math.inf
    """When time alone may change the decision."""


def count_votes(
    votes: Sequence[Vote | None], rules: QuorumRules, previous: QuorumDecision, now: float
) -> QuorumDecision:
    """Count the votes. `previous` is what was decided before; the first time, an empty QuorumDecision."""
    fresh = [vote for vote in votes if vote is not None and now < vote.heard_at + rules.stale_after]
    keys = {key for vote in fresh for key in vote.out_until} | set(previous.out_until)
    zones, workloads = {zone for zone, _ in keys}, {workload for _, workload in keys} | {None}
    until = {
        (zone, workload): end
        for workload in workloads
        for zone in zones
        if (end := _out_until(fresh, rules, previous, (zone, workload), now)) > now
    }
    left, patience = _find_left_zone(len(fresh), rules, now)
    moments = [patience, *until.values(), *(vote.heard_at + rules.stale_after for vote in fresh)]
    moments += [end for vote in fresh for end in vote.out_until.values()]
    return QuorumDecision(
        zones_out=_group_by_workload(until, workloads, left),
        out_until=until,
        heard_sources=len(fresh),
        review_at=min((moment for moment in moments if moment > now), default=math.inf),
    )


def _find_left_zone(heard: int, rules: QuorumRules, now: float) -> tuple[frozenset[Zone], float]:
    """The own zone, if it is to be left because too few are heard; and when that may come to be so."""
    if rules.when_silent is not SilencePolicy.OWN_ZONE_OUT or rules.own_zone is None or heard >= rules.majority:
        return frozenset(), math.inf
    patience = rules.started_at + rules.stale_after
    return frozenset({rules.own_zone}) if now >= patience else frozenset(), patience


def _out_until(fresh: Sequence[Vote], rules: QuorumRules, previous: QuorumDecision, key: Key, now: float) -> float:
    """Until when a zone is out for a workload; nothing later than now if it is in."""
    zone, workload = key
    informed = [vote for vote in fresh if vote.zones is None or zone in vote.zones]
    ends = sorted(
        (
            end
            for vote in informed
            if (
                end := max(vote.out_until.get((zone, None), -math.inf), vote.out_until.get((zone, workload), -math.inf))
            )
            > now
        ),
        reverse=True,
    )
    if len(ends) >= rules.majority:
        return ends[rules.majority - 1]  # until then a majority says so
    if len(informed) - len(ends) >= rules.majority or rules.when_silent is SilencePolicy.ALL_IN:
        return -math.inf
    # A workload that had no entry of its own was decided with all the others.
    return max(previous.out_until.get(key, -math.inf), previous.out_until.get((zone, None), -math.inf))


def _group_by_workload(
    keys: Iterable[Key], workloads: Iterable[str | None], left: frozenset[Zone]
) -> dict[str | None, frozenset[Zone]]:
    listed = list(keys)
    by_workload = {each: left.union(zone for zone, workload in listed if workload == each) for each in workloads}
    everywhere = by_workload[None]
    return {each: zones for each, zones in by_workload.items() if each is None or zones != everywhere}
