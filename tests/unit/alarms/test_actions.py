"""Actions run, wait or are withheld, evaluation after evaluation, also over a restart."""

import msgspec
import pytest

from holdfast.alarms import AlarmChange, AlarmState, CompositeAlarm, StateValue, SuppressedActions
from holdfast.alarms.actions import ActionControl
from tests.table import every_row

OK, ALARM = StateValue.OK, StateValue.ALARM
DATABASE = CompositeAlarm(alarm_name="database", alarm_rule="FALSE", alarm_actions=("page",))
CACHE = CompositeAlarm(alarm_name="cache", alarm_rule="FALSE")
WAIT, EXTENSION = 60, 120


def build_zone(suppressor: str | None = "database", *, is_enabled: bool = True) -> CompositeAlarm:
    return CompositeAlarm(
        alarm_name="zone",
        alarm_rule="FALSE",
        actions_enabled=is_enabled,
        ok_actions=("event",),
        alarm_actions=("event",),
        actions_suppressor=suppressor,
        actions_suppressor_wait_period=None if suppressor is None else WAIT,
        actions_suppressor_extension_period=None if suppressor is None else EXTENSION,
    )


class Scenario:
    """Alarms whose states change on demand, and their actions."""

    def __init__(self, zone: CompositeAlarm | None = None) -> None:
        self.states = {name: AlarmState(OK) for name in ("zone", "database", "cache")}
        self.saved: dict[str, SuppressedActions] = {}
        self.actions: list[str] = []
        self.changes: list[AlarmChange] = []
        self.start(zone or build_zone())

    def start(self, zone: CompositeAlarm) -> None:
        """Start again with the saved actions, encoded and decoded."""
        self.alarms = {each.alarm_name: each for each in (DATABASE, CACHE, zone)}
        decoded = msgspec.json.decode(msgspec.json.encode(self.saved), type=dict[str, SuppressedActions])
        self.control = ActionControl(decoded)
        self.control.use(self.alarms)

    def evaluate(self, at: float, **states: StateValue) -> None:
        changes = []
        for name, value in states.items():
            old, new = self.states[name], AlarmState(value, "because", None, at)
            self.states[name] = new
            changes.append(AlarmChange(self.alarms[name], old, new))
        self.changes, actions = self.control.update(changes, self.states, at)
        self.saved = dict(self.control.suppressed)
        for each in actions:
            late = "late " if each.was_suppressed else ""
            kind = "ran" if each.suppressed_by is None else f"suppressed by {each.suppressed_by}"
            name = each.alarm.alarm_name
            self.actions.append(f"{at:.0f} {name} {each.old}-{each.state.state_value} {late}{kind}")

    def play(self, text: str) -> list[str]:
        """Play a text such as `0 zone=ALARM, 60 database=ALARM zone=OK, 120 restart, 180`."""
        for part in text.split(", "):
            at, *words = part.split()
            if words == ["restart"]:
                self.start(self.alarms["zone"])
                continue
            self.evaluate(float(at), **{name: StateValue(value) for name, value in (w.split("=") for w in words)})
        return [each for each in self.actions if " zone " in each]


def test_scenarios() -> None:
    def check(row: tuple[str, list[str]]) -> None:
        text, expected = row
        assert Scenario().play(text) == expected
        with_restarts = ", ".join(f"{part}, 0 restart" for part in text.split(", "))
        assert Scenario().play(with_restarts) == expected

    every_row(
        [
            (
                "0 zone=ALARM, 10, 60, 120",
                ["0 zone OK-ALARM suppressed by WaitPeriod", "60 zone OK-ALARM late ran"],
            ),
            # The suppressor comes at the end of the wait period: that is in time.
            ("0 zone=ALARM, 60 database=ALARM, 600", ["0 zone OK-ALARM suppressed by WaitPeriod"]),
            ("0 database=ALARM zone=ALARM, 600", ["0 zone OK-ALARM suppressed by Alarm"]),
            (
                "0 database=ALARM, 60 zone=ALARM, 120 database=OK, 180, 240, 300",
                ["60 zone OK-ALARM suppressed by Alarm", "240 zone OK-ALARM late ran"],
            ),
            (
                "0 database=ALARM, 60 zone=ALARM, 120 zone=OK, 180 database=OK, 300",
                [
                    "60 zone OK-ALARM suppressed by Alarm",
                    "120 zone OK-OK suppressed by Alarm",
                    "300 zone OK-OK late ran",
                ],
            ),
            ("0 database=ALARM, 60 database=OK, 600", []),
            # The wait period ended while no process was running. The next change is about the state after it.
            (
                "0 zone=ALARM, 600 zone=OK, 660",
                [
                    "0 zone OK-ALARM suppressed by WaitPeriod",
                    "600 zone OK-ALARM late ran",
                    "600 zone ALARM-OK suppressed by WaitPeriod",
                    "660 zone ALARM-OK late ran",
                ],
            ),
            # The clock is set back by an hour: the wait period begins again.
            (
                "4000 zone=ALARM, 400, 460",
                ["4000 zone OK-ALARM suppressed by WaitPeriod", "460 zone OK-ALARM late ran"],
            ),
        ],
        check,
    )


def test_alarms_without_a_suppressor_act_at_once_and_those_without_actions_never() -> None:
    scenario = Scenario(build_zone(None))
    scenario.evaluate(0, zone=ALARM, database=ALARM, cache=ALARM)
    assert scenario.actions == ["0 zone OK-ALARM ran", "0 database OK-ALARM ran"]
    assert scenario.saved == {}
    disabled = Scenario(build_zone(is_enabled=False))
    disabled.evaluate(0, zone=ALARM)
    disabled.evaluate(60)
    assert disabled.actions == []


@pytest.mark.parametrize("suppressor", [None, "database"])
def test_a_first_state_of_ok_is_no_news_but_one_of_alarm_is(suppressor: str | None) -> None:
    for first, number in ((OK, 0), (ALARM, 1)):
        scenario = Scenario(build_zone(suppressor))
        scenario.states["zone"] = AlarmState()
        scenario.evaluate(0, zone=first)
        scenario.evaluate(WAIT)
        assert [each.endswith(" ran") for each in scenario.actions].count(True) == number


def test_a_withheld_change_names_the_reason() -> None:
    scenario = Scenario()
    scenario.evaluate(0, cache=ALARM, zone=ALARM)
    assert [(each.alarm.alarm_name, each.suppressed_by) for each in scenario.changes] == [
        ("cache", None),
        ("zone", "WaitPeriod"),
    ]


def test_another_suppressor_after_a_restart_starts_the_wait_period_again_and_none_lets_actions_run() -> None:
    scenario = Scenario()
    scenario.play("0 database=ALARM zone=ALARM, 60")
    scenario.start(build_zone("cache"))
    scenario.evaluate(120)
    scenario.evaluate(180)
    assert scenario.actions[-1] == "180 zone OK-ALARM late ran"
    scenario.evaluate(240, zone=OK)
    assert scenario.actions[-1] == "240 zone ALARM-OK suppressed by WaitPeriod"
    scenario.start(build_zone(None))
    scenario.evaluate(250, zone=ALARM)
    assert scenario.actions[-2:] == ["250 zone ALARM-OK late ran", "250 zone OK-ALARM ran"]
    assert scenario.saved == {}
    scenario.evaluate(260)
    assert scenario.actions[-1] == "250 zone OK-ALARM ran"


def test_actions_of_alarms_that_exist_no_longer_are_forgotten() -> None:
    scenario = Scenario()
    scenario.evaluate(0, zone=ALARM)
    scenario.control.use({"database": DATABASE})
    assert scenario.control.suppressed == {}
