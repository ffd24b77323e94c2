"""Find out whether a zone fails, or only a few of its instances: leave out the worst, and look again. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from holdfast.detect import counts, latency
from holdfast.detect.cusum import CONFIRMED, Array
from holdfast.detect.findings import Finding, Signal
from holdfast.detect.streams import InstanceBin, StreamStep

FEW = 6
"""Below this number of instances one is left out, and from it on two, or more of a large zone."""
REST_FAILS, REST_HEALTHY = 0.3, 0.1
"""Shares of the excess of the zone from which the rest of it fails, and below which the rest is healthy."""
BLAMED = 0.3
"""Share of the worst instance's excess from which another one is blamed, too."""
LEFT_OUT = 0.1
"""Share of the instances of a large zone that is left out."""


class InstanceReport(NamedTuple):
    """The evidence against a zone without its worst instances."""

    worst: tuple[str, ...]
    """The instances to blame; none if the zone has a single instance, which cannot be told from its zone."""
    instances: int
    worst_evidence: float
    evidence: float
    """Evidence of the last minutes against the worst instances, and against the rest of the zone."""
    evidence_if_rest_failed: float
    """Evidence that there would be against the rest of the zone if it failed as the worst instances do."""
    rest: float
    """How much worse the rest of the zone is than expected, as a share of how much worse the whole zone is."""

    @property
    def is_zone(self) -> bool:
        """Whether the rest of the zone fails, too."""
        return not self.worst or (self.evidence >= CONFIRMED and self.rest >= REST_FAILS)

    @property
    def is_instance(self) -> bool:
        """Whether the worst instances have failed in the last minutes, and the rest of the zone is healthy.

        The rest must have had enough requests to show a failure.
        """
        is_clear = min(self.worst_evidence, self.evidence_if_rest_failed) >= CONFIRMED
        return is_clear and not self.is_zone and (self.evidence < 0 or self.rest < REST_HEALTHY)


def leave_out_worst(finding: Finding, bins: Sequence[InstanceBin], step: StreamStep) -> InstanceReport:
    """Return the evidence of the last minutes without the worst instances of the zone."""
    names = sorted({name for each in bins for name in each.names[finding.zone] if name})
    if len(names) < 2:
        return InstanceReport((), len(names), CONFIRMED, CONFIRMED, CONFIRMED, 1.0)
    if finding.signal is Signal.LATENCY:
        return _leave_out_slow(finding, bins, step, names)
    return _leave_out_failing(finding, bins, step, names)


def _leave_out_failing(
    finding: Finding, bins: Sequence[InstanceBin], step: StreamStep, names: Sequence[str]
) -> InstanceReport:
    found = step.fault_step if finding.signal is Signal.FAULTS else step.slow_step
    pool = len(step.thresholds) - 1
    row, zone = finding.row, finding.zone
    rows = slice(0, pool) if row == pool else slice(row, row + 1)
    weights = found.dispersion.weights[:, zone, None] if row == pool else np.ones((1, 1))
    counted, predicted = np.zeros((len(bins), len(names))), np.zeros((len(bins), len(names)))
    for index, each in enumerate(bins):
        requests, faults, expected = (
            (each.requests, each.faults, each.predicted)
            if finding.signal is Signal.FAULTS
            else (each.latencies, each.slow, each.slow_predicted)
        )
        requests, faults, whole = requests[rows, zone], faults[rows, zone], expected[rows, zone, None]
        total = requests.sum(axis=1, keepdims=True)
        # The sum over operations, not the prediction of the pool: the pool had other operations some minutes ago.
        shares = np.divide(whole * requests, total, out=np.zeros(requests.shape), where=total > 0)
        columns, own = _find_columns(each.names[zone], names)
        counted[index, own] = (faults * weights).sum(axis=0)[columns]
        predicted[index, own] = (shares * weights).sum(axis=0)[columns]
    clump, noise = float(found.dispersion.clump[row]), float(found.dispersion.noise[row])
    kappa = np.array(1.0 / (noise + counts.LOWEST_NOISE))

    def weigh(k: Array, m: Array) -> float:
        return _sum_up(counts.measure_evidence(k[:, None] / clump, m[:, None] / clump, kappa)[:, :, 0])

    return _report(counted, predicted, (counted - predicted).sum(axis=0), weigh, names)


def _leave_out_slow(
    finding: Finding, bins: Sequence[InstanceBin], step: StreamStep, names: Sequence[str]
) -> InstanceReport:
    pool = len(step.thresholds) - 1
    row, zone = finding.row, finding.zone
    rows = slice(0, pool) if row == pool else slice(row, row + 1)
    share = 1.0 / step.latency_step.dispersion[rows, zone, None]
    if row == pool:
        in_pool = step.fault_step.dispersion.weights[:, zone, None] > 0
        share = share * in_pool / step.latency_step.pool_dispersion
    usual = step.state.latency.score_sums / (step.state.latency.score_counts + latency.PRIOR_SCORES)
    sizes, sums = np.zeros((len(bins), len(names))), np.zeros((len(bins), len(names)))
    for index, each in enumerate(bins):
        columns, own = _find_columns(each.names[zone], names)
        n = each.latencies[rows, zone][:, columns]
        others_n = each.latencies[rows].sum(axis=(1, 2)) - each.latencies[rows, zone].sum(axis=1)
        others_s = (each.scores[rows].sum(axis=2) - each.latencies[rows].sum(axis=2) * usual[rows]).sum(axis=1)
        own_s = each.scores[rows, zone].sum(axis=1) - each.latencies[rows, zone].sum(axis=1) * usual[rows, zone]
        others = np.divide(others_s - own_s, others_n, out=np.zeros(len(others_n)), where=others_n > 0)
        s = each.scores[rows, zone][:, columns] - n * (usual[rows, zone] + others)[:, None]
        sizes[index, own], sums[index, own] = (n * share).sum(axis=0), (s * share).sum(axis=0)
    gap = latency.SHIFTS[:, 0, 0] - latency.MARGIN
    square = (latency.SHIFTS[:, 0, 0] ** 2 - latency.MARGIN**2) / 2

    def weigh(total: Array, size: Array) -> float:
        return _sum_up(gap[:, None] * total - square[:, None] * size)

    return _report(sums, sizes, sums.sum(axis=0), weigh, names)


def _report(
    found: Array, expected: Array, excesses: Array, weigh: Callable[[Array, Array], float], names: Sequence[str]
) -> InstanceReport:
    """Return the report from measurements by bin and instance. `weigh` returns the evidence of some instances."""
    rest, blamed = _split(excesses, names)
    worst = [names.index(name) for name in blamed]
    (found_rest, expected_rest), (found_worst, expected_worst) = (
        [each[:, columns].sum(axis=1) for each in (found, expected)] for columns in (rest, worst)
    )
    ratio = np.divide(found_worst, expected_worst, out=np.zeros(len(found)), where=expected_worst > 0)
    sizes = max(expected_rest.sum(), 1e-9), max(expected.sum(), 1e-9)
    excess, whole = excesses[rest].sum() / sizes[0], excesses.sum() / sizes[1]
    return InstanceReport(
        blamed,
        len(names),
        weigh(found_worst, expected_worst),
        weigh(found_rest, expected_rest),
        weigh(expected_rest * ratio, expected_rest),
        float(excess / whole) if whole > 0 else 0.0,
    )


def _find_columns(found: Sequence[str], names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the columns of instances that have a name, and the positions of their names."""
    columns = [column for column, name in enumerate(found) if name]
    return columns, [names.index(found[column]) for column in columns]


def _split(badness: Array, names: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """Return the positions of the instances that stay, and the names of the worst, which are left out."""
    number = 1 if len(names) < FEW else max(2, round(LEFT_OUT * len(names)))
    order = np.argsort(-badness, kind="stable").tolist()
    # Several are left out, but only those with a large part of the excess are to blame.
    blamed = [names[index] for index in order[:number] if badness[index] >= BLAMED * badness[order[0]]]
    return sorted(order[number:]), tuple(blamed) or (names[order[0]],)


def _sum_up(steps: Array) -> float:
    """Return the evidence after all bins, by a CUSUM for each rise."""
    total = np.zeros(len(steps))
    for step in steps.T:
        total = np.maximum(total, 0.0) + step
    return float(total.max())
