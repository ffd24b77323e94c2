"""Values in memory, by series."""

from holdfast.metrics import Histogram, Instrument, InstrumentType, Label, Measurement, Series
from holdfast.metrics.series import SeriesTable

QUEUE, TENANT = Label("queue"), Label("tenant")


def instrument(kind: InstrumentType) -> Instrument:
    return Instrument(type=kind, name=f"toy.some.{kind}", description="x.", labels=(QUEUE,), breakdown=TENANT)


COUNTER, GAUGE, HISTOGRAM = (instrument(kind) for kind in InstrumentType)


def filled() -> SeriesTable[Histogram]:
    table = SeriesTable(Histogram)
    for tenant, value in ((None, 1.0), ("a", 2.0), ("b", 4.0), ("a", 8.0)):
        table.add([Measurement(Series(one, ("mail",), "", tenant), value) for one in (COUNTER, GAUGE, HISTOGRAM)])
    table.add([Measurement(Series(COUNTER, ("pay",), "", "b"), 16.0)])
    return table


def numbers(table: SeriesTable[Histogram], of: Instrument) -> dict[tuple[str, str | None], float]:
    return {(series.labels[0], series.breakdown): value for series, value in table.numbers()[of].items()}


def histograms(table: SeriesTable[Histogram]) -> dict[str | None, tuple[int, float]]:
    kept = table.distributions()[HISTOGRAM]
    return {series.breakdown: (one.count, one.sum) for series, one in kept.items()}


def test_a_total_has_everything_and_the_breakdown_its_part() -> None:
    table = filled()
    for _ in range(2):  # asking changes nothing
        assert numbers(table, COUNTER) == {
            ("mail", None): 15,
            ("mail", "a"): 10,
            ("mail", "b"): 4,
            ("pay", None): 16,
            ("pay", "b"): 16,
        }
        assert histograms(table) == {None: (4, 15.0), "a": (2, 10.0), "b": (1, 4.0)}


def test_a_gauge_has_what_was_set_last_and_no_sum() -> None:
    assert numbers(filled(), GAUGE) == {("mail", None): 1, ("mail", "a"): 8, ("mail", "b"): 4}


def test_a_breakdown_that_ends_stays_in_the_total_and_no_other_is_touched() -> None:
    table = filled()
    table.keep_only((COUNTER, GAUGE, HISTOGRAM), ("mail",), {"b", "never seen"})
    table.keep_only((COUNTER,), ("nowhere",), ())
    assert numbers(table, COUNTER) == {("mail", None): 15, ("mail", "b"): 4, ("pay", None): 16, ("pay", "b"): 16}
    assert numbers(table, GAUGE) == {("mail", None): 1, ("mail", "b"): 4}
    assert histograms(table) == {None: (4, 15.0), "b": (1, 4.0)}
    table.add([Measurement(Series(COUNTER, ("mail",), "", "a"), 1.0)])
    assert numbers(table, COUNTER)["mail", "a"] == 1
    assert numbers(table, COUNTER)["mail", None] == 16


def test_a_breakdown_without_a_total_leaves_one_behind() -> None:
    table = SeriesTable(Histogram)
    table.add([Measurement(Series(one, ("mail",), "", "a"), 2.0) for one in (COUNTER, HISTOGRAM)])
    table.keep_only((COUNTER, HISTOGRAM), ("mail",), ())
    assert numbers(table, COUNTER) == {("mail", None): 2}
    assert histograms(table) == {None: (1, 2.0)}


def test_a_series_begins_at_nothing_once() -> None:
    table = filled()
    table.start_series([Series(COUNTER, ("mail",)), Series(COUNTER, ("new",)), Series(HISTOGRAM, ("new",))])
    assert numbers(table, COUNTER)["mail", None] == 15
    assert numbers(table, COUNTER)["new", None] == 0
    assert {series.labels[0]: one.count for series, one in table.distributions()[HISTOGRAM].items()}["new"] == 0
