"""Windows of a simulation are those that the detection loop would build from the same measurements."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from holdfast._types import Operation, Side, Zone, ZoneState
from holdfast.simulate.zones.scenario import (
    Scenario,
    Size,
    StateSpan,
    TelemetryFault,
    Times,
    build_fleet,
    build_scenario,
)
from holdfast.simulate.zones.traffic import SimulatedBin, TrafficSimulation
from holdfast.simulate.zones.windows import iterate_windows, run_scenario, to_window
from holdfast.telemetry.bins import Bin, BinKey
from holdfast.telemetry.context import Deployment, SharedResource
from holdfast.telemetry.window import Window, build_window

ZONES = (Zone("use1-az1"), Zone("use1-az2"), Zone("use1-az3"))
START = 1000.0


def scenario(*telemetry: TelemetryFault, instances: int = 2, bins: int = 6, **parts: Any) -> Scenario:
    fleet = build_fleet(np.random.default_rng(1), Size(), operations=2, requests=600, instances=instances)
    times = Times(START, START, START, START + 10 * bins)
    return build_scenario(fleet, times, telemetry=telemetry, **parts)


def windows(created: Scenario) -> list[Window]:
    return list(iterate_windows(created, np.random.default_rng(3)))


def truth(created: Scenario) -> list[SimulatedBin]:
    """The bins without faults of telemetry."""
    healthy = dataclasses.replace(created, telemetry=())
    return [reported.measured for reported in run_scenario(healthy, np.random.default_rng(3))]


def requests(window: Window) -> Any:
    return window.cells[Side.SERVER].requests


def to_bins(created: Scenario, measured: SimulatedBin) -> Mapping[BinKey, Bin]:
    bins = {}
    cell = 0
    for operation, side in zip(created.operations, created.sides, strict=True):
        for zone, names in zip(created.zones, created.instances, strict=True):
            for name in names:
                total, faults = int(measured.requests.reshape(-1)[cell]), int(measured.faults.reshape(-1)[cell])
                bins[BinKey("shop", operation, zone, name, side)] = Bin(
                    count_2xx=total - faults,
                    count_5xx=faults,
                    faults=faults,
                    success_seconds=measured.latencies.row(cell),
                )
                cell += 1
    return bins


@pytest.mark.parametrize("sides", [(Side.SERVER, Side.SERVER), (Side.SERVER, Side.CLIENT)], ids=["one", "two"])
def test_a_window_is_that_of_the_bins_of_all_series(sides: tuple[Side, ...]) -> None:
    created = scenario(sides=sides, bins=1)
    [measured] = truth(created)
    [found] = windows(created)
    expected = build_window("shop", ZONES, START, 10.0, to_bins(created, measured))
    assert (found.operations, found.instances, found.shape) == (expected.operations, expected.instances, expected.shape)
    assert found.cells.keys() == expected.cells.keys()
    for side, cells in expected.cells.items():
        assert np.array_equal(found.cells[side].requests, cells.requests)
        assert np.array_equal(found.cells[side].faults, cells.faults)
        assert np.array_equal(found.cells[side].client_errors, cells.client_errors)
        for part in ("offsets", "buckets", "values"):
            own, other = (getattr(each.success_seconds, part) for each in (found.cells[side], cells))
            assert np.array_equal(own, other), part
        for zone in ZONES:
            assert found.reading(zone, side) == expected.reading(zone, side)


def test_a_window_has_the_states_deployments_and_resources_of_its_time() -> None:
    resource = SharedResource("database", (Operation("shop", "operation001"),))
    deployment = Deployment(ZONES[0], START + 15, START + 25)
    created = scenario(
        states=(StateSpan(START + 20, START + 40, ZONES[1], ZoneState.OUT),),
        deployments=(deployment,),
        resources=(resource,),
    )
    found = windows(created)
    assert [dict(each.states) for each in found] == [{}, {}, *[{ZONES[1]: ZoneState.OUT}] * 2, {}, {}]
    assert [each.deployments for each in found] == [(), (deployment,), (deployment,), (), (), ()]
    assert {each.resources for each in found} == {(resource,)}


def test_a_bin_needs_no_scenario() -> None:
    fleet = build_fleet(np.random.default_rng(1), Size(), operations=1, instances=1)
    measured = TrafficSimulation(fleet, np.random.default_rng(2)).step(START)
    window = to_window(measured, zones=ZONES, operations=(Operation("a", "b"),), instances=(("",),) * 3)
    assert (window.start, window.end, window.states, window.deployments) == (START, START + 10, {}, ())
    assert window.reading(ZONES[0]).requests == measured.requests[:, 0].sum()


def test_lost_measurements_of_a_zone_are_missing_for_as_long_as_the_fault_lasts() -> None:
    created = scenario(TelemetryFault(start=START + 20, end=START + 40, zone=1, lost=1.0))
    for index, (window, measured) in enumerate(zip(windows(created), truth(created), strict=True)):
        if index in {2, 3}:
            assert requests(window)[:, 1].sum() == 0
            assert window.reading(ZONES[1]).latency is None
            assert requests(window)[:, [0, 2]].sum() > 0
        elif index < 2:
            assert np.array_equal(requests(window), measured.requests)
        else:
            assert requests(window)[:, 1].sum() > 0


def test_a_share_of_the_rows_is_lost_with_their_latencies() -> None:
    created = scenario(TelemetryFault(start=0, end=1e9, lost=0.5), instances=20, bins=4)
    kept = 0
    for window in windows(created):
        cells = window.cells[Side.SERVER]
        kept += int(np.count_nonzero(cells.requests))
        counts = np.add.reduceat(np.append(cells.success_seconds.values, 0), cells.success_seconds.offsets[:-1])
        counts[np.diff(cells.success_seconds.offsets) == 0] = 0
        assert np.array_equal(counts, (cells.requests - cells.faults).reshape(-1))
    assert kept / (4 * 2 * 3 * 20) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("delay", "arrives"), [(0.4, True), (0.6, False), (30.0, False)])
def test_measurements_that_arrive_after_the_grace_time_are_missing(delay: float, arrives: bool) -> None:
    created = scenario(TelemetryFault(start=0, end=1e9, zone=2, instance=1, delay=delay))
    for window, measured in zip(windows(created), truth(created), strict=True):
        expected = measured.requests.copy()
        if not arrives:
            expected[:, 2, 1] = 0
        assert np.array_equal(requests(window), expected)


def test_a_clock_that_is_ahead_moves_measurements_into_later_windows() -> None:
    created = scenario(TelemetryFault(start=0, end=1e9, zone=0, instance=0, skew=20.0))
    bins = truth(created)
    for index, window in enumerate(windows(created)):
        expected = bins[index].requests.copy()
        expected[:, 0, 0] = bins[index - 2].requests[:, 0, 0] if index >= 2 else 0
        assert np.array_equal(requests(window), expected)
        assert (window.reading(ZONES[0]).latency or 0) > 0


def test_measurements_of_a_clock_that_is_behind_are_late() -> None:
    created = scenario(TelemetryFault(start=0, end=1e9, zone=0, instance=0, skew=-20.0))
    for window, measured in zip(windows(created), truth(created), strict=True):
        expected = measured.requests.copy()
        expected[:, 0, 0] = 0
        assert np.array_equal(requests(window), expected)


def test_a_clock_that_is_set_right_leaves_measurements_of_both_times() -> None:
    """For two bins, the instance reports with the wrong time and then, for the same time, with the right one."""
    created = scenario(TelemetryFault(start=0, end=START + 30, zone=0, instance=0, skew=20.0))
    bins = truth(created)
    found = [requests(window)[:, 0, 0].tolist() for window in windows(created)]
    by_bin = [each.requests[:, 0, 0] for each in bins]
    expected = [0 * by_bin[0], 0 * by_bin[0], by_bin[0], by_bin[1] + by_bin[3], by_bin[2] + by_bin[4], by_bin[5]]
    assert found == [each.tolist() for each in expected]


def test_a_silent_workload_gives_empty_windows() -> None:
    created = scenario(TelemetryFault(start=0, end=1e9, lost=1.0))
    assert all(requests(window).sum() == 0 for window in windows(created))


def test_equal_seeds_give_equal_windows() -> None:
    created = scenario(TelemetryFault(start=0, end=1e9, lost=0.3))
    for one, other in zip(windows(created), windows(created), strict=True):
        assert np.array_equal(requests(one), requests(other))
