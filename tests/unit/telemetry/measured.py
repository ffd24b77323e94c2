"""Measurements for tests: keys, outcomes, bins and random ones of them."""

import copy
from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from holdfast import Operation, Outcome, Side, Zone
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinDelta, BinKey

START = 1_700_000_400.0
"""The start of a bin of 0.5, 10, 60 and 600 seconds."""
HOME, CART = Operation("Home", "Index"), Operation("Cart", "Add")
AZ1, AZ2 = Zone("az1"), Zone("az2")


def key(
    operation: Operation = HOME,
    zone: str = "az1",
    instance: str = "i-1",
    side: Side = Side.SERVER,
    workload: str = "shop",
) -> BinKey:
    return BinKey(workload, operation, Zone(zone), instance, side)


def outcome(at: float, zone: str = "az1", instance: str = "i-1", *, faults: int = 0, seconds: float = 0.01) -> Outcome:
    return Outcome(
        workload="shop",
        operation=HOME,
        zone=Zone(zone),
        instance=instance,
        at=at,
        side=Side.SERVER,
        count_2xx=0 if faults else 1,
        count_5xx=faults,
        success_seconds=() if faults else (seconds,),
        fault_seconds=(seconds,) * faults,
    )


def delta(
    start: float, requests: int = 1, *, of: BinKey | None = None, seconds: float = 10.0, replaces: bool = False
) -> BinDelta:
    return BinDelta(of or key(), start, seconds, Bin(count_2xx=requests), replaces)


def total(bins: Iterable[Bin]) -> Bin:
    """Add up bins one by one, without changing them."""
    found = Bin()
    for each in bins:
        found.merge(each)
    return found


def copied(bins: Mapping[BinKey, Bin]) -> dict[BinKey, Bin]:
    return copy.deepcopy(dict(bins))


KEYS = st.builds(
    key,
    st.sampled_from([HOME, CART]),
    st.sampled_from(["az1", "az2"]),
    st.sampled_from(["i-1", "i-2", ""]),
    st.sampled_from([Side.SERVER, Side.CANARY]),
)
_COUNTS = st.integers(0, 1000)
_LATENCIES = st.lists(st.sampled_from([0.0, 1e-7, 0.0123, 0.1, 0.5]) | st.floats(1e-6, 3600.0), max_size=4)
_SECONDS = st.dictionaries(st.integers(int(START), int(START) + 9), st.integers(1, 50), max_size=3)
BINS = st.builds(
    Bin,
    st.integers(1, 1000),
    _COUNTS,
    _COUNTS,
    _COUNTS,
    _COUNTS,
    st.builds(Histogram.of, _LATENCIES),
    st.builds(Histogram.of, _LATENCIES),
    _SECONDS,
    st.booleans(),
)
"""Bins of ten seconds from START on, each with a request or more."""
BINS_BY_KEY = st.dictionaries(KEYS, BINS, max_size=6)
