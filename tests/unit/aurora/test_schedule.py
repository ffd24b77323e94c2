"""Schedules are times in Japan, or in another zone, as expressions of EventBridge."""

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast import InvalidValue
from holdfast.aurora.schedule import (
    JST,
    build_execution_name,
    build_rule_expression,
    build_scheduler_expression,
    check_class,
    check_cluster_id,
    format_schedule,
    is_one_off_expression,
    parse_schedule,
)
from tests.table import every_row

NOW = datetime(2025, 11, 1, tzinfo=UTC).timestamp()


def test_a_time_in_japan_becomes_a_rule_in_utc() -> None:
    rows = [
        ("19:15", "cron(15 10 * * ? *)"),
        ("08:59", "cron(59 23 * * ? *)"),
        ("09:00", "cron(0 0 * * ? *)"),
        ("2025-11-18 23:14", "cron(14 14 18 11 ? 2025)"),
        ("2025-12-01 08:30", "cron(30 23 30 11 ? 2025)"),
        ("2026-01-01 00:00", "cron(0 15 31 12 ? 2025)"),
    ]

    def check(row: tuple[str, str]) -> None:
        schedule = parse_schedule(row[0])
        assert build_rule_expression(schedule, NOW) == row[1]
        assert is_one_off_expression(row[1]) is schedule.is_once
        assert format_schedule(schedule) == row[0]

    every_row(rows, check)


def test_the_scheduler_takes_the_time_of_the_zone_itself() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert build_scheduler_expression(parse_schedule("22:05"), NOW, berlin) == "cron(5 22 * * ? *)"
    once = parse_schedule("2026-07-01 06:00")
    assert build_scheduler_expression(once, NOW, berlin) == "at(2026-07-01T06:00:00)"
    assert build_rule_expression(once, NOW, berlin) == "cron(0 4 1 7 ? 2026)"


def test_a_time_that_has_passed_is_refused_also_at_the_very_second() -> None:
    at = datetime(2025, 11, 18, 14, 14, tzinfo=UTC).timestamp()
    schedule = parse_schedule("2025-11-18 23:14")
    for build in (build_rule_expression, build_scheduler_expression):
        with pytest.raises(InvalidValue, match="2025-11-18 23:14 has passed"):
            build(schedule, at, JST)
        assert build(schedule, at - 1, JST)


def test_other_values_are_refused_with_what_is_expected() -> None:
    rows: list[tuple[Callable[..., object], object, str]] = [
        *(
            (parse_schedule, text, "expected HH:MM")
            for text in ("", "9:15", "19:15:00", "2025-11-18", "18.11.2025 23:14")
        ),
        (parse_schedule, "24:00", "no such time"),
        (parse_schedule, "2025-02-30 10:00", "no such time"),
        *((check_class, value, "db.t4g.medium") for value in ("", None, "t4g.medium", "db.t4g", "db.T4G.medium", 4)),
        *(
            (check_cluster_id, value, "id of a cluster")
            for value in ("", None, "1a", "a-", "a--b", "A", "a_b", "x" * 64)
        ),
    ]

    def check(row: tuple[Callable[..., object], object, str]) -> None:
        function, value, expected = row
        with pytest.raises(InvalidValue, match=expected):
            function(value)

    every_row(rows, check)
    for function, value in ((parse_schedule, "7:00"), (check_class, "t4g.medium"), (check_cluster_id, "SHOP")):
        with pytest.raises(InvalidValue, match=f"^--option is '{value}': expected "):
            function(value, "--option")
    assert check_class("db.r6g.2xlarge") == "db.r6g.2xlarge"
    assert [check_cluster_id(each) for each in ("a", "shop-cluster", "x" * 63)] == ["a", "shop-cluster", "x" * 63]


def test_a_run_has_one_name_for_its_time_and_fits_into_80_characters() -> None:
    utc = datetime(2025, 11, 18, 14, 14, 30, tzinfo=UTC)
    assert build_execution_name("shop-cluster", utc) == "shop-cluster_20251118T1414Z"
    assert build_execution_name("shop-cluster", utc.astimezone(JST)) == build_execution_name("shop-cluster", utc)
    assert len(build_execution_name("x" * 63, utc)) <= 80
