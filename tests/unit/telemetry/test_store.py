"""The measurements of a day, and the answers to queries about them."""

import copy
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation, Side
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinDelta, BinKey
from holdfast.telemetry.bins import LONG_TERM, MEDIUM_TERM, SHORT_TERM, bin_number
from holdfast.telemetry.block import decode_block, encode_block
from holdfast.telemetry.collector import GRACE_SECONDS, Amendment, Collector
from holdfast.telemetry.query import SeriesAnswer, SeriesPoint, SeriesQuery
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.store import MAX_POINTS, SeriesStore, Tier, get_retention
from tests.table import every_row
from tests.unit.telemetry.measured import AZ1, AZ2, CART, HOME, START, key, total

SHOP = ("shop",)


class Stored:
    """A collector and a store, as a watcher has them, with time under control."""

    def __init__(self, seconds: float = 10.0, workloads: Sequence[str] = SHOP, now: float = START) -> None:
        self.table = SeriesTable()
        self.collector = Collector(self.table, seconds)
        self.store = SeriesStore(self.table, seconds)
        self.workloads = workloads
        self.now = now
        self.tick()

    def add(
        self,
        start: float,
        measured: Bin | int = 1,
        of: BinKey | None = None,
        *,
        seconds: float | None = None,
        replaces: bool = False,
        lateness: float = 600.0,
    ) -> int:
        """Add a delta. Return the number of its requests that were accepted."""
        counted = Bin(count_2xx=measured) if isinstance(measured, int) else measured
        length = self.collector.seconds if seconds is None else seconds
        arrivals = self.collector.add([BinDelta(of or key(), start, length, counted, replaces)], self.now, lateness)
        return arrivals.on_time + arrivals.late

    def tick(self) -> list[int]:
        """Store the complete bins, and return their numbers."""
        complete = self.collector.pop_complete(self.now)
        for number, bins in complete:
            self.store.close_bin(number, bins, self.workloads)
        self.store.amend(self.collector.pop_late(), self.collector.pop_late_minutes(), self.now)
        return [number for number, _ in complete]

    def advance(self, seconds: float) -> list[int]:
        """Let time pass, a few bins at once, and return the numbers of the bins that were stored."""
        found: list[int] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 20 * self.collector.seconds)
            found += self.tick()
        return found

    def answer(self, workload: str = "shop", **options: Any) -> SeriesAnswer:
        query: dict[str, Any] = {"workload": workload, "start": START, "end": self.now, **options}
        return self.store.answer(SeriesQuery(**query), self.now)

    def points(self, **options: Any) -> dict[str | None, dict[float, SeriesPoint]]:
        """Return the points of each series, by their time after START."""
        return {
            series.label: {point.start - START: point for point in series.points}
            for series in self.answer(**options).series
        }

    def requests(self, **options: Any) -> dict[str | None, dict[float, int]]:
        return {
            label: {at: point.requests for at, point in points.items()}
            for label, points in self.points(**options).items()
        }


@dataclass
class Model:
    """Lists of bins, each a measurement as it arrived."""

    seconds: float
    fine: dict[int, dict[BinKey, list[Bin]]] = field(default_factory=lambda: defaultdict(dict))
    minutes: dict[int, dict[BinKey, list[Bin]]] = field(default_factory=lambda: defaultdict(dict))
    stored: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The numbers of the bins that are stored for each workload."""

    @property
    def minute(self) -> float:
        return max(60.0, self.seconds)

    def add(self, start: float, measured: Bin, of: BinKey, seconds: float, *, replaces: bool) -> None:
        is_long = seconds > self.seconds
        bins, length = (self.minutes, self.minute) if is_long else (self.fine, self.seconds)
        number = bin_number(start, length)
        known = [] if replaces else bins[number].get(of, [])
        bins[number][of] = [*known, measured]
        if not is_long:
            self.stored[of.workload].add(number)

    def has_minutes(self, query: SeriesQuery) -> bool:
        return any(
            one.workload == query.workload and one.side is query.side and query.zone in (None, one.zone)
            for bins in self.minutes.values()
            for one in bins
        )

    def answer(self, query: SeriesQuery, step: float) -> dict[str | None, dict[float, Bin]]:
        """Return the sum of every series in every step."""
        by_instance = query.by == "instance" or query.instance is not None
        cells = [(number * self.seconds, one, bins) for number in self.fine for one, bins in self.fine[number].items()]
        starts = {number * self.seconds for number in self.stored[query.workload]}
        if self.has_minutes(query) or (step >= self.minute and not by_instance):
            longs = [(at * self.minute, one, bins) for at in self.minutes for one, bins in self.minutes[at].items()]
            starts |= {start for start, one, _ in longs if one.workload == query.workload}
            cells += longs

        def find_step(start: float) -> float:
            if step >= self.minute and not by_instance:  # bins of 7 s belong to the minute in which they begin
                start = bin_number(start, self.minute) * self.minute
            return bin_number(start, step) * step

        found: dict[str | None, dict[float, list[Bin]]] = defaultdict(lambda: defaultdict(list))
        for start, one, bins in cells:
            wanted = (query.zone, one.zone), (query.operation, one.operation), (query.instance, one.instance)
            is_wanted = all(value in (None, own) for value, own in wanted)
            if is_wanted and one.workload == query.workload and one.side is query.side:
                label = None if query.by is None else str(getattr(one, query.by))
                found[label][find_step(start)] += bins
        times = sorted(set(map(find_step, starts)))
        return {label: {at: total(bins.get(at, [])) for at in times} for label, bins in found.items()}


def assert_same(point: SeriesPoint, expected: Bin) -> None:
    assert (point.requests, point.faults) == (expected.requests, expected.faults)
    assert point.is_coarse == expected.is_coarse
    assert point.fault_share == (round(expected.faults / expected.requests, 6) if expected.requests else None)
    if expected.success_seconds.count:
        quantiles = expected.success_seconds.quantiles((0.5, 0.9, 0.99))
        assert (point.p50, point.p90, point.p99) == pytest.approx(tuple(quantiles), rel=1e-6)
    else:
        assert (point.p50, point.p90, point.p99) == (None, None, None)


_MEASURED = st.builds(
    Bin,
    st.integers(1, 100),
    count_5xx=st.integers(0, 20),
    faults=st.integers(0, 20),
    success_seconds=st.builds(Histogram.of, st.lists(st.floats(0.001, 10.0), max_size=3)),
    is_coarse=st.booleans(),
)
_KEYS = st.builds(
    key,
    st.sampled_from([HOME, CART]),
    st.sampled_from([AZ1, AZ2]),
    st.sampled_from(["i-1", "i-2"]),
    st.sampled_from([Side.SERVER, Side.CANARY]),
    st.sampled_from(["shop", "news"]),
)
_DELTAS = st.tuples(
    st.integers(-70, 7),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
    _KEYS,
    _MEASURED,
)
"""The start of the bin, in bins from now on; whether the delta covers a minute, and replaces others."""
_ROUNDS = st.lists(st.tuples(st.lists(_DELTAS, max_size=5), st.floats(0.0, 2.0)), max_size=6)
"""Deltas that arrive at once, and the time until the next ones, in bins."""


_QUERIES: Sequence[tuple[int, dict[str, Any]]] = (
    (0, {"by": "zone"}),
    (1, {}),
    (5, {"by": "zone", "side": Side.CANARY}),
    (0, {"by": "operation", "zone": AZ1}),
    (1, {"by": "zone", "operation": CART}),
    (0, {"by": "instance"}),
    (1, {"by": "instance", "zone": AZ2, "operation": HOME}),
    (5, {"by": "zone", "instance": "i-2"}),
)
"""Minutes of a step, 0 for that of a bin, and the rest of the query."""


@pytest.mark.no_cover
@given(st.sampled_from([10.0, 0.5, 7.0, 60.0, 600.0]), _ROUNDS)
def test_answers_are_those_of_lists_of_all_measurements(
    seconds: float, rounds: list[tuple[list[tuple[int, bool, bool, BinKey, Bin]], float]]
) -> None:
    """Measurements arrive on time, late, for a minute, or in place of others; several bins pass between two stores."""
    stored, model = Stored(seconds, ("shop", "news")), Model(seconds)
    for deltas, pause in [*rounds, ([], 9 + 3 / seconds)]:  # at the end, bins that were dated in the future are stored
        for offset, is_long, replaces, of, measured in deltas:
            length = model.minute if is_long else seconds
            start = (bin_number(stored.now, seconds) + offset) * seconds
            if length <= seconds and start < bin_number(stored.now - SHORT_TERM, seconds) * seconds:
                continue  # these have no instances any more: see the next test
            if stored.add(start, copy.deepcopy(measured), of, seconds=length, replaces=replaces):
                model.add(start, measured, of, length, replaces=replaces)
        closed = stored.tick() + stored.advance(pause * seconds)
        for workload in stored.workloads:
            model.stored[workload].update(closed)
    since, until = stored.now - SHORT_TERM if seconds < 60 else START - 3000, stored.now + model.minute
    for workload in stored.workloads:
        for minutes, options in _QUERIES:
            step = minutes * model.minute or seconds
            query = SeriesQuery(workload=workload, start=since, end=until, step=step, **options)
            if step < model.minute and model.has_minutes(query):
                with pytest.raises(InvalidValue, match="because some of the measurements are by the minute"):
                    stored.store.answer(query, stored.now)
                continue
            answer = stored.store.answer(query, stored.now)
            expected = model.answer(query, answer.step)
            found = {series.label: {point.start: point for point in series.points} for series in answer.series}
            assert {label: list(points) for label, points in found.items()} == {
                label: list(points) for label, points in expected.items()
            }
            for label, points in expected.items():
                for at, measured in points.items():
                    assert_same(found[label][at], measured)


def test_measurements_from_before_the_start_are_added_over_all_instances_if_instances_are_not_kept_any_more() -> None:
    stored = Stored(now=START + 3600)
    for number, instance in enumerate(["i-1", "i-1", "i-2"]):
        assert stored.add(START + 1200, Bin(count_2xx=5, faults=number), key(instance=instance), lateness=0.0) == 5
        stored.tick()
    assert stored.add(START + 1200, 5, replaces=True) == 0, "a total of one instance cannot be replaced"
    assert stored.add(START - 20, 5) == 0, "an hour is the limit"
    assert stored.add(START + 3000, 7) == 7
    stored.tick()
    assert stored.requests(start=START + 1200, end=START + 1210, step=10.0) == {None: {1200: 15}}
    assert stored.requests(start=START, step=60.0)[None].items() >= {1200: 15, 3000: 7}.items()
    assert stored.requests(start=START + 3000, by="instance", step=10.0) == {"i-1": {3000: 7}}
    [(at, keys, block)] = list(stored.store.iterate_zones("shop", START + 1200))[:1]
    assert (at, [str(each.operation) for each in keys]) == (START + 1200, ["Home/Index"])
    assert block.counts.tolist() == [[15, 0, 0, 0, 3]]
    assert stored.store.count_bins("shop", START, START + 3600) == 2
    assert stored.store.count_bins("news", START, START + 3600) == 0
    assert [at for at, _, _ in stored.store.iterate_zones("shop", START + 1210)] == [START + 3000]
    assert list(stored.store.iterate_zones("news", START)) == []


@pytest.mark.parametrize("seconds", [0.5, 7.0, 10.0, 60.0, 600.0])
def test_bins_of_every_length_are_added_up_to_minutes(seconds: float) -> None:
    stored, first = Stored(seconds), bin_number(START, seconds)
    for number in range(first, first + 30):
        stored.now = (number + 0.5) * seconds
        stored.tick()
        stored.add(number * seconds, number - first + 1)
    stored.advance(2 * seconds + GRACE_SECONDS)
    minute = max(60.0, seconds)
    expected: dict[float, int] = defaultdict(int)
    for number in range(first, first + 30):
        expected[bin_number(number * seconds, minute) * minute - START] += number - first + 1
    end = START + 30 * seconds + minute
    assert stored.requests(start=START - minute, end=end, step=minute)[None].items() >= expected.items()


def restart(before: Stored, now: float, seconds: float = 10.0) -> Stored:
    """Return a new store with the blocks of another one. Its series have other numbers."""
    after = Stored(seconds, now=now)
    after.table.number(key(Operation("only", "here")))
    for one in before.store.pop_changed():
        block = decode_block(encode_block(one.block, before.table), one.workload, after.table)
        after.store.load(one._replace(block=block))
    return after


def test_a_bin_without_traffic_has_a_point_and_a_time_without_bins_has_none() -> None:
    before = Stored()
    before.add(START, 5)
    before.advance(30 + GRACE_SECONDS)
    after = restart(before, START + 100)
    after.add(START + 100, 7)
    after.advance(10 + GRACE_SECONDS)
    [points] = after.points().values()
    assert {at: (point.requests, point.rate) for at, point in points.items()} == {
        0: (5, 0.5),
        10: (0, 0.0),
        20: (0, 0.0),
        100: (7, 0.7),
    }
    assert points[10] == SeriesPoint(START + 10, 0, 0, 0.0, None, 0, None, None, None)


def test_a_point_of_many_bins_has_the_sum_of_all() -> None:
    stored = Stored(60.0)
    for number in range(150):
        stored.add(stored.now, Bin(count_2xx=2, success_seconds=Histogram.of([0.01, 0.02 + number / 1000])))
        stored.advance(60)
    stored.advance(GRACE_SECONDS)
    [series] = stored.answer(step=86_400.0).series
    assert sum(point.requests for point in series.points) == 300
    assert series.total.requests == 300
    assert series.total.p90 == pytest.approx(0.14, rel=0.05)


def test_a_snapshot_stays_as_it_is_for_another_thread() -> None:
    stored = Stored()
    stored.add(START, 5)
    stored.advance(10 + GRACE_SECONDS)
    query = SeriesQuery(workload="shop", start=START, end=START + 900, by="instance")
    snapshot = stored.store.snapshot("shop")
    expected = stored.store.answer(query, stored.now)
    stored.add(START, 5, key(instance="i-2"))
    stored.advance(2 * SHORT_TERM)
    stored.store.prune(stored.now)
    assert snapshot.answer(query, START + 12) == expected
    assert stored.store.snapshot("elsewhere").answer(query, START + 12).series == []


def test_late_measurements_of_bins_from_before_a_restart_are_added_to_them() -> None:
    before = Stored()
    before.add(START, 5)
    before.advance(10 + GRACE_SECONDS)
    after = restart(before, START + 21)
    after.add(START, 2)
    after.add(START + 10, 3)  # of the bin that the restart lost
    after.add(START + 20, 4)
    after.advance(11)
    assert after.requests() == {None: {0: 7, 10: 3, 20: 4}}
    assert after.requests(step=60.0) == {None: {0: 14}}


def test_loaded_blocks_count_as_saved_and_bins_of_another_length_are_left_out() -> None:
    before = Stored()
    before.add(START, 5)
    before.advance(20)
    changes = [one for one in before.store.pop_changed() if one.tier is Tier.ZONES]
    assert [(one.workload, one.start, one.seconds) for one in changes] == [("shop", START, 10.0)]
    assert before.store.pop_changed() == []
    after = Stored(5.0, now=START + 30)
    for one in changes:
        after.store.load(one)
    assert after.requests() == {}
    again = Stored(10.0, now=START + 30)
    again.table.number(key())
    for one in changes:
        again.store.load(one)
    assert again.store.pop_changed() == []
    assert again.requests() == {None: {0: 5}}


def test_a_changed_block_that_is_dropped_meanwhile_is_not_saved() -> None:
    stored = Stored()
    stored.add(START, 5)
    stored.advance(20)
    stored.store.prune(START + 2 * LONG_TERM)
    assert stored.store.pop_changed() == []


def test_bins_are_dropped_after_fifteen_minutes_and_minutes_after_a_day() -> None:
    stored = Stored()
    stored.add(START, 5)
    stored.add(START, 5, key(CART), seconds=60.0)
    stored.advance(70)

    def count() -> dict[Tier, int]:
        return {tier: len(blocks) for tier, blocks in stored.store._workloads["shop"].tiers.items()}

    assert count() == {Tier.INSTANCES: 6, Tier.ZONES: 6, Tier.LONG_INSTANCES: 1, Tier.MINUTES: 1}
    stored.store.prune(START + 10 + SHORT_TERM - 0.01)
    assert count() == {Tier.INSTANCES: 6, Tier.ZONES: 6, Tier.LONG_INSTANCES: 1, Tier.MINUTES: 1}
    stored.store.prune(START + 10 + SHORT_TERM)
    assert count() == {Tier.INSTANCES: 5, Tier.ZONES: 6, Tier.LONG_INSTANCES: 1, Tier.MINUTES: 1}
    stored.store.prune(START + 60 + SHORT_TERM)
    assert count() == {Tier.INSTANCES: 0, Tier.ZONES: 6, Tier.LONG_INSTANCES: 0, Tier.MINUTES: 1}
    stored.store.prune(START + 60 + MEDIUM_TERM)
    assert count() == {Tier.INSTANCES: 0, Tier.ZONES: 0, Tier.LONG_INSTANCES: 0, Tier.MINUTES: 1}
    stored.now = START + 60 + MEDIUM_TERM
    assert stored.requests(end=START + 60, by="operation") == {"Cart/Add": {0: 5}, "Home/Index": {0: 5}}
    stored.store.prune(START + 60 + LONG_TERM - 0.01)
    assert count()[Tier.MINUTES] == 1
    stored.store.prune(START + 60 + LONG_TERM)
    assert count()[Tier.MINUTES] == 0
    stored.store.prune(START + 121 + LONG_TERM)
    assert (len(stored.table), stored.store.nbytes) == (0, 0)


@pytest.mark.no_cover
def test_a_day_of_traffic_needs_no_more_memory_than_its_retention() -> None:
    """Each bin of ten minutes has another instance."""
    stored = Stored(600.0)
    sizes = []
    for number in range(2 * 144):
        stored.add(stored.now, 5, key(instance=f"i-{number}"))
        stored.now += 600.0
        stored.tick()
        stored.store.prune(stored.now)
        if number % 144 == 143:
            sizes.append((stored.store.nbytes, len(stored.table)))
    assert len(stored.store._workloads["shop"].tiers[Tier.MINUTES]) <= 145
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)
    assert sizes[1][1] < 8


@pytest.mark.no_cover
def test_the_tier_of_an_answer_depends_on_its_age_and_step() -> None:
    stored = Stored(now=START - 3600)
    for minute in range(61):
        stored.now = START - 3600 + 60 * minute
        stored.add(stored.now, 6)
        stored.tick()
    stored.now = START + 15
    stored.tick()
    rows: list[tuple[dict[str, Any], float]] = [
        ({"start": START - 890}, 10.0),
        ({"start": START - 890, "step": 10.0}, 10.0),
        ({"start": START - 890, "step": 25.0}, 30.0),
        ({"start": START - 890, "step": 59.0}, 60.0),
        ({"start": START - 890, "step": 61.0}, 120.0),
        ({"start": START - 3600}, 60.0),
        ({"start": START - 86_400}, 300.0),
        ({"start": 0.0, "step": 3600.0}, 3600.0),
        ({"start": START - 3600, "by": "instance"}, 20.0),
        ({"start": START - 3600, "instance": "i-1", "step": 10.0}, 10.0),
    ]

    def check(row: tuple[dict[str, Any], float]) -> None:
        options, step = row
        answer = stored.answer(**options)
        [series] = answer.series
        assert answer.step == step
        assert all(point.start % step == 0 for point in series.points)
        assert sum(point.requests for point in series.points) > 0

    every_row(rows, check)


def test_a_step_that_is_too_short_is_refused_with_the_reason() -> None:
    stored = Stored()
    stored.add(START, 1, key(side=Side.CANARY), seconds=60.0)
    stored.advance(20)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"step": 9.9}, r"step is 9\.9 s: expected at least 10 s$"),
        ({"by": "instance", "step": 1.0}, "step is 1 s: expected at least 10 s$"),
        ({"start": START - 7200, "step": 30.0}, "expected at least 60 s, because bins of less are kept for 60 minutes"),
        (
            {"side": Side.CANARY, "end": START + 60, "step": 10.0},
            "expected at least 60 s, because some of the measurements are by the minute",
        ),
        (
            {"side": Side.CANARY, "end": START + 60, "by": "instance", "step": 10.0},
            "expected at least 60 s, because some of the measurements are by the minute",
        ),
    ]

    def check(row: tuple[dict[str, Any], str]) -> None:
        options, reason = row
        with pytest.raises(InvalidValue, match=reason):
            stored.answer(**options)

    every_row(rows, check)
    assert stored.answer(side=Side.CANARY, zone=AZ2, step=10.0).series == [], "no source there is by the minute"


def test_an_answer_of_too_many_points_is_refused() -> None:
    stored = Stored()
    for number in range(500):
        stored.add(START, 1, key(instance=f"i-{number}"))
    stored.advance(42 * 10.0)
    with pytest.raises(InvalidValue, match=f"500 series of 41 points each are more than {MAX_POINTS} points: ask for"):
        stored.answer(by="instance", step=10.0, end=START + 410)
    assert len(stored.answer(by="instance", step=20.0).series) == 500
    assert len(stored.answer(by="instance", instance="i-7", step=10.0).series) == 1


def test_a_workload_without_measurements_has_no_series() -> None:
    stored = Stored()
    stored.advance(60)
    assert stored.answer().series == []
    assert stored.answer("elsewhere") == SeriesAnswer("elsewhere", 10.0, [])


def test_the_peak_is_known_for_single_series_and_not_for_sums_of_them() -> None:
    stored, at = Stored(), int(START)
    for of, by_second in (
        (key(), {at: 3, at + 4: 9}),
        (key(instance="i-2"), {at + 4: 5}),
        (key(CART), {at + 5: 10}),
        (key(zone="az2"), {at: 2}),
    ):
        stored.add(START, Bin(count_2xx=sum(by_second.values()), by_second=by_second), of)
    stored.advance(30)
    rows: list[tuple[dict[str, Any], dict[str | None, int | None]]] = [
        ({"by": "zone"}, {"az1": 14, "az2": 2}),
        ({"zone": AZ1}, {None: 14}),
        ({}, {None: None}),
        ({"by": "operation", "zone": AZ1}, {"Cart/Add": 10, "Home/Index": 14}),
        ({"by": "operation"}, {"Cart/Add": None, "Home/Index": None}),
        ({"by": "instance", "operation": HOME, "zone": AZ1}, {"i-1": 9, "i-2": 5}),
        ({"by": "instance", "zone": AZ1}, {"i-1": None, "i-2": None}),
    ]

    def check(row: tuple[dict[str, Any], dict[str | None, int | None]]) -> None:
        options, expected = row
        points = stored.points(**options)
        assert {label: found[0].peak for label, found in points.items()} == expected
        assert {found[10].peak for found in points.values()} == {None if None in expected.values() else 0}
        by_minute = stored.points(**options, step=60.0)
        assert {label: found[0].peak for label, found in by_minute.items()} == expected, "the highest of its bins"

    every_row(rows, check)


_SECONDS = st.dictionaries(st.integers(int(START), int(START) + 9), st.integers(1, 50), max_size=3)
_LATE = st.lists(st.tuples(st.sampled_from(["i-1", "i-2", "i-3"]), _SECONDS, st.booleans()), min_size=1, max_size=6)


@given(_LATE)
def test_the_peak_of_a_bin_with_late_measurements_is_a_lower_bound(
    measured: list[tuple[str, dict[int, int], bool]],
) -> None:
    stored = Stored()
    seconds: dict[int, int] = defaultdict(int)
    for is_late in (False, True):
        for instance, by_second, is_own_late in measured:
            if is_late == is_own_late:
                requests = sum(by_second.values())
                stored.add(START, Bin(count_2xx=requests, by_second=dict(by_second)), key(instance=instance))
                for at, count in by_second.items():
                    seconds[at] += count
        stored.advance(10 + GRACE_SECONDS)
    point = stored.points(by="zone")["az1"][0]
    exact = max(seconds.values(), default=0)
    assert point.peak is not None
    assert math.ceil(point.rate) <= point.peak <= exact
    if not any(is_late for _, _, is_late in measured):
        assert point.peak == exact
    busiest = max((max(by_second.values(), default=0) for _, by_second, _ in measured), default=0)
    assert point.peak >= busiest


def test_late_measurements_do_not_lower_the_peak_of_several_instances() -> None:
    stored, at = Stored(), int(START)
    for instance in ("i-1", "i-2"):
        stored.add(START, Bin(count_2xx=10, by_second={at: 10}), key(instance=instance))
    stored.advance(10 + GRACE_SECONDS)
    for instance in ("i-3", "i-4"):
        stored.add(START, Bin(count_2xx=12, by_second={at + 1: 12}), key(instance=instance))
    stored.tick()
    assert stored.points(by="zone")["az1"][0].peak == 24, "at least that of the late ones"
    stored.add(START, Bin(count_2xx=1, by_second={at: 1}), key(instance="i-5"))
    stored.tick()
    assert stored.points(by="zone")["az1"][0].peak == 24


def test_a_minute_in_progress_has_the_rate_of_its_bins_so_far() -> None:
    stored = Stored()
    for second in range(0, 90, 10):
        stored.now = START + second
        stored.tick()
        stored.add(stored.now, 50)
    stored.now = START + 60 + 20 + GRACE_SECONDS
    stored.tick()
    options = {"start": START, "end": START + 120, "step": 60.0}
    [points] = stored.points(**options).values()
    assert {at: (point.requests, point.rate) for at, point in points.items()} == {0: (300, 5.0), 60: (100, 5.0)}
    assert stored.points(**options | {"step": 120.0})[None][0].rate == 5.0


def test_measurements_by_the_minute_alone_have_the_rate_of_a_minute() -> None:
    stored = Stored()
    stored.add(START, 600, seconds=60.0)
    stored.tick()
    assert stored.points(end=START + 60)[None][0].rate == 10.0
    assert stored.points(end=START + 60, by="instance")["i-1"][0].rate == 10.0


def test_measurements_by_the_minute_and_by_the_bin_are_added_up() -> None:
    stored = Stored()
    stored.add(START, 60, seconds=60.0)
    for second in range(0, 60, 10):
        stored.now = START + second
        stored.add(stored.now, 20, key(instance="i-2"))
        stored.tick()
    stored.now = START + 72
    stored.tick()
    assert stored.requests(end=START + 60) == {None: {0: 180}}
    found = stored.points(end=START + 60, by="instance")
    assert {label: (points[0].requests, points[0].rate) for label, points in found.items()} == {
        "i-1": (60, 1.0),
        "i-2": (120, 2.0),
    }


def test_late_measurements_of_unknown_workloads_and_times_are_stored() -> None:
    """No bin of that time is stored, because the server was down."""
    stored = Stored(workloads=())
    stored.add(START - 100, 3)
    stored.tick()
    assert stored.requests(start=START - 120) == {None: {-100: 3}}
    stored.store.amend({}, {int(START // 60): Amendment(replaced={key(workload="news"): Bin(count_2xx=9)})}, START)
    assert stored.requests(workload="news", end=START + 60) == {None: {0: 9}}


def test_a_daily_operation_is_stored_also_when_it_is_about_to_be_forgotten() -> None:
    stored = Stored()
    stored.add(START, 5)
    stored.advance(20)
    stored.store.prune(START + 3600)
    stored.now = START + LONG_TERM + 115  # five seconds from now, its sums are forgotten
    stored.collector.pop_complete(stored.now)
    stored.add(stored.now, 7)
    stored.store.prune(stored.now + 7)
    stored.advance(20)
    [points] = stored.requests(start=stored.now - 60).values()
    assert points[LONG_TERM + 110] == 7


def test_retention_is_a_day_for_minutes_an_hour_over_all_instances_and_fifteen_minutes_for_the_rest() -> None:
    assert {tier: get_retention(tier) for tier in Tier} == {
        Tier.INSTANCES: 900.0,
        Tier.ZONES: 3600.0,
        Tier.LONG_INSTANCES: 900.0,
        Tier.MINUTES: 86_400.0,
    }


def test_single_bins_and_the_instances_of_a_period_can_be_read() -> None:
    stored = Stored()
    assert stored.store.read_block("shop", Tier.MINUTES, START) is None
    assert stored.store.read_instances("shop", START, 60.0) == []
    number = bin_number(START, 10.0)
    for each in (number, number + 5, number + 6):
        stored.store.close_bin(each, {key(): Bin(count_2xx=1)}, SHOP)
    stored.store.amend({}, {bin_number(START, 60.0): Amendment(added={key(instance="i-2"): Bin(count_2xx=7)})}, START)
    blocks = stored.store.read_instances("shop", START, 60.0)
    assert [int(block.counts.sum()) for block in blocks] == [1, 1, 7]
    minute = stored.store.read_block("shop", Tier.MINUTES, START)
    assert minute is not None
    assert minute.counts[:, 0].tolist() == [9, 9]
    assert stored.store.read_block("shop", Tier.ZONES, START + 10) is None


@pytest.mark.parametrize(
    ("bins", "seconds", "found"),
    [
        (10.0, 60, (Tier.MINUTES, 60.0)),
        (10.0, 10, (Tier.ZONES, 10.0)),
        (60.0, 60, (Tier.MINUTES, 60.0)),
        (5.0, 10, (Tier.ZONES, 5.0)),
        (20.0, 10, None),
        (7.0, 10, None),
        (90.0, 60, None),
    ],
)
def test_the_longest_bins_that_fill_a_time_are_found(
    bins: float, seconds: float, found: tuple[Tier, float] | None
) -> None:
    assert Stored(bins).store.find_tier(seconds) == found
