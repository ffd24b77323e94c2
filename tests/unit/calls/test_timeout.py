"""How long an attempt may take."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls import Percentile, Timeouts
from holdfast.calls.histogram import Histogram
from holdfast.calls.timeout import Estimator
from holdfast.testing import seeded
from tests.table import rows, sampled


def seen(*samples: float) -> Histogram:
    histogram = Histogram()
    histogram.add(samples)
    return histogram


def test_a_fixed_timeout_stays_whatever_is_observed() -> None:
    estimator = Estimator(0.5)
    assert estimator.learn([9.0] * 100_000) == 0.5


def test_no_timeout_is_an_infinite_one() -> None:
    assert Estimator(None).learn([1.0]) == math.inf


def test_until_there_are_enough_samples_it_is_the_start_value() -> None:
    policy = Percentile(99, start=7.0, min_samples=100)
    estimator = Estimator(policy)
    assert estimator.learn([0.1] * 60 + [1.0] * 39) == 7.0
    assert estimator.learn([1.0]) == pytest.approx(1.0, rel=1 / 16)


def test_without_a_start_value_it_is_five_seconds_within_the_bounds() -> None:
    assert Estimator(Percentile()).value == 5.0
    assert Estimator(Percentile(ceiling=2.0)).value == 2.0
    assert Estimator(Percentile(floor=7.0)).value == 7.0
    assert Estimator(Percentile(start=0.5)).value == 0.5


def test_by_default_five_samples_must_lie_above_the_percentile() -> None:
    assert Percentile(99.9).samples_needed == 5_000
    assert Percentile(99).samples_needed == 500


def test_where_the_percentile_is_close_to_the_median_the_timeout_has_a_margin() -> None:
    tight = seen(*[1.0] * 1000)
    assert Percentile(99, median_margin=1.0).choose(tight, 5.0) == pytest.approx(2.0, rel=1 / 16)
    assert Percentile(99, median_margin=0).choose(tight, 5.0) == pytest.approx(1.0, rel=1 / 16)
    wide = seen(*[1.0] * 980, *[4.0] * 20)
    assert Percentile(99, median_margin=1.0).choose(wide, 5.0) == pytest.approx(4.0, rel=1 / 16)


def test_the_way_through_the_network_is_added() -> None:
    assert Percentile(99, median_margin=0, network_latency=0.3).choose(seen(*[1.0] * 1000), 5.0) == pytest.approx(
        1.3, rel=1 / 16
    )


def test_floor_and_ceiling_hold() -> None:
    policy = Percentile(99, floor=0.5, ceiling=2.0, start=1.0)
    assert policy.choose(seen(*[0.001] * 1000), 1.0) == 0.5
    assert policy.choose(seen(*[9.0] * 1000), 1.0) == 2.0


def test_when_a_little_more_than_accepted_is_cut_off_it_grows_as_the_tail_does() -> None:
    # Above 1 s lies 4 %, above 2 s 2 %, and 2 % are cut off where 1 % is accepted: the tail halves with each doubling.
    histogram = seen(*[0.5] * 960, *[1.5] * 20, *[math.inf] * 20)
    grown = Percentile(99, median_margin=0).choose(histogram, 2.0)
    assert 2.0 < grown <= 4.0


def test_a_tail_of_which_nothing_can_be_seen_is_met_by_doubling() -> None:
    assert Percentile(99).choose(seen(*[math.inf] * 10), 2.0) == 4.0


def test_many_timeouts_double_it_and_let_it_begin_anew() -> None:
    estimator = Estimator(Percentile(99, start=1.0))
    estimator.learn([0.1] * 1000)
    before = estimator.value
    assert estimator.learn([0.1] * 10 + [math.inf] * 50) == 2 * before
    assert estimator.histogram.total == 0
    for _ in range(10):
        estimator.learn([math.inf] * 50)
    assert estimator.value == 10.0  # the ceiling


def test_old_cut_offs_do_not_raise_it_again() -> None:
    estimator = Estimator(Percentile(99, start=1.0, median_margin=0))
    estimator.learn([*[0.1] * 65, math.inf] * 15 + [0.5] * 10)
    raised = estimator.value
    assert raised > 1.0
    for _ in range(20):
        estimator.learn([0.1] * 10)
    assert estimator.value == raised


def test_a_few_timeouts_are_chance() -> None:
    estimator = Estimator(Percentile(99.9, start=1.0))
    assert estimator.learn([0.1] * 10 + [math.inf] * 4) == 1.0


def test_nothing_but_timeouts_is_a_shift_however_much_was_good_before() -> None:
    estimator = Estimator(Percentile(99.9, start=1.0))
    estimator.learn([0.1] * 100_000)
    before = estimator.value
    assert estimator.learn([math.inf] * 4) == pytest.approx(before, rel=0.01)
    assert estimator.learn([math.inf]) == pytest.approx(2 * before, rel=0.01)


def test_what_deadlines_cut_off_leaves_it_as_it_is_when_it_could_have_told() -> None:
    estimator = Estimator(Percentile(99, start=1.0, min_samples=100))
    assert estimator.learn([0.1] * 900 + [-0.2] * 100) == 1.0
    assert estimator.learn([-0.2] * 100) == 1.0
    assert Percentile(99).choose(seen(*[0.1] * 90, *[-0.2] * 10), 2.0) == 2.0


def steady(estimator: Estimator, samples: int, scale: float, chance: str, sigma: float = 0.5) -> float:
    """Feed latencies, cut off where the estimator says; the share that was."""
    random, cut = seeded(chance), 0
    for _ in range(samples // 500):
        latencies = [scale * random.lognormvariate(-3, sigma) for _ in range(500)]
        kept = [latency if latency <= estimator.value else math.inf for latency in latencies]
        cut += kept.count(math.inf)
        estimator.learn(kept)
    return cut / samples


@pytest.mark.no_cover
@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", sampled(["a", "b", "c"]))
def test_as_many_good_answers_are_cut_off_as_was_accepted_and_it_does_not_creep(seed: str, sigma: float) -> None:
    estimator = Estimator(Percentile(99.9, median_margin=0.5))
    steady(estimator, 20_000, 1.0, seed, sigma)
    rates = [steady(estimator, 100_000, 1.0, f"{seed}{round_}", sigma) for round_ in range(2)]
    assert all(0.0005 <= rate <= 0.0015 for rate in rates), rates


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", sampled(["a", "b", "c"]))
def test_it_is_back_on_target_within_five_windows_of_a_shift(seed: str) -> None:
    policy = Percentile(99.9)
    estimator = Estimator(policy)
    steady(estimator, 100_000, 1.0, seed)
    steady(estimator, 4 * policy.window, 6.0, f"{seed} shift")
    assert 0.0005 <= steady(estimator, policy.window, 6.0, f"{seed} after") <= 0.0015


def test_it_comes_down_again_when_the_latency_does() -> None:
    policy = Percentile(99, start=5.0)
    estimator = Estimator(policy)
    steady(estimator, 20_000, 6.0, "slow")
    slow = estimator.value
    steady(estimator, 3 * policy.window, 1.0, "quick")
    assert estimator.value < slow / 4


@given(st.lists(st.one_of(st.floats(0, 100), st.just(math.inf)), max_size=400), st.floats(50.1, 99.9))
def test_it_never_leaves_its_bounds(samples: list[float], percent: float) -> None:
    estimator = Estimator(Percentile(percent, floor=0.1, ceiling=3.0, start=1.0, min_samples=5))
    for start in range(0, len(samples), 20):
        assert 0.1 <= estimator.learn(samples[start : start + 20]) <= 3.0


@rows(
    ("wrong", "named"),
    [
        ({"percent": 50}, "percentile 50"),
        ({"percent": 100}, "percentile 100"),
        ({"percent": math.nan}, "percentile nan"),
        ({"floor": 0}, "floor 0"),
        ({"floor": 20.0}, "floor 20.0 and ceiling 10.0"),
        ({"ceiling": math.inf}, "ceiling inf"),
        ({"start": 11.0}, "start 11.0: expected 0.01 to 10.0"),
        ({"median_margin": -1}, "median_margin -1"),
        ({"network_latency": math.nan}, "network_latency nan"),
        ({"min_samples": 0}, "min_samples 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        Percentile(**wrong)  # type: ignore[arg-type]


@rows("name", ["connect", "attempt", "total"])
@rows("value", [0, -1.0, math.nan, math.inf, "5"])
def test_a_time_that_is_none_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=f"{name} timeout {value!r}: expected seconds, more than 0"):
        Timeouts(**{name: value})


def test_a_connection_always_has_a_bound_and_only_parts_follow_the_latency() -> None:
    with pytest.raises(InvalidValue, match="connect timeout None"):
        Timeouts(connect=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="total timeout Percentile"):
        Timeouts(total=Percentile())  # type: ignore[arg-type]
    assert isinstance(Timeouts(connect=Percentile()).connect, Percentile)


def test_attempt_and_total_may_be_left_open() -> None:
    assert Timeouts(attempt=None, total=None).total is None
