import msgspec
import pytest

from holdfast.queue import Delivery, QueuePolicy
from holdfast.queue.alarms import AlarmKind
from holdfast.queue.backend import QueueSnapshot, Totals
from holdfast.queue.reading import (
    READINGS_MERGED,
    TENANT_BUCKETS,
    PollCollector,
    WorkSummary,
    build_reading,
    find_main_tenant,
)
from holdfast.queue.rules.placement import own_lane
from tests.unit.queue.made import delivery, lane, polled, snapshot, tenant


def compute_age(seen: QueueSnapshot, work: WorkSummary, before: Totals | None = None) -> float:
    return build_reading(seen, work, before).values[AlarmKind.FIRST_ATTEMPT_AGE]


def test_where_no_worker_was_ever_heard_of_new_work_is_as_late_as_what_waits() -> None:
    """Perhaps nobody works at all. What is spilled does not count."""
    reading = build_reading(snapshot(lane(1, ready=3, age=50), lane(-4, ready=1, age=500)), PollCollector(60.0).take())
    assert reading.values == {AlarmKind.DEAD_LETTERS: 0, AlarmKind.OLDEST_AGE: 500, AlarmKind.FIRST_ATTEMPT_AGE: 50}
    assert compute_age(snapshot(), WorkSummary()) == 0


def test_the_excess_of_one_tenant_is_not_late_while_somebody_is_at_work_on_it() -> None:
    """Though nobody tells of that: what waits changes."""
    noisy = [lane(slot * 4 + priority, ready=100, age=70) for slot in range(4) for priority in (1, 2)]
    seen = snapshot(*noisy, lane(41, ready=1, age=3), lane(-4, ready=900, age=70), lane(61, leased=1))
    moved = msgspec.structs.replace(seen.totals, ready=110)
    assert compute_age(seen, WorkSummary(), moved) == 3
    assert compute_age(seen, WorkSummary(), seen.totals) == 70  # nobody is
    assert compute_age(seen, WorkSummary()) == 70
    assert (
        compute_age(snapshot(*seen.lanes, lane(81, ready=1, age=80)), WorkSummary(), moved) == 70
    )  # others wait as well
    assert compute_age(snapshot(*noisy), WorkSummary(), moved) == 70  # nobody has sent too much
    one, two = (lane(own_lane(tenant, 2), ready=9, age=65) for tenant in (7, 8))
    assert compute_age(snapshot(*seen.lanes, one), WorkSummary(), moved) == 3  # it has this one for itself
    assert compute_age(snapshot(*seen.lanes, one, two), WorkSummary(), moved) == 65
    alone = msgspec.structs.replace(seen, policy=QueuePolicy(lanes_per_tenant=0))
    assert compute_age(alone, WorkSummary(), moved) == 70


def test_polls_and_first_attempts_are_those_since_the_last_look() -> None:
    recent = PollCollector(60.0)
    recent.add(polled())
    recent.add(polled(*(delivery(age=age) for age in range(10))))
    work = recent.take()
    assert (work.polls, work.empty, work.has_seen_polls) == (2, 1, True)
    assert work.first_attempt_age == pytest.approx(8, rel=0.06)
    assert recent.take() == WorkSummary(has_seen_polls=True)


def test_one_that_was_stuck_is_no_trouble_and_a_tenth_of_them_is() -> None:
    recent = PollCollector(60.0)
    recent.add(polled(*[delivery(age=0.1)] * 99, delivery(age=50)))
    age = recent.take().first_attempt_age
    assert age is not None
    assert age < 1
    recent = PollCollector(60.0)
    recent.add(polled(*[delivery(age=0.1)] * 89, *[delivery(age=50)] * 11))
    assert recent.take().first_attempt_age == pytest.approx(50, rel=0.06)


def test_the_age_that_is_told_is_never_beyond_the_oldest() -> None:
    recent = PollCollector(60.0)
    recent.add(polled(delivery(age=59.9)))
    age = recent.take().first_attempt_age
    assert age is not None
    assert age <= 59.9 + 1e-6


def test_one_tenant_beside_others_is_left_out() -> None:
    """However many messages it has, and in looks in which nobody else had any."""
    recent = PollCollector(60.0)
    late = polled(*[delivery("noisy", age=55)] * 100)
    recent.add(late)
    recent.add(polled(delivery("quiet", age=0.5)))
    for _ in range(READINGS_MERGED):
        assert recent.take().first_attempt_age == pytest.approx(0.5, rel=0.06)
        recent.add(late)
    assert recent.take().first_attempt_age == pytest.approx(55, rel=0.06)  # it is alone by now


def test_two_tenants_that_wait_are_not_one_that_is_noisy() -> None:
    recent = PollCollector(60.0)
    recent.add(polled(*[delivery("one", age=55)] * 9, *[delivery("two", age=50)] * 3))
    assert recent.take().first_attempt_age == pytest.approx(50, rel=0.06)


@pytest.mark.parametrize("after", [delivery("noisy", age=900, spilled=True), delivery("old", age=900)])
def test_what_waits_by_design_does_not_count_and_tells_that_nothing_new_waits(after: Delivery) -> None:
    recent = PollCollector(60.0)
    recent.add(polled(delivery("a", age=1), delivery("b", age=1), *[after] * 50))
    work = recent.take()
    assert work.first_attempt_age == pytest.approx(1, rel=0.06)
    for _ in range(READINGS_MERGED):
        recent.add(polled(after))
        work = recent.take()
    assert (work.first_attempt_age, work.has_reserve) == (None, True)
    assert compute_age(snapshot(lane(1, ready=5, age=900)), work) == 0
    idle = recent.take()
    assert (idle.first_attempt_age, idle.has_reserve) == (None, False)
    assert compute_age(snapshot(lane(1, ready=5, age=900)), idle) == 900


def test_where_nothing_ever_is_old_every_age_counts() -> None:
    recent = PollCollector(60.0)
    recent.fresh_for = 0.0
    recent.add(polled(delivery("a", age=900), delivery("b", age=900)))
    work = recent.take()
    assert work.first_attempt_age == pytest.approx(900, rel=0.06)
    forever = snapshot(lane(1, ready=5, age=2000))
    forever = msgspec.structs.replace(forever, policy=QueuePolicy(fresh_for=0))
    assert compute_age(forever, work) == work.first_attempt_age


def test_messages_that_are_nearly_old_when_their_turn_comes_leave_others_behind() -> None:
    """Their age cannot tell: what is older is not handed out as fresh."""
    waiting = snapshot(lane(1, ready=5, age=300))
    assert compute_age(waiting, WorkSummary(has_seen_polls=True, first_attempt_age=31.0)) == 300
    assert compute_age(waiting, WorkSummary(has_seen_polls=True, first_attempt_age=29.0)) == 29
    assert compute_age(snapshot(), WorkSummary(has_seen_polls=True, first_attempt_age=31.0)) == 31


def test_spilled_messages_count_where_most_tenants_have_some_and_they_become_more() -> None:
    recent = PollCollector(60.0)
    recent.add(polled(*(delivery(name, age=80, spilled=True) for name in "ab"), *(delivery(name) for name in "abc")))
    work = recent.take()
    assert work.spilled_age == pytest.approx(80, rel=0.06)
    waiting = snapshot(lane(1, ready=5), lane(-3, ready=50, age=90))
    assert compute_age(waiting, work, waiting.totals) == work.spilled_age
    more = msgspec.structs.replace(waiting.totals, spilled=60)
    assert compute_age(waiting, work, more) == compute_age(waiting, work) == 0
    assert compute_age(snapshot(lane(1, ready=5)), work, Totals()) == 0  # none waits any more
    recent.add(polled(*(delivery(name) for name in "defg")))
    assert recent.take().spilled_age is None


def test_retries_do_not_count() -> None:
    recent = PollCollector(60.0)
    recent.add(polled(delivery(age=500, attempt=2), delivery(age=500, waited=3)))
    assert recent.take().first_attempt_age is None


def test_a_queue_whose_new_messages_nobody_attempts_is_as_late_as_its_oldest() -> None:
    waiting = snapshot(lane(1, ready=5, age=300), lane(-4, ready=5, age=9000))
    assert build_reading(waiting, WorkSummary(has_seen_polls=True)).values[AlarmKind.FIRST_ATTEMPT_AGE] == 300
    assert build_reading(snapshot(), WorkSummary(has_seen_polls=True)).values[AlarmKind.FIRST_ATTEMPT_AGE] == 0
    attempted = WorkSummary(has_seen_polls=True, polls=3, first_attempt_age=2.0)
    assert build_reading(waiting, attempted).values[AlarmKind.FIRST_ATTEMPT_AGE] == 2


def test_polls_that_are_never_empty_are_told_by_their_number() -> None:
    assert build_reading(snapshot(), WorkSummary(polls=30)).values[AlarmKind.NO_EMPTY_POLLS] == 30
    assert build_reading(snapshot(), WorkSummary(polls=30, empty=1)).values[AlarmKind.NO_EMPTY_POLLS] == 0
    assert AlarmKind.NO_EMPTY_POLLS not in build_reading(snapshot(), WorkSummary()).values


def test_the_tenant_that_causes_nearly_all_of_it_is_named() -> None:
    looked = snapshot(
        lane(1, ready=100, dead=10, age=50),
        tenants=[tenant("noisy", ready=95, dead=2), tenant("broken", ready=5, dead=8)],
    )
    recent = PollCollector(60.0)
    recent.add(polled(*[delivery("late", age=70)] * 19, delivery("also", age=70), *[delivery("fine")] * 100))
    reading = build_reading(looked, recent.take())
    assert reading.tenants == {AlarmKind.OLDEST_AGE: "noisy", AlarmKind.FIRST_ATTEMPT_AGE: "late"}


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [({}, 0, None), ({"a": 0}, 0, None), ({"a": 9, "b": 1}, 10, "a"), ({"a": 8, "b": 2}, 10, None), ({}, 5, None)],
)
def test_nearly_all_is_nine_of_ten(counts: dict[str, int], total: int, expected: str | None) -> None:
    assert find_main_tenant(counts, total) == expected


def test_ten_thousand_tenants_take_no_room() -> None:
    recent = PollCollector(0.001)
    for number in range(10_000):
        recent.add(polled(delivery(f"tenant {number}", age=1.0)))
    assert len(recent._late.counts) <= 20
    assert len(recent._intervals[-1].fresh) <= TENANT_BUCKETS
    assert recent.take().late_tenant is None
