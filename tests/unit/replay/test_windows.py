"""Windows of a recording are those that the live loop would have built."""

import numpy as np

from holdfast._types import Operation, Side, Zone, ZoneState
from holdfast.replay.timeline import RecordedBin, Timeline
from holdfast.replay.windows import StateSpan, WindowBuilder
from holdfast.telemetry import Bin, BinKey, build_window
from holdfast.telemetry.context import Deployment, SharedResource
from tests.unit.replay import recorded
from tests.unit.replay.recorded import START, read

ZONES = tuple(map(Zone, recorded.ZONES))
HEADER = "time,workload,operation,zone,instance,side,requests,faults,p50_ms\n"


def build_bins(text: str) -> tuple[list[RecordedBin], list[BinKey]]:
    _, rows, labels = read(text)
    timeline = Timeline(10.0)
    list(timeline.add(rows, 0.0))
    return list(timeline.finish()), labels.keys


def test_a_window_is_the_same_as_that_of_the_live_loop() -> None:
    lines = [
        f"{START},shop,b/two,use1-az1,i-2,,7,1,40",
        f"{START},shop,b/two,use1-az1,i-1,server,5,0,80",
        f"{START},shop,a/one,use1-az3,i-3,,9,9,",
        f"{START},shop,a/one,use1-az3,i-3,client,4,2,10",
        f"{START},shop,b/two,use1-az1,i-2,,3,1,160",  # a second row of a series
        f"{START},shop,a/none,use1-az3,i-3,,0,0,",
        f"{START},shop,a/one,elsewhere,i-3,,8,2,",
        f"{START},other,a/one,use1-az1,i-3,,8,2,",
    ]
    (found,), keys = build_bins(HEADER + "\n".join(lines))
    window = WindowBuilder("shop", ZONES).build(found, keys)
    assert found.rows is not None
    bins: dict[BinKey, Bin] = {}
    for index, number in enumerate(found.rows.numbers.tolist()):
        requests, faults = int(found.rows.requests[index]), int(found.rows.faults[index])
        measured = Bin(requests - faults, 0, 0, faults, faults, found.rows.latencies.row(index))
        if requests:
            bins.setdefault(keys[number], Bin()).merge(measured)
    expected = build_window("shop", ZONES, START, 10.0, bins)
    assert (window.operations, window.instances, window.shape) == (
        expected.operations,
        expected.instances,
        expected.shape,
    )
    assert window.cells.keys() == expected.cells.keys() == {Side.SERVER, Side.CLIENT}
    for side, cells in window.cells.items():
        known = expected.cells[side]
        assert np.array_equal(cells.requests, known.requests)
        assert np.array_equal(cells.faults, known.faults)
        for row in range(cells.requests.size):
            assert cells.success_seconds.row(row).buckets == known.success_seconds.row(row).buckets
    assert all(window.reading(zone) == expected.reading(zone) for zone in ZONES)


def test_a_bin_without_rows_is_a_window_without_data() -> None:
    (found,), keys = build_bins(HEADER + f"{START},other,a/one,use1-az1,i,,8,2,\n")
    builder = WindowBuilder("shop", ZONES)
    for recorded_bin in (found, RecordedBin(START, 10.0, None)):
        window = builder.build(recorded_bin, keys)
        assert (window.operations, window.cells, window.zones, window.start) == ((), {}, ZONES, START)


def test_states_deploys_and_resources_are_in_the_windows_of_their_time() -> None:
    resource = SharedResource("db", (Operation("db", "write"),))
    builder = WindowBuilder(
        "shop",
        ZONES,
        deployments=[Deployment(None, START + 15, START + 40)],
        states=[
            StateSpan(START, START + 10, ZONES[0], ZoneState.OUT),
            StateSpan(START + 10, START + 30, ZONES[1], ZoneState.RETURNING),
            StateSpan(START, START + 90, ZONES[2], ZoneState.IN),
        ],
        resources=[resource],
    )
    bins = [RecordedBin(START + 10.0 * number, 10.0, None) for number in range(5)]
    windows = [builder.build(each, []) for each in bins]
    assert [len(window.deployments) for window in windows] == [0, 1, 1, 1, 0]
    assert [dict(window.states) for window in windows[:4]] == [
        {ZONES[0]: ZoneState.OUT},
        {ZONES[1]: ZoneState.RETURNING},
        {ZONES[1]: ZoneState.RETURNING},
        {},
    ]
    assert [builder.find_zones_out(each) for each in bins[:2]] == [frozenset({ZONES[0]}), frozenset()]
    assert windows[0].resources == (resource,)


def test_arrangements_are_forgotten_when_there_are_many() -> None:
    text = "".join(f"{START + 10 * n},shop,a/op{n},use1-az1,i{n},,8,2,\n" for n in range(140))
    bins, keys = build_bins(HEADER + text + f"{START + 1390},shop,a/op138,use1-az1,i138,,8,2,\n")
    builder = WindowBuilder("shop", ZONES)
    windows = [builder.build(each, keys) for each in [*bins, bins[-1]]]
    assert windows[3].operations == (Operation("a", "op3"),)
    assert windows[-1].operations == (Operation("a", "op138"), Operation("a", "op139"))
    assert windows[-1].instances[0] == ("i138", "i139")
