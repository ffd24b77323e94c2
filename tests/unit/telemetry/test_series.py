"""The numbers of series, and the limits of their names."""

import pytest

from holdfast import InvalidValue, Operation, Side, Zone
from holdfast.telemetry.series import (
    ALL_OPERATIONS,
    MAX_INSTANCES,
    MAX_ZONES,
    OTHER,
    OTHER_OPERATION,
    SeriesLimits,
    SeriesTable,
)
from tests.unit.telemetry.measured import CART, HOME, START, key

MINUTES = 60.0
HOURS = 3600.0
FIFTEEN_MINUTES, DAY = 15 * MINUTES, 24 * HOURS


def build(**limits: int) -> SeriesTable:
    return SeriesTable(SeriesLimits(**limits))


def see(table: SeriesTable, at: float, *instances: str) -> None:
    """Store one request of each of these instances at a time, as a store does."""
    for instance in instances:
        number = table.number(table.admit(key(instance=instance), 1))
        table.mark_seen([number, table.zone_number(number), table.total_number(number)], at)


def test_a_snapshot_knows_labels_that_are_forgotten_later() -> None:
    table = SeriesTable()
    number = table.number(key())
    snapshot = table.snapshot()
    table.forget(START, 0, 0)
    table.forget(START + DAY, 0, 0)
    assert len(table) == 0
    assert snapshot.key(number) == key()


def test_a_series_has_one_number_and_belongs_to_its_zone_and_to_all_operations() -> None:
    table = SeriesTable()
    number = table.number(key())
    assert table.number(key()) == number
    assert table.key(number) == key()
    assert table.key(table.zone_number(number)) == key(instance="")
    assert table.key(table.total_number(number)) == key(ALL_OPERATIONS, instance="")
    assert table.number(key(instance="i-2")) != number
    assert table.zone_number(table.number(key(instance="i-2"))) == table.zone_number(number)
    assert table.total_number(table.number(key(CART))) == table.total_number(number)


def test_a_known_series_is_found_and_an_unknown_one_is_not_added() -> None:
    table = SeriesTable()
    assert table.find(key()) is None
    assert len(table) == 0
    assert table.number(key()) == table.find(key())


def test_a_sum_belongs_to_itself() -> None:
    table = SeriesTable()
    zone, everything = table.number(key(instance="")), table.number(key(ALL_OPERATIONS, instance=""))
    assert (table.zone_number(zone), table.total_number(zone)) == (zone, everything)
    assert (table.zone_number(everything), table.total_number(everything)) == (everything, everything)


def test_operations_beyond_the_limit_become_other() -> None:
    table = build(max_operations=2)
    operations = [Operation("Home", str(number)) for number in range(5)]
    admitted = [table.admit(key(operation), 10) for operation in operations]
    assert [one.operation for one in admitted] == [*operations[:2], *[OTHER_OPERATION] * 3]
    assert table.overflowed() == {"shop": {"max_operations": 30}}
    assert table.admit(key(operations[0]), 1) == key(operations[0])


def test_instances_beyond_the_limit_become_other() -> None:
    table = build(max_instances=2)
    admitted = [table.admit(key(instance=f"i-{number}"), 10) for number in range(5)]
    assert [one.instance for one in admitted] == ["i-0", "i-1", OTHER, OTHER, OTHER]
    assert table.overflowed() == {"shop": {"max_instances": 30}}
    assert table.admit(key(CART, "az2", "i-1"), 1) == key(CART, "az2", "i-1"), "its name is known"


def test_series_beyond_the_limit_become_those_of_another_instance() -> None:
    table = build(max_series=3)
    operations = [Operation("Home", str(number)) for number in range(4)]
    admitted = [table.admit(key(operation), 10) for operation in operations]
    assert admitted == [*map(key, operations[:3]), key(operations[3], instance=OTHER)]
    assert table.overflowed() == {"shop": {"max_series": 10}}


def test_zones_beyond_the_limit_become_other() -> None:
    table = SeriesTable()
    admitted = [table.admit(key(zone=f"az{number}"), 10) for number in range(MAX_ZONES + 3)]
    assert [one.zone for one in admitted[MAX_ZONES - 1 :]] == [f"az{MAX_ZONES - 1}", *[Zone(OTHER)] * 3]
    assert table.overflowed() == {"shop": {"max_zones": 30}}


def test_a_request_can_be_beyond_several_limits() -> None:
    table = build(max_operations=1, max_instances=1)
    table.admit(key(), 1)
    assert table.admit(key(CART, instance="i-2"), 7) == key(OTHER_OPERATION, instance=OTHER)
    assert table.overflowed() == {"shop": {"max_operations": 7, "max_instances": 7}}


def test_measurements_without_an_instance_need_none_of_the_limit() -> None:
    table = build(max_instances=1, max_series=1)
    table.admit(key(), 1)
    assert table.admit(key(CART, instance=""), 1) == key(CART, instance="")
    assert table.overflowed() == {}


def test_each_workload_has_its_own_limits() -> None:
    table = build(max_instances=1)
    for workload in ("shop", "news"):
        assert table.admit(key(workload=workload), 1) == key(workload=workload)
    assert table.overflowed() == {}


@pytest.mark.parametrize("name", ["max_operations", "max_instances", "max_series"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is 0: expected 1 or more"):
        build(**{name: 0})


def test_names_of_instances_are_free_again_fifteen_minutes_after_their_last_bin() -> None:
    table = build(max_instances=2)
    see(table, START, "i-1")
    see(table, START + 10, "i-2")
    table.forget(START + FIFTEEN_MINUTES, FIFTEEN_MINUTES, DAY)
    assert len(table) == 4
    table.forget(START + FIFTEEN_MINUTES + 5, FIFTEEN_MINUTES, DAY)
    assert len(table) == 3
    assert table.admit(key(instance="i-3"), 1).instance == "i-3"
    assert table.admit(key(instance="i-1"), 1).instance == OTHER, "i-2 and i-3 are known"


def test_names_of_operations_are_free_again_a_day_after_their_last_bin() -> None:
    table = build(max_operations=1)
    see(table, START, "i-1")
    table.forget(START + DAY, FIFTEEN_MINUTES, DAY)
    assert len(table) == 2, "the operation in its zone, and all operations there"
    assert table.admit(key(CART), 1).operation == OTHER_OPERATION
    table = build(max_operations=1)
    see(table, START, "i-1")
    table.forget(START + DAY + 1, FIFTEEN_MINUTES, DAY)
    assert len(table) == 0
    assert table.admit(key(CART), 1).operation == CART


def test_names_of_zones_are_free_again() -> None:
    table = SeriesTable()
    for number in range(MAX_ZONES):
        table.mark_seen([table.number(table.admit(key(zone=f"old{number}"), 1))], START)
    table.forget(START, FIFTEEN_MINUTES, DAY)
    table.forget(START + DAY + 1, FIFTEEN_MINUTES, DAY)
    assert table.admit(key(zone="new"), 1).zone == "new"


def test_a_number_is_never_used_again() -> None:
    table = SeriesTable()
    before = {table.number(key(instance=f"i-{number}")) for number in range(10)}
    table.forget(START, FIFTEEN_MINUTES, DAY)
    table.forget(START + 2 * DAY, FIFTEEN_MINUTES, DAY)
    assert len(table) == 0
    after = {table.number(key(instance=f"i-{number}")) for number in range(10)}
    assert min(after) > max(before)


def test_a_series_that_is_not_stored_yet_is_kept_until_it_had_the_time_to_be() -> None:
    """Also one that is admitted before the first bin is stored, or after a long pause of the machine."""
    table = build(max_instances=1)
    table.admit(key(), 1)
    table.forget(START, FIFTEEN_MINUTES, DAY)
    assert table.admit(key(instance="i-2"), 1).instance == OTHER
    table.forget(START + FIFTEEN_MINUTES + 1, FIFTEEN_MINUTES, DAY)
    assert table.admit(key(instance="i-2"), 1).instance == OTHER, "the series of `other` is younger"


def test_the_sums_of_a_new_series_are_kept_though_they_were_last_seen_a_day_ago() -> None:
    table = SeriesTable()
    see(table, START, "i-1")
    table.forget(START + HOURS, FIFTEEN_MINUTES, DAY)
    number = table.number(table.admit(key(), 1))  # its bin is not complete when the next one is
    table.forget(START + DAY + 1, FIFTEEN_MINUTES, DAY)
    assert table.key(table.zone_number(number)) == key(instance="")
    assert table.key(table.total_number(number)) == key(ALL_OPERATIONS, instance="")


def test_a_clock_that_was_ahead_for_a_while_does_not_keep_later_names_for_ever() -> None:
    table = build(max_instances=2)
    see(table, START + 365 * DAY, "i-1")
    see(table, START, "i-2")
    table.forget(START + FIFTEEN_MINUTES + 1, FIFTEEN_MINUTES, DAY)
    assert table.admit(key(instance="i-3"), 1).instance == "i-3"


@pytest.mark.no_cover
def test_a_hundred_thousand_names_of_instances_fill_no_memory() -> None:
    """Neither at once nor over the weeks: the second half comes when the first is forgotten."""
    table = SeriesTable()
    for half in range(2):
        now = START + half * HOURS
        table.forget(now, FIFTEEN_MINUTES, DAY)
        for number in range(50_000):
            see(table, now, f"i-{half}-{number}")
        assert len(table) == MAX_INSTANCES + 3, "those, `other`, their zone, and all operations"
    assert table.overflowed() == {"shop": {"max_instances": 2 * (50_000 - MAX_INSTANCES)}}


@pytest.mark.no_cover
def test_names_of_every_kind_at_once_fill_no_memory() -> None:
    limits = SeriesLimits(max_operations=3, max_instances=4, max_series=10)
    table = SeriesTable(limits)
    for number in range(5_000):
        for side in Side:
            table.admit(key(Operation("Home", f"{number % 71}"), f"az{number % 97}", f"i-{number}", side), 1)
    operations, zones, sides = limits.max_operations + 1, MAX_ZONES + 1, len(Side)
    by_zone = (operations + 1) * zones * sides
    with_other_instance = operations * zones * sides
    assert len(table) <= limits.max_series + with_other_instance + by_zone
    assert {name for name, count in table.overflowed()["shop"].items() if count} == {
        "max_operations",
        "max_instances",
        "max_series",
        "max_zones",
    }
    assert table.admit(key(HOME), 1).operation == OTHER_OPERATION
