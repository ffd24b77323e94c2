"""Metric math: the expressions over series that alarms need. Pure.

| part | forms |
|---|---|
| series | ids such as `m1`; `INSIGHT_RULE_METRIC("rule", "UniqueContributors")` |
| operators, strongest first | `^`, unary `-`, `*` `/`, `+` `-`, `==` `!=` `<` `<=` `>` `>=`, `AND` `&&`, `OR` `||` |
| choice, point by point | `IF(condition, value, otherwise)` |
| filled series | `FILL(series, 0)`, `FILL(series, other)`, `FILL(series, REPEAT)` |
| several series, point by point | `SUM`, `AVG`, `MIN`, `MAX` of `[m1, m2]` or of `METRICS()` |

Refused, because the result of an alarm would depend on the hidden length of its evaluation range: `SUM(m1)` and other
functions that turn one series into one number, and `FILL(series, LINEAR)`. `TIME_SERIES` is refused, too: because
a missing point counts as 0 beside a present one, `m1 / (m1 + m2) + TIME_SERIES(0)` turns minutes without requests into
0 %. `metric_math_evaluation` has the rules for missing points.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from holdfast._errors import InvalidValue
from holdfast.alarms.syntax import END, Token, TokenReader

MAX_CHARACTERS = 2048
MAX_OPERATORS = 100
"""Maximum operators and functions in one expression. AWS publishes none; an alarm has at most ten metrics."""
INSIGHT_RULE_METRICS = (
    "UniqueContributors",
    "MaxContributorValue",
    "SampleCount",
    "Sum",
    "Minimum",
    "Maximum",
    "Average",
)
"""The metrics of a Contributor Insights rule."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of 0 or more."""

    value: float


@dataclass(frozen=True, slots=True)
class Id:
    """The series of another query of the same alarm."""

    name: str


@dataclass(frozen=True, slots=True)
class InsightRuleMetric:
    """A series that a Contributor Insights rule produces."""

    rule: str
    metric: str


@dataclass(frozen=True, slots=True)
class Negative:
    """Minus an expression."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator between two expressions."""

    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class If:
    """One of two expressions, chosen by a condition point by point."""

    condition: "Node"
    value: "Node"
    otherwise: "Node"


@dataclass(frozen=True, slots=True)
class Fill:
    """A series whose missing points are filled from `filler`, or by the last point before them if it is None."""

    series: "Node"
    filler: "Node | None"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """SUM, AVG, MIN or MAX of several series, point by point."""

    function: str
    items: tuple["Node", ...] | None
    """None for METRICS(): all series that are metrics."""


Node: TypeAlias = Number | Id | InsightRuleMetric | Negative | Binary | If | Fill | Aggregate

_LEVELS = (("OR", "||"), ("AND", "&&"), ("==", "!=", "<", "<=", ">", ">="), ("+", "-"), ("*", "/"))
_SPELLINGS = {"||": "OR", "&&": "AND"}
_AGGREGATES = ("SUM", "AVG", "MIN", "MAX")
_FUNCTIONS = ("IF", "FILL", *_AGGREGATES, "INSIGHT_RULE_METRIC")
_TOKENS = re.compile(
    r"(?P<space>\s+)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<id>[a-z]\w*)|(?P<function>[A-Z]\w*)"
    r"""|(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/^()<>,\[\]])|(?P<quoted>"[^"]*"|'[^']*')""",
    re.ASCII,
)
_REFUSED = {
    "TIME_SERIES": "TIME_SERIES turns minutes without data into minutes with a value: set treat_missing_data instead",
    "SEARCH": "SEARCH is not allowed in alarms: name each metric",
    "LINEAR": "FILL(..., LINEAR) depends on points still to come: use a number, a series or REPEAT",
}


def parse_expression(text: str) -> Node:
    """Return the expression that `text` means. Raise InvalidValue, which points at the position of the error.

    The result of the expression is one series.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidValue(f"metric math: {len(text)} characters: expected at most {MAX_CHARACTERS}")
    return _Parser(text).parse()


def format_expression(node: Node) -> str:
    """Return a text that `parse_expression` turns into the same expression."""
    match node:
        case Number(value):
            return repr(value)
        case Id(name):
            return name
        case InsightRuleMetric(rule, metric):
            quote = "'" if '"' in rule else '"'
            return f'INSIGHT_RULE_METRIC({quote}{rule}{quote}, "{metric}")'
        case Negative(operand):
            return f"-{_format_operand(operand)}"
        case Binary(operator, left, right):
            return f"{_format_operand(left)} {operator} {_format_operand(right)}"
        case If(condition, value, otherwise):
            return f"IF({', '.join(map(format_expression, (condition, value, otherwise)))})"
        case Fill(series, filler):
            return f"FILL({format_expression(series)}, {'REPEAT' if filler is None else format_expression(filler)})"
        case _:
            items = "METRICS()" if node.items is None else f"[{', '.join(map(format_expression, node.items))}]"
            return f"{node.function}({items})"


def find_inputs(node: Node) -> Iterator[Id | InsightRuleMetric]:
    """Yield all series that an expression names, in the order of the text. METRICS() names none."""
    match node:
        case Id() | InsightRuleMetric():
            yield node
        case Negative(operand):
            yield from find_inputs(operand)
        case Binary(_, left, right):
            yield from find_inputs(left)
            yield from find_inputs(right)
        case If(condition, value, otherwise):
            for each in (condition, value, otherwise):
                yield from find_inputs(each)
        case Fill(series, filler):
            yield from find_inputs(series)
            if filler is not None:
                yield from find_inputs(filler)
        case Aggregate(items=tuple() as items):
            for each in items:
                yield from find_inputs(each)
        case _:
            pass


def _format_operand(node: Node) -> str:
    text = format_expression(node)
    return f"({text})" if isinstance(node, Negative | Binary) else text


def _is_series(node: Node) -> bool:
    """Return whether an expression has a value for each point in time, or is one number."""
    match node:
        case Number():
            return False
        case Negative(operand):
            return _is_series(operand)
        case Binary(_, left, right):
            return _is_series(left) or _is_series(right)
        case If(condition, value, otherwise):
            return any(map(_is_series, (condition, value, otherwise)))
        case _:
            return True


class _Parser:
    """Precedence climbing."""

    def __init__(self, text: str) -> None:
        self._reader = TokenReader(text, _TOKENS)
        self._operators = 0

    def parse(self) -> Node:
        first = self._reader.next
        node = self._parse_binary(0)
        if self._reader.next.kind != END:
            self._reader.fail(f"expected an operator or the end, found {self._reader.describe_next()}")
        if not _is_series(node):
            self._reader.fail("expected an expression of a series, found one number", first)
        return node

    def _parse_binary(self, level: int) -> Node:
        """Parse operators from `_LEVELS[level]` on, which bind stronger the later they are."""
        left = self._parse_unary()
        while (found := _LEVEL_OF.get(self._reader.next.text, -1)) >= level:
            token = self._take_operator()
            right = self._parse_binary(found + 1)
            left = Binary(_SPELLINGS.get(token.text, token.text), left, right)
        return left

    def _parse_unary(self) -> Node:
        if self._reader.next.text == "-":
            self._take_operator()
            return Negative(self._parse_unary())
        base = self._parse_primary()
        if self._reader.next.text == "^":
            self._take_operator()
            return Binary("^", base, self._parse_unary())
        return base

    def _parse_primary(self) -> Node:
        reader = self._reader
        token = reader.take()
        match token.kind:
            case "number":
                value = float(token.text)
                return Number(value) if math.isfinite(value) else reader.fail("this number is too large", token)
            case "id" if reader.next.text == "(":
                reader.fail("expected the name of a function in capital letters", token)
            case "id":
                return Id(token.text)
            case "function":
                return self._parse_function(token)
        if token.text != "(":
            found = repr(token.text) if token.text else "the end"
            reader.fail(f"expected a number, an id such as m1, a function or '(', found {found}", token)
        reader.enter(token)
        inner = self._parse_binary(0)
        reader.expect(")", "after the expression")
        reader.leave()
        return inner

    def _parse_function(self, token: Token) -> Node:
        reader, name = self._reader, token.text
        if name not in _FUNCTIONS:
            known = ", ".join(_FUNCTIONS)
            reader.fail(_REFUSED.get(name, f"unknown function {name}: expected one of {known}"), token)
        self._count(token)
        reader.expect("(", f"after {name}")
        reader.enter(token)
        node: Node
        if name == "INSIGHT_RULE_METRIC":
            node = self._parse_insight_rule_metric()
        elif name == "IF":
            condition = self._parse_argument()
            value = self._parse_argument()
            node = If(condition, value, self._parse_binary(0))
        elif name == "FILL":
            node = self._parse_fill()
        else:
            node = Aggregate(name, self._parse_items(name))
        reader.expect(")", f"at the end of {name}")
        reader.leave()
        return node

    def _parse_argument(self) -> Node:
        node = self._parse_binary(0)
        self._reader.expect(",", "after this argument")
        return node

    def _parse_fill(self) -> Node:
        reader = self._reader
        first = reader.next
        series = self._parse_argument()
        if not _is_series(series):
            reader.fail("expected a series to fill, found one number", first)
        return Fill(series, None if reader.take_if(("REPEAT",)) else self._parse_binary(0))

    def _parse_items(self, name: str) -> tuple[Node, ...] | None:
        reader = self._reader
        if reader.take_if(("METRICS",)):
            reader.expect("(", "after METRICS")
            reader.expect(")", "after METRICS(")
            return None
        if not reader.take_if(("[",)):
            reader.fail(
                f"{name} of one series is one number over the whole evaluation range, which alarms must not depend on: "
                f"expected several series, such as {name}([m1, m2])"
            )
        items = [self._parse_item()]
        while reader.take_if((",",)):
            items.append(self._parse_item())
        reader.expect("]", "after the series")
        return tuple(items)

    def _parse_item(self) -> Node:
        first = self._reader.next
        node = self._parse_binary(0)
        return node if _is_series(node) else self._reader.fail("expected a series, found one number", first)

    def _parse_insight_rule_metric(self) -> Node:
        reader = self._reader
        rule = self._parse_quoted("the name of a rule")
        reader.expect(",", "after the name of the rule")
        token = reader.next
        metric = self._parse_quoted("the name of a metric")
        if metric not in INSIGHT_RULE_METRICS:
            reader.fail(f"expected one of {', '.join(INSIGHT_RULE_METRICS)}", token)
        return InsightRuleMetric(rule, metric)

    def _parse_quoted(self, content: str) -> str:
        token = self._reader.take()
        if token.kind != "quoted" or len(token.text) < 3:
            self._reader.fail(f"expected {content} in quotes", token)
        return token.text[1:-1]

    def _take_operator(self) -> Token:
        token = self._reader.take()
        self._count(token)
        return token

    def _count(self, token: Token) -> None:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            self._reader.fail(f"more than {MAX_OPERATORS} operators and functions", token)


_LEVEL_OF = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
