"""Accumulate evidence bin by bin, and say how much is needed. Pure.

Evidence is the logarithm of a likelihood ratio: how much better "this zone is worse" explains a bin than "this zone is
as usual". It is summed as long as the sum is positive (a CUSUM). With the threshold `ln(n)`, a false alarm is expected
once in `n` bins at most, so the threshold follows from the accepted number of false alarms.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]

QUARTER = 90 * 86_400.0
"""Seconds in which the accepted number of false isolations is counted."""
BIN = 10.0
"""Seconds of the bins for which constants are given. They are converted for bins of other lengths."""
KEEP = 0.995
"""Share of the evidence that is kept from one bin to the next. Half is forgotten in 23 minutes, so that slow drift does
not add up to a verdict."""
MAX_STEP = 0.6
"""Maximum evidence of one bin, as a share of the threshold: a single bin never suffices."""
HEADROOM = 6.0
"""Evidence above the threshold that is kept. More would delay the end of a verdict."""
CONFIRMED = math.log(200.0)
"""Evidence that confirms what another test has found."""
STRONGLY_CONFIRMED = math.log(1e5)
"""Evidence that confirms it although other zones are not quite healthy either."""
SUSPICIOUS = 8.5
"""Evidence from which nothing is learned, and from which another zone counts as not quite healthy."""
PAST_BEGINS = 1.0
"""Evidence against the own past from which a failure may have begun."""
MAX_FROZEN = 6 * 3600.0
"""Seconds after which even suspicious bins are learned: a change that lasts this long is the new normal."""
LONG_HALF_LIFE, SHORT_HALF_LIFE = 40.0, 10.0
"""Half-lives of the sums over the last minute or so, and over the last seconds."""
STILL_FAILING = 0.3
"""Share of the highest excess that there must be now, or the failure may be over."""
MUCH_EVIDENCE = 0.8
"""Share of the best evidence from which evidence for another rise says as well when the failure began."""
DEPLOYS_PER_QUARTER = 450.0
"""Deploys in 90 days, five a day, for the test whether evidence outlasts a deploy."""


class Conditions(NamedTuple):
    """The conditions under which a bin is evaluated."""

    seconds: float
    """Length of the bin."""
    thresholds: Array
    """By stream: the evidence that a verdict needs."""
    active: Mask
    """By zone: whether it is evaluated. Zones that are out are not."""
    in_pool: Mask
    """By operation: whether it belongs to the pool."""
    settled: Mask
    """By operation: whether its baseline is known well enough to measure noise against it."""


def find_threshold(streams: int, zones: int, false_isolations: float, seconds: float) -> float:
    """Return the evidence that isolates a zone.

    It grows with the number of streams and zones that are watched, and falls with the accepted number of false
    isolations in 90 days.
    """
    return math.log(QUARTER / seconds * max(streams, 1) * zones / false_isolations)


def find_deploy_threshold(streams: int, zones: int, false_isolations: float) -> float:
    """Return the evidence that must remain without the minutes in which a deploy may have run."""
    return math.log(DEPLOYS_PER_QUARTER * max(streams, 1) * zones / false_isolations)


def decay(memory: float, seconds: float) -> float:
    """Return the factor for one bin of an exponential average with the time constant `memory`, in seconds."""
    return math.exp(-seconds / memory)


def halve(half_life: float, seconds: float) -> float:
    """Return the factor for one bin of a sum that forgets half in `half_life` seconds."""
    return float(0.5 ** (seconds / half_life))


def get_rising_bins(evidence: Array, rising_bins: Array) -> Array:
    """Return the bins since the best evidence was last zero. The first axis is that of the rises.

    Evidence for small rises is often above zero by chance. So the shortest time counts of all with much evidence.
    """
    best = evidence.max(axis=0)
    shortest = np.where(evidence >= MUCH_EVIDENCE * best, rising_bins, np.inf).min(axis=0)
    found: Array = np.where(best > 0, shortest, 0.0)
    return found


def add_evidence(total: Array, step: Array, threshold: float | Array, ceiling: float | Array, seconds: float) -> Array:
    """Return the evidence after one more bin."""
    kept = KEEP ** (seconds / BIN) * np.maximum(total, 0.0)
    found: Array = np.minimum(kept + np.minimum(step, MAX_STEP * threshold), ceiling)
    return found
