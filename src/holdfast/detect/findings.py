"""Decide which evidence is enough to isolate a zone, and say which guard holds the rest back. Pure.

Evidence above the threshold is necessary, not sufficient: the zone must also be clearly worse than every other zone,
the region must be calm, and the evidence must outlast a deploy unless much of the zone's traffic is affected.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from holdfast.detect import counts, latency, throughput
from holdfast.detect.counts import CountState
from holdfast.detect.cusum import GUARD, STILL_FAILING, STRONG_GUARD, SUSPICIOUS, Array, Mask, find_deploy_threshold
from holdfast.detect.streams import PACKED, PackedEvidence, StreamState, StreamStep

CLEARLY_WORSE, MUCH_WORSE = 1.5, 5.0
"""The zone's rise divided by that of the worst other zone: usually, and while another zone is not quite healthy."""
MIN_EXCESS = 0.0002
"""Share of the requests that must fail in addition."""
UNWELL, POOL_UNWELL, UNWELL_FAULTS = 2.0, 1.5, 3.0
"""Another zone is not quite healthy from this rise on, for one operation and for all, with this excess of faults."""
REGIONAL_EVIDENCE = SUSPICIOUS / 2
AFTER_REGIONAL = 900.0
"""Seconds after several zones were worse than usual in which only evidence over all operations isolates."""
FAST_EXCESS, FAST_SLOWDOWN = 0.1, math.log(1.7)
"""A deploy rarely fails a tenth of all requests of a zone, or makes all of them 1.7 times as slow."""
DEPLOY_LENGTH, DEPLOY_RECENT, AFTER_DEPLOY = 190.0, 30.0, 300.0
"""Seconds that a deploy takes in one zone; the last seconds, in which there must be evidence; and the seconds after an
announced deploy in which its effects may last."""
MIN_SLOWDOWN, SLOWDOWN_RATIO = math.log(1.15), 3.0


class Signal(StrEnum):
    """The kind of a measurement that is evidence against a zone."""

    FAULTS = "faults"
    SLOW = "slow requests"
    LATENCY = "latency"
    THROUGHPUT = "throughput"


class Guard(StrEnum):
    """A reason why evidence does not isolate a zone. The text says what it waits for."""

    LEARNING = "its usual behaviour is not known yet"
    EVIDENCE = "there is too little evidence"
    OTHERS_TOO = "another zone shows the same"
    OWN_PAST = "the zone is not worse than it usually is"
    NOT_WORSE = "it is not clearly worse than the worst other zone"
    UNWELL = "another zone is not quite healthy, so the difference must be larger"
    SMALL = "too few requests are affected"
    REGIONAL = "several zones were worse than usual in the last 15 minutes"
    ENDED = "it is not as bad any more"
    DEPLOY = "a deploy could explain it, until it lasts longer than one"
    INSTANCES = "a few instances may cause it"
    TRAFFIC = "the zone usually gets too few requests"


class Finding(Struct, frozen=True):
    """Evidence against one zone from one stream."""

    zone: int
    signal: Signal
    row: int
    """The stream; the last one is the pool of all operations."""
    evidence: float
    threshold: float
    since: float
    """When the evidence began to rise."""
    guard: Guard | None = None
    """The reason that holds it back; None if it isolates the zone."""
    is_fast: bool = False
    """Whether so much traffic is affected that no deploy explains it."""
    excess: float = 0.0
    """How much worse the zone is now: failed or slow requests as a share of all, or the logarithm of the slowdown."""


class Situation(Struct, frozen=True):
    """The conditions under which evidence is judged."""

    at: float
    seconds: float
    active: Mask
    regional_until: float
    false_isolations: float
    must_outlast_deploy: Mask
    """By zone: whether a deploy may run, announced or not."""


class _Source(Struct, frozen=True):
    """Evidence of one signal."""

    signal: Signal
    evidence: Array
    rising_bins: Array
    recent: Sequence[PackedEvidence]

    def build(self, row: int, zone: int, step: StreamStep, situation: Situation) -> Finding:
        since = situation.at - float(self.rising_bins[row, zone]) * situation.seconds
        value = max(float(self.evidence[row, zone]), 0.0)
        guard = Guard.EVIDENCE if step.is_known[row] else Guard.LEARNING
        return Finding(zone, self.signal, row, value, float(step.thresholds[row]), since, guard)


def _list_sources(state: StreamState) -> tuple[_Source, _Source, _Source]:
    faults, slow, times = state.counts, state.slow, state.latency
    return (
        _Source(Signal.FAULTS, counts.get_evidence(faults), counts.get_rising_bins(faults), state.deploy_faults),
        _Source(Signal.SLOW, counts.get_evidence(slow), counts.get_rising_bins(slow), state.deploy_slow),
        _Source(Signal.LATENCY, latency.get_evidence(times), latency.get_rising_bins(times), state.deploy_latency),
    )


def is_regional(state: StreamState) -> bool:
    """Return whether several zones are worse than usual at the same time, in all their operations together."""
    found = state.counts
    rise = counts.get_rises(found)[-1]
    excess = found.slow_faults[-1] - found.slow_expected[-1]
    past = found.against_past.max(axis=0)[-1]
    is_worse = (rise > POOL_UNWELL) & (excess > UNWELL_FAULTS) & (past > REGIONAL_EVIDENCE)
    slower = state.latency.against_past.max(axis=0)[-1] > SUSPICIOUS
    return int(is_worse.sum()) >= 2 or int(slower.sum()) >= 2


def find_all(step: StreamStep, situation: Situation) -> list[Finding]:
    """Return everything that has enough evidence, each with the guard that holds it back, if any."""
    state = step.state
    found = _find_drops(step, situation)
    for source in _list_sources(state):
        for row, zone in _find_above(source.evidence, step.thresholds):
            if source.signal is Signal.LATENCY:
                guard = _guard_latency(state, source.evidence, row, zone, situation)
                shifts = latency.get_shifts(state.latency, fast=True)[:, zone]
                excess, is_fast = float(shifts[row]), float(shifts[-1]) >= FAST_SLOWDOWN
            else:
                part = state.counts if source.signal is Signal.FAULTS else state.slow
                guard = _guard_counts(part, source.evidence, row, zone, situation)
                total = max(float(state.counts.fast_requests[-1, zone]), 1.0)
                excess = float(part.fast_faults[row, zone] - part.fast_expected[row, zone]) / total
                is_fast = excess >= FAST_EXCESS
            if guard is None and not is_fast and situation.must_outlast_deploy[zone]:
                streams = 1 if row == len(step.thresholds) - 1 else int(step.is_known[:-1].sum())
                needed = find_deploy_threshold(streams, len(situation.active), situation.false_isolations)
                recent = [each[:, row, zone] / PACKED for each in source.recent]
                if not outlasts_deploy(recent, needed, situation.seconds):
                    guard = Guard.DEPLOY
            built = source.build(row, zone, step, situation)
            found.append(replace(built, guard=guard, is_fast=is_fast, excess=excess))
    return found


def find_strongest(step: StreamStep, situation: Situation) -> list[Finding]:
    """Return, for each zone and signal, the stream that is nearest to its threshold, whether it is above or not."""
    found = []
    for source in _list_sources(step.state):
        rows = np.argmax(source.evidence / step.thresholds[:, None], axis=0)
        found += [source.build(row, zone, step, situation) for zone, row in enumerate(rows.tolist())]
    drops = throughput.get_evidence(step.state.throughput)
    for zone, drop in enumerate(drops.tolist()):
        found.append(_build_drop(zone, max(drop, 0.0), step, situation))
    return found


def _find_above(evidence: Array, thresholds: Array) -> list[tuple[int, int]]:
    rows, zones = np.nonzero(evidence >= thresholds[:, None])
    return list(zip(rows.tolist(), zones.tolist(), strict=True))


def outlasts_deploy(recent: Sequence[Array], needed: float, seconds: float) -> bool:
    """Return whether enough evidence remains without the best minutes, in which a deploy may have run.

    `recent` has, for each bin, the evidence for several rises.
    """
    length, last = math.ceil(DEPLOY_LENGTH / seconds), max(1, round(DEPLOY_RECENT / seconds))
    for values in np.array(recent, np.float64).T:
        start, total = 0, 0.0
        for index, value in enumerate(values.tolist()):
            total += value
            if total <= 0:
                start, total = index + 1, 0.0
        rising = values[start:]
        if len(rising) > length:
            best = np.convolve(rising, np.ones(length), "valid").max()
            if rising.sum() - best >= needed and rising[-last:].sum() > 0:
                return True
    return False


def _guard_counts(part: CountState, evidence: Array, row: int, zone: int, situation: Situation) -> Guard | None:
    others = situation.active.copy()
    others[zone] = False
    against_others = part.against_others.max(axis=0)[row]
    rise, excess = counts.get_rises(part)[row], part.slow_faults[row] - part.slow_expected[row]
    is_pool = row == len(evidence) - 1
    limit = POOL_UNWELL if is_pool else UNWELL
    is_higher = (part.slow_faults[row] > limit * part.slow_expected[row]) & (excess >= UNWELL_FAULTS)
    is_unwell = bool(((is_higher | (evidence[row] > SUSPICIOUS)) & others).any())
    worst = float(np.max(rise, where=others, initial=0.0))
    also = others & (against_others >= GUARD) & (evidence[row] > 0)
    if float(against_others[zone]) < GUARD or bool(also.any()):
        return Guard.OTHERS_TOO
    if float(rise[zone]) < CLEARLY_WORSE * worst:
        return Guard.NOT_WORSE
    if is_unwell and (float(against_others[zone]) < STRONG_GUARD or float(rise[zone]) < MUCH_WORSE * worst):
        return Guard.UNWELL
    if float(excess[zone]) < MIN_EXCESS * float(part.slow_requests[row, zone]):
        return Guard.SMALL
    if not is_pool and situation.at < situation.regional_until:
        return Guard.REGIONAL
    if not counts.find_still_failing(part, situation.seconds)[row, zone]:
        return Guard.ENDED
    return None


def _guard_latency(state: StreamState, evidence: Array, row: int, zone: int, situation: Situation) -> Guard | None:
    others = situation.active.copy()
    others[zone] = False
    past = state.latency.against_past.max(axis=0)[row, zone]
    shifts = latency.get_shifts(state.latency, fast=False)[row]
    if float(past) < GUARD:
        return Guard.OWN_PAST
    if bool((evidence[row][others] >= GUARD).any()):
        return Guard.OTHERS_TOO
    if float(shifts[zone]) < MIN_SLOWDOWN:
        return Guard.SMALL
    if float(shifts[zone]) < SLOWDOWN_RATIO * float(np.max(shifts, where=others, initial=0.0)):
        return Guard.NOT_WORSE
    if situation.at < situation.regional_until:
        return Guard.REGIONAL
    if latency.get_shifts(state.latency, fast=True)[row, zone] < STILL_FAILING * float(shifts[zone]):
        return Guard.ENDED
    return None


def _find_drops(step: StreamStep, situation: Situation) -> list[Finding]:
    """Return the zones that get much less traffic than usual, but still some."""
    found = step.state.throughput
    evidence = throughput.get_isolating_evidence(found)
    drops = []
    for zone in np.flatnonzero((evidence >= step.thresholds[-1]) & (found.silent_bins == 0)).tolist():
        guard = None if step.predicted_requests[zone] >= throughput.MIN_EXPECTED else Guard.TRAFFIC
        drops.append(replace(_build_drop(zone, float(evidence[zone]), step, situation), guard=guard, is_fast=True))
    return drops


def _build_drop(zone: int, evidence: float, step: StreamStep, situation: Situation) -> Finding:
    since = situation.at - float(step.state.throughput.rising_bins[zone]) * situation.seconds
    pool = len(step.thresholds) - 1
    return Finding(zone, Signal.THROUGHPUT, pool, evidence, float(step.thresholds[-1]), since, Guard.EVIDENCE)
