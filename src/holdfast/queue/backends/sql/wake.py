"""Serve tenants again that had been at their concurrency limit."""

from collections.abc import Iterable

from holdfast.queue.backends.sql.step import Step
from holdfast.queue.message import PRIORITY_LEVELS
from holdfast.queue.rules.placement import spill_lane

_ASLEEP = "select id from holdfast_queue_lane where queue = $1 and turn > $2 and number {numbers}"


def wake_spilled(step: Step, tenants: Iterable[int]) -> bool:
    """Let the overflow lanes of these tenants be served immediately. Return whether any lane had been postponed."""
    numbers = [spill_lane(tenant, priority) for tenant in tenants for priority in range(PRIORITY_LEVELS)]
    if not numbers:
        return False
    statement = _ASLEEP.format(numbers=step.dialect.among("$3"))
    lanes = step.transaction.execute(statement, (step.queue, step.at, step.dialect.numbers(numbers)))
    for (lane,) in lanes:
        step.lane(lane).turn = step.at
    return bool(lanes)
