"""How long to wait before a retry."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls import Backoff, Jitter
from holdfast.testing import seeded

MOST = math.nextafter(1.0, 0.0)


def delays(jitter: Jitter, chance: float, *, base: float = 1.0, cap: float = 10.0) -> list[float]:
    backoff, previous, found = Backoff(base=base, cap=cap, jitter=jitter), 0.0, []
    for retry in range(1, 7):
        previous = backoff.delay(retry, previous, lambda: chance)
        found.append(previous)
    return found


def test_without_jitter_delays_double_up_to_the_cap() -> None:
    assert delays(Jitter.NONE, 0.5) == [1, 2, 4, 8, 10, 10]


def test_full_jitter_takes_anything_from_nothing_to_the_whole_delay() -> None:
    assert delays(Jitter.FULL, 0.0) == [0, 0, 0, 0, 0, 0]
    assert delays(Jitter.FULL, 0.5) == [0.5, 1, 2, 4, 5, 5]
    assert delays(Jitter.FULL, MOST) == pytest.approx([1, 2, 4, 8, 10, 10])


def test_equal_jitter_keeps_half_of_the_delay() -> None:
    assert delays(Jitter.EQUAL, 0.0) == [0.5, 1, 2, 4, 5, 5]
    assert delays(Jitter.EQUAL, MOST) == pytest.approx([1, 2, 4, 8, 10, 10])


def test_decorrelated_jitter_goes_from_the_base_to_three_times_the_delay_before() -> None:
    assert delays(Jitter.DECORRELATED, 0.0) == [1, 1, 1, 1, 1, 1]
    assert delays(Jitter.DECORRELATED, 0.5) == [2, 3.5, 5.75, 9.125, 10, 10]
    assert delays(Jitter.DECORRELATED, MOST) == pytest.approx([3, 9, 10, 10, 10, 10])


def test_the_default_is_botocores_and_full() -> None:
    backoff = Backoff()
    assert (backoff.base, backoff.cap, backoff.jitter) == (0.05, 20.0, Jitter.FULL)


@given(
    st.sampled_from(Jitter), st.floats(0, 100), st.floats(0, 1000), st.integers(1, 10**9), st.floats(0, 1000), st.text()
)
def test_no_delay_is_ever_negative_or_above_the_cap(
    jitter: Jitter, base: float, more: float, retry: int, previous: float, seed: str
) -> None:
    backoff = Backoff(base=base, cap=base + more, jitter=jitter)
    assert 0 <= backoff.delay(retry, min(previous, backoff.cap), seeded(*map(ord, seed)).random) <= backoff.cap


@pytest.mark.parametrize("base", [-1, math.nan, math.inf])
def test_a_base_that_is_no_duration_is_named(base: float) -> None:
    with pytest.raises(InvalidValue, match=f"backoff base {base}"):
        Backoff(base=base)


@pytest.mark.parametrize("cap", [0.01, math.nan, math.inf])
def test_a_cap_below_the_base_is_named(cap: float) -> None:
    with pytest.raises(InvalidValue, match=rf"backoff cap {cap}: expected seconds, at least the base of 0\.05"):
        Backoff(cap=cap)


def test_a_jitter_may_be_named_by_text_and_a_wrong_one_is_refused() -> None:
    assert Backoff(jitter="equal").jitter is Jitter.EQUAL  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="some"):
        Backoff(jitter="some")  # type: ignore[arg-type]
