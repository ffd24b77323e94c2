"""A scenario has a size, times and names, and says which states its zones have."""

import numpy as np
import pytest

from holdfast import InvalidValue
from holdfast._types import Side, Zone, ZoneState
from holdfast.simulate.zones.scenario import (
    START,
    Size,
    StateSpan,
    build_fleet,
    build_scenario,
    build_times,
    in_zone,
    move_traffic,
)
from holdfast.simulate.zones.traffic import Fleet


def fleet(size: Size | None = None, **changes: float) -> Fleet:
    return build_fleet(np.random.default_rng(1), size or Size(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"), [("operations", 0), ("operations", 2001), ("instances", 0), ("instances", 201), ("hours", 0.5)]
)
def test_a_size_out_of_range_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is {value}: expected"):
        Size(**{name: value})  # type: ignore[arg-type]


def test_the_failure_starts_with_a_bin_after_the_detector_has_learned() -> None:
    for seed in range(20):
        times = build_times(np.random.default_rng(seed), Size(hours=1))
        assert (times.start, times.end) == (START, START + 3600)
        assert (times.failure - START) % 10 == 0
        assert 1800 < times.failure - START <= 2400
        assert times.recovery == min(times.failure + 1200, times.end)
    assert build_times(np.random.default_rng(1), Size(), hours=3).end == START + 3 * 3600


def test_the_size_of_the_user_replaces_that_of_the_scenario() -> None:
    own, chosen = fleet(operations=4, instances=2), fleet(Size(operations=7, instances=3), operations=4, instances=2)
    assert (own.requests.shape, own.instances) == ((4, 3), 2)
    assert (chosen.requests.shape, chosen.instances) == ((7, 3), 3)


def test_fault_rates_are_fixed_or_drawn_and_traffic_varies_by_operation() -> None:
    fixed, drawn = (
        fleet(operations=50, base=0.01),
        build_fleet(np.random.default_rng(1), Size(operations=50), base=None),
    )
    assert fixed.fault_rates.mean() == pytest.approx(0.01, rel=0.1)
    assert drawn.fault_rates.max() / drawn.fault_rates.min() > 100
    assert np.allclose(fixed.requests, 600.0)
    assert np.log(fleet(operations=200, traffic_spread=1.3).requests).std() == pytest.approx(1.3, rel=0.15)


def test_names_are_those_of_zones_operations_and_instances() -> None:
    times = build_times(np.random.default_rng(1), Size())
    several = build_scenario(fleet(operations=2, instances=2), times)
    assert several.zones == ("use1-az1", "use1-az2", "use1-az3")
    assert [str(each) for each in several.operations] == ["shop/operation001", "shop/operation002"]
    assert several.instances[1] == ("use1-az2-01", "use1-az2-02")
    assert several.sides == (Side.SERVER, Side.SERVER)
    assert build_scenario(fleet(), times).instances == (("",), ("",), ("",))


def test_a_zone_is_in_but_for_the_time_of_its_state() -> None:
    zone = Zone("use1-az2")
    times = build_times(np.random.default_rng(1), Size())
    created = build_scenario(fleet(), times, states=(StateSpan(100, 200, zone, ZoneState.DRAINING),))
    found = [created.get_states(at) for at in (99, 100, 199, 200)]
    assert found == [{}, {zone: ZoneState.DRAINING}, {zone: ZoneState.DRAINING}, {}]


def test_a_value_applies_to_all_operations_of_one_zone() -> None:
    two = fleet(operations=2)
    assert in_zone(two, 1, 0.5).tolist() == [[0, 0.5, 0], [0, 0.5, 0]]
    assert in_zone(two, 1, 2.0, elsewhere=1.0).tolist() == [[1, 2, 1], [1, 2, 1]]


def test_moved_traffic_goes_to_the_other_zones_in_proportion_to_their_own() -> None:
    uneven = build_fleet(np.random.default_rng(1), Size(), shares=(0.7, 0.2, 0.1))
    factors = move_traffic(uneven, 0)
    assert (uneven.requests * factors).sum() == pytest.approx(uneven.requests.sum())
    assert factors[0] == pytest.approx([0.0, 1 / 0.3, 1 / 0.3])
