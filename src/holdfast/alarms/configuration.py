"""Notice which alarms were created, changed or deleted since their definitions were saved. Pure."""

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec import Struct

from holdfast.alarms.alarm import Alarm, encode_json
from holdfast.alarms.tree import AlarmTree


class ConfigurationVerb(StrEnum):
    """The kinds of changes."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


class SavedDefinition(Struct, frozen=True):
    """The part of a definition that is saved: enough to notice a change."""

    alarm_type: str
    digest: str
    is_about_operation: bool
    """Whether the alarm is about a single operation. It then comes and goes with traffic."""


class ConfigurationChange(NamedTuple):
    """An alarm that was created, changed or deleted."""

    alarm_name: str
    verb: ConfigurationVerb
    definition: SavedDefinition
    at: float
    configuration: Mapping[str, Any]
    """The new definition. A deleted alarm has only its name."""
    is_first: bool = False
    """Whether no definition was saved before: Holdfast watches the workload for the first time."""
    is_by_traffic: bool = False
    """Whether an operation that is new, or is no longer measured, caused it. Otherwise the settings did."""

    @property
    def is_recorded(self) -> bool:
        """Whether the history has an item about it.

        Each new operation creates alarms, and changes the rules of others. The history has only changes by the
        settings, and no creation or deletion of alarms about single operations, of which there may be thousands.
        """
        is_about_settings = self.verb is ConfigurationVerb.UPDATED or not self.definition.is_about_operation
        return is_about_settings and not self.is_by_traffic


class DefinitionLog:
    """The definitions of all alarms of a workload. Not thread-safe."""

    def __init__(self, saved: Mapping[str, SavedDefinition]) -> None:
        self._known = dict(saved)
        self._alarms: dict[str, Alarm] = {}

    @property
    def known(self) -> Mapping[str, SavedDefinition]:
        """The definitions of all alarms, by name."""
        return self._known

    def update(self, tree: AlarmTree, at: float, *, is_by_traffic: bool = False) -> list[ConfigurationChange]:
        """Return the changes that lead to a tree."""
        is_first = not self._known
        alarms: dict[str, Alarm] = {name: watched.alarm for name, watched in tree.metrics.items()}
        alarms.update(tree.composites)
        changes = []
        for name, alarm in alarms.items():
            if self._alarms.get(name) is alarm:
                continue
            described = describe_alarm(alarm)
            digest = blake2b(encode_json(described).encode(), digest_size=8).hexdigest()
            definition = SavedDefinition(alarm.TYPE, digest, name in tree.about_operations)
            before = self._known.get(name)
            if before != definition:
                verb = ConfigurationVerb.CREATED if before is None else ConfigurationVerb.UPDATED
                changes.append(ConfigurationChange(name, verb, definition, at, described, is_first, is_by_traffic))
                self._known[name] = definition
        for name in [name for name in self._known if name not in alarms]:
            deleted = self._known.pop(name)
            verb, described = ConfigurationVerb.DELETED, {"alarmName": name}
            changes.append(ConfigurationChange(name, verb, deleted, at, described, is_by_traffic=is_by_traffic))
        self._alarms = alarms
        return changes


def describe_alarm(alarm: Alarm) -> dict[str, Any]:
    """Return the fields of an alarm that are set, with CloudWatch's names."""
    values = {each.name: getattr(alarm, each.name) for each in fields(alarm) if each.init}
    return {_to_camel_case(name): value for name, value in values.items() if value not in (None, (), "")}


def _to_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
