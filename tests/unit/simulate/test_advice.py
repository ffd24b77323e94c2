"""The timeout that is advised is the one that `Percentile` would arrive at, with what it follows from."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls import Limit, Percentile
from holdfast.calls.timeout import Estimator
from holdfast.simulate import advise
from holdfast.simulate.advice import MAX_REFUSED_SHARE, refused_share
from holdfast.simulate.virtual import seeded_random

LONG_TAIL = [seeded_random("tail", number).lognormvariate(math.log(0.02), 1.0) for number in range(10_000)]
"""The 99.9th percentile is 22 medians, 0.44 s."""
EVEN = [0.1 + 0.001 * (number % 10) for number in range(5000)]


def test_the_timeout_is_the_percentile_where_that_is_well_above_the_median() -> None:
    found = advise(LONG_TAIL, Percentile())
    assert found.timeout == pytest.approx(found.percentiles["p99.9"], rel=0.04)
    assert found.false_timeouts == pytest.approx(0.001, abs=0.0003)
    assert (found.count, found.timeouts, found.samples_needed, found.has_enough_samples) == (10_000, 0, 5000, True)
    assert found.percentile_high is not None
    assert found.percentile_low < found.percentiles["p99.9"] < found.percentile_high
    assert found.limit is found.in_flight is None


def test_the_timeout_is_the_one_that_a_dependency_learns() -> None:
    estimator = Estimator(Percentile())
    assert advise(LONG_TAIL, Percentile()).timeout == estimator.learn(LONG_TAIL)


def test_percentiles_are_those_of_the_latencies_themselves() -> None:
    found = advise([float(number) for number in range(1, 1001)], Percentile(95.0, ceiling=2000.0))
    assert found.percentiles == {"p50": 500.0, "p95": 950.0, "p99": 990.0, "p99.9": 999.0}
    assert found.mean == 500.5
    assert found.percentile_low < 950.0
    assert found.percentile_high is not None
    assert found.percentile_high > 950.0


def test_the_range_narrows_with_more_latencies() -> None:
    few, many = advise(LONG_TAIL[:2000], Percentile(99.0)), advise(LONG_TAIL, Percentile(99.0))
    assert few.percentile_high is not None
    assert many.percentile_high is not None
    assert many.percentile_high - many.percentile_low < few.percentile_high - few.percentile_low


def test_what_is_close_to_the_median_is_raised_and_the_reason_is_told() -> None:
    found = advise(EVEN, Percentile())
    assert found.timeout == pytest.approx(2 * found.percentiles["p50"], rel=0.04)
    assert any("raised to" in reason and "p50 plus 100%" in reason for reason in found.reasons)
    assert found.false_timeouts == 0.0


def test_the_network_is_added() -> None:
    near, far = advise(EVEN, Percentile()), advise(EVEN, Percentile(network_latency=0.15))
    assert far.timeout == pytest.approx(near.timeout + 0.15)
    assert any("150 ms added for the network" in reason for reason in far.reasons)
    assert not any("network" in reason for reason in near.reasons)


def test_the_floor_and_the_ceiling_are_told_when_they_count() -> None:
    short = advise([0.0001] * 5000, Percentile())
    assert short.timeout == 0.01
    assert any("raised to the floor of 10 ms" in reason for reason in short.reasons)
    long = advise([20.0] * 5000, Percentile())
    assert long.timeout == 10.0
    assert any("lowered to the ceiling of 10 s" in reason for reason in long.reasons)
    assert long.false_timeouts == 1.0


def test_too_few_latencies_are_told() -> None:
    found = advise([0.1] * 4999, Percentile())
    assert not found.has_enough_samples
    assert found.percentile_high is None


def test_requests_that_were_cut_off_count_as_longer_than_all_others() -> None:
    found = advise([0.1] * 9991 + [0.5] * 4 + [math.inf] * 5, Percentile())
    assert (found.count, found.timeouts) == (10_000, 5)
    assert found.mean < 0.11
    assert found.percentile_high is None
    assert found.percentiles["p99.9"] == 0.1
    assert advise([0.1] * 99_910 + [math.inf] * 90, Percentile()).percentile_high is None


def test_a_percentile_beyond_what_was_cut_off_is_not_made_up() -> None:
    with pytest.raises(InvalidValue, match=r"20 of 10,000 timed out, and p99\.9 accepts 10"):
        advise([0.1] * 9980 + [math.inf] * 20, Percentile())


@pytest.mark.parametrize("latencies", [[], [math.inf], [math.inf, math.inf]])
def test_nothing_to_learn_from_is_refused(latencies: list[float]) -> None:
    with pytest.raises(InvalidValue, match="no latencies"):
        advise(latencies, Percentile())


def test_a_negative_latency_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"latency -0\.5"):
        advise([0.1, -0.5], Percentile())


@pytest.mark.parametrize(
    ("policy", "latencies", "code"),
    [
        (Percentile(), [0.1] * 10, "Percentile(99.9, start=0.2"),
        (
            Percentile(99.0, network_latency=0.05, median_margin=0.5),
            [0.1] * 10,
            "median_margin=0.5, network_latency=0.05)",
        ),
        (Percentile(floor=0.001, start=5.0), [0.0001] * 10, "Percentile(99.9, start=0.001, floor=0.001)"),
        (Percentile(ceiling=20.0), [100.0] * 10, "Percentile(99.9, start=20, ceiling=20)"),
    ],
)
def test_the_code_is_one_that_can_be_written(policy: Percentile, latencies: list[float], code: str) -> None:
    found = advise(latencies, policy)
    assert code in found.code
    written = eval(found.code, {"Percentile": Percentile})
    assert written.clamp(written.start) == written.start >= found.timeout * 0.999


@given(
    st.lists(st.floats(1e-5, 30.0), min_size=1, max_size=200),
    st.floats(50.5, 99.95),
    st.floats(0.001, 0.1),
    st.floats(0.0, 2.0),
)
def test_the_advice_for_any_latencies_is_within_bounds_and_can_be_written(
    latencies: list[float], percent: float, floor: float, median_margin: float
) -> None:
    policy = Percentile(percent, floor=floor, median_margin=median_margin)
    found = advise(latencies, policy, rate=10.0)
    assert policy.floor <= found.timeout <= policy.ceiling
    assert 0.0 <= found.false_timeouts <= 1.0
    assert list(found.percentiles.values()) == sorted(found.percentiles.values())
    assert eval(found.code, {"Percentile": Percentile}).median_margin == pytest.approx(median_margin, rel=1e-5)
    assert found.limit is not None
    assert found.limit >= 1


def test_a_limit_is_littles_law_with_headroom_where_many_are_under_way() -> None:
    found = advise([0.5] * 10, Percentile(), rate=2000.0)
    assert found.in_flight == pytest.approx(1000.0)
    assert found.limit == Limit.for_load(rate=2000.0, seconds=0.5).max_in_flight == 2000


def test_a_limit_for_few_calls_has_room_for_chance() -> None:
    """Twice a tenth of a call would be one at a time, and refuse every eleventh call that comes at random."""
    found = advise([0.1] * 10, Percentile(), rate=1.0)
    assert found.in_flight == pytest.approx(0.1)
    assert found.limit == 4
    assert refused_share(1, 0.1) == pytest.approx(1 / 11)
    assert refused_share(4, 0.1) <= MAX_REFUSED_SHARE < refused_share(3, 0.1)


def test_a_limit_for_calls_that_take_no_time_is_one() -> None:
    assert advise([0.0] * 10, Percentile(), rate=10.0).limit == 1


def test_what_a_limit_refuses_is_erlangs_formula() -> None:
    """For three lines and two calls on average: (8/6) / (1 + 2 + 2 + 8/6)."""
    assert refused_share(3, 2.0) == pytest.approx((8 / 6) / (1 + 2 + 2 + 8 / 6))
    assert refused_share(0, 2.0) == 1.0


def test_a_rate_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"rate -1\.0"):
        advise([0.1], Percentile(), rate=-1.0)
