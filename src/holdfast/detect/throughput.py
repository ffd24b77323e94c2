"""Find zones that get less traffic than their usual share, or report nothing at all. Pure."""

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from holdfast.detect.counts import CLIP_COUNT, CLIP_VARIANCE, USUAL_DEVIATION, fit_dispersion
from holdfast.detect.cusum import HEADROOM, MAX_FROZEN, SUSPICIOUS, Array, Mask, add_evidence, decay

REMAINING_SHARES = np.array([0.5, 0.2, 0.02])[:, None]
"""Shares of the expected requests that remain after a drop."""
ISOLATING = [1, 2]
"""The drops, by index, that isolate a zone: a drop to a half may be scaling."""
MARGIN = 0.7
SHARE_MEMORY, LEVEL_MEMORY, DISPERSION_MEMORY = 1800.0, 600.0, 4 * 3600.0
SILENT_BINS, SILENT_SECONDS = 3, 30.0
"""Time without requests after which a zone may be silent: shorter pauses of telemetry are common."""
SILENT_EVIDENCE, SILENT_EXPECTED = 7.0, 3.0
"""Evidence, and independent requests that must be missing, before a zone counts as silent."""
MOVED_MARGIN, MOVED_SECONDS = 1.05, 300.0
"""A rise of the others' traffic up to this is chance; and the seconds after a zone fell silent in which a rise counts.
Later, the traffic of the day has changed."""
MOVED_PART, MOVED_CHANCE = 0.5, 2.0
"""Part of the rise that every other zone must have, but for this number of standard deviations. If only one of them has
more requests than usual, it was scaled, or its own clients send more."""
STALLS_PER_QUARTER = 540.0
"""Stalls of a zone's telemetry in 90 days, six a day."""
LEVEL_BINS = 2.0
"""Weight, in bins, of the usual traffic of the other zones beside their traffic now, which may be few requests."""
MIN_EXPECTED = 100.0
"""Expected requests in a bin from which a drop isolates; with fewer it is only shown."""


class ThroughputState(Struct):
    """Knowledge about the traffic of the zones. Arrays are never changed in place."""

    shares: Array
    """By zone: learned requests; a zone's share is its part of the sum."""
    frozen: float
    """Seconds for which no shares were learned, because of evidence against a zone."""
    fit: Array
    levels: Array
    """By zone: requests in one bin, averaged over some minutes."""
    level_noise: float
    """Relative variance of the requests of all zones around their level, beyond chance."""
    evidence: Array
    """By drop and zone."""
    silent_bins: Array
    others_in_silence: Array
    """By silent zone and other zone: requests of the other zone since the silent one fell silent."""
    silence: Array
    """By zone: evidence that it should have had requests since it fell silent."""
    missing: Array
    """By zone: independent requests that are missing since the zone fell silent."""
    moved: Array
    """By zone: evidence that the others have got its traffic since it fell silent."""
    rising_bins: Array


RECENT_FIELDS = ("evidence", "silent_bins", "others_in_silence", "silence", "missing", "moved", "rising_bins")
"""The arrays that say something about the last minutes."""


class ThroughputStep(NamedTuple):
    """The state after one bin, and the requests that were expected."""

    state: ThroughputState
    predicted: Array
    """By zone: requests that follow from those of the other zones."""


def build_throughput_state(zones: int) -> ThroughputState:
    """Return the state without any knowledge."""
    by_zone = np.zeros(zones)
    return ThroughputState(
        shares=by_zone,
        frozen=0.0,
        fit=np.zeros(5),
        levels=by_zone,
        level_noise=0.0,
        evidence=np.zeros((len(REMAINING_SHARES), zones)),
        silent_bins=by_zone,
        others_in_silence=np.zeros((zones, zones)),
        silence=by_zone,
        missing=by_zone,
        moved=by_zone,
        rising_bins=by_zone,
    )


def get_evidence(state: ThroughputState) -> Array:
    """Return the evidence for a drop by zone."""
    best: Array = state.evidence.max(axis=0)
    return best


def get_isolating_evidence(state: ThroughputState) -> Array:
    """Return the evidence for a drop to a fifth or less by zone, for which a drop to a third also counts."""
    best: Array = state.evidence[ISOLATING].max(axis=0)
    return best


def find_silent(state: ThroughputState, seconds: float) -> Mask:
    """Return, by zone, whether it reports no request, although it should have had some."""
    found: Mask = (
        (state.silent_bins >= max(SILENT_BINS, SILENT_SECONDS / seconds))
        & (state.missing >= SILENT_EXPECTED)
        & (np.maximum(state.evidence.max(axis=0), state.silence) >= SILENT_EVIDENCE)
    )
    return found


def learn_shares(
    state: ThroughputState, requests: Array, is_usual: Mask, balanced: Mask, seconds: float
) -> ThroughputState:
    """Learn the shares of a bin of some minutes ago.

    Nothing is learned from a bin in which a zone was not `balanced`, because the others had its share then, unless the
    zone never had any. As long as the traffic of a zone is not usual, nothing is learned for some hours.
    """
    if not (balanced | (state.shares == 0)).all() or not requests.sum():
        return state
    frozen = 0.0 if is_usual.all() else state.frozen + seconds
    if 0 < frozen <= MAX_FROZEN:
        return replace(state, frozen=frozen)
    return replace(state, shares=state.shares * decay(SHARE_MEMORY, seconds) + requests, frozen=frozen)


def advance_throughput(
    state: ThroughputState, requests: Array, active: Mask, threshold: float, seconds: float
) -> ThroughputStep:
    """Add one bin of requests by zone. Zones that are not `active` are left out."""
    n = requests * active
    known = state.shares * active
    share = np.divide(known, known.sum(), out=np.zeros_like(known), where=known.sum() > 0)
    others = n.sum() - n
    predicted = np.where(share < 1, others * share / np.maximum(1 - share, 1e-9), 0.0)
    clump, noise = fit_dispersion(state.fit)
    # The prediction itself is uncertain, because the others have few requests, too.
    m, k, kappa = predicted / clump, n / clump, 1.0 / (noise + 1.0 / np.maximum(others, 1.0))
    step = k * np.log(REMAINING_SHARES / MARGIN) - (k + kappa) * np.log(
        (kappa + REMAINING_SHARES * m) / (kappa + MARGIN * m)
    )
    evidence = add_evidence(state.evidence, step * active, threshold, threshold + HEADROOM, seconds)
    is_silent = active & (n == 0) & (known > 0)
    calm = active & (evidence.max(axis=0) < SUSPICIOUS) & (predicted > 0)
    v = clump * predicted + noise * predicted**2
    y = np.minimum((n - predicted) ** 2, CLIP_VARIANCE * v + CLIP_COUNT) - predicted**2 / np.maximum(others, 1.0)
    w = np.where(calm, 1.0 / (v + 0.02) ** 2, 0.0)
    mean = predicted
    sums = [(w * part).sum() for part in (mean**2, mean**3, mean**4, y * mean, y * mean**2)]
    levels, level_noise = state.levels if state.levels.any() else n, state.level_noise
    silent_bins = np.where(is_silent, state.silent_bins + 1, 0.0)
    others_in_silence = np.where(is_silent[:, None], state.others_in_silence + n, 0.0)
    silence = _measure_silence(others_in_silence.sum(axis=1), silent_bins, share, float(levels.sum()), noise)
    moved = state.moved
    if not is_silent.any():
        keep, slow = decay(LEVEL_MEMORY, seconds), decay(DISPERSION_MEMORY, seconds)
        if calm[active & (share > 0)].all():
            level = float(levels.sum())
            excess = ((float(n.sum()) - level) ** 2 - level) / max(level, 1.0) ** 2
            level_noise = level_noise * slow + min(excess, 1.0) * (1 - slow)
        # Also while a zone has less than its share: it may be scaled for hours, and the day goes on.
        levels = levels * keep + n * (1 - keep)
    else:
        usual = levels * (active & (share > 0)) * silent_bins[:, None]
        found = _measure_move(others_in_silence, usual, share, level_noise, silent_bins * seconds / (2 * LEVEL_MEMORY))
        moved = np.where(silent_bins * seconds <= MOVED_SECONDS, found, moved)
    return ThroughputStep(
        replace(
            state,
            evidence=evidence,
            fit=state.fit * decay(DISPERSION_MEMORY, seconds) + sums,
            levels=levels,
            level_noise=level_noise,
            silent_bins=silent_bins,
            others_in_silence=others_in_silence,
            silence=silence,
            missing=np.where(is_silent, state.missing + predicted / (1 + noise * predicted), 0.0),
            moved=np.where(is_silent, moved, 0.0),
            rising_bins=np.where((evidence > 0).any(axis=0), state.rising_bins + 1, 0.0),
        ),
        predicted,
    )


def _measure_silence(others: Array, bins: Array, share: Array, level: float, noise: float) -> Array:
    """Return, for each zone, the evidence that it should have had requests in its last `bins`, in which it had none.

    The usual traffic of the other zones counts beside their requests in these bins, which may be few by chance. If they
    are far from their usual traffic, that of all zones has changed, and only these bins count.
    """
    usual = level * (1 - share)
    deviation = (others - bins * usual) ** 2 / np.maximum(bins * usual * USUAL_DEVIATION**2, 1.0)
    weight = LEVEL_BINS / np.maximum(deviation, 1.0) ** 2
    known = np.where(others > 0, others + weight * usual, 0.0)
    m = np.where(share < 1, known / np.maximum(bins + weight, 1.0) * bins * share / np.maximum(1 - share, 1e-9), 0.0)
    kappa = 1.0 / (noise + 1.0 / np.maximum(known, 1.0))
    least = REMAINING_SHARES.min()
    found: Array = kappa * np.log((kappa + MARGIN * m) / (kappa + least * m))
    return found


def _measure_move(requests: Array, usual: Array, share: Array, noise: float, uncertainty: Array) -> Array:
    """Return, for each silent zone, by how much its share explains the traffic of the others better than none does.

    `requests` and `usual` are by silent zone and other zone: the requests since the zone fell silent, and the usual
    ones, whose relative variance by chance is raised by `uncertainty`. The noise of the traffic counts for all these
    bins at once: if traffic is above its level, it often stays so for minutes.
    """
    usual = np.where(np.eye(len(share), dtype=np.bool_), 0.0, usual)
    rise = np.where(share < 1, 1 / np.maximum(1 - share, 1e-9), 1.0)[:, None]
    clump = 1 + max(noise, 0.0) * usual.sum(axis=1) + uncertainty
    evidence = (requests * np.log(rise / MOVED_MARGIN) - usual * (rise - MOVED_MARGIN)).sum(axis=1) / clump
    least = usual * (1 + MOVED_PART * (rise - 1)) - MOVED_CHANCE * np.sqrt(usual)
    has_moved_everywhere = (requests >= least).all(axis=1) & (rise[:, 0] > MOVED_MARGIN)
    found: Array = np.where(has_moved_everywhere, evidence, np.minimum(evidence, 0.0))
    return found


def has_moved(state: ThroughputState, zone: int, false_isolations: float) -> bool:
    """Return whether the other zones get the traffic of a silent zone.

    Chance explains it in at most `false_isolations` of the stalls of telemetry in 90 days.
    """
    return bool(state.moved[zone] >= math.log(STALLS_PER_QUARTER / false_isolations))
