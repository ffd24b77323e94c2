"""Metric math over series with missing points."""

import math
import runpy
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue, MissingExtra
from holdfast.alarms import metric_math_evaluation
from holdfast.alarms.metric_math import (
    Binary,
    Fill,
    Id,
    If,
    InsightRuleMetric,
    Negative,
    Node,
    Number,
    parse_expression,
)
from holdfast.alarms.metric_math_evaluation import Series, evaluate_expression
from tests.table import every_row

NO = math.nan
M1 = np.array([1.0, 2.0, NO, NO, 0.0, -4.0])
M2 = np.array([3.0, NO, 5.0, NO, 0.0, 2.0])
RULE = InsightRuleMetric("r", "Sum")
INPUTS: dict[Id | InsightRuleMetric, Series] = {Id("m1"): M1, Id("m2"): M2, RULE: M1 * 2}


def same(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-12)


def test_rules_for_missing_points_and_division_by_zero() -> None:
    def check(row: tuple[str, list[float]]) -> None:
        text, expected = row
        same(evaluate_expression(parse_expression(text), INPUTS, (M1, M2)), expected)

    rows: list[tuple[str, list[float]]] = [
        ("m1", [1, 2, NO, NO, 0, -4]),
        ("-m1", [-1, -2, NO, NO, 0, 4]),
        ("m1 + m2", [4, 2, 5, NO, 0, -2]),  # missing on one side is 0, on both it is missing
        ("m1 + 1", [2, 3, NO, NO, 1, -3]),
        ("10 - m1", [9, 8, NO, NO, 10, 14]),
        ("m1 / m2", [1 / 3, NO, 0, NO, NO, -2]),
        ("m1 / (m1 + m2)", [0.25, 1, 0, NO, NO, 2]),  # no traffic is missing, errors only are 100 %
        ("m1 / 0", [NO] * 6),
        ("m1 ^ 2", [1, 4, NO, NO, 0, 16]),
        ("m1 ^ 0.5", [1, math.sqrt(2), NO, NO, 0, NO]),
        ("m1 ^ -1", [1, 0.5, NO, NO, NO, -0.25]),
        ("m1 > m2", [0, 1, 0, NO, 0, 0]),
        ("m1 == 2", [0, 1, NO, NO, 0, 0]),
        ("m1 AND m2", [1, 0, 0, NO, 0, 1]),
        ("m1 OR m2", [1, 1, 1, NO, 0, 1]),
        ("1 / 0 + m1", [NO] * 6),
        ("IF(m1, m2, 7)", [3, 0, NO, NO, 7, 2]),  # without a condition no point, without a value 0
        ("IF(m2 > 2, 7, m1)", [7, NO, 7, NO, 0, -4]),  # without an otherwise no point
        ("IF(1, m1, m2)", [1, 2, 0, 0, 0, -4]),
        ("FILL(m1, 9)", [1, 2, 9, 9, 0, -4]),
        ("FILL(m1, m2)", [1, 2, 5, NO, 0, -4]),
        ("FILL(m1, REPEAT)", [1, 2, 2, 2, 0, -4]),
        ("SUM([m1, m2])", [4, 2, 5, NO, 0, -2]),
        ("AVG([m1, m2])", [2, 2, 5, NO, 0, -1]),
        ("MIN([m1, m2])", [1, 2, 5, NO, 0, -4]),
        ("MAX(METRICS())", [3, 2, 5, NO, 0, 2]),
        ("INSIGHT_RULE_METRIC('r', 'Sum') > 2", [0, 1, NO, NO, 0, 0]),
        ("m1 * 1e308 * 10", [NO, NO, NO, NO, 0, NO]),
    ]
    every_row(rows, check)


def test_points_before_the_first_one_cannot_be_repeated() -> None:
    found = evaluate_expression(parse_expression("FILL(m1, REPEAT)"), {Id("m1"): np.array([NO, 1, NO])})
    same(found, [NO, 1, 1])


def test_many_alarms_with_one_expression_are_evaluated_together() -> None:
    node = parse_expression("IF(FILL(m1, REPEAT) > 1, m1 / (m1 + m2), SUM([m1, m2]))")
    together = evaluate_expression(node, {Id("m1"): np.stack([M1, M2, M1]), Id("m2"): np.stack([M2, M1, M1])})
    for row, (first, second) in zip(together, [(M1, M2), (M2, M1), (M1, M1)], strict=True):
        same(row, evaluate_expression(node, {Id("m1"): first, Id("m2"): second}))


def test_all_metrics_of_an_alarm_without_metrics_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"SUM\(METRICS\(\)\) of an alarm without metrics"):
        evaluate_expression(parse_expression("SUM(METRICS())"), {})


def test_without_numpy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match="server"):
        runpy.run_path(str(metric_math_evaluation.__file__))


def read_slowly(node: Node, point: dict[str, float | None]) -> float | None:
    """Evaluate one point by the rules as they are written, with None for a missing one. Numbers are never missing."""
    match node:
        case Number(value):
            return value
        case Id(name):
            return point[name]
        case Negative(operand):
            inner = read_slowly(operand, point)
            return None if inner is None else -inner
        case If(condition, value_node, otherwise):
            test = read_slowly(condition, point)
            if test is None:
                return None
            return (read_slowly(value_node, point) or 0.0) if test else read_slowly(otherwise, point)
        case Fill(series, filler) if filler is not None:
            inner = read_slowly(series, point)
            return read_slowly(filler, point) if inner is None else inner
        case Binary(operator, left_node, right_node):
            left, right = read_slowly(left_node, point), read_slowly(right_node, point)
            if left is None and right is None:
                return None
            has_number = isinstance(left_node, Number) or isinstance(right_node, Number)
            if has_number and (left is None or right is None):
                return None
            left, right = left or 0.0, right or 0.0
            match operator:
                case "+":
                    return left + right
                case "-":
                    return left - right
                case "*":
                    return left * right
                case "/":
                    return left / right if right else None
                case _:
                    return float(left > right)
    raise AssertionError(node)


NUMBERS = st.builds(Number, st.integers(0, 5).map(float))
NODES: st.SearchStrategy[Node] = st.recursive(
    st.sampled_from([Id("m1"), Id("m2")]),
    lambda inner: (
        st.builds(Negative, inner)
        | st.builds(Binary, st.sampled_from("+-*/>"), inner, inner | NUMBERS)
        | st.builds(If, inner, inner | NUMBERS, inner | NUMBERS)
        | st.builds(Fill, inner, inner | NUMBERS)
    ),
    max_leaves=6,
)
POINTS = st.tuples(st.none() | st.integers(-3, 3), st.none() | st.integers(-3, 3))


@given(NODES, st.lists(POINTS, min_size=1, max_size=6))
@settings(max_examples=300)
def test_each_point_agrees_with_a_slow_reading(node: Node, points: list[tuple[int | None, int | None]]) -> None:
    columns = [
        np.array([NO if each is None else each for each in column], float) for column in zip(*points, strict=True)
    ]
    found = evaluate_expression(node, {Id("m1"): columns[0], Id("m2"): columns[1]})
    expected = [read_slowly(node, {"m1": first, "m2": second}) for first, second in points]
    same(found, [NO if each is None else each for each in expected])
