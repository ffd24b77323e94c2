"""When the server says to come back."""

import math
from email.utils import formatdate

import pytest

from holdfast import InvalidValue
from holdfast.calls import Hints, HintsHold
from holdfast.calls.hints import Hold, retry_after

NOW = 1_750_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Mon, 01 Jan 2024 00:00:00 999999999999999999999999999999"}, None),
        ({"x-amz-retry-after": "250"}, 0.25),
        ({"x-amz-retry-after": "250", "retry-after": "9"}, 0.25),
        ({"x-amz-retry-after": "later", "retry-after": "9"}, 9.0),
    ],
)
def test_headers_say_how_many_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, lambda: NOW) == seconds


def test_a_hint_holds_until_its_time_and_a_shorter_one_does_not_end_it() -> None:
    hold = Hold(Hints(spread=0))
    assert hold.wait(100.0, lambda: 0.5) == 0
    hold.note(10, 100.0)
    hold.note(1, 101.0)
    assert hold.wait(102.0, lambda: 0.5) == 8
    assert hold.wait(110.0, lambda: 0.5) == 0


def test_a_hint_is_cut_at_the_cap() -> None:
    hold = Hold(Hints(cap=20, spread=0))
    hold.note(3600, 0.0)
    assert hold.wait(0.0, lambda: 0.5) == 20


def test_those_who_wait_together_do_not_come_back_together() -> None:
    hold = Hold(Hints(spread=0.25))
    hold.note(10, 0.0)
    shares = iter([0.0, 0.5, 1.0])
    assert [hold.wait(0.0, lambda: next(shares)) for _ in range(3)] == [10, 11.25, 12.5]


@pytest.mark.parametrize("wrong", [{"cap": -1}, {"cap": math.inf}, {"spread": -0.1}, {"spread": math.nan}])
def test_a_value_that_makes_no_sense_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="expected 0 or more"):
        Hints(**wrong)  # type: ignore[arg-type]


def test_whom_it_holds_may_be_named_by_text() -> None:
    assert Hints(hold="all").hold is HintsHold.ALL  # type: ignore[arg-type]
