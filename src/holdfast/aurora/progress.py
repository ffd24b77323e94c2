"""Where a run is, or how it ended, from the history of its execution. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.aurora.machine import MAX_EXTRA_ROUNDS, MAX_RETRIES, Function, Resources, build_machine
from holdfast.aurora.notification import find_reason

__all__ = ["Progress", "read_progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The latest state of an execution, or the state in which it failed."""

    state: str
    """Its name in the state machine."""
    instance: str
    since: float
    waits_until: float | None
    retries: int
    """Retries of the step, of at most five."""
    rounds: int
    """Rounds over the whole cluster including this one, of at most four."""
    reason: str
    """The result of the last check in words, or the reason why the run failed."""

    @property
    def text(self) -> str:
        """The state in words."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.state).lower()
        instance = f" ({self.instance})" if self.instance else ""
        retry = f", retry {self.retries} of {MAX_RETRIES}" if self.retries else ""
        again = f", round {self.rounds} of {MAX_EXTRA_ROUNDS + 1}" if self.rounds > 1 else ""
        return words + instance + retry + again


def read_progress(events: Iterable[Mapping[str, Any]]) -> Progress | None:
    """Return the progress by events of GetExecutionHistory, which may be in any order; None before the first state."""
    entered = [each for each in events if "stateEnteredEventDetails" in each]
    entered.sort(key=lambda each: int(each["id"]), reverse=True)
    if not entered:
        return None
    failed = next((each for each in entered if re.fullmatch("(?!ReleaseLock).*Error", _get_name(each))), None)
    latest = failed or entered[0]
    name, data, since = _get_name(latest), _get_data(latest), latest["timestamp"].timestamp()
    counters = data.get("counters", {})
    return Progress(
        state=name,
        instance=_find_instance(name, data),
        since=since,
        waits_until=since + _WAITS[name] if name in _WAITS else None,
        retries=next((each["retries"] for key, each in counters.items() if key.lower() in name.lower()), 0),
        rounds=1 + counters.get("overall", {"retries": 0})["retries"],
        reason=find_reason(name, data) if failed else data.get("check", {}).get("reason", ""),
    )


def _find_instance(name: str, data: Mapping[str, Any]) -> str:
    if "AutoScalingReader" in name:
        return str(data.get("instanceId", ""))
    known = data.get("cluster", {})
    if "OldWriter" in name:
        return str(known.get("oldWriterInstanceId", ""))
    is_dedicated = "DedicatedReader" in name or "Failover" in name
    return str(known.get("dedicatedReaderInstanceId", "")) if is_dedicated else ""


def _get_name(event: Mapping[str, Any]) -> str:
    return str(event["stateEnteredEventDetails"]["name"])


def _get_data(event: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(event["stateEnteredEventDetails"].get("input") or "{}"))


def _find_waits(states: Mapping[str, Any]) -> dict[str, int]:
    """Return the seconds of all Wait states, also of those inside a Map."""
    found = {name: state["Seconds"] for name, state in states.items() if state["Type"] == "Wait"}
    for state in states.values():
        found |= _find_waits(state.get("ItemProcessor", {}).get("States", {}))
    return found


_WAITS = _find_waits(build_machine(Resources(functions={each: each for each in Function}, lock_table=""))["States"])
