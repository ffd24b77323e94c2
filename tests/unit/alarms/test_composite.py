"""Composite alarms and the graph that they form."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.alarms import AlarmGraph, AlarmState, CompositeAlarm, StateValue
from holdfast.alarms.alarm_rule import evaluate_rule
from holdfast.alarms.suppression import Suppressor
from tests.table import every_row

OK, ALARM, INSUFFICIENT = StateValue.OK, StateValue.ALARM, StateValue.INSUFFICIENT_DATA
NOON = 1_698_321_600.0


def composite(name: str, rule: str, **more: Any) -> CompositeAlarm:
    return CompositeAlarm(alarm_name=name, alarm_rule=rule, **more)


def known(**values: StateValue) -> dict[str, AlarmState]:
    return {name: AlarmState(value, "because", None, NOON) for name, value in values.items()}


TREE = AlarmGraph(
    ["m1", "m2", "m3"],
    [
        composite("impact", "ALARM(zone) AND NOT OK(m3)"),  # before the alarm that it depends on
        composite("zone", "ALARM(m1) OR ALARM(m2)"),
        composite("other", "OK(m3)"),
    ],
)


def test_alarms_are_evaluated_after_those_that_they_depend_on() -> None:
    assert TREE.order.index("zone") < TREE.order.index("impact")
    assert TREE.get_parents("m3") == ("impact", "other")
    assert TREE.get_parents("impact") == ()
    changes = TREE.evaluate(known(m1=ALARM, m2=OK, m3=ALARM, zone=OK, impact=OK, other=OK), ["m1"], NOON + 1)
    assert [(each.alarm.alarm_name, each.old.state_value, each.new.state_value) for each in changes] == [
        ("zone", OK, ALARM),
        ("impact", OK, ALARM),
    ]


def test_new_alarms_are_evaluated_once_and_then_only_when_a_child_changes() -> None:
    states = known(m1=OK, m2=INSUFFICIENT)
    changes = TREE.evaluate(states, [], NOON)
    assert {each.alarm.alarm_name for each in changes} == {"zone", "impact", "other"}
    assert {each.new.state_value for each in changes} == {OK}
    states |= {each.alarm.alarm_name: each.new for each in changes}
    assert TREE.evaluate(states, [], NOON) == []


def test_only_alarms_whose_inputs_changed_are_evaluated() -> None:
    """`other` has a wrong state, which nobody looks at before m3 changes."""
    states = known(m1=OK, m2=OK, m3=ALARM, zone=ALARM, impact=ALARM, other=OK)
    states["other"] = AlarmState(ALARM)
    assert [each.alarm.alarm_name for each in TREE.evaluate(states, ["m1"], NOON)] == ["zone", "impact"]
    assert [each.alarm.alarm_name for each in TREE.evaluate(states, ["m3"], NOON)] == ["other"]


def test_the_reason_names_the_child_that_changed_and_decided() -> None:
    states = known(m1=ALARM, m2=OK, m3=OK, zone=OK, impact=OK, other=ALARM)
    [change] = TREE.evaluate(states, ["m2", "m1"], NOON + 1)
    assert change.new.state_reason == "m1 transitioned to ALARM at Thursday 26 October, 2023 12:00:00 UTC"
    assert change.new.state_updated_timestamp == NOON + 1
    assert json.loads(change.new.state_reason_data or "") == {
        "triggeringAlarms": [{"arn": "m1", "state": {"value": "ALARM", "timestamp": "2023-10-26T12:00:00.000+0000"}}]
    }


def test_if_no_changed_child_decided_all_changed_ones_are_named() -> None:
    """The state was wrong before: m1 did not change the rule, but its change led to the evaluation."""
    graph = AlarmGraph(["a", "b"], [composite("c", "ALARM(a) OR ALARM(b)")])
    [change] = graph.evaluate(known(a=OK, b=ALARM, c=OK), ["a"], NOON)
    assert "a transitioned to OK" in change.new.state_reason


def test_the_reason_of_a_new_rule_names_all_children() -> None:
    graph = AlarmGraph(["a", "b"], [composite("c", "ALARM(a) OR ALARM(b)")])
    [created] = graph.evaluate(known(a=ALARM), [], NOON)
    assert created.new.state_reason == "c was created and its alarm rule evaluates to ALARM"
    assert [each["arn"] for each in json.loads(created.new.state_reason_data or "")["triggeringAlarms"]] == ["a", "b"]
    [updated] = graph.evaluate(known(a=ALARM, b=OK, c=OK), [], NOON, ["c"])
    assert updated.new.state_reason == "c was updated and its new alarm rule evaluates to ALARM"


def test_wrong_graphs_are_refused() -> None:
    def check(row: tuple[list[CompositeAlarm], str]) -> None:
        alarms, message = row
        with pytest.raises(InvalidValue, match=message):
            AlarmGraph(["m1", "m2"], alarms)

    suppressed: dict[str, Any] = {"actions_suppressor_wait_period": 60, "actions_suppressor_extension_period": 60}
    every_row(
        [
            ([composite("a", "ALARM(m1) OR ALARM(m9)")], "alarm a: there is no alarm m9: check the names"),
            ([composite("m1", "TRUE"), composite("a", "TRUE"), composite("a", "TRUE")], "several named a, m1"),
            ([composite("a", "ALARM(a)")], "a -> a depend on each other"),
            (
                [
                    composite("x", "OK(b)"),
                    composite("a", "OK(m1) OR OK(c)"),
                    composite("b", "OK(a)"),
                    composite("c", "OK(b)"),
                ],
                "b -> a -> c -> b depend on each other in a cycle",
            ),
            (
                [composite("a", "TRUE", actions_suppressor="m9", **suppressed)],
                "actions_suppressor m9: expected the name",
            ),
            ([composite("a", "TRUE", actions_suppressor="a", **suppressed)], "actions_suppressor a: expected the name"),
            ([composite(f"a{number}", "OK(m1)") for number in range(151)], "alarm m1: 151 composite alarms use it"),
        ],
        check,
        lambda row: row[1],
    )


def test_a_suppressor_comes_with_both_periods() -> None:
    arn = "arn:aws:cloudwatch:us-east-1:123456789012:alarm:m2"
    given: dict[str, Any] = {
        "actions_suppressor": arn,
        "actions_suppressor_wait_period": 60,
        "actions_suppressor_extension_period": 90,
    }
    assert composite("a", "ALARM(m1)", **given).suppressor == Suppressor("m2", 60, 90)
    assert composite("a", "ALARM(m1)").suppressor is None
    AlarmGraph(["m1", "m2"], [composite("a", "ALARM(m1)", **given)])
    for name in given:
        with pytest.raises(InvalidValue, match=r"alarm a: expected actions_suppressor, .* together, or none"):
            composite("a", "ALARM(m1)", **{other: value for other, value in given.items() if other != name})


def test_an_error_in_a_rule_names_the_alarm_and_points_at_the_position() -> None:
    with pytest.raises(InvalidValue, match="alarm a: expected AND, OR or the end, found 'b', at character 10"):
        composite("a", "ALARM(a) b")


@st.composite
def graphs(draw: Any) -> list[CompositeAlarm]:
    """Composite alarms in a random order, each of which uses metric alarms and those made before it."""
    names, found = ["m0", "m1", "m2"], []
    for number in range(draw(st.integers(1, 8))):
        children = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        states = [draw(st.sampled_from(["ALARM", "OK", "NOT ALARM"])) for _ in children]
        sign = draw(st.sampled_from([" AND ", " OR "]))
        rule = sign.join(f"{state}({child})" for state, child in zip(states, children, strict=True))
        found.append(composite(f"c{number}", rule))
        names.append(f"c{number}")
    shuffled: list[CompositeAlarm] = draw(st.permutations(found))
    return shuffled


STATES = st.fixed_dictionaries(dict.fromkeys(["m0", "m1", "m2"], st.sampled_from(list(StateValue))))


@given(graphs(), st.lists(STATES, min_size=1, max_size=4))
@settings(max_examples=200)
def test_evaluating_only_what_changed_gives_the_same_as_evaluating_everything(
    alarms: list[CompositeAlarm], history: list[dict[str, StateValue]]
) -> None:
    graph = AlarmGraph(["m0", "m1", "m2"], alarms)
    states: dict[str, AlarmState] = {}
    for values in history:
        changed = [
            name for name, value in values.items() if name not in states or states[name].state_value is not value
        ]
        states |= known(**values)
        changes = graph.evaluate(states, changed, NOON)
        assert len({each.alarm.alarm_name for each in changes}) == len(changes)
        states |= {each.alarm.alarm_name: each.new for each in changes}
        everything = dict(values)
        for _ in alarms:  # as often as the longest chain is long
            for each in alarms:
                if all(child in everything for child in each.children):
                    everything[each.alarm_name] = ALARM if evaluate_rule(each.rule, everything) else OK
        assert {name: state.state_value for name, state in states.items()} == everything
