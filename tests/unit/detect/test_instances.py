"""Whether a zone fails, or a few of its instances."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from holdfast.detect.cusum import CONFIRMED
from holdfast.detect.findings import Finding, Signal
from holdfast.detect.instances import REST_HEALTHY, InstanceReport, leave_out_worst
from holdfast.detect.streams import InstanceBin, StreamStep
from tests.unit.detect.steps import BEGIN, HOME, POOL, ZONE, build_slow_step, build_step

BINS = 30
OPERATIONS = 4


def build_bins(
    bad: dict[int, float], instances: int = 3, *, signal: Signal = Signal.FAULTS, names: tuple[str, ...] = ()
) -> list[InstanceBin]:
    """Return five minutes in which each instance gets 40 requests per bin and operation, and `bad` ones fail more.

    Two faults, or slow requests, are expected of each cell, and scores have the mean 0.
    """
    shape = OPERATIONS, 3, instances
    requests = np.full(shape, 40.0)
    usual = np.full(shape, 2.0 / instances)
    counted, scores = usual.copy(), np.zeros(shape)
    for index, share in bad.items():
        counted[:, ZONE, index] += share * 40
        scores[:, ZONE, index] += share * 40
    step = build_step() if signal is not Signal.LATENCY else build_slow_step()
    found = names or tuple(f"i-{index}" for index in range(instances))
    expected = np.full((OPERATIONS + 1, 3), 2.0)
    return [
        InstanceBin(
            keys=step.state.keys,
            names=(found,) * 3,
            requests=requests,
            faults=counted if signal is Signal.FAULTS else usual,
            latencies=requests,
            slow=counted if signal is Signal.SLOW else usual,
            scores=scores,
            predicted=expected,
            slow_predicted=expected,
        )
        for _ in range(BINS)
    ]


def forget_usual(step: StreamStep) -> StreamStep:
    """Return a step whose zones had the mean score 0 so far."""
    times = replace(step.state.latency, score_sums=np.zeros((OPERATIONS, 3)))
    return replace(step, state=replace(step.state, latency=times))


def report(bins: list[InstanceBin], signal: Signal = Signal.FAULTS, row: int = HOME) -> InstanceReport:
    step = build_step() if signal is not Signal.LATENCY else forget_usual(build_slow_step())
    return leave_out_worst(Finding(ZONE, signal, row, 30.0, 20.0, BEGIN), bins, step)


@pytest.mark.parametrize("row", [HOME, POOL])
@pytest.mark.parametrize("signal", [Signal.FAULTS, Signal.SLOW, Signal.LATENCY])
@pytest.mark.parametrize(
    ("instances", "bad", "worst", "is_zone"),
    [
        (2, {1: 0.8}, ("i-1",), False),
        (3, {2: 0.8}, ("i-2",), False),
        (3, {0: 0.8, 1: 0.8, 2: 0.8}, ("i-0",), True),
        (3, {0: 0.5, 2: 0.8}, ("i-2",), True),
        (6, {2: 0.8, 5: 0.8}, ("i-2", "i-5"), False),
        (6, {2: 0.8}, ("i-2",), False),
        (10, dict.fromkeys(range(10), 0.8), ("i-0", "i-1"), True),
        (30, {4: 0.8, 7: 0.8, 9: 0.8}, ("i-4", "i-7", "i-9"), False),
    ],
)
def test_the_rest_of_a_zone_says_whether_the_zone_fails(
    row: int, signal: Signal, instances: int, bad: dict[int, float], worst: tuple[str, ...], is_zone: bool
) -> None:
    found = report(build_bins(bad, instances, signal=signal), signal, row)
    assert (found.worst, found.instances) == (worst, instances)
    assert (found.is_zone, found.is_instance) == (is_zone, not is_zone)


def test_a_single_instance_cannot_be_told_from_its_zone() -> None:
    for names in ((), ("",)):
        found = report(build_bins({0: 0.8}, 1, names=names))
        assert (found.worst, found.is_zone, found.is_instance) == ((), True, False)


@pytest.mark.parametrize("signal", [Signal.FAULTS, Signal.LATENCY])
def test_the_rest_is_healthy_only_if_it_had_enough_requests_to_fail(signal: Signal) -> None:
    """When a zone begins to fail, the first failed requests may all be those of one instance."""

    def give(share: float, bins: int) -> InstanceReport:
        found = []
        for each in build_bins({1: 0.8}, 2, signal=signal)[:bins]:
            arrays = {name: getattr(each, name).copy() for name in ("requests", "latencies", "faults")}
            for array in arrays.values():
                array[:, ZONE, 0] *= share
            found.append(replace(each, **arrays))
        return report(found, signal)

    assert give(1.0, 2).is_instance
    few = give(0.02, 2)
    assert (few.is_zone, few.is_instance) == (False, False)
    assert few.evidence < 0 or few.rest < REST_HEALTHY, "nothing else speaks against it"


def test_between_zone_and_instance_the_report_waits() -> None:
    for evidence, rest in ((CONFIRMED / 2, 0.5), (CONFIRMED + 1, 0.2)):
        found = InstanceReport(("i-1",), 3, CONFIRMED, evidence, CONFIRMED, rest)
        assert not found.is_zone
        assert not found.is_instance
    assert InstanceReport(("i-1",), 3, 12.0, 6.0, 6.0, 0.05).is_instance, "the rest has hardly any part of the excess"
    assert InstanceReport(("i-1",), 3, 12.0, -1.0, 6.0, 0.5).is_instance
    assert InstanceReport(("i-1",), 3, 12.0, 6.0, 6.0, 0.5).is_zone
    assert not InstanceReport(("i-1",), 3, 5.0, -1.0, 6.0, 0.0).is_instance, "it failed some minutes ago"
    assert not InstanceReport(("i-1",), 3, 12.0, -1.0, 5.0, 0.0).is_instance, "the rest had too few requests to fail"


def test_requests_without_an_instance_are_no_instance() -> None:
    """They come first in the arrays, because names are sorted. They are not mistaken for those of another one."""
    for signal in (Signal.FAULTS, Signal.LATENCY):
        found = report(build_bins({2: 0.8}, 3, signal=signal, names=("", "i-1", "i-2")), signal)
        assert (found.worst, found.instances, found.is_instance) == (("i-2",), 2, True)


def test_instances_that_come_and_go_are_told_apart_by_name() -> None:
    before = build_bins({}, 2, names=("i-1", "i-2"))[:15]
    after = build_bins({1: 0.8}, 2, names=("i-2", "i-3"))[15:]
    found = report([*before, *after])
    assert (found.worst, found.instances, found.is_instance) == (("i-3",), 3, True)


def test_bins_in_which_the_pool_was_not_known_yet_are_no_evidence() -> None:
    """In its first minutes the pool had no prediction, but its operations had theirs."""

    def forget(found: InstanceBin) -> InstanceBin:
        expected = found.predicted.copy()
        expected[-1] = 0.0
        return replace(found, predicted=expected)

    found = report([forget(each) for each in build_bins({2: 0.8})], row=POOL)
    assert found.is_instance


def test_an_operation_without_requests_in_a_bin_has_no_part_in_it() -> None:
    def empty(found: InstanceBin) -> InstanceBin:
        nothing: dict[str, Any] = {}
        for name in ("requests", "faults", "latencies", "slow", "scores"):
            array = getattr(found, name).copy()
            array[0] = 0.0
            nothing[name] = array
        return replace(found, **nothing)

    for signal in (Signal.FAULTS, Signal.LATENCY):
        bins = [empty(each) for each in build_bins({2: 0.8}, signal=signal)]
        assert report(bins, signal, POOL).is_instance
