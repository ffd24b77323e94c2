"""Whose turn it is: the shares hold exactly, and nobody's turn never comes."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.queue.message import PRIORITY_LEVELS
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.queue.rules.admission import TenantState
from holdfast.queue.rules.leasing import (
    BACKLOG,
    BACKLOG_RUN,
    BACKLOG_SPILLED,
    FRESH,
    FRESH_SPILLED,
    IN_ORDER,
    MAX_LOCAL_WAIT,
    MAX_PREFETCHED,
    NOISY_LEAST,
    PERIOD,
    RANKS,
    RUN,
    SMALL_BACKLOG_REQUEST,
    SMALL_REQUEST,
    Age,
    Allowance,
    Pace,
    Source,
    TenantCounters,
    Turn,
    compute_allowance,
    compute_caps,
    compute_lease_target,
    compute_quota,
    messages_to_request,
    pace_after_fetch,
    pace_after_handling,
    plan_turns,
    update_after_lease,
)
from tests.table import rows

SHARE = st.sampled_from([0.0, 0.001, 0.01, 0.03, 0.1, 0.25, 0.3])
POLICIES = st.builds(QueuePolicy, backlog_share=SHARE, low_priority_share=SHARE, spill_share=SHARE)
SIZES = st.lists(st.integers(1, 150), min_size=1, max_size=40)
DEFAULTS = QueuePolicy()


def get_backend_kind(turn: Turn) -> str:
    first = turn.sources[0]
    if list(turn.sources) == list(IN_ORDER):
        return "rest"
    if first.rank >= PRIORITY_LEVELS:
        return "spilled"
    return "old" if first.age is Age.BACKLOG else "low"


def counted(policy: QueuePolicy, sizes: list[int], before: int = 0) -> Counter[str]:
    found: Counter[str] = Counter()
    for size in sizes:
        for turn in plan_turns(size, before, policy):
            found[get_backend_kind(turn)] += turn.wanted
        before += size
    return found


def served(policy: QueuePolicy, sizes: list[int], there: set[Source]) -> Counter[Source]:
    """What a worker gets where each of these sources has messages without end."""
    found: Counter[Source] = Counter()
    before = 0
    for size in sizes:
        for turn in plan_turns(size, before, policy, {source.rank for source in there}):
            got = [source for source in turn.sources if source in there] or [
                source for source in IN_ORDER if source in there
            ]
            found[got[0]] += turn.wanted
        before += size
    return found


def test_fresh_comes_before_old_urgent_before_less_urgent_and_spilled_last() -> None:
    assert (*FRESH, *BACKLOG, *FRESH_SPILLED, *BACKLOG_SPILLED) == IN_ORDER
    assert plan_turns(5, 0, QueuePolicy(backlog_share=0, low_priority_share=0, spill_share=0)) == [Turn(5, IN_ORDER)]
    assert [source.rank for source in IN_ORDER] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]


@given(POLICIES, SIZES, st.integers(0, 5000))
def test_every_message_has_one_turn(policy: QueuePolicy, sizes: list[int], before: int) -> None:
    for size in sizes:
        found = plan_turns(size, before, policy)
        assert sum(turn.wanted for turn in found) == size
        assert all(turn.wanted > 0 for turn in found)
        assert len({tuple(turn.sources) for turn in found}) == len(found), "what looks for the same looks once"
        before += size


@given(POLICIES, SIZES)
def test_shares_hold_over_any_sequence_of_sizes(policy: QueuePolicy, sizes: list[int]) -> None:
    """At no moment is one of them a whole turn behind, or ahead."""
    shares = {"old": policy.backlog_share, "low": policy.low_priority_share, "spilled": policy.spill_share}
    shares["rest"] = 1 - sum(shares.values())
    for taken in range(1, len(sizes) + 1):
        found = counted(policy, sizes[:taken])
        for kind, share in shares.items():
            assert abs(found[kind] - share * sum(sizes[:taken])) < 1 + 1e-9
            assert share or not found[kind]


@given(POLICIES, st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 3000))
def test_it_does_not_matter_how_many_are_taken_at_a_time(policy: QueuePolicy, sizes: list[int], before: int) -> None:
    assert counted(policy, sizes, before) == counted(policy, [1] * sum(sizes), before)


@pytest.mark.parametrize("size", [1, 7, 100, PERIOD])
def test_after_a_period_shares_are_exact(size: int) -> None:
    sizes = [size] * (PERIOD // size) + [PERIOD % size] * bool(PERIOD % size)
    policy = QueuePolicy(backlog_share=0.29, low_priority_share=0.001, spill_share=0.05)
    assert counted(policy, sizes) == {"old": 290, "low": 1, "spilled": 50, "rest": 659}


def test_whoever_takes_one_at_a_time_serves_all_shares() -> None:
    """All three are due at every tenth message: one must not take the turn of another."""
    assert counted(DEFAULTS, [1] * 100) == {"old": 10, "low": 10, "spilled": 10, "rest": 70}


def test_a_small_share_is_not_none() -> None:
    assert counted(QueuePolicy(backlog_share=1e-9), [PERIOD])["old"] == 1


@pytest.mark.parametrize("size", [1, 10, 100])
def test_nobody_starves(size: int) -> None:
    """Where there is everything without end, everything is served."""
    found = served(DEFAULTS, [size] * (6 * PERIOD // size), set(IN_ORDER))
    total = sum(found.values())
    assert all(found[source] >= total * 0.007 for source in IN_ORDER)


@given(st.sets(st.sampled_from(IN_ORDER), min_size=1), st.sampled_from([1, 2, 7, 50]))
@settings(max_examples=60)
def test_whatever_there_is_is_served(there: set[Source], size: int) -> None:
    found = served(DEFAULTS, [size] * (600 // size + 1), there)
    assert set(found) == there


def test_old_messages_of_one_priority_have_their_share_and_no_more() -> None:
    """The share for less urgent ones is for those that are less urgent than others."""
    found = served(DEFAULTS, [1] * PERIOD, {Source(2, Age.FRESH), Source(2, Age.BACKLOG)})
    assert found == {Source(2, Age.FRESH): 900, Source(2, Age.BACKLOG): 100}


def test_less_urgent_messages_share_their_share() -> None:
    found = served(DEFAULTS, [1] * PERIOD, set(FRESH))
    assert [found[source] for source in FRESH] == [900, 33, 33, 34]


def test_spilled_messages_have_a_share_of_which_the_urgent_have_half() -> None:
    found = served(DEFAULTS, [10] * (12 * PERIOD // 10), {FRESH[2], *FRESH_SPILLED, *BACKLOG_SPILLED})
    assert found[FRESH[2]] == 10_800 - 1200  # the share of old ones
    assert [found[source] for source in FRESH_SPILLED] == [600, 85, 85, 86]
    assert [found[source] for source in BACKLOG_SPILLED] == [1200 + 86, 86, 86, 86]


def test_old_messages_that_were_spilled_have_the_share_of_old_ones_only_if_there_are_no_others() -> None:
    found = served(DEFAULTS, [1] * PERIOD, {FRESH[2], BACKLOG[2], BACKLOG_SPILLED[2]})
    assert found == {FRESH[2]: 800, BACKLOG[2]: 100, BACKLOG_SPILLED[2]: 100}


@given(POLICIES, st.integers(1, 300), st.integers(0, 3000), st.sets(st.sampled_from(sorted(RANKS))))
def test_what_is_not_there_is_not_looked_for(policy: QueuePolicy, wanted: int, before: int, ranks: set[int]) -> None:
    found = plan_turns(wanted, before, policy, ranks)
    assert {source.rank for turn in found for source in turn.sources} <= ranks
    assert sum(turn.wanted for turn in found) == (wanted if ranks else 0)
    rest = [source for source in IN_ORDER if source.rank in ranks]
    assert rest not in [list(turn.sources) for turn in found[:-1]], "the rest comes last"


def test_one_priority_needs_few_looks() -> None:
    """Turns that come to the same are one."""
    assert [turn.wanted for turn in plan_turns(100, 0, DEFAULTS, {2})] == [10, 90]


@given(st.integers(1, 1000), st.integers(0, 600), st.sampled_from(Age))
def test_each_lane_is_asked_for_its_part(wanted: int, lanes: int, age: Age) -> None:
    each = compute_quota(wanted, lanes, age)
    run, few = (RUN, SMALL_REQUEST) if age is Age.FRESH else (BACKLOG_RUN, SMALL_BACKLOG_REQUEST)
    if not lanes:
        assert each == 0
    else:
        part = max(number for number in range(wanted + 1) if number * lanes <= wanted) or 1
        assert each == max(part, min(run, wanted // few)), "where many are wanted, more of each"
        assert wanted >= 2 * few or each == part, "no lane has a second before all have had one"


NOW = 1_750_000_000.0
MANY = 1 << 62


def test_without_limits_a_tenant_may_have_everything() -> None:
    assert compute_allowance(Limits(), TenantState(leased=1000), None, NOW) == Allowance(MANY, MANY, NOW)


def test_concurrency_leaves_room_for_what_is_not_in_work() -> None:
    limits = Limits(concurrency=5)
    assert compute_allowance(limits, TenantState(leased=3), None, NOW) == Allowance(2, 2, NOW)
    for leased in (5, 9):
        assert compute_allowance(limits, TenantState(leased=leased), None, NOW) == Allowance(0, 0, math.inf)


def test_a_run_rate_leaves_room_for_a_tenth_of_a_second_and_says_when_there_is_more() -> None:
    limits = Limits(run_rate=50.0)
    state = update_after_lease(limits, TenantState(ready=20), 3, 0, NOW)
    assert compute_allowance(limits, state, None, NOW).total == 2
    state = update_after_lease(limits, state, 2, 0, NOW)
    allowed = compute_allowance(limits, state, None, NOW)
    assert (allowed.shared, allowed.total) == (0, 0)
    assert allowed.next_check_at == pytest.approx(NOW + 0.02, abs=1e-5)
    assert compute_allowance(limits, state, None, allowed.next_check_at + 1e-6).total == 1


def test_a_run_burst_may_be_set() -> None:
    assert compute_allowance(Limits(run_rate=1.0, run_burst=30.0), TenantState(), None, NOW).total == 30


def test_the_narrower_of_concurrency_and_run_rate_counts() -> None:
    state = TenantState(ready=20)
    tight = Limits(concurrency=2, run_rate=10.0, run_burst=5.0)
    assert compute_allowance(tight, state, None, NOW).total == 2
    assert compute_allowance(tight, update_after_lease(tight, state, 2, 0, NOW), None, NOW) == Allowance(0, 0, math.inf)
    wide = Limits(concurrency=9, run_rate=10.0, run_burst=5.0)
    assert compute_allowance(wide, state, None, NOW).total == 5
    allowed = compute_allowance(wide, update_after_lease(wide, state, 5, 0, NOW), None, NOW)
    assert allowed.total == 0
    assert allowed.next_check_at == pytest.approx(NOW + 0.1, abs=1e-5)


def test_a_cap_moves_aside_what_others_wait_behind_and_nothing_else() -> None:
    assert compute_allowance(Limits(), TenantState(leased=3), 5, NOW) == Allowance(2, MANY, NOW)
    assert compute_allowance(Limits(), TenantState(leased=9), 5, NOW) == Allowance(0, MANY, NOW)
    assert compute_allowance(Limits(concurrency=4), TenantState(leased=3), 9, NOW) == Allowance(1, 1, NOW)


def test_what_got_past_the_rate_is_found_out_when_it_is_handed_out() -> None:
    limits = Limits(spill_rate=1.0, spill_burst=4.0)
    assert compute_allowance(limits, TenantState(), None, NOW) == Allowance(4, MANY, NOW)
    state = update_after_lease(limits, TenantState(ready=9), 3, 0, NOW)
    assert compute_allowance(limits, state, None, NOW).shared == 1
    apart = update_after_lease(limits, TenantState(ready=9, spilled=9), 3, 3, NOW)
    assert compute_allowance(limits, apart, None, NOW).shared == 4, "what waited apart was counted when it was sent"


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from(
        [Limits(), Limits(spill_rate=5.0), Limits(run_rate=5.0), Limits(spill_rate=2.0, run_rate=3.0, concurrency=4)]
    ),
)
def test_what_is_handed_out_is_counted(shared: int, spilled: int, leased: int, limits: Limits) -> None:
    before = TenantState(ready=shared + spilled + 3, spilled=spilled + 1, leased=leased)
    after = update_after_lease(limits, before, shared + spilled, spilled, NOW)
    assert (after.ready, after.spilled, after.leased) == (3, 1, leased + shared + spilled)
    assert (after.run_full_at > NOW) == (limits.run_rate is not None and shared + spilled > 0)
    assert (after.lease_full_at > NOW) == (limits.spill_rate is not None and shared > 0)


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
        count = min(wanted, compute_allowance(limits, state, None, now).total)
        state = update_after_lease(limits, state, count, 0, now)
        taken += count
        assert state.leased <= concurrency
        assert taken <= max(1.0, run_rate / 10) + run_rate * (now - NOW) + 1e-3


def test_a_lone_tenant_has_no_cap() -> None:
    assert compute_caps({"a": TenantCounters(5, 10_000)}, 10_000, are_others_waiting=False) == {}


def test_while_others_wait_nobody_has_more_than_a_tenth_of_the_workers() -> None:
    tenants = {"noisy": TenantCounters(500, 900), "fair": TenantCounters(5, 100), "quiet": TenantCounters(1, 1)}
    assert compute_caps(tenants, 1001, are_others_waiting=True) == {"noisy": 101}


def test_whoever_has_few_in_work_is_not_noisy() -> None:
    tenants = {"half": TenantCounters(0, NOISY_LEAST), "more": TenantCounters(0, NOISY_LEAST + 1)}
    assert compute_caps(tenants, 61, are_others_waiting=True) == {"more": NOISY_LEAST}


CONCURRENCY = st.integers(1, 10_000)
SECONDS = st.floats(0, 1e6)
PACE = st.builds(Pace, st.floats(0, 1e9), SECONDS, SECONDS)
HELD = st.integers(0, 20_000)


@given(CONCURRENCY, PACE, HELD)
def test_a_worker_never_holds_more_than_its_target(concurrency: int, pace: Pace, held: int) -> None:
    count = messages_to_request(concurrency, pace, held)
    assert count >= 0
    assert count == 0 or held + count == compute_lease_target(concurrency, pace)


@given(CONCURRENCY, PACE)
def test_the_target_is_bounded(concurrency: int, pace: Pace) -> None:
    assert concurrency <= compute_lease_target(concurrency, pace) <= concurrency + MAX_PREFETCHED


@given(CONCURRENCY, PACE, HELD)
def test_it_asks_whenever_a_handler_is_idle(concurrency: int, pace: Pace, held: int) -> None:
    if held < concurrency:
        assert messages_to_request(concurrency, pace, held) >= 1


@given(CONCURRENCY, st.floats(1e-5, 1), st.floats(1e-4, 0.02))
def test_handlers_do_not_wait_for_messages(concurrency: int, seconds: float, fetch: float) -> None:
    """When all are at work, what is ahead at the latest moment at which it asks lasts until more are there."""
    pace = Pace(concurrency / seconds, seconds, fetch)
    ahead = compute_lease_target(concurrency, pace) - concurrency
    left = ahead // 2
    assert messages_to_request(concurrency, pace, concurrency + left) >= (1 if ahead else 0)
    if fetch * concurrency / seconds >= 1 and ahead < MAX_PREFETCHED:
        assert (left + 1) * seconds / concurrency >= fetch * 0.99


@given(CONCURRENCY, PACE)
def test_it_does_not_ask_for_every_single_message(concurrency: int, pace: Pace) -> None:
    ahead = compute_lease_target(concurrency, pace) - concurrency
    if ahead:
        assert messages_to_request(concurrency, pace, concurrency + ahead) == 0
    if ahead >= 3:
        assert messages_to_request(concurrency, pace, concurrency + ahead - 1) == 0


@pytest.mark.parametrize("seconds", [0.5, 1.0, 3600.0])
def test_slow_jobs_are_not_fetched_ahead(seconds: float) -> None:
    """A message that waits here for a handler waits while another worker may be idle."""
    pace = Pace(8 / seconds, seconds, 0.005)
    assert compute_lease_target(8, pace) == 8
    assert messages_to_request(8, pace, 8) == 0
    assert messages_to_request(8, pace, 7) == 1


@given(CONCURRENCY, PACE)
def test_what_is_fetched_ahead_does_not_wait_for_long(concurrency: int, pace: Pace) -> None:
    ahead = compute_lease_target(concurrency, pace) - concurrency
    if ahead:
        assert ahead / pace.rate <= MAX_LOCAL_WAIT + 1e-9


def test_quick_handlers_that_are_at_work_on_something_long_get_nothing_ahead() -> None:
    """What they could do does not count, but what they did."""
    pace = Pace(10_000, 0.0001, 0.005)
    assert compute_lease_target(8, pace) == 8 + 200
    for _ in range(40):
        pace = pace_after_handling(pace, 0, 0.0, 0.05)
    assert compute_lease_target(8, pace) == 8


@rows(
    ("rate", "seconds", "fetch", "ahead"),
    [
        (0.0, 0.0, 0.0, 0),
        (0.0, 1e-5, 1.0, 0),
        (49.9, 0.05, 0.005, 0),
        (50.0, 0.05, 0.0, 0),
        (50.0, 0.05, 0.005, 1),
        (1600.0, 0.005, 0.002, 7),
        (1600.0, 0.005, 0.02, 64),
        (1600.0, 0.005, 2.0, 80),
        (20_000.0, 0.0001, 0.005, 400),
        (20_000.0, 0.0001, 0.010, 600),
        (1e6, 1e-6, 0.002, MAX_PREFETCHED),
        (1e6, 0.0, 0.0, MAX_PREFETCHED),
    ],
)
def test_the_target_by_example(rate: float, seconds: float, fetch: float, ahead: int) -> None:
    assert compute_lease_target(8, Pace(rate, seconds, fetch)) == 8 + ahead


@given(PACE, st.integers(1, 10**6), st.floats(0, 1e6), st.floats(0.001, 1e3))
def test_the_pace_moves_towards_what_was_measured(pace: Pace, handled: int, busy: float, elapsed: float) -> None:
    after = pace_after_handling(pace, handled, busy, elapsed)
    for before, now, result in (
        (pace.rate, handled / elapsed, after.rate),
        (pace.handler_seconds, busy / handled, after.handler_seconds),
    ):
        low, high = sorted((before, now))
        assert low - 1e-6 <= result <= high * (1 + 1e-9) + 1e-6
    assert after.fetch_seconds == pace.fetch_seconds


def test_where_nothing_was_handled_nothing_is_known_of_what_it_takes() -> None:
    assert pace_after_handling(Pace(10.0, 0.5, 0.1), 0, 0.0, 1.0) == Pace(7.0, 0.5, 0.1)


@pytest.mark.parametrize("elapsed", [0.0, -1.0])
def test_a_clock_that_stands_still_measures_nothing(elapsed: float) -> None:
    assert pace_after_handling(Pace(7.0), 100, 1.0, elapsed) == Pace(7.0)


def test_the_pace_is_learned_within_a_few_measurements() -> None:
    pace = Pace()
    for _ in range(10):
        pace = pace_after_fetch(pace_after_handling(pace, 1000, 0.1, 0.05), 0.003)
    assert math.isclose(pace.rate, 20_000, rel_tol=0.05)
    assert math.isclose(pace.handler_seconds, 0.0001, rel_tol=0.05)
    assert math.isclose(pace.fetch_seconds, 0.003, rel_tol=0.05)
