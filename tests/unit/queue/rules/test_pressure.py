"""The more a tenant has waiting, the less it may send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue.rules.pressure import allowed_rate, pressure

MOST = st.integers(1, 10**9)
DRAINS = st.floats(0.001, 1e6)


def test_below_a_tenth_nothing_is_held_back() -> None:
    assert allowed_rate(99, 1000, 50.0) is None
    assert allowed_rate(100, 1000, 50.0) == (50.0, 50.0)


def test_halfway_from_there_it_is_half() -> None:
    assert allowed_rate(550, 1000, 50.0) == (25.0, 25.0)


def test_where_accepting_is_the_point_there_is_no_pressure() -> None:
    assert allowed_rate(10**12, None, 50.0) is None
    assert pressure(10**12, None) == 0


@given(MOST, DRAINS, st.integers(0, 10**6))
def test_at_the_limit_and_beyond_there_is_nothing(most: int, drain: float, beyond: int) -> None:
    assert allowed_rate(most + beyond, most, drain) == (0, 1)
    assert pressure(most + beyond, most) == 1


@given(MOST, DRAINS, st.data())
def test_more_waiting_never_means_more_may_be_sent(most: int, drain: float, data: st.DataObject) -> None:
    fewer, more = sorted(data.draw(st.lists(st.integers(0, most), min_size=2, max_size=2)))
    assert pressure(fewer, most) <= pressure(more, most)
    before, after = allowed_rate(fewer, most, drain), allowed_rate(more, most, drain)
    if before is None:
        assert after is None or after[0] <= drain
    else:
        assert after is not None
        assert 0 <= after[0] <= before[0] <= drain
        assert 1 <= after[1] <= before[1]


@given(MOST, st.data())
def test_pressure_is_the_part_that_is_used(most: int, data: st.DataObject) -> None:
    waiting = data.draw(st.integers(0, most))
    assert pressure(waiting, most) == pytest.approx(waiting / most)
