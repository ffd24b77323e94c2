"""The windows that detectors see of bins."""

import numpy as np
import pytest

from holdfast import Operation, Side, Zone, ZoneState
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinKey, Deployment, SharedResource, Window, build_deltas, build_window
from holdfast.telemetry.block import build_blocks
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.window import WindowIndex
from tests.unit.telemetry.measured import AZ1, AZ2, CART, HOME, START, key, outcome

DATABASE = SharedResource("primary-database", (Operation("db", "Query"),), AZ1)


def test_a_window_reads_every_zone_also_the_silent_ones() -> None:
    happened = [
        outcome(START + 1, "az1", instance, faults=faults, seconds=0.1)
        for instance, faults in (("i-1", 0), ("i-1", 2), ("i-2", 0))
    ]
    bins = {delta.key: delta.measured for delta in build_deltas(happened, 10.0)}
    window = build_window("shop", (AZ1, AZ2), START, 10.0, bins)
    one, other = window.reading(AZ1), window.reading(AZ2)
    assert (one.requests, one.faults, one.instances, one.failing_instances) == (4, 2, 2, 1)
    assert one.fault_rate == 0.5
    assert one.latency == pytest.approx(0.1, rel=0.05)
    assert (other.requests, other.fault_rate, other.latency) == (0, 0.0, None)
    assert window.end == START + 10


def test_another_workload_and_another_side_are_left_out_of_a_reading() -> None:
    bins = {key(): Bin(count_2xx=1)}
    assert build_window("other", (AZ1,), START, 10, bins).reading(AZ1).requests == 0
    seen_by_client = {key(side=Side.CLIENT): Bin(count_2xx=1)}
    assert build_window("shop", (AZ1,), START, 10, seen_by_client).reading(AZ1).requests == 0


def test_a_window_without_traffic_is_empty() -> None:
    window = build_window("shop", (), START, 10.0, {})
    assert (window.shape, window.cells, window.zones_out) == ((0, 0, 0), {}, frozenset())
    assert window == Window(workload="shop", start=START, seconds=10.0, zones=())


def test_faults_are_those_of_the_workload_s_own_rule() -> None:
    """A workload may count 429 against availability, and not 503."""
    bins = {key(): Bin(count_2xx=5, count_4xx=3, count_5xx=2, faults=3)}
    reading = build_window("shop", (AZ1,), START, 10.0, bins).reading(AZ1)
    assert (reading.requests, reading.faults) == (10, 3)


def test_a_window_has_arrays_by_operation_zone_and_instance_for_each_side() -> None:
    def of(operation: Operation, zone: str, instance: str, side: Side = Side.SERVER) -> BinKey:
        return key(operation, zone, instance, side)

    bins = {
        of(HOME, "az1", "i-2"): Bin(count_2xx=3, count_4xx=1),
        of(CART, "az2", "i-9"): Bin(count_5xx=3, faults=3, fault_seconds=Histogram.of([0.5] * 3)),
        of(HOME, "az1", "i-1", Side.CANARY): Bin(count_2xx=7),
        of(HOME, "az3", "i-1"): Bin(count_2xx=100),
    }
    deployment = Deployment(AZ2, START, START + 5)
    states = {AZ2: ZoneState.DRAINING, AZ1: ZoneState.RETURNING}
    window = build_window("shop", (AZ1, AZ2), START, 10.0, bins, states=states, deployments=[deployment])
    assert (window.operations, window.instances) == ((CART, HOME), (("i-1", "i-2"), ("i-9",)))
    assert (window.shape, window.zones_out, window.deployments) == ((2, 2, 2), frozenset({Zone("az2")}), (deployment,))
    server = window.cells[Side.SERVER]
    assert server.requests.tolist() == [[[0, 0], [3, 0]], [[0, 4], [0, 0]]]
    assert server.faults.ravel().tolist() == [0, 0, 3, 0, 0, 0, 0, 0]
    assert server.client_errors.ravel().tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    assert [server.fault_seconds.row(cell).count for cell in range(8)] == [0, 0, 3, 0, 0, 0, 0, 0]
    assert window.cells[Side.CANARY].requests.ravel().tolist() == [0, 0, 0, 0, 7, 0, 0, 0]
    assert window.reading(AZ1, Side.CANARY).requests == 7
    assert window.reading(AZ1, Side.CLIENT).requests == 0


def test_one_index_fills_the_windows_of_many_bins() -> None:
    """The rows of a block have the order of the keys; those of other zones are left out."""
    keys = [key(HOME, "az2", "i-2"), key(HOME, "az3", "i-1"), key(CART, "az1", "i-1"), key(HOME, "az1", "i-1")]
    index = WindowIndex((AZ1, AZ2), keys)
    empty = Window(workload="shop", start=START, seconds=10.0, zones=(AZ1, AZ2), resources=(DATABASE,))
    for factor in (1, 2):
        bins = [Bin(count_2xx=factor * number, success_seconds=Histogram.of([0.1] * number)) for number in (1, 2, 3, 4)]
        by_key = dict(zip(keys, bins, strict=True))
        window = index.fill(empty, build_blocks(by_key, SeriesTable(), 10.0)[0].take(find_rows(by_key)))
        assert window.resources == (DATABASE,)
        assert window.instances == (("i-1",), ("i-2",))
        server = window.cells[Side.SERVER]
        assert server.requests[:, :, 0].tolist() == [[3 * factor, 0], [4 * factor, factor]]
        assert [server.success_seconds.row(cell).count for cell in range(4)] == [3, 0, 4, 1]


def find_rows(bins: dict[BinKey, Bin]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the rows of the block of `bins` in the order of their keys."""
    table = SeriesTable()
    numbers = build_blocks(bins, table, 10.0)[0].numbers.tolist()
    return np.array([numbers.index(table.number(each)) for each in bins], np.int64)


def test_a_zone_may_be_measured_by_instances_without_names() -> None:
    bins = {key(HOME, "az1", ""): Bin(count_2xx=2), key(HOME, "az2", "i-2"): Bin(count_2xx=1)}
    window = build_window("shop", (AZ1, AZ2), START, 10.0, bins, resources=[DATABASE])
    assert window.instances == (("",), ("i-2",))
    assert (window.reading(AZ1).instances, window.resources) == (1, (DATABASE,))
