"""The steps of a run with their expected times, and what the smaller class saves. Pure.

A plan uses the rules and waiting times of the state machine, on a model of the cluster in which every modification
takes the same time and nothing fails.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast._errors import InvalidValue
from holdfast.aurora.cluster import Cluster
from holdfast.aurora.machine import FAILOVER_WAIT, FIRST_WAIT, MAX_RETRIES, RETRY_WAIT
from holdfast.aurora.rules import (
    CheckOutcome,
    ClusterState,
    Decision,
    Role,
    check_instance,
    decide_modification,
    decide_start,
)

__all__ = ["Plan", "PlannedStep", "Prices", "Saving", "compute_saving", "plan_run"]

MODIFICATION_SECONDS = 700.0
"""Expected time of a modification: RDS usually takes 5 to 15 minutes."""
DAYS_PER_MONTH = 365 / 12
MINIMUM_HOURS = 1 / 6
"""AWS bills at least ten minutes after a class change."""
LONGEST_WAIT = FIRST_WAIT + MAX_RETRIES * RETRY_WAIT
"""Seconds until the last check of a step."""
LAST_STATE = "SendCompletionNotification"
"""The last state of a run in which every instance has got the class."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a run."""

    at: float
    """Seconds since the beginning of the run."""
    state: str
    """The state of the state machine."""
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The expected steps of a run."""

    steps: tuple[PlannedStep, ...]
    changed_count: int
    """The number of instances that get another class."""
    is_complete: bool
    """Whether all instances would get the class. Otherwise the last step says why not."""

    @property
    def seconds(self) -> float:
        return self.steps[-1].at


def plan_run(cluster: Cluster, classes: Sequence[str], modification_seconds: float = MODIFICATION_SECONDS) -> Plan:
    """Return the steps of a run that begins now, if nothing fails and no instance is added or removed."""
    _check_amount("modification_seconds", modification_seconds)
    model = _Model(cluster, classes, modification_seconds)
    steps = tuple(model.run())
    return Plan(steps, model.changed_count, is_complete=steps[-1].state == LAST_STATE)


def _check_amount(name: str, value: float) -> None:
    """Raise InvalidValue for a number that is negative, infinite or not a number."""
    if not 0 <= value < math.inf:
        raise InvalidValue(f"{name} is {value:g}: expected 0 or more")


class _Model:
    """A cluster that changes as time passes."""

    def __init__(self, cluster: Cluster, classes: Sequence[str], modification_seconds: float) -> None:
        self._cluster = cluster
        self._classes = classes
        self._modification_seconds = modification_seconds
        self._now = 0.0
        self.changed_count = 0

    def run(self) -> Iterator[PlannedStep]:
        (state, reason), writer, reader = (
            decide_start(self._cluster),
            self._cluster.writer,
            self._cluster.dedicated_reader,
        )
        yield PlannedStep(0.0, "EvaluateClusterState", reason)
        if state is not ClusterState.READY or writer is None or reader is None:
            return
        parts = [("DedicatedReader", reader.id), ("Failover", reader.id), ("OldWriter", writer.id)]
        if writer.has_class(self._classes):
            parts.remove(("Failover", reader.id))
        parts += [("AutoScalingReader", each.id) for each in self._cluster.other_readers]
        for step, name in parts:
            yield from self._fail_over(name) if step == "Failover" else self._modify(step, name)
            instance = self._cluster.find(name)
            if instance is not None and not instance.is_ready(self._classes):
                fails = "fails here:" if instance.status == "modifying" else "fails if"
                text = f"the run {fails} {name} needs longer than {LONGEST_WAIT // 60} minutes"
                yield PlannedStep(self._now, f"{step}StatusError", text)
                return
        yield PlannedStep(self._now, "FinalVerification", "check all instances")
        yield PlannedStep(self._now, LAST_STATE, "notify, and release the lock")

    def _modify(self, step: str, name: str) -> Iterator[PlannedStep]:
        decision, reason = decide_modification(self._cluster, name, self._classes)
        if decision is not Decision.ACT:
            advice = "nothing to do" if decision is Decision.ALREADY_DONE else "it cannot be modified now"
            yield PlannedStep(self._now, f"Scale{step}", f"{reason}: {advice}")
            return
        yield PlannedStep(self._now, f"Scale{step}", f"modify {name}: {reason}, and gets {self._classes[0]}")
        self.changed_count += 1
        self._update(name, status="modifying")
        yield from self._await(step, name, self._now + self._modification_seconds)

    def _fail_over(self, name: str) -> Iterator[PlannedStep]:
        text = f"fail over to {name}: connections end, and writes fail for up to a minute"
        yield PlannedStep(self._now, "FailoverToDedicatedReader", text)
        for each in self._cluster.instances:
            self._update(each.id, is_writer=each.id == name)
        self._now += FAILOVER_WAIT
        yield PlannedStep(self._now, "CheckFailoverStatus", f"{name} is the writer")

    def _await(self, step: str, name: str, ready_at: float) -> Iterator[PlannedStep]:
        """Check after a minute, then every ten minutes, as the state machine does."""
        for number in range(MAX_RETRIES + 1):
            self._now += FIRST_WAIT if number == 0 else RETRY_WAIT
            if self._now >= ready_at:
                self._update(name, status="available", instance_class=self._classes[0])
            outcome, reason = check_instance(self._cluster, name, self._classes, Role.ANY)
            if outcome is CheckOutcome.READY:
                yield PlannedStep(self._now, f"Check{step}Status", reason)
                return
            again = f"not ready yet, check again in {RETRY_WAIT // 60} minutes"
            yield PlannedStep(self._now, f"Check{step}Status", again if number < MAX_RETRIES else reason)

    def _update(self, name: str, **fields: Any) -> None:
        instances = (replace(each, **fields) if each.id == name else each for each in self._cluster.instances)
        self._cluster = replace(self._cluster, instances=tuple(instances))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices in any currency, and how long the instances are small."""

    old: float
    """Price of an instance per hour, with its present class."""
    new: float
    hours: float
    """Hours per day with the new class."""
    network: float = 0.0
    """Cost per month of NAT gateways and interface endpoints that exist only for scaling."""

    def __post_init__(self) -> None:
        for name in ("old", "new", "network"):
            _check_amount(name, getattr(self, name))
        if not 0 < self.hours <= 24:
            raise InvalidValue(f"hours is {self.hours:g}: expected more than 0, and at most 24 hours per day")


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of a month, in the currency of the prices."""

    by_instances: float
    """Saved by instances that are billed on demand. You pay for reserved instances in any case."""
    network: float
    """Cost of the network."""

    @property
    def total(self) -> float:
        return self.by_instances - self.network


def compute_saving(prices: Prices, instances: int) -> Saving:
    """Return what `instances` save per month if they have the new class for some hours of each day."""
    day = prices.old * prices.hours - prices.new * max(prices.hours, MINIMUM_HOURS)
    return Saving(day * DAYS_PER_MONTH * instances, prices.network)


def format_duration(seconds: float) -> str:
    """Return a duration as h:mm:ss, however many hours there are."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
