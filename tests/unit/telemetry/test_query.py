"""Queries that cannot be answered are refused when they are built."""

import math
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.telemetry.query import SeriesQuery, limit_time
from tests.table import every_row


def test_queries_that_make_no_sense_are_refused_with_the_reason() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"by": "side"}, "by is 'side': expected zone, operation or instance"),
        ({"start": 200.0}, "start is 200 and end is 100: expected seconds since the epoch, and an end after the start"),
        ({"start": 100.0}, "start is 100 and end is 100: expected seconds since the epoch, and an end after the start"),
        ({"start": math.nan}, "start is nan"),
        ({"start": -math.inf}, "start is -inf"),
        ({"end": math.inf}, "end is inf"),
        (
            {"start": -1e308},
            r"start is -1e\+308 and end is 100: expected seconds since the epoch, and an end after the start",
        ),
        ({"end": 1e300}, r"start is 0 and end is 1e\+300: expected seconds since the epoch"),
        ({"step": 1e308}, r"step is 1e\+308: expected more than 0 seconds"),
        ({"step": 0.0}, "step is 0: expected more than 0 seconds"),
        ({"step": -1.0}, "step is -1: expected more than 0 seconds"),
        ({"step": math.nan}, "step is nan: expected more than 0 seconds"),
        ({"step": math.inf}, "step is inf: expected more than 0 seconds"),
    ]

    def check(row: tuple[dict[str, Any], str]) -> None:
        options, reason = row
        with pytest.raises(InvalidValue, match=reason):
            SeriesQuery(**{"workload": "shop", "start": 0.0, "end": 100.0, **options})

    every_row(rows, check)


@pytest.mark.parametrize(
    ("asked", "limited"),
    [
        ((999_000.0, 1_000_000.0), (999_000.0, 1_000_000.0)),
        ((0.0, 1_000_000.0), (913_540.0, 1_000_000.0)),
        ((999_000.0, 9e9), (999_000.0, 1_000_060.0)),
        ((0.0, 1000.0), (0.0, 1000.0)),
    ],
)
def test_a_time_is_limited_to_the_day_for_which_measurements_are_kept(
    asked: tuple[float, float], limited: tuple[float, float]
) -> None:
    assert limit_time(*asked, now=1_000_000.0) == limited


@pytest.mark.parametrize("by", [None, "zone", "operation", "instance"])
def test_a_query_may_group_by_any_label(by: str | None) -> None:
    assert SeriesQuery(workload="shop", start=0.0, end=1.0, by=by).step is None
