"""The series that alarms read, from stored bins."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Side, Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms import find_outlier
from holdfast.alarms.declaration import AlarmDeclaration, MeasuredOperation, SeriesReference
from holdfast.alarms.recent_metrics import MetricWindow, RecentMetrics, find_critical_values, find_outliers
from holdfast.alarms.step_notes import StepNote
from holdfast.telemetry.bins import Bin, BinKey
from holdfast.telemetry.collector import Amendment
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.store import SeriesStore
from tests.unit.alarms.world import HOME, LIST, START, ZONES, bins

AZ1, AZ2, AZ3 = ZONES


class Reader:
    def __init__(self, seconds: float = 10.0, **options: float | str) -> None:
        self.table = SeriesTable()
        self.store = SeriesStore(self.table, seconds)
        self.declaration = AlarmDeclaration(workload="shop", zones=ZONES, options=AlarmOptions(**options))  # type: ignore[arg-type]
        self.metrics = RecentMetrics(self.declaration, self.store, self.table)
        self.at = START

    def minute(self, content: Mapping[BinKey, Bin]) -> None:
        for _ in range(6):
            self.store.close_bin(int(self.at // 10), content, ["shop"])
            self.at += 10.0

    def read(self, periods: int = 3, zones_out: frozenset[Zone] = frozenset()) -> MetricWindow:
        self.metrics.notes.add(self.at, zones_out, is_paused=False)
        return self.metrics.read(self.at, periods)

    def get(self, reference: SeriesReference, periods: int = 3) -> list[float | None]:
        window = self.read(periods)
        return [None if math.isnan(each) else each for each in window.values[window.rows.get(reference, -1)].tolist()]


def test_counts_and_latencies_have_a_value_for_each_minute_with_requests() -> None:
    reader = Reader()
    reader.minute(bins(faults=10, requests=20, seconds=0.1))
    reader.minute({})
    reader.minute(bins(faults=20, requests=20))
    assert reader.get(SeriesReference("Requests", AZ1, HOME)) == [120, None, 120]
    assert reader.get(SeriesReference("Faults", AZ1, HOME)) == [60, None, 120]
    assert reader.get(SeriesReference("Requests", AZ1)) == [120, None, 120]
    latency = reader.get(SeriesReference("SuccessLatency", AZ1, HOME))
    assert latency == [pytest.approx(100), None, None]
    assert reader.get(SeriesReference("Requests", AZ1, LIST)) == [None, None, None]
    assert reader.read().starts == (START, START + 60, START + 120)


def test_measurements_before_the_first_bin_and_of_other_zones_are_missing() -> None:
    reader = Reader()
    assert reader.get(SeriesReference("instances", AZ1)) == [None, None, None]
    reader.minute(bins([Zone("elsewhere")]) | bins([AZ1]))
    assert reader.get(SeriesReference("Requests", Zone("elsewhere"), HOME)) == [None, None, None]
    assert list(reader.read().measured) == [MeasuredOperation(HOME)]


def test_operations_are_found_in_all_periods_with_the_end_of_their_newest_one() -> None:
    reader = Reader()
    assert reader.read().measured == {}
    assert reader.read().watched == (False, False, False)
    reader.minute(bins([AZ1, AZ3], LIST))
    reader.minute({**bins([AZ1], HOME), **bins([AZ2], LIST)})
    reader.minute({})
    assert reader.read().measured == {MeasuredOperation(HOME): reader.at - 60, MeasuredOperation(LIST): reader.at - 60}
    assert reader.read(4).watched == (False, False, True, True)  # it may have started within the first minute
    reader.minute({})
    reader.minute({})
    assert reader.read().measured == {}


def test_late_measurements_change_the_values() -> None:
    reader = Reader()
    reader.minute(bins([AZ1], instances=1))
    reader.minute(bins([AZ1], instances=1))
    before = reader.get(SeriesReference("Requests", AZ1, HOME)), reader.get(SeriesReference("instances", AZ1))
    late = Amendment(added=bins([AZ1], requests=4, instances=4, faults=4))
    reader.store.amend({int(START // 10): late}, {}, START)
    after = reader.get(SeriesReference("Requests", AZ1, HOME)), reader.get(SeriesReference("instances", AZ1))
    assert before == ([None, 600, 600], [None, 1, 1])
    assert after == ([None, 604, 600], [None, 4, 1])
    assert reader.get(SeriesReference("5xx-errors", AZ1)) == [None, 4, 0]


def test_measurements_of_a_minute_count_as_those_of_ten_seconds() -> None:
    reader = Reader()
    reader.minute({})
    reader.store.amend({}, {int(START // 60): Amendment(added=bins([AZ1], faults=5, instances=5))}, START)
    assert reader.get(SeriesReference("Requests", AZ1, HOME)) == [None, None, 100]
    assert reader.get(SeriesReference("5xx-errors", AZ1)) == [None, None, 5]


def test_contributors_are_instances_over_all_operations_that_the_service_measures() -> None:
    reader = Reader()
    content = bins([AZ1], faults=3) | bins([AZ1], LIST, faults=5, seconds=2.0, instances=5)
    content |= bins([AZ1], faults=10, seconds=9.0, instances=20, side=Side.CANARY)
    reader.minute(content)
    rules = ("5xx-errors", "slow-requests", "instances")
    assert [reader.get(SeriesReference(each, AZ1))[-1] for each in rules] == [5, 5, 10]


def test_instances_that_come_and_go_do_not_fill_the_memory() -> None:
    reader = Reader()
    for minute in range(12):
        content = bins([AZ1], requests=400, instances=400, faults=2)
        renamed = {
            BinKey("shop", HOME, AZ1, f"{minute}-{key.instance}", Side.SERVER): each for key, each in content.items()
        }
        reader.minute(renamed)
        assert reader.get(SeriesReference("instances", AZ1))[-1] == 400
    assert len(reader.metrics._contributors._codes) < 3600


def test_a_zones_throughput_is_compared_with_its_usual_share() -> None:
    reader = Reader()
    reference = SeriesReference("RelativeThroughput", AZ1)
    for _ in range(9):
        reader.minute(bins([AZ1], requests=200) | bins([AZ2, AZ3]))
    for _ in range(3):
        reader.minute(bins([AZ1], requests=100) | bins([AZ2, AZ3], requests=150))
    assert reader.get(reference) == [None] * 3  # nine minutes are not enough
    reader.minute(bins([AZ1], requests=100) | bins([AZ2, AZ3], requests=150))
    usual = (9 * 200 + 100) / (10 * 400)
    assert reader.get(reference) == pytest.approx([100 * 0.25 / usual] * 3)
    assert math.isnan(
        reader.read(zones_out=frozenset({AZ1, Zone("elsewhere")})).values[reader.read().rows[reference], 0]
    )
    reader.minute(bins([AZ1], requests=1, instances=1))  # too few requests to tell
    assert reader.get(reference)[-1] is None


def test_notes_about_steps_are_restored_until_no_window_shows_them() -> None:
    reader = Reader()
    reference = SeriesReference("RelativeThroughput", AZ2)
    for _ in range(20):
        reader.minute(bins())
    reader.read(zones_out=frozenset({AZ2}))
    reader.minute(bins([AZ1]))
    reader.metrics.notes.add(reader.at, frozenset(), is_paused=True)
    notes = reader.metrics.notes.saved
    assert notes == [StepNote(reader.at - 120, (AZ2,)), StepNote(reader.at - 60, (), is_paused=True)]
    reader.metrics = RecentMetrics(reader.declaration, reader.store, reader.table)
    reader.metrics.notes.restore(notes)
    window = reader.metrics.read(reader.at, 3)
    assert np.isnan(window.values[window.rows[reference]]).tolist() == [False, True, True]
    assert (window.zones_out, window.watched) == ((set(), {AZ2}, set()), (True, True, False))
    assert window.contributors_watched == (True, True, False)
    assert not window.is_current
    for _ in range(3):
        reader.minute(bins())
        reader.read()
    assert reader.metrics.notes.saved == []


def test_notes_about_steps_in_the_future_are_forgotten_when_the_clock_was_set_back() -> None:
    reader = Reader()
    for hours in (1, 0):
        reader.metrics.notes.add(reader.at + 3600 * hours, frozenset({AZ1}), is_paused=False)
    assert reader.metrics.notes.saved == [StepNote(reader.at - 60, (AZ1,))]
    reader.metrics.notes.add(reader.at, frozenset(), is_paused=False)
    assert reader.metrics.notes.saved == []
    assert reader.metrics.notes.find_zones_out_at(reader.at) == frozenset()


def test_a_zone_is_silent_in_a_period_in_which_no_side_reports_a_request() -> None:
    reader = Reader()
    reader.minute(bins([AZ1]) | bins([AZ2], side=Side.CLIENT))
    reader.minute(bins([AZ3], side=Side.CANARY))
    assert reader.read(2).silent_zones == ({AZ3}, {AZ1, AZ2})


def test_series_of_operations_that_are_gone_are_forgotten() -> None:
    reader = Reader()
    reader.minute(bins([AZ1]) | bins([AZ1], LIST))
    before = reader.read().rows
    reader.metrics.restrict([MeasuredOperation(HOME), MeasuredOperation(LIST)])
    assert reader.read().rows is before
    for _ in range(3):
        reader.minute(bins([AZ1]))
    reader.metrics.restrict([MeasuredOperation(HOME)])
    assert not [each for each in reader.read().rows if each.operation == LIST]


def test_bins_of_an_odd_length_have_no_alarms() -> None:
    with pytest.raises(InvalidValue, match="bin_seconds"):
        Reader(90.0)
    with pytest.raises(InvalidValue, match="do not fit in 10 s, after which alarms with a period of 20 s"):
        Reader(7.0, period=20)
    Reader(5.0, period=10)


@pytest.mark.parametrize(("period", "minutes"), [(60, 1), (120, 2), (300, 5)])
def test_a_window_of_several_minutes_slides_by_the_minute(period: int, minutes: int) -> None:
    reader = Reader(period=period)
    for minute in range(3 * minutes + 1):
        reader.minute(bins([AZ1], requests=minute + 1, faults=1, instances=1, seconds=0.01 * (minute + 1)))
        if minute + 1 >= 2 * minutes:
            ends = [minute + 1 - minutes, minute + 1]
            expected = [6.0 * sum(range(end - minutes + 1, end + 1)) for end in ends]
            assert reader.get(SeriesReference("Requests", AZ1, HOME), 2) == expected
            assert reader.get(SeriesReference("Faults", AZ1, HOME), 2) == [6.0 * minutes] * 2
            assert reader.read(2).starts == (reader.at - 2 * period, reader.at - period)
    latency = reader.get(SeriesReference("SuccessLatency", AZ1, HOME), 2)[-1]
    assert latency == pytest.approx(10.0 * (3 * minutes + 1), rel=0.05)


@pytest.mark.parametrize(("seconds", "period"), [(10.0, 20), (10.0, 30), (5.0, 10), (5.0, 30)])
def test_a_window_of_less_than_a_minute_slides_by_ten_seconds(seconds: float, period: int) -> None:
    reader = Reader(seconds, period=period)
    for number in range(20):
        reader.store.close_bin(round(reader.at / seconds), bins([AZ1], requests=number, instances=1), ["shop"])
        reader.at += seconds
    size = round(period / seconds)
    expected = [sum(range(20 - size * age, 20 - size * (age - 1))) for age in (2, 1)]
    assert reader.get(SeriesReference("Requests", AZ1, HOME), 2) == expected
    assert reader.read(2).watched == (True, True)
    assert reader.metrics.options.period == period


def test_a_period_is_whole_only_if_all_of_its_minutes_are_stored() -> None:
    reader = Reader(period=120)
    for is_running in (True, True, True, True, False, False, True):
        if is_running:
            reader.minute(bins([AZ1]))
        else:
            reader.at += 60
    window = reader.read()
    assert (window.watched, window.contributors_watched) == ((True, False, False), (True, False, False))
    assert window.is_current
    assert reader.get(SeriesReference("Requests", AZ1, HOME)) == [1200, 600, 600]
    reader.at += 60
    assert not reader.read().is_current


def test_an_instance_counts_once_in_a_long_period_also_after_the_store_has_dropped_it() -> None:
    reader = Reader(period=600)
    for minute in range(21):
        instances = 4 if minute == 2 else 2
        reader.minute(bins([AZ1], requests=instances, faults=instances, instances=instances))
        reader.store.prune(reader.at)
        reader.read(2)
    late = Amendment(added=bins([AZ1], requests=6, instances=6))
    reader.store.amend({int(reader.at // 10) - 1: late}, {}, reader.at)
    reference = SeriesReference("5xx-errors", AZ1), SeriesReference("instances", AZ1)
    assert [reader.get(each, 2) for each in reference] == [[4, 2], [4, 6]]
    # Another process, such as `explain`, has only the bins of the last 15 minutes.
    fresh = RecentMetrics(reader.declaration, reader.store, reader.table).read(reader.at, 2)
    assert (fresh.watched, fresh.contributors_watched) == ((True, True), (False, True))


def test_a_zone_was_out_in_a_long_period_if_it_was_out_in_one_of_its_minutes() -> None:
    reader = Reader(period=120)
    for minute in range(20):
        reader.minute(bins())
        reader.read(zones_out=frozenset({AZ1} if minute == 16 else ()))
    assert reader.read().zones_out == (frozenset(), {AZ1}, frozenset())
    relative = reader.get(SeriesReference("RelativeThroughput", AZ1))
    assert [each is None for each in relative] == [False, True, False]


@pytest.mark.parametrize(("period", "watched"), [(60, (True, True, False, True)), (120, (True, True, False, True))])
def test_a_period_is_not_watched_if_holdfast_was_paused_in_one_of_its_minutes(
    period: int, watched: tuple[bool, ...]
) -> None:
    reader = Reader(period=period)
    for minute in range(20):
        reader.minute(bins())
        reader.metrics.notes.add(reader.at, frozenset(), is_paused=minute == 20 - 2 * period // 60)
    window = reader.read(4)
    assert (window.watched, window.contributors_watched, window.is_current) == (watched, watched, True)
    relative = reader.get(SeriesReference("RelativeThroughput", AZ1), 4)
    assert [each is not None for each in relative] == list(watched)


def test_a_percentile_between_two_values_depends_on_the_interpolation() -> None:
    found = []
    for interpolation in ("nearest_rank", "linear"):
        reader = Reader(latency_statistic="p50", percentile_interpolation=interpolation)
        fast, slow = bins([AZ1], requests=1, instances=1), bins([AZ1], LIST, seconds=1.0, requests=1, instances=1)
        reader.minute({**fast, **slow})
        found += reader.get(SeriesReference("SuccessLatency", AZ1), 1)
    assert found == [pytest.approx(20, rel=0.05), pytest.approx(510, rel=0.05)]


def test_an_outlier_test_may_add_up_several_minutes() -> None:
    reference = SeriesReference("multi-az/chi-squared", AZ1, HOME)
    one, five = Reader(), Reader(chi_squared_periods=5)
    for reader in (one, five):
        for _ in range(7):
            reader.minute(
                bins([AZ2, AZ3], requests=10) | bins([AZ1], requests=10, faults=0) | bins([AZ1], LIST, faults=5)
            )
        for _ in range(3):
            content = bins([AZ1], requests=1, faults=1, instances=1) | bins([AZ2, AZ3], requests=1)
            reader.store.close_bin(int(reader.at // 10), content, ["shop"])
            reader.at += 60
    assert one.get(reference) == [0, 0, 0]
    assert five.get(reference) == [0, 0, 1]


ERRORS = st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=2, max_size=5)


@given(ERRORS)
def test_many_outlier_tests_find_the_same_as_one(zones: list[tuple[int, bool]]) -> None:
    errors = np.array([each for each, _ in zones], np.float64)[None, :, None]
    takes_part = np.array([each for _, each in zones])[None, :, None]
    found = find_outliers(errors, takes_part, find_critical_values(len(zones)))[0, :, 0].tolist()
    names = {index: Zone(str(index)) for index, (_, each) in enumerate(zones) if each}
    alone = find_outlier({name: zones[index][0] for index, name in names.items()})
    for index, value in enumerate(found):
        if index in names and len(names) > 1:
            assert value == alone.flags[names[index]]
        else:
            assert math.isnan(value)
