"""Metric math: its grammar, and what alarms must not use."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.alarms.metric_math import (
    Aggregate,
    Binary,
    Fill,
    Id,
    If,
    InsightRuleMetric,
    Negative,
    Node,
    Number,
    find_inputs,
    format_expression,
    parse_expression,
)
from tests.table import every_row

A, B = Id("m1"), Id("m2")


def test_expressions_are_read() -> None:
    def check(row: tuple[str, Node]) -> None:
        text, expected = row
        assert parse_expression(text) == expected

    rows: list[tuple[str, Node]] = [
        ("m1", A),
        ("m1/(m1+m2)*100", Binary("*", Binary("/", A, Binary("+", A, B)), Number(100))),
        ("m1 - m2 - 1", Binary("-", Binary("-", A, B), Number(1))),
        ("m1 + m2 * .5e1", Binary("+", A, Binary("*", B, Number(5)))),
        ("-m1 ^ 2", Negative(Binary("^", A, Number(2)))),
        ("2 ^ -m1 ^ 2", Binary("^", Number(2), Negative(Binary("^", A, Number(2))))),
        ("-2 * m1", Binary("*", Negative(Number(2)), A)),
        (
            "m1 > 2 AND m2 <= 3 OR m1 == 0",
            Binary(
                "OR", Binary("AND", Binary(">", A, Number(2)), Binary("<=", B, Number(3))), Binary("==", A, Number(0))
            ),
        ),
        ("m1 && m2 || m1 != m2", Binary("OR", Binary("AND", A, B), Binary("!=", A, B))),
        ("IF(m1 < 1, 0, m2)", If(Binary("<", A, Number(1)), Number(0), B)),
        ("FILL(m1, 0)", Fill(A, Number(0))),
        ("FILL(m1, REPEAT)", Fill(A, None)),
        ("SUM([m1, m2 * 2])", Aggregate("SUM", (A, Binary("*", B, Number(2))))),
        ("MAX(METRICS()) >= 1", Binary(">=", Aggregate("MAX", None), Number(1))),
        (
            'INSIGHT_RULE_METRIC("5xx-errors-use1-az1", "UniqueContributors")',
            InsightRuleMetric("5xx-errors-use1-az1", "UniqueContributors"),
        ),
        ("INSIGHT_RULE_METRIC('a\"b', 'Sum') / m1", Binary("/", InsightRuleMetric('a"b', "Sum"), A)),
    ]
    every_row(rows, check)


def test_errors_point_at_the_position() -> None:
    def check(row: tuple[str, int, str]) -> None:
        text, position, message = row
        with pytest.raises(InvalidValue) as raised:
            parse_expression(text)
        first = str(raised.value).split("\n")[0]
        assert first.endswith(f", at character {position}"), first
        assert message in first, first

    every_row(
        [
            ("", 1, "found the end"),
            ("m1 +", 5, "found the end"),
            ("m1 m2", 4, "expected an operator or the end, found 'm2'"),
            ("2xx / m1", 2, "found 'xx'"),
            ("m1 = 2", 4, "unexpected character"),
            ("(m1", 4, "expected ')' after the expression"),
            ("* m1", 1, "expected a number"),
            ("1 + 1", 1, "found one number"),
            ("IF(1, 2, -3)", 1, "found one number"),
            ("1e999 * m1", 1, "too large"),
            ("sum([m1])", 1, "capital letters"),
            ("SUM(m1)", 5, "over the whole evaluation range"),
            ("AVG(1)", 5, "over the whole evaluation range"),
            ("MIN([])", 6, "expected a number, an id"),
            ("MIN([m1, 1])", 10, "expected a series, found one number"),
            ("MIN([m1)", 8, "expected ']' after the series"),
            ("SUM(METRICS('x'))", 13, "expected ')' after METRICS("),
            ("m1 + TIME_SERIES(0)", 6, "TIME_SERIES turns minutes without data"),
            ("SEARCH('x', 'Sum', 60)", 1, "SEARCH is not allowed"),
            ("STDDEV(m1)", 1, "unknown function STDDEV: expected one of IF, FILL, SUM"),
            ("METRICS()", 1, "unknown function METRICS"),
            ("FILL(m1, LINEAR)", 10, "depends on points still to come"),
            ("FILL(1, 0)", 6, "expected a series to fill"),
            ("IF(m1, 2)", 9, "expected ',' after this argument"),
            ("IF m1", 4, "expected '(' after IF"),
            ("IF(m1, 1, 2, 3)", 12, "expected ')' at the end of IF"),
            ("INSIGHT_RULE_METRIC(m1, 'Sum')", 21, "expected the name of a rule in quotes"),
            ("INSIGHT_RULE_METRIC('', 'Sum')", 21, "expected the name of a rule in quotes"),
            ("INSIGHT_RULE_METRIC('r', 'Count')", 26, "expected one of UniqueContributors"),
            ("m1 + 'text'", 6, "expected a number"),
            ("m1 + 'text", 6, "no closing quote"),
            ("(" * 101 + "m1" + ")" * 101, 101, "nested more than 100 deep"),
            ("m1" + "+m1" * 101, 303, "more than 100 operators"),
            ("-" * 101 + "m1", 101, "more than 100 operators"),
        ],
        check,
    )


def test_the_length_is_limited() -> None:
    assert parse_expression("m1" + " " * 2046) == A
    with pytest.raises(InvalidValue, match="2049 characters: expected at most 2048"):
        parse_expression("m1" + " " * 2047)


def test_the_longest_and_deepest_expressions_can_be_used() -> None:
    for text in (
        "m1" + "+m1" * 100,
        "-" * 100 + "m1",
        "(" * 100 + "m1" + ")" * 100,
        "FILL(" * 100 + "m1" + ",0)" * 100,
    ):
        node = parse_expression(text)
        assert parse_expression(format_expression(node)) == node
        assert set(find_inputs(node)) == {A}


def test_inputs_are_found_everywhere() -> None:
    text = "IF(a, b, c) + FILL(d, e) + FILL(f, REPEAT) + SUM([g, -h]) + MAX(METRICS())"
    text += " + INSIGHT_RULE_METRIC('r', 'Sum') + 1"
    found = list(find_inputs(parse_expression(text)))
    assert found == [*map(Id, "abcdefgh"), InsightRuleMetric("r", "Sum")]


RULES = st.sampled_from([InsightRuleMetric("r", "Sum"), InsightRuleMetric('a"b', "UniqueContributors")])
SERIES = st.sampled_from([A, B, Id("total_2")]) | RULES
OPERATORS = st.sampled_from(["OR", "AND", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "^"])
NUMBERS = st.builds(Number, st.floats(0, 1e30, allow_nan=False))
NODES: st.SearchStrategy[Node] = st.recursive(
    SERIES,
    lambda inner: (
        st.builds(Negative, inner)
        | st.builds(Binary, OPERATORS, inner, inner | NUMBERS)
        | st.builds(Binary, OPERATORS, NUMBERS, inner)
        | st.builds(If, inner, inner | NUMBERS, inner | NUMBERS)
        | st.builds(Fill, inner, st.none() | inner | NUMBERS)
        | st.builds(
            Aggregate,
            st.sampled_from(["SUM", "AVG", "MIN", "MAX"]),
            st.none() | st.lists(inner, min_size=1, max_size=3).map(tuple),
        )
    ),
    max_leaves=10,
)


@given(NODES)
@settings(max_examples=300)
def test_an_expression_written_and_read_again_is_the_same(node: Node) -> None:
    assert parse_expression(format_expression(node)) == node


PARTS = [
    "m1",
    "m2",
    "(",
    ")",
    "[",
    "]",
    ",",
    "+",
    "-",
    "*",
    "/",
    "^",
    "<",
    "==",
    "AND",
    "||",
    "IF",
    "FILL",
    "SUM",
    "METRICS",
]


@given(
    st.lists(
        st.sampled_from([*PARTS, "REPEAT", "1", ".5", "'r'", '"', " ", "\n", "\x00", "\u0663", "\u00e9"]), max_size=40
    )
)
@settings(max_examples=500)
def test_any_text_is_an_expression_or_refused(parts: list[str]) -> None:
    try:
        node = parse_expression("".join(parts))
    except InvalidValue:
        return
    assert parse_expression(format_expression(node)) == node
