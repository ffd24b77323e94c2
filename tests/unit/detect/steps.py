"""Steps of the calibrated detector's parts, for tests that change a single quantity of them."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from msgspec.structs import replace

from holdfast.detect.cusum import Array
from holdfast.detect.findings import GuardConditions
from holdfast.detect.measurements import list_keys, measure
from holdfast.detect.streams import StreamState, StreamStep, advance, arrange
from holdfast.simulate.zones.traffic import Effect
from holdfast.telemetry import Window
from tests.unit.detect.service import QUERY, START, WARM, ZONES, by_cell, failing, simulate, warm_up

BEGIN = START + WARM
"""The end of the warm-up, and the start of all failures."""
HOME, POOL = 1, 4
"""The rows of an operation and of the pool."""
ZONE = 1
"""The zone that fails."""
EVERY = np.ones(len(ZONES), np.bool_)


def get_warm() -> StreamState:
    found = warm_up().streams
    assert found is not None
    return found


def run(
    state: StreamState, windows: Iterable[Window], *, is_learning: bool = True, zones_out: Sequence[int] = ()
) -> tuple[StreamState, StreamStep]:
    active = EVERY.copy()
    active[list(zones_out)] = False
    step = None
    for window in windows:
        state = arrange(state, list_keys(window), {QUERY}, window.end)
        step = advance(
            state,
            measure(window, state.keys),
            window.end,
            window.seconds,
            active=active,
            balanced=active,
            false_isolations=0.2,
            is_learning=is_learning,
        )
        state = step.state
    assert step is not None
    return state, step


@cache
def build_step() -> StreamStep:
    """Return a step in which one zone fails most requests of all operations."""
    return run(get_warm(), simulate([failing(slice(0, 2), ZONE, 0.6)], length=60))[1]


@cache
def build_slow_step() -> StreamStep:
    """Return a step in which one zone takes three times as long."""
    slow = Effect(start=BEGIN, end=np.inf, latency=by_cell(slice(None), ZONE, 3.0, 1.0))
    return run(get_warm(), simulate([slow], length=60))[1]


def build_conditions(**changes: Any) -> GuardConditions:
    usual = GuardConditions(BEGIN + 60, 10.0, np.ones(3, np.bool_), 0.0, 0.2, np.ones(3, np.bool_))
    return replace(usual, **changes)


def change_part(step: StreamStep, part: str, **changes: Any) -> StreamStep:
    """Return the step with other arrays in one part of its state."""
    return replace(step, state=replace(step.state, **{part: replace(getattr(step.state, part), **changes)}))


def change_cell(array: Array, cell: tuple[int, int], value: float) -> Array:
    """Return the array with another value at a stream and zone, for all rises."""
    found = array.copy()
    found[(..., *cell)] = value
    return found
