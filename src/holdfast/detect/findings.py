"""Decide which evidence is enough to isolate a zone, and say which guard holds the rest back. Pure.

Evidence above the threshold is necessary, not sufficient: the zone must also be clearly worse than every other zone,
the region must be calm, and the evidence must outlast a deploy unless much of the zone's traffic is affected.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from holdfast.detect import counts, latency, throughput
from holdfast.detect.counts import CountState
from holdfast.detect.cusum import (
    CONFIRMED,
    STILL_FAILING,
    STRONGLY_CONFIRMED,
    SUSPICIOUS,
    Array,
    Mask,
    find_deploy_threshold,
)
from holdfast.detect.streams import PACKED, PackedEvidence, StreamState, StreamStep

Rows: TypeAlias = NDArray[np.intp]

CLEARLY_WORSE, MUCH_WORSE = 1.5, 5.0
"""The zone's rise divided by that of the worst other zone: usually, and while another zone is not quite healthy."""
MIN_EXCESS = 0.0002
"""Share of the requests that must fail in addition."""
UNWELL_RISE, POOL_UNWELL_RISE, UNWELL_FAULTS = 2.0, 1.5, 3.0
"""Another zone is not quite healthy from this rise on, for one operation and for all, with this excess of faults."""
REGIONAL_EVIDENCE = SUSPICIOUS / 2
AFTER_REGIONAL = 900.0
"""Seconds after several zones were worse than usual in which only faults of all operations together isolate."""
DEPLOY_EXCESS, DEPLOY_SLOWDOWN = 0.1, math.log(1.7)
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
    ENDED = "the failure seems to be over"
    DEPLOY = "a deploy could explain it: it must last longer than three minutes"
    INSTANCES = "a few instances may cause it"
    TRAFFIC = "the zone usually gets too few requests"
    SCALING = "a drop to a half may be scaling"
    SILENT = "the zone is silent: a second path must confirm that it has failed"


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
    exceeds_deploy: bool = False
    """Whether so much traffic is affected that no deploy explains it."""
    excess: float = 0.0
    """How much worse the zone is now: failed or slow requests as a share of all, or the logarithm of the slowdown."""


class GuardConditions(Struct, frozen=True):
    """Everything that guards need to know besides the evidence."""

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

    def build(self, row: int, zone: int, step: StreamStep, conditions: GuardConditions) -> Finding:
        since = conditions.at - float(self.rising_bins[row, zone]) * conditions.seconds
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
    excess = found.faults_40s[-1] - found.expected_40s[-1]
    past = found.against_past.max(axis=0)[-1]
    is_worse = (rise > POOL_UNWELL_RISE) & (excess > UNWELL_FAULTS) & (past > REGIONAL_EVIDENCE)
    slower = state.latency.against_past.max(axis=0)[-1] > SUSPICIOUS
    return int(is_worse.sum()) >= 2 or int(slower.sum()) >= 2


def find_all(step: StreamStep, conditions: GuardConditions) -> list[Finding]:
    """Return everything that has enough evidence, each with the guard that holds it back, if any."""
    state = step.state
    found = _find_drops(step, conditions)
    for source in _list_sources(state):
        is_above = source.evidence >= step.thresholds[:, None]
        for zone in np.flatnonzero(is_above.any(axis=0)).tolist():
            rows = np.flatnonzero(is_above[:, zone])
            if source.signal is Signal.LATENCY:
                guards = _guard_latency(state, source.evidence, rows, zone, conditions)
                shifts = latency.get_shifts(state.latency, is_latest=True)
                slowdown = _find_own_slowdown(shifts[-1], zone, conditions.active)
                excesses, exceeds_deploy = shifts[rows, zone], np.full(len(rows), slowdown >= DEPLOY_SLOWDOWN)
            else:
                part = state.counts if source.signal is Signal.FAULTS else state.slow
                requests = state.counts.requests_40s
                guards = _guard_counts(part, source.evidence, rows, zone, conditions, requests=requests)
                # Without operations that the service measures itself, the pool is empty.
                found_requests = state.counts.requests_10s[:, zone]
                total = max(float(found_requests[-1] or found_requests.sum()), 1.0)
                excesses = (part.faults_10s[rows, zone] - part.expected_10s[rows, zone]) / total
                exceeds_deploy = excesses >= DEPLOY_EXCESS
            for index, row in enumerate(rows.tolist()):
                guard = guards[index]
                if guard is None and not exceeds_deploy[index] and conditions.must_outlast_deploy[zone]:
                    guard = _guard_deploy(source, row, zone, step, conditions)
                built = source.build(row, zone, step, conditions)
                more = {"exceeds_deploy": bool(exceeds_deploy[index]), "excess": float(excesses[index])}
                found.append(replace(built, guard=guard, **more))
    return found


def _find_own_slowdown(shifts: Array, zone: int, active: Mask) -> float:
    """Return by how much a zone is slower than the others are at the moment: all may be slower than usual."""
    others = shifts[active & (np.arange(len(active)) != zone)]
    return float(shifts[zone] - max(others.mean(), 0.0)) if len(others) else float(shifts[zone])


def _guard_deploy(source: _Source, row: int, zone: int, step: StreamStep, conditions: GuardConditions) -> Guard | None:
    streams = 1 if row == len(step.thresholds) - 1 else int(step.is_known[:-1].sum())
    needed = find_deploy_threshold(streams, len(conditions.active), conditions.false_isolations)
    recent = [each[:, row, zone] / PACKED for each in source.recent]
    return None if outlasts_deploy(recent, needed, conditions.seconds) else Guard.DEPLOY


def find_strongest(step: StreamStep, conditions: GuardConditions) -> list[Finding]:
    """Return, for each zone and signal, the stream that is nearest to its threshold, whether it is above or not."""
    found = []
    for source in _list_sources(step.state):
        rows = np.argmax(source.evidence / step.thresholds[:, None], axis=0)
        found += [source.build(row, zone, step, conditions) for zone, row in enumerate(rows.tolist())]
    return found + [_build_drop(zone, step, conditions) for zone in range(len(conditions.active))]


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


def _guard_counts(
    part: CountState, evidence: Array, rows: Rows, zone: int, conditions: GuardConditions, *, requests: Array
) -> list[Guard | None]:
    """Return the guard that holds back each of the `rows` in a zone."""
    others = np.flatnonzero(conditions.active & (np.arange(len(conditions.active)) != zone))
    is_pool = rows == len(evidence) - 1
    against = part.against_others[:, rows].max(axis=0)
    rises, excess = counts.get_rises(part)[rows], (part.faults_40s - part.expected_40s)[rows]
    own, own_rise, worst = against[:, zone], rises[:, zone], rises[:, others].max(axis=1, initial=0.0)
    limit = np.where(is_pool, POOL_UNWELL_RISE, UNWELL_RISE)[:, None]
    is_higher = (part.faults_40s[rows] > limit * part.expected_40s[rows]) & (excess >= UNWELL_FAULTS)
    lasting, usual = part.lasting_faults[rows], part.lasting_expected[rows]
    is_higher |= (lasting > limit * usual) & (lasting - usual >= UNWELL_FAULTS)
    is_unwell = (is_higher | (evidence[rows] > SUSPICIOUS))[:, others].any(axis=1)
    also = ((against >= CONFIRMED) & (evidence[rows] > 0))[:, others].any(axis=1)
    return _choose_guards(
        (Guard.OTHERS_TOO, (own < CONFIRMED) | also),
        (Guard.NOT_WORSE, own_rise < CLEARLY_WORSE * worst),
        (Guard.UNWELL, is_unwell & ((own < STRONGLY_CONFIRMED) | (own_rise < MUCH_WORSE * worst))),
        (Guard.SMALL, excess[:, zone] < MIN_EXCESS * requests[rows, zone]),
        (Guard.REGIONAL, ~is_pool & (conditions.at < conditions.regional_until)),
        (Guard.ENDED, ~counts.find_still_failing(part, conditions.seconds)[rows, zone]),
    )


def _guard_latency(
    state: StreamState, evidence: Array, rows: Rows, zone: int, conditions: GuardConditions
) -> list[Guard | None]:
    """Return the guard that holds back each of the `rows` in a zone."""
    others = np.flatnonzero(conditions.active & (np.arange(len(conditions.active)) != zone))
    shifts, recent = (latency.get_shifts(state.latency, is_latest=fast)[rows] for fast in (False, True))
    own = shifts[:, zone]
    return _choose_guards(
        (Guard.OWN_PAST, state.latency.against_past[:, rows, zone].max(axis=0) < CONFIRMED),
        (Guard.OTHERS_TOO, evidence[rows][:, others].max(axis=1, initial=0.0) >= CONFIRMED),
        (Guard.SMALL, own < MIN_SLOWDOWN),
        (Guard.NOT_WORSE, own < SLOWDOWN_RATIO * shifts[:, others].max(axis=1, initial=0.0)),
        (Guard.REGIONAL, np.full(len(rows), conditions.at < conditions.regional_until)),
        (Guard.ENDED, recent[:, zone] < STILL_FAILING * own),
    )


def _choose_guards(*guards: tuple[Guard, Mask]) -> list[Guard | None]:
    """Return, for each row, the first of the guards that holds it back."""
    holds = np.array([mask for _, mask in guards])
    first = np.where(holds.any(axis=0), holds.argmax(axis=0), len(guards))
    names = [*(guard for guard, _ in guards), None]
    return [names[index] for index in first.tolist()]


def _find_drops(step: StreamStep, conditions: GuardConditions) -> list[Finding]:
    """Return the zones that get much less traffic than usual, but still some."""
    found = step.state.throughput
    evidence = throughput.get_isolating_evidence(found)
    drops = []
    for zone in np.flatnonzero((evidence >= step.thresholds[-1]) & (found.silent_bins == 0)).tolist():
        guard = None if step.predicted_requests[zone] >= throughput.MIN_EXPECTED else Guard.TRAFFIC
        built = _build_drop(zone, step, conditions)
        drops.append(replace(built, evidence=float(evidence[zone]), guard=guard, exceeds_deploy=True))
    return drops


def _build_drop(zone: int, step: StreamStep, conditions: GuardConditions) -> Finding:
    """Return the evidence for any drop of a zone's traffic, which alone isolates nothing."""
    found = step.state.throughput
    evidence, threshold = max(float(throughput.get_evidence(found)[zone]), 0.0), float(step.thresholds[-1])
    guard = Guard.EVIDENCE if evidence < threshold else Guard.SCALING
    guard = Guard.SILENT if found.silent_bins[zone] else guard
    since = conditions.at - float(found.rising_bins[zone]) * conditions.seconds
    return Finding(zone, Signal.THROUGHPUT, len(step.thresholds) - 1, evidence, threshold, since, guard)
