"""Actions of composite alarms, withheld while a suppressor is in ALARM."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.alarms import StateValue
from holdfast.alarms.suppression import (
    SuppressedBy,
    Suppression,
    SuppressionEvent,
    Suppressor,
    SuppressorChanged,
    SuppressorReplaced,
    Tick,
    Transition,
    update_suppression,
)
from tests.table import every_row

OK, ALARM = StateValue.OK, StateValue.ALARM
WAIT, EXTENSION = 120, 180
DEPLOYMENT = Suppressor("deployment", WAIT, EXTENSION)


def run(text: str, suppressor: Suppressor | None = DEPLOYMENT) -> tuple[list[str], Suppression]:
    """Play a scenario such as `0 ALARM, 60 on, 300 off, 700 tick`, and return the actions that ran with their times.

    `on` and `off` are the suppressor entering and leaving ALARM, `new` and `new-on` another suppressor.
    """
    state, is_on = Suppression(), False
    actions = []
    for part in text.split(", "):
        time, word = part.split()
        at = float(time)
        event: SuppressionEvent
        match word:
            case "on" | "off":
                is_on = word == "on"
                event = SuppressorChanged(at, is_on)
            case "new" | "new-on":
                is_on = word == "new-on"
                event = SuppressorReplaced(at, is_on)
            case "tick":
                event = Tick(at)
            case _:
                event = Transition(at, StateValue(word), is_on)
        state, due = update_suppression(suppressor, state, event)
        actions += [f"{each.at:.0f} {each.state}" for each in due]
    return actions, state


def test_scenarios() -> None:
    def check(row: tuple[str, list[str]]) -> None:
        text, expected = row
        assert run(text)[0] == expected

    every_row(
        [
            ("0 ALARM, 119 tick", []),
            ("0 ALARM, 120 tick", ["120 ALARM"]),
            ("0 ALARM, 500 tick", ["120 ALARM"]),  # a late tick acts for the moment when the period ended
            ("0 ALARM, 120 tick, 500 tick", ["120 ALARM"]),
            ("0 ALARM, 60 on, 900 tick", []),  # the suppressor came in time
            ("0 ALARM, 120 on, 900 tick", []),  # also at the end of the wait period
            ("0 ALARM, 130 on, 900 tick", ["120 ALARM"]),  # and here too late
            ("0 on, 10 ALARM, 900 tick", []),
            ("0 on, 10 ALARM, 20 off, 199 tick", []),
            ("0 on, 10 ALARM, 20 off, 200 tick", ["200 ALARM"]),  # after the extension period
            ("0 on, 10 ALARM, 20 OK, 30 off, 210 tick", ["210 OK"]),  # acts on the state of that time
            ("0 on, 20 off, 900 tick", []),  # nothing was pending
            ("0 ALARM, 60 OK, 179 tick", []),  # a transition starts the wait period again
            ("0 ALARM, 60 OK, 180 tick", ["180 OK"]),
            ("0 ALARM, 60 OK, 100 ALARM, 220 tick", ["220 ALARM"]),
            ("0 on, 10 ALARM, 20 off, 100 OK, 219 tick", []),  # a transition drops the extension period
            ("0 on, 10 ALARM, 20 off, 100 OK, 220 tick", ["220 OK"]),
            ("0 on, 10 ALARM, 20 off, 100 on, 900 tick", []),  # the suppressor returned
            ("0 on, 10 ALARM, 20 off, 100 on, 110 off, 290 tick", ["290 ALARM"]),
            ("0 ALARM, 130 OK, 250 tick", ["120 ALARM", "250 OK"]),
            ("0 ALARM, 60 new, 179 tick", []),
            ("0 ALARM, 60 new, 180 tick", ["180 ALARM"]),
            ("0 ALARM, 60 new-on, 900 tick", []),
            ("0 on, 10 ALARM, 60 new, 180 tick", ["180 ALARM"]),
            ("0 on, 60 new, 900 tick", []),
        ],
        check,
    )


def test_the_cause_of_the_suppression_is_known() -> None:
    for text, cause in (
        ("0 ALARM", SuppressedBy.WAIT_PERIOD),
        ("0 ALARM, 60 on", SuppressedBy.ALARM),
        ("0 ALARM, 60 on, 70 off", SuppressedBy.EXTENSION_PERIOD),
        ("0 ALARM, 120 tick", None),
    ):
        assert run(text)[1].suppressed_by is cause


def test_without_a_suppressor_or_with_periods_of_zero_actions_run_at_once() -> None:
    assert run("5 ALARM, 6 OK", None)[0] == ["5 ALARM", "6 OK"]
    at_once = Suppressor("deployment", 0, 0)
    assert run("5 ALARM, 10 on, 11 OK, 20 off", at_once)[0] == ["5 ALARM", "20 OK"]
    # A suppressor that was removed releases the actions that it withheld.
    state, _ = update_suppression(DEPLOYMENT, Suppression(), Transition(0, ALARM, suppressor_is_alarm=True))
    _, due = update_suppression(None, state, SuppressorReplaced(9, is_alarm=True))
    assert [each.at for each in due] == [9]
    _, due = update_suppression(None, state, SuppressorChanged(9, is_alarm=False))
    assert [each.at for each in due] == [9]


def test_negative_periods_are_refused() -> None:
    with pytest.raises(InvalidValue, match="suppressor s: wait_period -1"):
        Suppressor("s", -1, 60)
    with pytest.raises(InvalidValue, match="suppressor s: extension_period -1"):
        Suppressor("s", 60, -1)


@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["ALARM", "OK", "on", "off", "tick"])), max_size=20))
@settings(max_examples=300)
def test_no_action_runs_while_the_suppressor_is_in_alarm_and_none_twice(steps: list[tuple[int, str]]) -> None:
    state, is_on, now, on_since = Suppression(), False, 0.0, None
    transitions = actions = 0
    for seconds, word in steps:
        now += seconds
        event: SuppressionEvent = Tick(now)
        if word in ("on", "off") and is_on is not (word == "on"):
            is_on = word == "on"
            event = SuppressorChanged(now, is_on)
        elif word in ("OK", "ALARM"):
            transitions += 1
            event = Transition(now, StateValue(word), is_on)
        state, due = update_suppression(DEPLOYMENT, state, event)
        actions += len(due)
        assert actions <= transitions
        for each in due:
            assert on_since is None or each.at <= on_since
        on_since = (now if on_since is None else on_since) if is_on else None
    # Once the suppressor is quiet for long enough, nothing stays pending.
    if is_on:
        state, _ = update_suppression(DEPLOYMENT, state, SuppressorChanged(now, is_alarm=False))
    was_pending = state.is_pending
    state, due = update_suppression(DEPLOYMENT, state, Tick(now + WAIT + EXTENSION))
    assert len(due) == was_pending
    assert state == Suppression(state.state)
