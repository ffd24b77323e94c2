"""Durations as people write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.cli.duration import MAX_SECONDS, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86_400),
        ("2h30m", 9000),
        ("1d2h3m4s", 93_784),
        ("90m", 5400),
        ("90", 90),
        ("1", 1),
        ("1.5", 1.5),
        ("365d", MAX_SECONDS),
    ],
)
def test_days_hours_minutes_and_seconds_are_added_up(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "0",
            "0s",
            "0.0",
            "0.5",
            "0.999",
            "-1",
            "+1",
            "1w",
            "h",
            "2 h",
            "30m2h",
            "1h1h",
            "1.5h",
            "1e3",
            "nan",
            "inf",
        ),
        *("366d", "31536001", "٣s", "9" * 20 + "d", "9" * 400),
    ],
)
def test_anything_else_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(InvalidValue, match="expected a duration such as 90s, 30m, 2h30m or 1d, or seconds; at least 1"):
        parse_duration(text)


@given(st.integers(1, 364), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_every_sum_of_units_is_read_as_what_it_is(days: int, hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@given(st.text("0123456789.dhms ", max_size=12))
def test_any_text_is_read_within_bounds_or_refused(text: str) -> None:
    with suppress(InvalidValue):
        assert 1 <= parse_duration(text) <= MAX_SECONDS
