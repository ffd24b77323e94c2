"""Windows as arrays with a fixed order of operations."""

import math

import numpy as np

from holdfast import Operation, Side, Zone
from holdfast.detect.measurements import BUCKETS, LOWEST_BUCKET, MIDDLES, StreamKey, find_rows, list_keys, measure
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinKey, SharedResource, Window, build_window

ONE, TWO = Zone("az1"), Zone("az2")
HOME, CART, QUERY = Operation("Home", "Index"), Operation("Cart", "Add"), Operation("db", "Query")


def build(*resources: SharedResource) -> Window:
    def key(operation: Operation, zone: Zone, instance: str, side: Side = Side.SERVER) -> BinKey:
        return BinKey("shop", operation, zone, instance, side)

    bins = {
        key(HOME, ONE, "i-1"): Bin(count_2xx=3, success_seconds=Histogram.of([0.0, 0.5, 1e9])),
        key(HOME, TWO, "i-2"): Bin(count_5xx=2, faults=2),
        key(CART, ONE, "i-3"): Bin(count_2xx=1, success_seconds=Histogram.of([1e-9])),
        key(QUERY, ONE, "i-1", Side.CLIENT): Bin(count_2xx=7),
        key(HOME, ONE, "i-1", Side.CLIENT): Bin(count_2xx=9),
        key(CART, TWO, "", Side.CANARY): Bin(count_2xx=1),
        key(Operation("Idle", "Never"), ONE, "i-1"): Bin(),
    }
    return build_window("shop", (ONE, TWO), 0.0, 10.0, bins, resources=resources)


def test_client_measurements_count_only_for_shared_resources() -> None:
    own = [StreamKey(Side.SERVER, HOME), StreamKey(Side.SERVER, CART), StreamKey(Side.CANARY, CART)]
    assert set(list_keys(build())) == set(own)
    with_database = list_keys(build(SharedResource("db", (QUERY,))))
    assert set(with_database) == {*own, StreamKey(Side.CLIENT, QUERY)}


def test_a_stream_that_the_service_does_not_measure_itself_says_so() -> None:
    assert str(StreamKey(Side.SERVER, HOME)) == "Home/Index"
    assert str(StreamKey(Side.CLIENT, QUERY)) == "db/Query (client)"


def test_every_stream_has_the_row_that_is_asked_for() -> None:
    window = build()
    keys = [StreamKey(Side.CANARY, CART), StreamKey(Side.SERVER, QUERY), StreamKey(Side.SERVER, HOME)]
    found = measure(window, keys)
    assert found.shape == (3, 2, 2)
    assert found.instances == (("i-1", "i-3"), ("", "i-2"))
    assert found.requests.tolist() == [[[0, 0], [1, 0]], [[0, 0], [0, 0]], [[3, 0], [0, 2]]]
    assert found.faults.tolist() == [[[0, 0], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [0, 2]]]
    entries = sorted(zip(found.cells.tolist(), found.buckets.tolist(), found.values.tolist(), strict=True))
    home = 2 * 4
    [(_, low, _), (_, middle, _), (_, high, _)] = entries
    assert [(cell, value) for cell, _, value in entries] == [(home, 1.0)] * 3
    assert (low, high) == (0, BUCKETS - 1), "0 s and a billion seconds are in the outermost buckets"
    assert abs(math.exp(MIDDLES[middle]) - 0.5) < 0.05
    assert abs(MIDDLES[-LOWEST_BUCKET]) < 0.1, "one second is in the bucket 0"


def test_a_window_without_measurements_has_no_entries() -> None:
    empty = build_window("shop", (ONE, TWO), 0.0, 10.0, {})
    found = measure(empty, [StreamKey(Side.SERVER, HOME)])
    assert (found.shape, found.instances, len(found.cells)) == ((1, 2, 1), (("",), ("",)), 0)
    assert not found.requests.any()
    assert list_keys(empty) == []
    assert measure(empty, []).requests.shape == (0, 2, 1)
    assert np.array_equal(measure(build(), []).values, np.zeros(0))


def test_rows_are_found_in_any_order() -> None:
    home, cart, query = (StreamKey(Side.SERVER, each) for each in (HOME, CART, QUERY))
    canary = StreamKey(Side.CANARY, HOME)
    cases = [
        ([home, cart, query], [home, cart, query], [0, 1, 2]),
        ([home, cart, query], [cart], [1]),
        ([home, cart, query], [query, home], [2, 0]),
        ([home, cart], [home, canary, cart], [0, -1, 1]),
        ([], [home], [-1]),
        ([home], [], []),
    ]
    for known, keys, rows in cases:
        assert find_rows(known, keys) == rows
