"""How many calls may be under way at once."""

import math

import pytest

from holdfast import InvalidValue
from holdfast.calls import Limit
from holdfast.calls.limit import Running


def test_littles_law_says_how_many() -> None:
    assert Limit.for_load(rate=200, seconds=0.05) == Limit(20)
    assert Limit.for_load(rate=3, seconds=0.01, headroom=1) == Limit(1)


def test_no_more_than_the_limit_are_let_in() -> None:
    running = Running(Limit(2))
    assert [running.enter() for _ in range(3)] == [True, True, False]
    running.leave()
    assert running.enter()
    assert running.count == 2


def test_leaving_more_often_than_entering_makes_no_room() -> None:
    running = Running(Limit(1))
    running.leave()
    assert [running.enter() for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "load", [{"rate": 0, "seconds": 1}, {"rate": 1, "seconds": math.inf}, {"rate": 1, "seconds": 1, "headroom": 0.5}]
)
def test_a_load_that_makes_no_sense_is_named(load: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="expected more than 0"):
        Limit.for_load(**load)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidValue, match="limit of 0 calls at once: expected at least 1"):
        Limit(0)
