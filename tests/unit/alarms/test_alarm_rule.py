"""AlarmRule: its grammar, its limits, and which part of a rule decided."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.alarms import StateValue
from holdfast.alarms.alarm_rule import (
    And,
    AtLeast,
    Constant,
    Not,
    Or,
    Rule,
    RuleResult,
    StateIs,
    evaluate_rule,
    explain_rule,
    find_children,
    format_alarm_rule,
    parse_alarm_rule,
)
from tests.table import every_row

OK, ALARM, INSUFFICIENT = StateValue.OK, StateValue.ALARM, StateValue.INSUFFICIENT_DATA
A, B, C = StateIs(ALARM, "a"), StateIs(ALARM, "b"), StateIs(OK, "c")
ARN = "arn:aws:cloudwatch:us-east-1:123456789012:alarm:use1-az1-latency"


def test_rules_are_read() -> None:
    def check(row: tuple[str, Rule]) -> None:
        text, expected = row
        assert parse_alarm_rule(text) == expected

    rows: list[tuple[str, Rule]] = [
        (
            "ALARM(CPUUtilizationTooHigh) AND NOT ALARM(DeploymentInProgress)",
            And((_is("CPUUtilizationTooHigh"), Not(_is("DeploymentInProgress")))),
        ),
        ("(ALARM(a) OR ALARM(b)) AND OK(c)", And((Or((A, B)), C))),
        ("ALARM(a) OR ALARM(b) AND OK(c)", Or((A, And((B, C))))),
        ("ALARM(a) AND ALARM(b) AND OK(c)", And((A, B, C))),
        ("(ALARM(a) AND ALARM(b)) AND OK(c)", And((And((A, B)), C))),
        ("NOT NOT ALARM(a) AND TRUE", And((Not(Not(A)), Constant(True)))),
        ("FALSE", Constant(False)),
        ('\n ALARM ( "a" )\tOR\nALARM("b") ', Or((A, B))),
        ("INSUFFICIENT_DATA(a)", StateIs(INSUFFICIENT, "a")),
        (f"ALARM({ARN})", StateIs(ALARM, ARN)),
        (r'ALARM("a \"b\" (c), d\\ e\f")', StateIs(ALARM, r'a "b" (c), d\ e' + r"\f")),
        ("ALARM(AND)", StateIs(ALARM, "AND")),
        ("AT_LEAST(2, ALARM, (a, b, c))", AtLeast(2, False, ALARM, False, ("a", "b", "c"))),
        ('AT_LEAST(60%, NOT OK, ("a b", c))', AtLeast(60, True, OK, True, ("a b", "c"))),
    ]
    every_row(rows, check)


def _is(name: str) -> Rule:
    return StateIs(ALARM, name)


def test_errors_point_at_the_position() -> None:
    def check(row: tuple[str, int, str]) -> None:
        text, position, message = row
        with pytest.raises(InvalidValue) as raised:
            parse_alarm_rule(text)
        first = str(raised.value).split("\n")[0]
        assert first.endswith(f", at character {position}"), first
        assert message in first, first

    every_row(
        [
            ("", 1, "found the end"),
            ("ALARM(a) AND", 13, "found the end"),
            ("ALARM(a) ALARM(b)", 10, "expected AND, OR or the end, found 'ALARM'"),
            ("ALARM(a))", 9, "expected AND, OR or the end"),
            ("(ALARM(a)", 10, "expected ')' after the expression, found the end"),
            ("ALARM a", 7, "expected '(' after ALARM"),
            ("ALARM(a b)", 9, "expected ')' after the alarm, found 'b'"),
            ("ALARM()", 7, "expected the name or ARN"),
            ('ALARM("")', 7, "found an empty one"),
            ("ALARM(arn:aws:sns:x)", 7, "found an empty one"),
            ('ALARM("a)', 7, "no closing quote"),
            ("alarm(a)", 1, "expected ALARM in capital letters"),
            ("ALARM(a) and ALARM(b)", 10, "expected AND, OR or the end, found 'and'"),
            ("AND ALARM(a)", 1, "expected ALARM(...)"),
            ("HIGH(a)", 1, "found 'HIGH'"),
            ('"TRUE"', 1, "expected ALARM(...)"),
            ("AT_LEAST(x, ALARM, (a))", 10, "expected a number such as 2"),
            ("AT_LEAST(\u0663, ALARM, (a, b, c))", 10, "expected a number such as 2"),
            ("AT_LEAST(0, ALARM, (a))", 10, "AT_LEAST 0: expected 1 to 1"),
            ("AT_LEAST(3, ALARM, (a, b))", 10, "AT_LEAST 3: expected 1 to 2"),
            ("AT_LEAST(101%, ALARM, (a, b))", 10, "AT_LEAST 101%: expected 1% to 100%"),
            ("AT_LEAST(1, BAD, (a))", 13, "expected ALARM, OK or INSUFFICIENT_DATA"),
            ("AT_LEAST(1, ALARM, a)", 20, "expected '(' before the alarms"),
            ("AT_LEAST(1, ALARM, (a)", 23, "expected ')' at the end of AT_LEAST"),
            ("AT_LEAST(1, ALARM, (a b))", 23, "expected ')' after the alarms"),
            ("(" * 101 + "TRUE" + ")" * 101, 101, "nested more than 100 deep"),
            ("NOT " * 101 + "TRUE", 401, "nested more than 100 deep"),
        ],
        check,
    )


def test_limits_of_characters_children_and_elements() -> None:
    fits = " OR ".join(f"ALARM(a{number})" for number in range(100))
    assert len(find_children(parse_alarm_rule(fits))) == 100
    with pytest.raises(InvalidValue, match="more than 100 different alarms"):
        parse_alarm_rule(fits + " OR ALARM(more)")
    same = ARN.replace("use1-az1-latency", "a7")
    assert len(find_children(parse_alarm_rule(f"{fits} OR ALARM({same})"))) == 100
    parse_alarm_rule(" OR ".join(["TRUE"] * 500))
    with pytest.raises(InvalidValue, match="more than 500 elements"):
        parse_alarm_rule(" OR ".join(["TRUE"] * 501))
    parse_alarm_rule(" OR ".join(["(TRUE)"] * 166))
    with pytest.raises(InvalidValue, match="more than 500 elements"):
        parse_alarm_rule(" OR ".join(["(TRUE)"] * 167))
    assert parse_alarm_rule("TRUE" + " " * 10_236) == Constant(True)
    with pytest.raises(InvalidValue, match="10241 characters: expected at most 10240"):
        parse_alarm_rule("TRUE" + " " * 10_237)


def test_children_are_found_once_by_name() -> None:
    rule = parse_alarm_rule(f"ALARM(b) OR NOT OK(a) AND AT_LEAST(1, OK, (c, b)) OR ALARM({ARN}) OR TRUE")
    assert find_children(rule) == ("b", "a", "c", "use1-az1-latency")


NAMES = st.sampled_from(["a", "b", "c d", 'e"f', "g\\", "h(i),"])
STATES = st.sampled_from(list(StateValue))


@st.composite
def at_least(draw: Any) -> AtLeast:
    names = tuple(draw(st.lists(NAMES, min_size=1, max_size=5)))
    is_percentage = draw(st.booleans())
    threshold = draw(st.integers(1, 100 if is_percentage else len(names)))
    return AtLeast(threshold, is_percentage, draw(STATES), draw(st.booleans()), names)


LEAVES = st.builds(Constant, st.booleans()) | st.builds(StateIs, STATES, NAMES) | at_least()
RULES: st.SearchStrategy[Rule] = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, min_size=2, max_size=4).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=4).map(tuple))
    ),
    max_leaves=12,
)
ALL_STATES = st.fixed_dictionaries(dict.fromkeys(["a", "b", "c d", 'e"f', "g\\", "h(i),"], STATES))


@given(RULES)
@settings(max_examples=300)
def test_a_rule_written_and_read_again_is_the_same(rule: Rule) -> None:
    assert parse_alarm_rule(format_alarm_rule(rule)) == rule


WORDS = [
    "ALARM",
    "OK",
    "INSUFFICIENT_DATA",
    "AT_LEAST",
    "AND",
    "OR",
    "NOT",
    "TRUE",
    "FALSE",
    "(",
    ")",
    ",",
    "a",
    '"',
    "%",
]


@given(
    st.lists(st.sampled_from([*WORDS, "2", " ", "\\", "\n", "alarm", "\x00", "\u0663", "\u00e9"]), max_size=40).map(
        "".join
    )
)
@settings(max_examples=500)
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    try:
        rule = parse_alarm_rule(text)
    except InvalidValue:
        return
    assert parse_alarm_rule(format_alarm_rule(rule)) == rule


@pytest.mark.parametrize(
    "text",
    ['"' * 10_000, "\\" * 10_000, '"' + "\\" * 10_000, "(" * 10_000, "NOT " * 2_500, "ALARM(" * 1_700, "a," * 5_000],
)
def test_long_texts_of_nonsense_are_refused_in_linear_time(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_alarm_rule(text)


def read_slowly(rule: Rule, states: dict[str, StateValue]) -> bool:
    match rule:
        case Constant(value):
            return value
        case StateIs(state, alarm):
            return states[alarm] == state
        case AtLeast():
            found = sum(1 for each in rule.alarms if (states[each] == rule.state) != rule.is_negated)
            share = 100 * found / len(rule.alarms)
            return share >= rule.threshold if rule.is_percentage else found >= rule.threshold
        case Not(operand):
            return not read_slowly(operand, states)
        case And(operands):
            return False not in [read_slowly(each, states) for each in operands]
        case Or(operands):
            return True in [read_slowly(each, states) for each in operands]


@given(RULES, ALL_STATES)
@settings(max_examples=300)
def test_both_evaluators_agree_with_a_slow_reading(rule: Rule, states: dict[str, StateValue]) -> None:
    expected = read_slowly(rule, states)
    assert evaluate_rule(rule, states) is expected
    assert explain_rule(rule, states).value is expected


@given(RULES, ALL_STATES)
def test_the_deciding_alarms_alone_keep_the_value_of_the_rule(rule: Rule, states: dict[str, StateValue]) -> None:
    """Whatever the other alarms do, the rule keeps its value."""
    result = explain_rule(rule, states)
    decided = dict(result.find_deciding_alarms())
    others = [name for name in find_children(rule) if name not in decided][:4]
    for changed in product(StateValue, repeat=len(others)):
        assert evaluate_rule(rule, states | dict(zip(others, changed, strict=True))) is result.value


def test_an_explanation_names_the_parts_that_decided() -> None:
    rule = parse_alarm_rule("ALARM(az1) AND NOT ALARM(az2) AND AT_LEAST(2, OK, (x, y, z))")
    result = explain_rule(rule, {"az1": ALARM, "az2": INSUFFICIENT, "x": OK, "y": ALARM, "z": OK})
    assert result.value
    assert result.find_deciding_alarms() == (("az1", ALARM), ("az2", INSUFFICIENT), ("x", OK), ("z", OK))
    refused = explain_rule(rule, {"az1": ALARM, "az2": INSUFFICIENT, "x": OK, "y": ALARM, "z": ALARM})
    assert not refused.value
    [part] = refused.deciding
    assert part == RuleResult(rule.operands[2], False, (("y", ALARM), ("z", ALARM)))  # type: ignore[union-attr]


def test_references_by_arn_are_looked_up_by_name_and_unknown_ones_are_refused() -> None:
    assert evaluate_rule(StateIs(ALARM, ARN), {"use1-az1-latency": ALARM})
    with pytest.raises(InvalidValue, match="the state of alarm 'a' is not known"):
        evaluate_rule(A, {})


def test_a_child_without_data_is_neither_ok_nor_in_alarm() -> None:
    states = {"az1": ALARM, "az2": INSUFFICIENT}
    assert not evaluate_rule(parse_alarm_rule("ALARM(az1) AND OK(az2)"), states)
    assert evaluate_rule(parse_alarm_rule("ALARM(az1) AND NOT ALARM(az2)"), states)
