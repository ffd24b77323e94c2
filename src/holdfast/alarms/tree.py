"""The alarms of one workload, generated from its declaration. Pure.

`<zone>` is an AZ-ID such as `use1-az1`, `<az>` its last part, `az1`. Each row names the alarms that it is made of.

| alarm | is in ALARM if |
|---|---|
| `<zone>-isolated-impact` | `<zone>-aggregate-alarm` and `not-single-instance-<zone>` are. Only this one has actions |
| `<zone>-aggregate-alarm` | the zone is affected, and no other zone is, or `<zone>-chi-squared` is |
| `<az>-availability`, `<az>-latency` | any operation of the zone is: `<zone>/<operation>-availability`, `-latency` |
| `<zone>-chi-squared` | both `<zone>/<operation>-chi-squared` and `-availability` of any operation are |
| `<az>-throughput` | the zone gets much less of the requests than in the last hour |
| `not-single-instance-<zone>` | several instances contribute faults or slow requests; or `<az>-throughput` is |
| `<zone>-silent` | the zone reports no request at all. No other alarm uses it: it makes the silence visible |
| `<resource>-impact` | consumers in two zones or more are affected by a shared resource. It has actions |
| `any-shared-resource` | any `<resource>-impact` is. It exists if there are several shared resources |

A zone is affected if its availability, latency or throughput is in ALARM. Below them are metric alarms,
`...-3-in-a-row` and `...-3-of-5`, for each side that measures: server and canary.

If shared resources are declared, `<resource>-impact` or `any-shared-resource` suppresses the actions of
`<zone>-isolated-impact`: the answer to a failing resource is a failover, not an evacuation.

A metric alarm without data is in INSUFFICIENT_DATA, or in OK if that is the better guess. Rules ask only whether an
alarm is in ALARM. So a zone without data neither hinders "no other zone is in ALARM" nor passes unnoticed, because its
`-silent` is in ALARM. Missing data about a shared resource counts as breaching, because its consumers may be unable to
reach it; but not in a zone that reports nothing at all, whose `<zone>-no-telemetry` is in ALARM.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote

from holdfast._types import Operation, Side, Zone
from holdfast.alarms.alarm import MAX_NAME, Alarm, StateValue
from holdfast.alarms.alarm_rule import (
    MAX_CHARACTERS,
    And,
    AtLeast,
    Constant,
    Not,
    Or,
    Rule,
    StateIs,
    format_alarm_rule,
)
from holdfast.alarms.composite import AlarmGraph, CompositeAlarm
from holdfast.alarms.declaration import ERRING, SLOW, AlarmDeclaration, MeasuredOperation, SeriesReference
from holdfast.alarms.metric_alarm import TreatMissingData
from holdfast.alarms.tree_metrics import PATTERNS, MetricAlarms, WatchedMetric

EVENT_ACTION = "holdfast:event"
"""The action of the last alarm of a chain: report the change as an event, and log it."""
MAX_ROLLED_UP = 45
"""Maximum operations in one rule. Two alarms for each stay below the limit of 100."""
MAX_RULE = MAX_CHARACTERS - 500
"""Maximum characters of a rule, with room for the next link."""
ANY_RESOURCE = "any-shared-resource"
"""The alarm over the alarms of all shared resources, if there are several."""
IMPACTED_ZONES = 2
"""Zones whose consumers must be affected before a shared resource is blamed."""


@dataclass(frozen=True, slots=True)
class AlarmTree:
    """All alarms of a workload."""

    metrics: Mapping[str, WatchedMetric]
    composites: Mapping[str, CompositeAlarm]
    graph: AlarmGraph
    roots: tuple[str, ...]
    """Names of the alarms that no other alarm uses."""
    about_operations: frozenset[str]
    """Names of the alarms about single operations. There may be thousands."""

    def get_alarm(self, name: str) -> Alarm:
        """Return an alarm. Raise KeyError if there is none."""
        return self.composites[name] if name in self.composites else self.metrics[name].alarm

    def get_children(self, name: str) -> tuple[str, ...]:
        """Return the names of the alarms in the rule of an alarm; none for a metric alarm."""
        return self.composites[name].children if name in self.composites else ()


class _Part(NamedTuple):
    """Alarms about one operation in one zone."""

    metrics: tuple[WatchedMetric, ...]
    composites: tuple[CompositeAlarm, ...]


class TreeBuilder:
    """Builds the trees of one workload. Keeps the alarms of known operations, so that the next tree is built quickly.

    Not thread-safe.
    """

    def __init__(self, declaration: AlarmDeclaration) -> None:
        self._declaration = declaration
        self._metrics = MetricAlarms(declaration)
        self._parts: dict[tuple[Zone, Operation, frozenset[Side]], _Part] = {}
        shortest = [zone.rpartition("-")[2] for zone in declaration.zones]
        is_unique = len(set(shortest)) == len(shortest)
        self._short = dict(zip(declaration.zones, shortest if is_unique else declaration.zones, strict=True))

        impacts = [f"{resource}-impact" for resource, _ in declaration.resources]
        self._suppressor = ANY_RESOURCE if len(impacts) > 1 else next(iter(impacts), None)
        """The alarm that withholds the actions of each zone: an alarm has at most one suppressor."""

    def build(self, measured: Iterable[MeasuredOperation]) -> AlarmTree:
        """Return the alarms for some operations. A new one at the end changes the fewest rules."""
        sides: dict[Operation, set[Side]] = {each: set() for each in self._declaration.operations}
        for operation, side in measured:
            if side is not Side.CLIENT and (operation in sides or not self._declaration.operations):
                sides.setdefault(operation, set()).add(side)
        kept = {(zone, each, frozenset(found)) for each, found in sides.items() for zone in self._declaration.zones}
        self._parts = {key: part for key, part in self._parts.items() if key in kept}
        metrics: list[WatchedMetric] = []
        composites: list[CompositeAlarm] = []
        for zone in self._declaration.zones:
            for operation, found in sides.items():
                part = self._find_part(zone, operation, frozenset(found))
                metrics += part.metrics
                composites += part.composites
        about_operations = {each.alarm.alarm_name for each in metrics} | {each.alarm_name for each in composites}
        for zone in self._declaration.zones:
            composites += self._roll_up(zone, sides)
            for part in (self._watch_throughput(zone), self._watch_contributors(zone), self._watch_resources(zone)):
                metrics += part.metrics
                composites += part.composites
            metrics.append(self._metrics.watch_silence(zone))
            composites += (self._isolate(zone), self._conclude(zone))
        composites += self._blame_resources()
        graph = AlarmGraph([each.alarm.alarm_name for each in metrics], composites)
        names = [*(each.alarm_name for each in composites), *(each.alarm.alarm_name for each in metrics)]
        return AlarmTree(
            {each.alarm.alarm_name: each for each in metrics},
            graph.composites,
            graph,
            tuple(name for name in names if not graph.get_parents(name)),
            frozenset(about_operations),
        )

    def _find_part(self, zone: Zone, operation: Operation, sides: frozenset[Side]) -> _Part:
        key = zone, operation, sides
        if key not in self._parts:
            self._parts[key] = self._watch_operation(zone, operation, sorted(sides or {Side.SERVER}))
        return self._parts[key]

    def _watch_operation(self, zone: Zone, operation: Operation, sides: Sequence[Side]) -> _Part:
        name = name_operation(zone, operation)
        metrics: list[WatchedMetric] = []
        composites: list[CompositeAlarm] = []
        for kind, watch, text in (
            (
                "availability",
                self._metrics.watch_availability,
                f"{self._metrics.max_faults} of the requests of {operation} fail in {zone}.",
            ),
            (
                "latency",
                self._metrics.watch_latency,
                f"Requests of {operation} are slow in {zone}: {self._metrics.slowness}.",
            ),
        ):
            found = [
                watch(f"{name}-{kind}-{side}", SeriesReference("", zone, operation, side), pattern)
                for side in reversed(sides)
                for pattern in PATTERNS
            ]
            metrics += found
            composites.append(_any_of(f"{name}-{kind}", _get_names(found), text))
        if Side.SERVER in sides:
            found = [
                self._metrics.watch_outlier(f"{name}-chi-squared", zone, operation, pattern) for pattern in PATTERNS
            ]
            metrics += found
            text = f"The faults of {operation} in {zone} differ from those in other zones."
            composites.append(_any_of(f"{name}-chi-squared", _get_names(found), text))
        return _Part(tuple(metrics), tuple(composites))

    def _watch_throughput(self, zone: Zone) -> _Part:
        name = f"{self._short[zone]}-throughput"
        found = [self._metrics.watch_throughput(name, zone, pattern) for pattern in PATTERNS]
        return _Part(tuple(found), (_any_of(name, _get_names(found), f"{zone} gets {self._metrics.low_throughput}."),))

    def _watch_contributors(self, zone: Zone) -> _Part:
        name = f"not-single-instance-{zone}"
        found = [
            self._metrics.count_contributors(f"{name}-errors", zone, ERRING, "faults"),
            self._metrics.count_contributors(f"{name}-latency", zone, SLOW, "slow requests"),
        ]
        names = (*_get_names(found), f"{self._short[zone]}-throughput")
        text = f"Several instances of {zone} have faults or slow requests, or it gets much less traffic than usual."
        return _Part(tuple(found), (_any_of(name, names, text),))

    def _watch_resources(self, zone: Zone) -> _Part:
        metrics: list[WatchedMetric] = []
        composites: list[CompositeAlarm] = []
        for resource, operations in self._declaration.resources:
            name = f"{resource}-{zone}"
            found = [
                watch(
                    f"{name_operation(name, operation)}-{kind}",
                    SeriesReference("", zone, operation, Side.CLIENT),
                    pattern,
                    TreatMissingData.BREACHING,
                )
                for operation in operations
                for kind, watch in (
                    ("availability", self._metrics.watch_availability),
                    ("latency", self._metrics.watch_latency),
                )
                for pattern in PATTERNS
            ]
            metrics += found
            rule = And((_find_any(_get_names(found)), Not(_in_alarm(f"{zone}-no-telemetry"))))
            composites.append(
                _compose(name, rule, f"Consumers of {resource} in {zone} get faults, slow answers or none.")
            )
        if metrics:
            metrics.append(self._metrics.watch_telemetry(zone))
        return _Part(tuple(metrics), tuple(composites))

    def _roll_up(self, zone: Zone, sides: Mapping[Operation, set[Side]]) -> Iterator[CompositeAlarm]:
        """Yield the alarms over all operations of a zone."""
        texts = {
            "availability": f"{self._metrics.max_faults} of the requests of an operation fail in {zone}.",
            "latency": f"Requests of an operation are slow in {zone}: {self._metrics.slowness}.",
        }
        for kind, text in texts.items():
            rules: list[Rule] = [_in_alarm(f"{name_operation(zone, each)}-{kind}") for each in sides]
            yield from _chain(f"{self._short[zone]}-{kind}", rules, text)
        # The test also finds the zone with far fewer faults than the others: so its availability must be bad, too.
        outliers: list[Rule] = [
            And((_in_alarm(f"{name}-chi-squared"), _in_alarm(f"{name}-availability")))
            for each, found in sides.items()
            if Side.SERVER in found or not found
            for name in (name_operation(zone, each),)
        ]
        text = (
            f"The faults of an operation in {zone} differ from those in other zones, and too many of its requests fail."
        )
        yield from _chain(f"{zone}-chi-squared", outliers, text)

    def _isolate(self, zone: Zone) -> CompositeAlarm:
        own = _find_any(self._list_impacts(zone))
        others = [name for each in self._declaration.zones if each != zone for name in self._list_impacts(each)]
        is_isolated = Or((Not(_find_any(others)), _in_alarm(f"{zone}-chi-squared")))
        text = f"{zone} is affected: no other zone is, or its faults differ from those in other zones."
        return _compose(f"{zone}-aggregate-alarm", And((own, is_isolated)), text)

    def _conclude(self, zone: Zone) -> CompositeAlarm:
        rule = And((_in_alarm(f"{zone}-aggregate-alarm"), _in_alarm(f"not-single-instance-{zone}")))
        text = f"Only {zone} is affected, and not by single instances: consider taking it out."
        alarm = _with_actions(_compose(f"{zone}-isolated-impact", rule, text))
        if self._suppressor is None:
            return alarm
        seconds = self._declaration.options.suppression_period
        return replace(
            alarm,
            actions_suppressor=self._suppressor,
            actions_suppressor_wait_period=seconds,
            actions_suppressor_extension_period=seconds,
        )

    def _list_impacts(self, zone: Zone) -> list[str]:
        return [f"{self._short[zone]}-{kind}" for kind in ("availability", "latency", "throughput")]

    def _blame_resources(self) -> Iterator[CompositeAlarm]:
        for resource, _ in self._declaration.resources:
            names = tuple(f"{resource}-{zone}" for zone in self._declaration.zones)
            rule = AtLeast(IMPACTED_ZONES, False, StateValue.ALARM, False, names)
            text = f"Consumers of {resource} are affected in {IMPACTED_ZONES} zones or more: consider a failover."
            yield _with_actions(_compose(f"{resource}-impact", rule, text))
        if self._suppressor == ANY_RESOURCE:
            impacts: list[Rule] = [_in_alarm(f"{resource}-impact") for resource, _ in self._declaration.resources]
            yield from _chain(
                ANY_RESOURCE, impacts, "A shared resource is affected: consider a failover before you take a zone out."
            )


def name_operation(prefix: str, operation: Operation) -> str:
    """Return the first part of the names of an operation's alarms. Two operations never have the same."""
    text = "/".join(quote(each, safe="") for each in (operation.service, operation.name))
    longest = MAX_NAME - len(prefix) - 40  # the rest of the name
    if len(text) > longest:
        text = f"{text[: longest - 17]}~{blake2b(text.encode(), digest_size=8).hexdigest()}"
    return f"{prefix}/{text}"


def _get_names(metrics: Iterable[WatchedMetric]) -> tuple[str, ...]:
    return tuple(each.alarm.alarm_name for each in metrics)


def _in_alarm(name: str) -> StateIs:
    return StateIs(StateValue.ALARM, name)


def _find_any(names: Iterable[str]) -> Rule:
    return _join([_in_alarm(each) for each in names])


def _join(rules: Sequence[Rule]) -> Rule:
    """Return a rule that is true if any of `rules` is."""
    if not rules:
        return Constant(value=False)
    return rules[0] if len(rules) == 1 else Or(tuple(rules))


def _any_of(name: str, children: Iterable[str], text: str) -> CompositeAlarm:
    return _compose(name, _find_any(children), text)


def _compose(name: str, rule: Rule, text: str) -> CompositeAlarm:
    return CompositeAlarm(alarm_name=name, alarm_description=text, alarm_rule=format_alarm_rule(rule))


def _with_actions(alarm: CompositeAlarm) -> CompositeAlarm:
    return replace(alarm, ok_actions=(EVENT_ACTION,), alarm_actions=(EVENT_ACTION,))


def _chain(name: str, rules: Sequence[Rule], text: str) -> Iterator[CompositeAlarm]:
    """Yield an alarm over many rules. If one rule would be too long, its last part is a further alarm, and so on.

    So a new rule at the end changes only the last alarm.
    """
    links: list[list[Rule]] = [[]]
    size = 0
    for rule in rules:
        length = len(format_alarm_rule(rule)) + len(" OR ()")
        if len(links[-1]) == MAX_ROLLED_UP or size + length > MAX_RULE:
            links.append([])
            size = 0
        links[-1].append(rule)
        size += length
    for number, link in enumerate(links, 1):
        if number < len(links):
            link.append(_in_alarm(f"{name}-{number + 1}"))
        yield _compose(name if number == 1 else f"{name}-{number}", _join(link), text)
