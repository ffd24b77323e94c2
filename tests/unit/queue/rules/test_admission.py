"""Whether messages are kept, and where they wait: by what their own tenant does, and nothing else."""

from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.queue.message import RefusalReason
from holdfast.queue.policy import Limits, OverMaxRate, QueuePolicy
from holdfast.queue.rules.admission import (
    FULL_WAIT,
    MAX_WAIT,
    Admission,
    LaneKind,
    MessageDecision,
    TenantState,
    admit,
    compute_allowed_rate,
    compute_pressure,
    decide_each,
    get_max_waiting,
    get_room,
    is_unlimited,
)

NOW = 1_750_000_000.0
OPEN = QueuePolicy(spill_above=None, max_waiting=None)


def counts(admission: Admission) -> tuple[int, int, int, int]:
    return admission.live, admission.spilled, len(admission.delays), admission.refused


def test_messages_are_live_then_spilled_then_delayed_and_at_last_refused() -> None:
    admission = Admission(live=1, is_own=True, spilled=1, delays=(2.0,), refused=1, state=TenantState())
    expected = [(LaneKind.OWN, 0.0), (LaneKind.SPILLED, 0.0), (LaneKind.SHARED, 2.0), (LaneKind.SHARED, None)]
    assert list(islice(decide_each(admission), 4)) == expected


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


RATES = st.floats(0.01, 100)
LIMITS = st.builds(
    Limits,
    spill_rate=maybe(RATES),
    spill_burst=maybe(st.floats(0.1, 50)),
    max_rate=maybe(RATES),
    max_burst=maybe(st.floats(0.1, 50)),
    over_max_rate=st.sampled_from(OverMaxRate),
    run_rate=maybe(RATES),
    concurrency=maybe(st.integers(1, 10)),
    max_waiting=maybe(st.integers(1, 200)),
)
POLICIES = st.builds(
    QueuePolicy,
    spill_above=maybe(st.integers(0, 50)),
    max_waiting=maybe(st.integers(1, 200)),
    rate_under_backpressure=st.floats(0.1, 100),
)
AHEAD = st.sampled_from([0.0, NOW - 5, NOW, NOW + 0.5, NOW + 5])


@st.composite
def states(draw: st.DrawFn) -> TenantState:
    ready = draw(st.integers(0, 250))
    return TenantState(
        ready=ready,
        spilled=draw(st.integers(0, ready)),
        leased=draw(st.integers(0, 12)),
        spill_rate_full_at=draw(AHEAD),
        max_rate_full_at=draw(AHEAD),
        pressure_full_at=draw(AHEAD),
    )


def test_without_limits_everything_waits_beside_everybody_elses() -> None:
    admission = admit(OPEN, Limits(), TenantState(), 1000, NOW)
    assert counts(admission) == (1000, 0, 0, 0)
    assert admission.state == TenantState(ready=1000)
    assert (admission.refusal, admission.retry_after, admission.pressure) == (None, 0.0, 0.0)


def test_what_exceeds_the_rate_is_spilled() -> None:
    limits = Limits(spill_rate=2.0, spill_burst=3.0)
    admission = admit(OPEN, limits, TenantState(), 5, NOW)
    assert counts(admission) == (3, 2, 0, 0)
    assert (admission.state.ready, admission.state.spilled) == (5, 2)
    assert counts(admit(OPEN, limits, admission.state, 5, NOW + 1)) == (2, 3, 0, 0)


def test_what_exceeds_spill_above_is_spilled_and_uses_up_no_rate() -> None:
    policy, limits = QueuePolicy(spill_above=10), Limits(spill_rate=1.0, spill_burst=20.0)
    admission = admit(policy, limits, TenantState(ready=6), 10, NOW)
    assert counts(admission) == (4, 6, 0, 0)
    assert admission.state.spill_rate_full_at == NOW + 4
    assert counts(admit(policy, limits, admission.state, 1, NOW)) == (0, 1, 0, 0)


def test_what_is_sent_after_an_outage_waits_beside_others_although_much_is_waiting() -> None:
    """As many as `spill_above` in every `fresh_for`; then it is too much again."""
    policy = QueuePolicy(spill_above=10, fresh_for=60.0)
    state = admit(policy, Limits(), TenantState(), 500, NOW).state
    assert counts(admit(policy, Limits(), state, 5, NOW + 6)) == (1, 4, 0, 0)
    for later in (NOW + 3600, NOW + 3660):
        admission = admit(policy, Limits(), state, 15, later)
        assert (counts(admission), admission.is_own) == ((10, 5, 0, 0), True)
        state = admission.state
    assert counts(admit(policy, Limits(), state, 1, NOW + 3660)) == (0, 1, 0, 0)


@pytest.mark.parametrize("portions", [[10], [1] * 10, [9, 1]])
def test_who_has_just_reached_spill_above_may_send_nothing_more_beside_others(portions: list[int]) -> None:
    policy, state = QueuePolicy(spill_above=10), TenantState()
    for wanted in portions:
        admission = admit(policy, Limits(), state, wanted, NOW)
        assert (counts(admission), admission.is_own) == ((wanted, 0, 0, 0), False)
        state = admission.state
    assert counts(admit(policy, Limits(), state, 1, NOW)) == (0, 1, 0, 0)


@pytest.mark.parametrize("policy", [QueuePolicy(spill_above=0), QueuePolicy(spill_above=10, fresh_for=0)])
def test_where_nothing_is_fresh_or_may_wait_beside_others_all_excess_is_spilled(policy: QueuePolicy) -> None:
    state = TenantState(ready=policy.spill_above or 0)
    assert counts(admit(policy, Limits(), state, 3, NOW)) == (0, 3, 0, 0)
    assert admit(policy, Limits(), state, 3, NOW).state.fresh_full_at == 0


def test_what_the_rate_does_not_allow_uses_up_nothing_of_what_may_wait_beside_others() -> None:
    policy, limits = QueuePolicy(spill_above=10, fresh_for=60.0), Limits(spill_rate=1.0, spill_burst=3.0)
    admission = admit(policy, limits, TenantState(ready=50), 8, NOW)
    assert counts(admission) == (3, 5, 0, 0)
    assert admission.state.fresh_full_at == pytest.approx(NOW + 3 * 6)


@given(st.integers(1, 50), st.lists(st.tuples(st.integers(0, 80), st.floats(0, 30)), max_size=40))
def test_of_a_tenant_that_sends_without_end_few_fresh_messages_wait_beside_others(
    most: int, sends: list[tuple[int, float]]
) -> None:
    """At most as many again as may wait at all, in whatever portions: nothing of it is handled here."""
    policy, state, now = QueuePolicy(spill_above=most, max_waiting=None), TenantState(), NOW
    live: list[tuple[float, int]] = []
    for wanted, pause in sends:
        now += pause
        admission = admit(policy, Limits(), state, wanted, now)
        state = admission.state
        live.append((now, admission.live))
        assert sum(count for at, count in live if at > now - policy.fresh_for) <= 2 * most


@pytest.mark.parametrize("over", list(OverMaxRate))
def test_what_exceeds_max_rate_is_refused_or_delayed(over: OverMaxRate) -> None:
    limits = Limits(max_rate=2.0, max_burst=3.0, over_max_rate=over)
    admission = admit(OPEN, limits, TenantState(), 5, NOW)
    if over is OverMaxRate.REFUSE:
        assert counts(admission) == (3, 0, 0, 2)
        assert admission.refusal is RefusalReason.MAX_RATE
        assert admission.retry_after == pytest.approx(0.5, abs=1e-5)
    else:
        assert counts(admission) == (3, 0, 2, 0)
        assert admission.delays == pytest.approx((0.5, 1.0))
        assert admission.refusal is None
        following = admit(OPEN, limits, admission.state, 1, NOW)
        assert following.delays == pytest.approx((1.5,))
    assert admission.state.ready == 3


def test_a_small_max_burst_delays_by_whole_turns() -> None:
    """The first goes at once, and each after it a second later: a burst of a half is one."""
    admission = admit(OPEN, Limits(max_rate=1.0, max_burst=0.5, over_max_rate=OverMaxRate.DELAY), TenantState(), 3, NOW)
    assert counts(admission) == (1, 0, 2, 0)
    assert admission.delays == pytest.approx((1.0, 2.0))


def test_what_is_delayed_counts_as_backlog() -> None:
    """Whoever is told to wait could fill the store otherwise."""
    policy, limits = QueuePolicy(max_waiting=100), Limits(max_rate=1.0, max_burst=1.0, over_max_rate=OverMaxRate.DELAY)
    admission = admit(policy, limits, TenantState(), 150, NOW)
    assert counts(admission) == (1, 0, 99, 50)
    assert admission.refusal is RefusalReason.MAX_WAITING
    assert admission.pressure == 1
    again = admit(policy, limits, admission.state, 10, NOW)
    assert counts(again) == (0, 0, 0, 10)
    assert again.retry_after == FULL_WAIT
    later = msgspec.structs.replace(again.state, ready=0)
    assert counts(admit(policy, limits, later, 1, NOW + 100)) == (1, 0, 0, 0)


def test_a_full_backlog_refuses_everything_for_as_long_as_is_worth_waiting() -> None:
    admission = admit(QueuePolicy(max_waiting=100), Limits(), TenantState(ready=100), 5, NOW)
    assert counts(admission) == (0, 0, 0, 5)
    assert (admission.refusal, admission.retry_after, admission.pressure) == (RefusalReason.MAX_WAITING, FULL_WAIT, 1.0)


def test_a_tenants_own_backlog_comes_before_the_queues() -> None:
    assert counts(admit(QueuePolicy(max_waiting=100), Limits(max_waiting=3), TenantState(), 5, NOW)) == (3, 0, 0, 2)
    assert counts(admit(QueuePolicy(max_waiting=3), Limits(max_waiting=100), TenantState(), 5, NOW)) == (5, 0, 0, 0)


def test_backpressure_falls_with_the_backlog_and_rises_when_it_is_worked_off() -> None:
    policy = QueuePolicy(max_waiting=1000, rate_under_backpressure=100.0)
    assert counts(admit(policy, Limits(), TenantState(), 100, NOW)) == (100, 0, 0, 0)
    assert [
        sum(counts(admit(policy, Limits(), TenantState(ready=ready), 500, NOW))[:2])
        for ready in (99, 100, 550, 910, 991)
    ] == [95, 94, 47, 9, 1], "a little less than a second of the rate at the beginning: every message lowers it"
    slow = admit(policy, Limits(), TenantState(ready=999), 1, NOW)
    assert slow.state.pressure_full_at > NOW + 8, "a token at such a rate takes long"
    drained = msgspec.structs.replace(slow.state, ready=200)
    assert counts(admit(policy, Limits(), drained, 5, NOW + 2))[0] >= 1, "but it is not waited for when all is well"


def test_what_is_refused_uses_up_nothing() -> None:
    """A tenant that is over its rate would otherwise lose what backpressure leaves it as well."""
    policy = QueuePolicy(max_waiting=1000, rate_under_backpressure=10.0)
    limits = Limits(max_rate=1.0, max_burst=2.0)
    admission = admit(policy, limits, TenantState(ready=100), 50, NOW)
    assert counts(admission) == (2, 0, 0, 48)
    assert admission.state.pressure_full_at == pytest.approx(NOW + 0.2)
    refused = admit(policy, limits, admission.state, 50, NOW)
    assert refused.state == admission.state


def test_the_obstacle_that_stays_longer_is_named() -> None:
    policy = QueuePolicy(max_waiting=1000, rate_under_backpressure=0.1)
    slow = admit(policy, Limits(max_rate=10.0, max_burst=1.0), TenantState(ready=100), 2, NOW)
    assert slow.refusal is RefusalReason.MAX_WAITING
    assert slow.retry_after == pytest.approx(10, abs=0.1)
    other = admit(policy, Limits(max_rate=0.05, max_burst=1.0), TenantState(ready=100), 2, NOW)
    assert other.refusal is RefusalReason.MAX_RATE
    assert other.retry_after == pytest.approx(20, abs=1e-3)


def test_a_tenant_at_its_cap_does_not_overtake_itself() -> None:
    assert counts(admit(OPEN, Limits(concurrency=2), TenantState(leased=2), 3, NOW)) == (0, 3, 0, 0)
    assert counts(admit(OPEN, Limits(concurrency=2), TenantState(leased=1), 3, NOW)) == (3, 0, 0, 0)
    assert counts(admit(OPEN, Limits(run_rate=2.0), TenantState(ready=1, spilled=1), 3, NOW)) == (0, 3, 0, 0)
    assert counts(admit(OPEN, Limits(run_rate=2.0), TenantState(ready=1), 3, NOW)) == (3, 0, 0, 0)
    assert counts(admit(OPEN, Limits(), TenantState(ready=1, spilled=1), 3, NOW)) == (3, 0, 0, 0)


@given(POLICIES, LIMITS, states(), st.integers(0, 120))
def test_every_message_has_one_fate_and_the_state_says_so(
    policy: QueuePolicy, limits: Limits, state: TenantState, wanted: int
) -> None:
    admission = admit(policy, limits, state, wanted, NOW)
    assert all(count >= 0 for count in counts(admission))
    assert sum(counts(admission)) == wanted
    assert all(delay > 0 for delay in admission.delays)
    assert list(admission.delays) == sorted(admission.delays)
    assert not admission.delays or limits.over_max_rate is OverMaxRate.DELAY
    assert (admission.refusal is not None) == (admission.refused > 0) == (admission.retry_after > 0)
    assert 0 <= admission.retry_after <= MAX_WAIT
    assert 0 <= admission.pressure <= 1
    after = admission.state
    assert after.ready == state.ready + admission.live + admission.spilled
    assert after.spilled == state.spilled + admission.spilled
    assert (after.leased, after.run_full_at, after.lease_full_at) == (
        *(state.leased, state.run_full_at, state.lease_full_at),
    )
    most = get_max_waiting(policy, limits)
    if most is not None and admission.live + admission.spilled:
        assert after.ready <= most


@given(POLICIES, st.floats(0.05, 100), st.floats(0.1, 5), states(), st.integers(10, 120))
def test_whoever_waits_as_long_as_it_is_told_is_let_in_and_not_before(
    policy: QueuePolicy, rate: float, burst: float, state: TenantState, wanted: int
) -> None:
    limits = Limits(max_rate=rate, max_burst=burst)
    admission = admit(policy, limits, state, wanted, NOW)
    assert admission.refused
    is_full = policy.max_waiting is not None and admission.state.ready >= policy.max_waiting
    if is_full or admission.retry_after == MAX_WAIT:
        return  # nobody knows when there is get_room
    assert admit(policy, limits, admission.state, 1, NOW + admission.retry_after + 2e-6).refused == 0
    if admission.retry_after > 1e-3:
        assert admit(policy, limits, admission.state, 1, NOW + admission.retry_after * 0.99 - 1e-5).refused == 1


POWERS = st.sampled_from([0.25, 1.0, 2.0, 8.0])
"""Rates and bursts whose sums are exact."""


@example(QueuePolicy(max_waiting=1000, rate_under_backpressure=100.0), Limits(), TenantState(), [1] * 1000)
@example(QueuePolicy(spill_above=4, fresh_for=64.0), Limits(spill_rate=0.25, concurrency=1), TenantState(), [1] * 4)
@given(
    st.builds(
        QueuePolicy,
        spill_above=maybe(st.sampled_from([0, 1, 4, 32])),
        max_waiting=maybe(st.integers(1, 200)),
        rate_under_backpressure=st.floats(0.1, 100),
        fresh_for=st.just(64.0),
    ),
    st.builds(
        Limits,
        spill_rate=maybe(POWERS),
        spill_burst=maybe(POWERS),
        max_rate=maybe(POWERS),
        max_burst=maybe(POWERS),
        over_max_rate=st.sampled_from(OverMaxRate),
        run_rate=maybe(POWERS),
        concurrency=maybe(st.integers(1, 10)),
        max_waiting=maybe(st.integers(1, 200)),
    ),
    states(),
    st.lists(st.integers(0, 30), min_size=1, max_size=5) | st.integers(1, 100).map(lambda count: [1] * count),
)
def test_it_does_not_matter_in_what_portions_they_are_sent(
    policy: QueuePolicy, limits: Limits, state: TenantState, portions: list[int]
) -> None:
    """A batch gets what its messages would get one by one at the same time."""
    whole = admit(policy, limits, state, sum(portions), NOW)
    decisions: list[MessageDecision] = []
    refused: Admission | None = None
    for wanted in portions:
        part = admit(policy, limits, state, wanted, NOW)
        state = part.state
        decisions += islice(decide_each(part), wanted)
        refused = part if part.refused else refused
    assert decisions == list(islice(decide_each(whole), sum(portions)))
    assert state == whole.state
    assert (refused is not None) == (whole.refused > 0)
    if refused is not None:
        assert (refused.refusal, refused.retry_after) == (whole.refusal, whole.retry_after)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.floats(0, 3)), max_size=30),
    st.dictionaries(st.sampled_from("abc"), LIMITS, min_size=3),
    POLICIES,
)
def test_what_one_tenant_does_changes_nothing_for_another(
    sends: list[tuple[str, int, float]], limits: dict[str, Limits], policy: QueuePolicy
) -> None:
    """What becomes of a tenant's messages is the same with all the others as it is without them."""

    def play(among: str) -> list[tuple[str, Admission]]:
        now, known, found = NOW, dict.fromkeys("abc", TenantState()), []
        for tenant, wanted, seconds in sends:
            now += seconds
            if tenant in among:
                admission = admit(policy, limits[tenant], known[tenant], wanted, now)
                known[tenant] = admission.state
                found.append((tenant, admission))
        return found

    together = play("abc")
    for tenant in "abc":
        assert play(tenant) == [one for one in together if one[0] == tenant]


MOST = st.integers(1, 10**9)
DRAINS = st.floats(0.001, 1e6)


def test_below_a_tenth_nothing_is_held_back() -> None:
    assert compute_allowed_rate(99, 1000, 50.0) is None
    assert compute_allowed_rate(100, 1000, 50.0) == (50.0, 50.0)


def test_halfway_from_there_it_is_half() -> None:
    assert compute_allowed_rate(550, 1000, 50.0) == (25.0, 25.0)


def test_where_accepting_is_the_point_there_is_no_pressure() -> None:
    assert compute_allowed_rate(10**12, None, 50.0) is None
    assert compute_pressure(10**12, None) == 0


@given(MOST, DRAINS, st.integers(0, 10**6))
def test_at_the_limit_and_beyond_there_is_nothing(most: int, drain: float, beyond: int) -> None:
    assert compute_allowed_rate(most + beyond, most, drain) == (0, 1)
    assert compute_pressure(most + beyond, most) == 1


@given(MOST, DRAINS, st.data())
def test_more_waiting_never_means_more_may_be_sent(most: int, drain: float, data: st.DataObject) -> None:
    fewer, more = sorted(data.draw(st.lists(st.integers(0, most), min_size=2, max_size=2)))
    assert compute_pressure(fewer, most) <= compute_pressure(more, most)
    before, after = compute_allowed_rate(fewer, most, drain), compute_allowed_rate(more, most, drain)
    if before is None:
        assert after is None or after[0] <= drain
    else:
        assert after is not None
        assert 0 <= after[0] <= before[0] <= drain
        assert 1 <= after[1] <= before[1]


@given(MOST, st.data())
def test_pressure_is_the_part_that_is_used(most: int, data: st.DataObject) -> None:
    waiting = data.draw(st.integers(0, most))
    assert compute_pressure(waiting, most) == pytest.approx(waiting / most)


def test_a_tenants_backlog_is_its_own_or_the_queues() -> None:
    assert get_max_waiting(QueuePolicy(max_waiting=100), Limits()) == 100
    assert get_max_waiting(QueuePolicy(max_waiting=100), Limits(max_waiting=5)) == 5
    assert get_max_waiting(QueuePolicy(max_waiting=None), Limits()) is None


def test_messages_are_decided_upon_one_by_one_in_the_order_of_the_admission() -> None:
    admission = Admission(live=1, is_own=False, spilled=1, delays=(2.0,), refused=1, state=TenantState())
    decided = decide_each(admission)
    assert [next(decided) for _ in range(4)] == [
        (LaneKind.SHARED, 0.0),
        (LaneKind.SPILLED, 0.0),
        (LaneKind.SHARED, 2.0),
        (LaneKind.SHARED, None),
    ]
    own = Admission(live=1, is_own=True, spilled=0, state=TenantState())
    assert next(decide_each(own)) == (LaneKind.OWN, 0.0)


def test_a_tenant_is_free_without_any_limit() -> None:
    assert is_unlimited(Limits())
    for name in ("spill_rate", "max_rate", "run_rate", "concurrency", "max_waiting"):
        assert not is_unlimited(Limits(**{name: 5}))  # type: ignore[arg-type]


def test_below_its_room_one_more_message_of_a_tenant_is_admitted_as_the_first_is() -> None:
    assert get_room(QueuePolicy(max_waiting=100, spill_above=50), Limits()) == 9
    assert get_room(QueuePolicy(max_waiting=None, spill_above=50), Limits()) == 49
    assert get_room(OPEN, Limits()) > 10**12


@pytest.mark.parametrize("bucket", [name for name in TenantState.__struct_fields__ if name.endswith("_full_at")])
def test_a_tenant_has_full_buckets_when_the_last_of_them_is_full(bucket: str) -> None:
    assert TenantState().has_full_buckets(NOW)
    state = msgspec.structs.replace(TenantState(), **{bucket: NOW})
    assert not state.has_full_buckets(NOW - 0.001)
    assert state.has_full_buckets(NOW)
