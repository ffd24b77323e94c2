"""How many of a tenant's messages workers may have."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue.policy import Limits
from holdfast.queue.rules.admission import TenantState
from holdfast.queue.rules.caps import NOISY_LEAST, Allowance, Counters, allowance, handed_out, next_caps

NOW = 1_750_000_000.0
MANY = 1 << 62


def test_without_limits_a_tenant_may_have_everything() -> None:
    assert allowance(Limits(), TenantState(leased=1000), None, NOW) == Allowance(MANY, MANY, NOW)


def test_concurrency_leaves_room_for_what_is_not_in_work() -> None:
    limits = Limits(concurrency=5)
    assert allowance(limits, TenantState(leased=3), None, NOW) == Allowance(2, 2, NOW)
    for leased in (5, 9):
        assert allowance(limits, TenantState(leased=leased), None, NOW) == Allowance(0, 0, math.inf)


def test_a_run_rate_leaves_room_for_a_tenth_of_a_second_and_says_when_there_is_more() -> None:
    limits = Limits(run_rate=50.0)
    state = handed_out(limits, TenantState(ready=20), 3, 0, NOW)
    assert allowance(limits, state, None, NOW).total == 2
    state = handed_out(limits, state, 2, 0, NOW)
    allowed = allowance(limits, state, None, NOW)
    assert (allowed.shared, allowed.total) == (0, 0)
    assert allowed.again_at == pytest.approx(NOW + 0.02, abs=1e-5)
    assert allowance(limits, state, None, allowed.again_at + 1e-6).total == 1


def test_a_run_burst_may_be_set() -> None:
    assert allowance(Limits(run_rate=1.0, run_burst=30.0), TenantState(), None, NOW).total == 30


def test_the_narrower_of_concurrency_and_run_rate_counts() -> None:
    state = TenantState(ready=20)
    tight = Limits(concurrency=2, run_rate=10.0, run_burst=5.0)
    assert allowance(tight, state, None, NOW).total == 2
    assert allowance(tight, handed_out(tight, state, 2, 0, NOW), None, NOW) == Allowance(0, 0, math.inf)
    wide = Limits(concurrency=9, run_rate=10.0, run_burst=5.0)
    assert allowance(wide, state, None, NOW).total == 5
    allowed = allowance(wide, handed_out(wide, state, 5, 0, NOW), None, NOW)
    assert allowed.total == 0
    assert allowed.again_at == pytest.approx(NOW + 0.1, abs=1e-5)


def test_a_cap_moves_aside_what_others_wait_behind_and_nothing_else() -> None:
    assert allowance(Limits(), TenantState(leased=3), 5, NOW) == Allowance(2, MANY, NOW)
    assert allowance(Limits(), TenantState(leased=9), 5, NOW) == Allowance(0, MANY, NOW)
    assert allowance(Limits(concurrency=4), TenantState(leased=3), 9, NOW) == Allowance(1, 1, NOW)


def test_what_got_past_the_rate_is_found_out_when_it_is_handed_out() -> None:
    limits = Limits(rate=1.0, burst=4.0)
    assert allowance(limits, TenantState(), None, NOW) == Allowance(4, MANY, NOW)
    state = handed_out(limits, TenantState(ready=9), 3, 0, NOW)
    assert allowance(limits, state, None, NOW).shared == 1
    apart = handed_out(limits, TenantState(ready=9, spilled=9), 3, 3, NOW)
    assert allowance(limits, apart, None, NOW).shared == 4, "what waited apart was counted when it was sent"


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([Limits(), Limits(rate=5.0), Limits(run_rate=5.0), Limits(rate=2.0, run_rate=3.0, concurrency=4)]),
)
def test_what_is_handed_out_is_counted(shared: int, spilled: int, leased: int, limits: Limits) -> None:
    before = TenantState(ready=shared + spilled + 3, spilled=spilled + 1, leased=leased)
    after = handed_out(limits, before, shared + spilled, spilled, NOW)
    assert (after.ready, after.spilled, after.leased) == (3, 1, leased + shared + spilled)
    assert (after.run_full_at > NOW) == (limits.run_rate is not None and shared + spilled > 0)
    assert (after.lease_full_at > NOW) == (limits.rate is not None and shared > 0)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), st.integers(0, 30)), max_size=40),
    st.integers(1, 8),
    st.floats(0.5, 50),
)
def test_limits_hold_over_any_sequence_of_leases(
    steps: list[tuple[float, int, int]], concurrency: int, run_rate: float
) -> None:
    limits, now, state, taken = Limits(concurrency=concurrency, run_rate=run_rate), NOW, TenantState(ready=10_000), 0
    for seconds, done, wanted in steps:
        now += seconds
        state = TenantState(ready=state.ready, leased=max(0, state.leased - done), run_full_at=state.run_full_at)
        count = min(wanted, allowance(limits, state, None, now).total)
        state = handed_out(limits, state, count, 0, now)
        taken += count
        assert state.leased <= concurrency
        assert taken <= max(1.0, run_rate / 10) + run_rate * (now - NOW) + 1e-3


def test_a_lone_tenant_has_no_cap() -> None:
    assert next_caps({"a": Counters(5, 10_000)}, 10_000, others_wait=False) == {}


def test_while_others_wait_nobody_has_more_than_a_tenth_of_the_workers() -> None:
    tenants = {"noisy": Counters(500, 900), "fair": Counters(5, 100), "quiet": Counters(1, 1)}
    assert next_caps(tenants, 1001, others_wait=True) == {"noisy": 101}


def test_whoever_has_few_in_work_is_not_noisy() -> None:
    tenants = {"half": Counters(0, NOISY_LEAST), "more": Counters(0, NOISY_LEAST + 1)}
    assert next_caps(tenants, 61, others_wait=True) == {"more": NOISY_LEAST}
