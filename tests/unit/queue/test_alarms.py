from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.queue.alarms import AlarmKind, AlarmRules, AlarmState, QueueAlarm, QueueReading, update_alarms


def looks(rules: AlarmRules, *values: float | None, kind: AlarmKind = AlarmKind.DEAD_LETTERS) -> list[tuple[int, bool]]:
    """After which look the alarm opened or closed."""
    state, told = AlarmState(), []
    for number, value in enumerate(values, 1):
        known = {} if value is None else {kind: value}
        state, changed = update_alarms(rules, state, QueueReading(queue="mail", at=float(number), values=known))
        told += [(number, alarm.is_open) for alarm in changed]
    return told


def test_dead_letters_and_the_age_of_first_attempts_are_watched_by_default() -> None:
    rules = AlarmRules()
    assert {what for what in AlarmKind if rules.threshold(what) is not None} == {
        AlarmKind.DEAD_LETTERS,
        AlarmKind.FIRST_ATTEMPT_AGE,
    }


def test_an_alarm_opens_after_some_looks_and_closes_after_some() -> None:
    rules = AlarmRules(open_after=3, close_after=2)
    assert looks(rules, 1, 1, 1, 5, 5, 0, 0, 0) == [(3, True), (7, False)]


def test_the_threshold_itself_is_too_much() -> None:
    assert looks(AlarmRules(dead_letters=5, open_after=1), 4, 5) == [(2, True)]


def test_a_queue_on_the_edge_is_one_incident() -> None:
    rules = AlarmRules(open_after=2, close_after=3)
    assert looks(rules, 1, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0) == [(6, True), (15, False)]


def test_what_is_not_known_neither_opens_nor_closes() -> None:
    rules = AlarmRules(open_after=2, close_after=2)
    assert looks(rules, None, 1, None, None, 1, None, 0, None, 0) == [(5, True), (9, False)]


def test_a_rule_that_is_off_says_nothing() -> None:
    assert looks(AlarmRules(dead_letters=None, open_after=1), 100, 100) == []
    assert looks(AlarmRules(open_after=1), 1e9, kind=AlarmKind.OLDEST_AGE) == []


def test_alarms_do_not_wait_for_each_other() -> None:
    rules = AlarmRules(oldest_age=10, no_empty_polls=5, open_after=1, close_after=1)
    state, opened = update_alarms(
        rules, AlarmState(), QueueReading(queue="mail", at=1.0, values=dict.fromkeys(AlarmKind, 1000.0))
    )
    assert {alarm.kind for alarm in opened} == state.open_alarms == set(AlarmKind)
    state, closed = update_alarms(rules, state, QueueReading(queue="mail", at=2.0, values={AlarmKind.OLDEST_AGE: 3.0}))
    assert [(alarm.kind, alarm.is_open) for alarm in closed] == [(AlarmKind.OLDEST_AGE, False)]
    assert state.open_alarms == set(AlarmKind) - {AlarmKind.OLDEST_AGE}


def test_an_alarm_says_what_is_wrong_since_when_and_whose_it_is() -> None:
    rules = AlarmRules(open_after=1, close_after=1)
    reading = QueueReading(
        queue="mail", at=5.0, values={AlarmKind.DEAD_LETTERS: 7}, tenants={AlarmKind.DEAD_LETTERS: "acme"}
    )
    state, [opened] = update_alarms(rules, AlarmState(), reading)
    assert opened == QueueAlarm(
        queue="mail",
        kind=AlarmKind.DEAD_LETTERS,
        is_open=True,
        at=5.0,
        value=7,
        threshold=1,
        since=5.0,
        tenant="acme",
    )
    assert opened.summary == (
        "queue mail: dead letters: 7 (alarm from 1 on): list them, fix the cause, and redrive them, "
        "nearly all of it of tenant acme"
    )
    _, [closed] = update_alarms(rules, state, QueueReading(queue="mail", at=65.0, values={AlarmKind.DEAD_LETTERS: 0}))
    assert (closed.is_open, closed.since, closed.at, closed.tenant) == (False, 5.0, 65.0, None)
    assert closed.summary.endswith(": resolved after 60 s")


@pytest.mark.parametrize("kind", AlarmKind)
def test_every_alarm_can_be_said_in_one_line(kind: AlarmKind) -> None:
    alarm = QueueAlarm(queue="mail", kind=kind, is_open=True, at=1.0, value=61.26, threshold=60.0, since=1.0)
    assert alarm.summary.startswith("queue mail: ")
    assert "60" in alarm.summary
    assert "61" in alarm.summary
    assert "\n" not in alarm.summary


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 2))),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_an_alarm_follows_what_it_saw_long_enough_and_nothing_else(
    values: list[int | None], open_after: int, close_after: int
) -> None:
    rules = AlarmRules(open_after=open_after, close_after=close_after)
    told = looks(rules, *values)
    assert [is_open for _, is_open in told] == [place % 2 == 0 for place in range(len(told))]
    ends = [0, *(number for number, _ in told), len(values)]
    for place, (number, is_open) in enumerate(told):
        # Exactly the last so many that are known, all since the change before, said the same.
        known = [value for value in values[ends[place] : number] if value is not None]
        needed = open_after if is_open else close_after
        assert len(known) >= needed
        assert all((value >= 1) == is_open for value in known[-needed:])
    for place, (start, end) in enumerate(pairwise(ends)):
        # And between changes, never so many in a row said the opposite.
        is_open, streak = place % 2 == 1, 0
        for value in [value for value in values[start : end - (place < len(told))] if value is not None]:
            streak = 0 if (value >= 1) == is_open else streak + 1
            assert streak < (close_after if is_open else open_after)


@given(st.lists(st.integers(0, 2)), st.integers(1, 4), st.integers(1, 4))
def test_a_higher_threshold_never_rings_more_often(values: list[int], open_after: int, close_after: int) -> None:
    low = looks(AlarmRules(dead_letters=1, open_after=open_after, close_after=close_after), *values, *[0] * close_after)
    high = looks(AlarmRules(dead_letters=3, open_after=open_after, close_after=close_after), *values)
    assert len(low) % 2 == 0
    assert high == []


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"dead_letters": 0}, "dead_letters 0: expected more than 0"),
        ({"first_attempt_age": -1.0}, "first_attempt_age -1.0"),
        ({"oldest_age": float("nan")}, "oldest_age nan"),
        ({"no_empty_polls": 0}, "no_empty_polls 0"),
        ({"open_after": 0}, "open_after 0: expected 1 or more readings"),
        ({"close_after": -2}, "close_after -2"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        AlarmRules(**rules)
