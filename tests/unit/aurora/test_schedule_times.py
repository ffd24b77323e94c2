"""Stored expressions are shown as the times they were made from."""

from datetime import UTC
from zoneinfo import ZoneInfo

from holdfast.aurora.schedule import (
    JST,
    Schedule,
    build_rule_expression,
    find_next_time,
    parse_schedule,
    read_expression,
)
from tests.table import every_row

NOW = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC, 07:13:20 of the next day in Japan."""


def test_an_expression_gives_the_time_it_was_made_from() -> None:
    def check(text: str) -> None:
        schedule = parse_schedule(text)
        assert read_expression(build_rule_expression(schedule, NOW), UTC, JST) == schedule

    every_row(["19:15", "08:59", "2025-11-18 23:14", "2024-01-01 00:00"], check)


def test_expressions_of_the_scheduler_are_in_their_own_zone() -> None:
    assert read_expression("at(2025-11-18T23:14:00)", UTC, UTC) == Schedule(23, 14, (2025, 11, 18))
    assert read_expression("rate(5 minutes)", UTC, UTC) is None


def test_the_next_time_is_today_or_tomorrow_or_the_only_one() -> None:
    rows = [("07:14", NOW - 20 + 60), ("07:13", NOW - 20 + 86_400), ("2023-11-15 09:00", 1_700_006_400.0)]

    def check(row: tuple[str, float]) -> None:
        text, expected = row
        assert find_next_time(parse_schedule(text), NOW, ZoneInfo("Asia/Tokyo")) == expected

    every_row(rows, check)
