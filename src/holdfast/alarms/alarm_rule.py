"""AlarmRule: the expression of a composite alarm over the states of other alarms. Pure.

    rule     := and (OR and)*
    and      := not (AND not)*
    not      := NOT not | (rule) | TRUE | FALSE | STATE(alarm) | AT_LEAST(count, [NOT] STATE, (alarm, ...))
    STATE    := ALARM | OK | INSUFFICIENT_DATA
    count    := 2 | 60%
    alarm    := name or ARN, with or without double quotes

An alarm without quotes has no spaces, parentheses, commas or quotes. In quotes, `\\"` is a quote, `\\\\` a backslash.
AWS does not document whether AND binds stronger than OR. Here it does, and `format_alarm_rule` writes parentheses, so
that the text means the same everywhere. AWS does not document the rounding of a percentage either: here, at least that
share of the alarms has to be in the state.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast._errors import InvalidValue
from holdfast.alarms.alarm import StateValue
from holdfast.alarms.syntax import END, TokenReader, build_error

MAX_CHARACTERS = 10_240
MAX_CHILDREN = 100
MAX_ELEMENTS = 500
"""Maximum references to alarms, TRUE, FALSE and parentheses around expressions together."""


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, slots=True)
class StateIs:
    """True if an alarm is in a state."""

    state: StateValue
    alarm: str
    """Name or ARN, as written."""


@dataclass(frozen=True, slots=True)
class AtLeast:
    """True if at least a number, or a share, of several alarms is in a state; or is not in it, if `is_negated`."""

    threshold: int
    is_percentage: bool
    state: StateValue
    is_negated: bool
    alarms: tuple[str, ...]

    def __post_init__(self) -> None:
        highest = 100 if self.is_percentage else len(self.alarms)
        if not 1 <= self.threshold <= highest:
            sign = "%" if self.is_percentage else ""
            raise InvalidValue(f"AT_LEAST {self.threshold}{sign}: expected 1{sign} to {highest}{sign}")


@dataclass(frozen=True, slots=True)
class Not:
    """True if the operand is false."""

    operand: "Rule"


@dataclass(frozen=True, slots=True)
class And:
    """True if all operands are true. There are at least two."""

    operands: tuple["Rule", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any operand is true. There are at least two."""

    operands: tuple["Rule", ...]


Rule: TypeAlias = Constant | StateIs | AtLeast | Not | And | Or

_TOKENS = re.compile(r'(?P<space>\s+)|(?P<sign>[(),])|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<word>[^\s(),"]+)', re.DOTALL)
_COUNT = re.compile(r"(\d{1,4})(%?)", re.ASCII)
_ESCAPED = re.compile(r'\\(["\\])')
_STATES = frozenset(StateValue)
_KEYWORDS = {"AND", "OR", "NOT", "TRUE", "FALSE", "AT_LEAST", *_STATES}
_EXPECTED = "expected ALARM(...), OK(...), INSUFFICIENT_DATA(...), AT_LEAST(...), TRUE, FALSE, NOT or '('"


def parse_alarm_rule(text: str) -> Rule:
    """Return the rule that `text` means. Raise InvalidValue, which points at the position of the error."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidValue(f"alarm rule: {len(text)} characters: expected at most {MAX_CHARACTERS}")
    return _Parser(text).parse()


def format_alarm_rule(rule: Rule) -> str:
    """Return a text that `parse_alarm_rule` turns into the same rule."""
    match rule:
        case Constant(value):
            return "TRUE" if value else "FALSE"
        case StateIs(state, alarm):
            return f"{state}({_quote(alarm)})"
        case AtLeast(threshold, is_percentage, state, is_negated, alarms):
            count = f"{threshold}%" if is_percentage else str(threshold)
            condition = f"NOT {state}" if is_negated else state
            return f"AT_LEAST({count}, {condition}, ({', '.join(map(_quote, alarms))}))"
        case Not(operand):
            return f"NOT {_format_operand(operand)}"
        case And(operands):
            return " AND ".join(map(_format_operand, operands))
        case _:
            return " OR ".join(map(_format_operand, rule.operands))


def get_alarm_name(reference: str) -> str:
    """Return the name of an alarm, given its name or ARN."""
    return reference.partition(":alarm:")[2] if reference.startswith("arn:") else reference


def find_children(rule: Rule) -> tuple[str, ...]:
    """Return the names of all alarms in a rule, each once, in the order of the text."""
    return tuple(dict.fromkeys(map(get_alarm_name, _find_references(rule))))


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The value of a rule or of a part of it, and the reason."""

    rule: Rule
    value: bool
    states: tuple[tuple[str, StateValue], ...] = ()
    """Names and states of the alarms that decided StateIs or AtLeast."""
    deciding: tuple["RuleResult", ...] = ()
    """Parts of the rule that decided. While they keep their values, the other parts cannot change that of the rule."""

    def find_deciding_alarms(self) -> tuple[tuple[str, StateValue], ...]:
        """Return names and states of all alarms that decided, each once, in the order of the text."""
        found = list(self.states)
        for part in self.deciding:
            found += part.find_deciding_alarms()
        return tuple(dict.fromkeys(found))


def evaluate_rule(rule: Rule, states: Mapping[str, StateValue]) -> bool:
    """Return the value of a rule, given the states of its alarms by name."""
    match rule:
        case Constant(value):
            return value
        case StateIs(state, alarm):
            return _get_state(alarm, states) is state
        case AtLeast():
            return _is_enough(rule, len(_find_matching(rule, states)))
        case Not(operand):
            return not evaluate_rule(operand, states)
        case And(operands):
            return all(evaluate_rule(each, states) for each in operands)
        case _:
            return any(evaluate_rule(each, states) for each in rule.operands)


def explain_rule(rule: Rule, states: Mapping[str, StateValue]) -> RuleResult:
    """Return the value of a rule with the parts that decided it."""
    match rule:
        case Constant(value):
            return RuleResult(rule, value)
        case StateIs(state, alarm):
            found = _get_state(alarm, states)
            return RuleResult(rule, found is state, ((get_alarm_name(alarm), found),))
        case AtLeast():
            matching = _find_matching(rule, states)
            value = _is_enough(rule, len(matching))
            deciding = matching if value else [each for each in rule.alarms if each not in matching]
            return RuleResult(rule, value, tuple((get_alarm_name(each), _get_state(each, states)) for each in deciding))
        case Not(operand):
            part = explain_rule(operand, states)
            return RuleResult(rule, not part.value, (), (part,))
        case _:
            parts = [explain_rule(each, states) for each in rule.operands]
            # One false operand decides an AND, one true operand an OR; otherwise all of them together do.
            decisive = isinstance(rule, Or)
            found_parts = tuple(each for each in parts if each.value is decisive)
            value = decisive if found_parts else not decisive
            return RuleResult(rule, value, (), found_parts or tuple(parts))


def _get_state(reference: str, states: Mapping[str, StateValue]) -> StateValue:
    name = get_alarm_name(reference)
    try:
        return states[name]
    except KeyError:
        raise InvalidValue(f"alarm rule: the state of alarm {name!r} is not known") from None


def _find_matching(rule: AtLeast, states: Mapping[str, StateValue]) -> list[str]:
    return [each for each in rule.alarms if (_get_state(each, states) is rule.state) is not rule.is_negated]


def _is_enough(rule: AtLeast, number: int) -> bool:
    return number * 100 >= rule.threshold * len(rule.alarms) if rule.is_percentage else number >= rule.threshold


def _find_references(rule: Rule) -> Iterator[str]:
    match rule:
        case StateIs(alarm=alarm):
            yield alarm
        case AtLeast(alarms=alarms):
            yield from alarms
        case Not(operand):
            yield from _find_references(operand)
        case And(operands) | Or(operands):
            for each in operands:
                yield from _find_references(each)
        case _:
            pass


def _quote(alarm: str) -> str:
    escaped = alarm.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _format_operand(rule: Rule) -> str:
    text = format_alarm_rule(rule)
    return f"({text})" if isinstance(rule, And | Or) else text


class _Parser:
    """Recursive descent. Limits are checked where they are passed, so that the error points there."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._reader = TokenReader(text, _TOKENS)
        self._children: set[str] = set()
        self._elements = 0

    def parse(self) -> Rule:
        rule = self._parse_or()
        if self._reader.next.kind != END:
            self._reader.fail(f"expected AND, OR or the end, found {self._reader.describe_next()}")
        return rule

    def _parse_or(self) -> Rule:
        operands = [self._parse_and()]
        while self._reader.take_if(("OR",)):
            operands.append(self._parse_and())
        return Or(tuple(operands)) if len(operands) > 1 else operands[0]

    def _parse_and(self) -> Rule:
        operands = [self._parse_not()]
        while self._reader.take_if(("AND",)):
            operands.append(self._parse_not())
        return And(tuple(operands)) if len(operands) > 1 else operands[0]

    def _parse_not(self) -> Rule:
        reader = self._reader
        token = reader.take()
        match token.text:
            case "NOT":
                reader.enter(token)
                operand = self._parse_not()
                reader.leave()
                return Not(operand)
            case "(":
                self._count(token.position)
                reader.enter(token)
                inner = self._parse_or()
                self._count(reader.expect(")", "after the expression").position)
                reader.leave()
                return inner
            case "TRUE" | "FALSE":
                self._count(token.position)
                return Constant(token.text == "TRUE")
            case "AT_LEAST":
                return self._parse_at_least()
            case text if text in _STATES:
                reader.expect("(", f"after {text}")
                alarm = self._parse_alarm()
                reader.expect(")", "after the alarm")
                return StateIs(StateValue(text), alarm)
        if (capital := token.text.upper()) in _KEYWORDS and capital != token.text:
            reader.fail(f"expected {capital} in capital letters, found {token.text!r}", token)
        return reader.fail(f"{_EXPECTED}, found {repr(token.text) if token.text else 'the end'}", token)

    def _parse_at_least(self) -> Rule:
        reader = self._reader
        reader.expect("(", "after AT_LEAST")
        token = reader.take()
        count = _COUNT.fullmatch(token.text)
        if count is None:
            reader.fail("expected a number such as 2 or a percentage such as 60%", token)
        reader.expect(",", "after the number")
        is_negated = reader.take_if(("NOT",)) is not None
        state = reader.take_if(_STATES) or reader.fail("expected ALARM, OK or INSUFFICIENT_DATA")
        reader.expect(",", "after the state")
        reader.expect("(", "before the alarms")
        alarms = [self._parse_alarm()]
        while reader.take_if((",",)):
            alarms.append(self._parse_alarm())
        reader.expect(")", "after the alarms")
        reader.expect(")", "at the end of AT_LEAST")
        try:
            return AtLeast(int(count[1]), count[2] == "%", StateValue(state.text), is_negated, tuple(alarms))
        except InvalidValue as error:
            reader.fail(str(error), token)

    def _parse_alarm(self) -> str:
        token = self._reader.take()
        match token.kind:
            case "word":
                alarm = token.text
            case "quoted":
                alarm = _ESCAPED.sub(r"\1", token.text[1:-1])
            case _:
                self._reader.fail("expected the name or ARN of an alarm", token)
        if not get_alarm_name(alarm):
            self._reader.fail("expected the name of an alarm, found an empty one", token)
        self._count(token.position)
        self._children.add(get_alarm_name(alarm))
        if len(self._children) > MAX_CHILDREN:
            self._reader.fail(f"more than {MAX_CHILDREN} different alarms", token)
        return alarm

    def _count(self, position: int) -> None:
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            problem = f"more than {MAX_ELEMENTS} elements (alarms, TRUE, FALSE and parentheses)"
            raise build_error(self._text, position, problem)
