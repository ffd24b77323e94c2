import pytest

from holdfast.queue.alarms import What
from holdfast.queue.metrics.reading import Recent, Work, most_of, reading_of
from tests.unit.queue.metrics.made import delivery, lane, polled, snapshot, tenant


def test_nothing_is_known_of_workers_that_were_never_heard_of() -> None:
    reading = reading_of(snapshot(lane(1, ready=3, age=500)), Recent(60.0).take())
    assert reading.values == {What.DEAD_LETTERS: 0, What.OLDEST_AGE: 500}


def test_polls_and_first_attempts_are_those_since_the_last_look() -> None:
    recent = Recent(60.0)
    recent.add(polled())
    recent.add(polled(*(delivery(age=age) for age in range(10))))
    work = recent.take()
    assert (work.polls, work.empty, work.was_heard) == (2, 1, True)
    assert work.first_attempt_age == pytest.approx(8, rel=0.06)
    assert recent.take() == Work(was_heard=True)


def test_one_that_was_stuck_is_no_trouble_and_a_tenth_of_them_is() -> None:
    recent = Recent(60.0)
    recent.add(polled(*[delivery(age=0.1)] * 99, delivery(age=500)))
    age = recent.take().first_attempt_age
    assert age is not None
    assert age < 1
    recent.add(polled(*[delivery(age=0.1)] * 89, *[delivery(age=500)] * 11))
    assert recent.take().first_attempt_age == pytest.approx(500, rel=0.06)


def test_the_age_that_is_told_is_never_beyond_the_oldest() -> None:
    recent = Recent(60.0)
    recent.add(polled(delivery(age=59.9)))
    age = recent.take().first_attempt_age
    assert age is not None
    assert age <= 59.9 + 1e-6


def test_retries_do_not_count() -> None:
    recent = Recent(60.0)
    recent.add(polled(delivery(age=500, attempt=2), delivery(age=500, waited=3)))
    assert recent.take().first_attempt_age is None


def test_a_queue_whose_new_messages_nobody_attempts_is_as_late_as_its_oldest() -> None:
    waiting = snapshot(lane(1, ready=5, age=300), lane(-4, ready=5, age=9000))
    assert reading_of(waiting, Work(was_heard=True)).values[What.FIRST_ATTEMPT_AGE] == 300
    assert reading_of(snapshot(), Work(was_heard=True)).values[What.FIRST_ATTEMPT_AGE] == 0
    attempted = Work(was_heard=True, polls=3, first_attempt_age=2.0)
    assert reading_of(waiting, attempted).values[What.FIRST_ATTEMPT_AGE] == 2


def test_polls_that_are_never_empty_are_told_by_their_number() -> None:
    assert reading_of(snapshot(), Work(polls=30)).values[What.NO_EMPTY_POLLS] == 30
    assert reading_of(snapshot(), Work(polls=30, empty=1)).values[What.NO_EMPTY_POLLS] == 0
    assert What.NO_EMPTY_POLLS not in reading_of(snapshot(), Work()).values


def test_the_tenant_that_causes_nearly_all_of_it_is_named() -> None:
    looked = snapshot(
        lane(1, ready=100, dead=10, age=50),
        tenants=[tenant("noisy", ready=95, dead=2), tenant("broken", ready=5, dead=8)],
    )
    recent = Recent(60.0)
    recent.add(polled(*[delivery("late", age=70)] * 19, delivery("also", age=70), *[delivery("fine")] * 100))
    reading = reading_of(looked, recent.take())
    assert reading.tenants == {What.OLDEST_AGE: "noisy", What.FIRST_ATTEMPT_AGE: "late"}


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [({}, 0, None), ({"a": 0}, 0, None), ({"a": 9, "b": 1}, 10, "a"), ({"a": 8, "b": 2}, 10, None), ({}, 5, None)],
)
def test_nearly_all_is_nine_of_ten(counts: dict[str, int], total: int, expected: str | None) -> None:
    assert most_of(counts, total) == expected


def test_ten_thousand_tenants_take_no_room() -> None:
    recent = Recent(0.001)
    for number in range(10_000):
        recent.add(polled(delivery(f"tenant {number}", age=1.0)))
    assert len(recent._late.counts) <= 20
    assert recent.take().late_tenant is None
