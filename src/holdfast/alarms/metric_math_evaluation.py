"""Evaluate metric math over series, for one alarm or for many with the same expression at once. Pure. Needs NumPy.

Comparisons and AND, OR give 1 or 0. Rules for points without a value, which are NaN:

- An operator with two series takes 0 for a point that only one of them has. If both lack it, so does the result.
- Dividing by zero gives no point, nor does any other result that is not a finite number.
- `IF` gives no point without a condition, 0 without a `value`, and no point without an `otherwise`.
- `SUM`, `AVG`, `MIN` and `MAX` leave out series without the point.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from holdfast._errors import InvalidValue, MissingExtra
from holdfast.alarms.metric_math import Binary, Fill, Id, If, InsightRuleMetric, Negative, Node, Number

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("metric math", "server") from error

Series: TypeAlias = "NDArray[np.float64]"


def evaluate_expression(
    node: Node, inputs: Mapping[Id | InsightRuleMetric, Series], metrics: tuple[Series, ...] = ()
) -> Series:
    """Return the series of an expression.

    All series have the same shape. The last axis is time; others are alarms with the same expression, so that one call
    evaluates all of them. `metrics` are the series of METRICS().
    """
    with np.errstate(all="ignore"):
        return np.asarray(_evaluate(node, inputs, metrics), np.float64)


def _evaluate(
    node: Node, inputs: Mapping[Id | InsightRuleMetric, Series], metrics: tuple[Series, ...]
) -> "Series | np.float64":
    def get(part: Node) -> "Series | np.float64":
        return _evaluate(part, inputs, metrics)

    match node:
        case Number(value):
            return np.float64(value)
        case Id() | InsightRuleMetric():
            return inputs[node]
        case Negative(operand):
            return -get(operand)
        case Binary(operator, left, right):
            return _apply(_OPERATORS[operator], get(left), get(right))
        case If(condition, value, otherwise):
            test, found = get(condition), get(value)
            chosen = np.where(test != 0, np.where(np.isnan(found), 0.0, found), get(otherwise))
            return np.where(np.isnan(test), np.nan, chosen)
        case Fill(series, filler):
            points = np.asarray(get(series))
            return _repeat(points) if filler is None else np.where(np.isnan(points), get(filler), points)
        case _:
            items = metrics if node.items is None else tuple(np.asarray(get(each)) for each in node.items)
            return _aggregate(node.function, items)


def _divide(left: Any, right: Any) -> Any:
    return left / np.where(right == 0, np.nan, right)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "OR": np.logical_or,
    "AND": np.logical_and,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _divide,
    "^": np.power,
}


def _apply(
    operator: Callable[[Any, Any], Any], left: "Series | np.float64", right: "Series | np.float64"
) -> "Series | np.float64":
    missing = np.isnan(left), np.isnan(right)
    if left.ndim and right.ndim:
        is_missing = missing[0] & missing[1]
        left, right = np.where(missing[0], 0.0, left), np.where(missing[1], 0.0, right)
    else:
        is_missing = missing[0] | missing[1]
    result = np.asarray(operator(left, right), np.float64)
    return np.where(is_missing | ~np.isfinite(result), np.nan, result)


def _repeat(points: Series) -> Series:
    """Fill missing points with the last one before them. Those before the first stay missing."""
    indices = np.where(np.isnan(points), 0, np.arange(points.shape[-1]))
    filled: Series = np.take_along_axis(points, np.maximum.accumulate(indices, axis=-1), axis=-1)
    return filled


def _aggregate(function: str, items: tuple[Series, ...]) -> Series:
    if not items:
        raise InvalidValue(f"metric math: {function}(METRICS()) of an alarm without metrics")
    stacked = np.stack(items)
    if function in ("MIN", "MAX"):
        extreme: Series = (np.fmin if function == "MIN" else np.fmax).reduce(stacked)
        return extreme
    present = np.sum(~np.isnan(stacked), axis=0)
    total = np.nansum(stacked, axis=0)
    result = total / present if function == "AVG" else total
    return np.where((present > 0) & np.isfinite(result), result, np.nan)
