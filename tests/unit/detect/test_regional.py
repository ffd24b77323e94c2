"""Failures of several zones, and of resources that zones share."""

from collections.abc import Iterable
from dataclasses import replace as replace_window

import numpy as np
import pytest

from holdfast import Side, Zone
from holdfast.detect.measurements import list_keys, measure
from holdfast.detect.regional import (
    Observability,
    Regional,
    ResourceView,
    find_regional,
    get_past_evidence,
    view_resources,
)
from holdfast.detect.sentences import EvaluatedWindow
from holdfast.detect.streams import StreamStep, arrange
from holdfast.simulate.zones.traffic import Effect
from holdfast.telemetry import SharedResource, Window
from tests.unit.detect.service import HOME as HOME_INDEX
from tests.unit.detect.service import ONE, QUERY, THREE, TWO, by_cell, failing, simulate, without_cells
from tests.unit.detect.steps import BEGIN, EVERY, HOME, POOL, ZONE, build_step, change_cell, change_part, get_warm, run

ALL = slice(None)


def view(windows: Iterable[Window]) -> list[ResourceView]:
    """Return the views after the last window."""
    every = list(windows)
    state, step = run(get_warm(), every)
    last = every[-1]
    return view_resources(step, measure(last, state.keys), last)


@pytest.mark.parametrize(
    ("effects", "expected", "affected"),
    [
        ([], Observability.HEALTHY, ()),
        ([failing(2, ALL, 0.3)], Observability.GRAY, (ONE, TWO, THREE)),
        ([failing(2, slice(0, 2), 0.3)], Observability.GRAY, (ONE, TWO)),
        ([failing(2, ALL, 0.3), failing(3, 1, 0.3)], Observability.DETECTED, (ONE, TWO, THREE)),
        ([failing(3, 1, 0.3)], Observability.MASKED, ()),
    ],
)
def test_who_sees_the_failure_of_a_resource(
    effects: list[Effect], expected: Observability, affected: tuple[Zone, ...]
) -> None:
    [found] = view(simulate(effects, length=60))
    assert (found.name, found.zone, found.state, found.affected) == ("primary-database", TWO, expected, affected)
    assert found.is_failing is (len(affected) > 1)
    assert found.to_evidence() == {"observability": str(expected), "affected_zones": list(affected)}


def test_a_slow_resource_affects_its_consumers() -> None:
    slow = Effect(start=BEGIN, end=np.inf, latency=by_cell(2, ALL, 3.0, 1.0))
    [found] = view(simulate([slow], length=120))
    assert (found.affected, found.state) == ((ONE, TWO, THREE), Observability.GRAY)
    hardly = Effect(start=BEGIN, end=np.inf, latency=by_cell(2, ALL, 1.2, 1.0))
    [found] = view(simulate([hardly], length=120))
    assert found.affected == ()


def test_consumers_without_answers_for_three_bins_are_affected_if_their_zone_reports() -> None:
    def without(zones: Iterable[int], length: float, *, silent: bool = False) -> list[Window]:
        found = []
        for window in simulate(length=length):
            for zone in zones:
                for operation in window.operations if silent else (QUERY,):
                    for side in window.cells if silent else (Side.CLIENT,):
                        window = without_cells(window, side, operation, zone)  # noqa: PLW2901 - one change after another
            found.append(window)
        return found

    [found] = view(without([0, 1], 20.0))
    assert (found.affected, found.state) == ((), Observability.HEALTHY)
    [found] = view(without([0, 1], 30.0))
    assert (found.affected, found.silent, found.state) == ((ONE, TWO), (ONE, TWO), Observability.GRAY)
    [found] = view(without([0, 1], 30.0, silent=True))
    assert found.silent == (), "zones without any telemetry are no witnesses"


def test_a_resource_that_nobody_uses_is_healthy() -> None:
    unused = SharedResource("cache", ())
    [found] = view(replace_window(each, resources=(unused,)) for each in simulate(length=10))
    assert (found.state, found.affected, found.zone) == (Observability.HEALTHY, (), None)
    assert view(replace_window(each, resources=()) for each in simulate(length=10)) == []


def test_a_regional_failure_names_the_zones_that_are_worse_than_their_past() -> None:
    _, step = run(get_warm(), simulate([failing(slice(0, 2), slice(0, 2), 0.3)], length=60))
    found = find_regional(step, EVERY, BEGIN + 60, 10.0)
    assert found.zones == (0, 1)
    assert found.since is not None
    assert BEGIN <= found.since < BEGIN + 60
    alone = find_regional(build_step(), EVERY, BEGIN + 60, 10.0)
    assert (alone.zones, alone.since) == ((), None)


def test_evidence_from_latency_counts_only_if_the_zone_is_much_slower() -> None:
    slow = Effect(start=BEGIN, end=np.inf, latency=3.0)
    _, step = run(get_warm(), simulate([slow], length=60))
    assert (get_past_evidence(step, 10.0)[HOME] > 15).all()
    state = step.state.latency
    same = change_part(step, "latency", logs_40s=state.logs_40s - np.log(2.5) * state.counts_40s)
    assert (get_past_evidence(same, 10.0)[HOME] < 5).all()


def test_the_sentence_names_the_stream_or_says_that_one_zone_is_worse() -> None:
    windows = list(simulate(length=10))
    state = arrange(get_warm(), list_keys(windows[0]), (), BEGIN)
    evaluated = EvaluatedWindow(windows[0], build_step(), measure(windows[0], state.keys), [])
    assert Regional((0, 1), HOME, BEGIN).describe(evaluated) == f"several zones are worse than usual in {HOME_INDEX}"
    assert Regional((0, 1), POOL, BEGIN).describe(evaluated) == "several zones are worse than usual in all requests"
    assert Regional((), POOL, None).describe(evaluated) == "worse than usual"


def test_rows_with_more_affected_zones_come_first() -> None:
    found = find_regional(set_evidence(build_step(), rise=1.0), EVERY, BEGIN + 60, 10.0)
    assert (found.row, found.zones) == (HOME, (0, ZONE))


def test_a_zone_that_is_much_better_than_the_worst_does_not_make_a_failure_regional() -> None:
    assert find_regional(set_evidence(build_step(), rise=0.21), EVERY, BEGIN + 60, 10.0).zones == (0, ZONE)
    assert find_regional(set_evidence(build_step(), rise=0.19), EVERY, BEGIN + 60, 10.0).zones == ()


def set_evidence(step: StreamStep, rise: float) -> StreamStep:
    """Return the step with evidence against a second zone, which rises by a share of the rise of the failing one."""
    found = step.state.counts
    changes = {"against_past": change_cell(found.against_past, (HOME, 0), 30.0)}
    worst = (found.faults_40s[HOME, ZONE] + 0.5) / (found.expected_40s[HOME, ZONE] + 0.5) - 1
    faults = (1 + rise * worst) * (found.expected_40s[HOME, 0] + 0.5) - 0.5
    for name in ("faults_40s", "faults_10s"):
        changes[name] = change_cell(getattr(found, name), (HOME, 0), faults)
    return change_part(step, "counts", **changes)


def test_a_failure_that_has_ended_is_not_regional_any_more() -> None:
    both = [failing(slice(0, 2), slice(0, 2), 0.3, end=BEGIN + 120)]
    for length, zones in ((120, (0, 1)), (160, ())):
        _, step = run(get_warm(), simulate(both, length=length))
        assert find_regional(step, EVERY, BEGIN + length, 10.0).zones == zones
