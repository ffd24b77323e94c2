"""Decide which zones are out when several sources are asked, and some are wrong, late or unresponsive. Pure.

A zone is out when a majority of the configured sources report it out, and in when a majority report it in. Otherwise
too few sources answer, or they disagree, and `SilencePolicy` decides. Example with five sources: three report out, one
reports in, one does not answer: the zone is out. Two wrong sources of five change nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from holdfast._types import Zone

Key: TypeAlias = tuple[Zone, str | None]


class SilencePolicy(StrEnum):
    """What to do about a zone while no majority of the sources reports it out or in: few answer, or they disagree."""

    KEEP = "keep"
    """Keep the last decision: an outage of the status service changes nothing."""
    ALL_IN = "all_in"
    """Treat every zone as in."""
    OWN_ZONE_OUT = "own_zone_out"
    """Keep the last decision, and treat the own zone as out while no majority answers: a host that reaches no source
    may be broken itself."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The last answer of one source. Times are monotonic."""

    answered_at: float
    out_until: Mapping[Key, float]
    """The keys that are out, each with the time at which that ends."""
    zones: frozenset[Zone] | None = None
    """The zones that the source was asked about; it has no vote on others. None means all zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumRules:
    """The rules for counting votes."""

    sources: int
    stale_after: float
    """Seconds without an answer after which a source no longer counts."""
    when_silent: SilencePolicy = SilencePolicy.KEEP
    own_zone: Zone | None = None
    started_at: float = 0.0
    """When counting began. OWN_ZONE_OUT takes effect `stale_after` seconds later, so that a restart changes nothing."""

    @property
    def majority(self) -> int:
        return self.sources // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDecision:
    """The result of a count: the zones that are out."""

    zones_out: Mapping[str | None, frozenset[Zone]] = field(default_factory=lambda: {None: frozenset()})
    """Zones out by workload. The key None applies to all workloads that are not listed."""
    out_until: Mapping[Key, float] = field(default_factory=dict)
    """When each zone that is out, by workload, is in again if no further answer arrives."""
    answering_sources: int = 0
    """Number of sources that answered within `stale_after`."""
    review_at: float = math.inf
    """The next time at which the decision may change without a new answer."""


def count_votes(
    votes: Sequence[Vote | None], rules: QuorumRules, previous: QuorumDecision, now: float
) -> QuorumDecision:
    """Decide which zones are out at `now`. `previous` is the last decision; the first time, an empty QuorumDecision."""
    fresh = [vote for vote in votes if vote is not None and now < vote.answered_at + rules.stale_after]
    keys = {key for vote in fresh for key in vote.out_until} | set(previous.out_until)
    zones, workloads = {zone for zone, _ in keys}, {workload for _, workload in keys} | {None}
    until = {
        (zone, workload): end
        for workload in workloads
        for zone in zones
        if (end := _count_out_until(fresh, rules, previous, (zone, workload), now)) is not None
    }
    own, own_out_at = rules.own_zone, _own_zone_out_at(len(fresh), rules)
    own_out: frozenset[Zone] = frozenset() if own is None or now < own_out_at else frozenset({own})
    moments = [own_out_at, *until.values(), *(vote.answered_at + rules.stale_after for vote in fresh)]
    moments += [end for vote in fresh for end in vote.out_until.values()]
    return QuorumDecision(
        zones_out=_group_by_workload(until, workloads, own_out),
        out_until=until,
        answering_sources=len(fresh),
        review_at=min((moment for moment in moments if moment > now), default=math.inf),
    )


def _own_zone_out_at(answering: int, rules: QuorumRules) -> float:
    """Return when the own zone counts as out because too few sources answer; infinity means never."""
    if rules.when_silent is not SilencePolicy.OWN_ZONE_OUT or rules.own_zone is None or answering >= rules.majority:
        return math.inf
    return rules.started_at + rules.stale_after


def _count_out_until(
    fresh: Sequence[Vote], rules: QuorumRules, previous: QuorumDecision, key: Key, now: float
) -> float | None:
    """Return when a zone that is out for a workload is in again, or None if it is in now."""
    zone, _ = key
    informed = [vote for vote in fresh if vote.zones is None or zone in vote.zones]
    ends = [end for vote in informed if (end := _find_out_until(vote.out_until, key, now)) is not None]
    if len(ends) >= rules.majority:
        return sorted(ends, reverse=True)[rules.majority - 1]  # until then a majority reports the zone as out
    if len(informed) - len(ends) >= rules.majority or rules.when_silent is SilencePolicy.ALL_IN:
        return None
    return _find_out_until(previous.out_until, key, now)


def _find_out_until(out_until: Mapping[Key, float], key: Key, now: float) -> float | None:
    """Return when a zone that is out for this workload or for all will be in again, or None if it is in now."""
    zone, _ = key
    return max((end for each in (key, (zone, None)) if (end := out_until.get(each, now)) > now), default=None)


def _group_by_workload(
    keys: Iterable[Key], workloads: Iterable[str | None], own_out: frozenset[Zone]
) -> dict[str | None, frozenset[Zone]]:
    listed = list(keys)
    by_workload = {each: own_out.union(zone for zone, workload in listed if workload == each) for each in workloads}
    everywhere = by_workload[None]
    return {each: zones for each, zones in by_workload.items() if each is None or zones != everywhere}
