"""The capacity that remains without a zone, against a model of a balancer that gives every unit its load."""

import math
from collections.abc import Mapping
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast import Zone
from holdfast.evacuate.action import Discovery
from holdfast.evacuate.actions.capacity.scale_out import plan_scale_out
from holdfast.evacuate.capacity import MARGIN, ServiceCapacity, check_capacity
from holdfast.evacuate.guards import GuardName, GuardResult, Situation, check_guards
from holdfast.evacuate.journal import RecordedRuns

ZONES = [Zone(f"use1-az{number}") for number in range(1, 7)]
BAD = ZONES[0]
HUNDREDTHS = st.integers(0, 4000).map(lambda number: Fraction(number, 100))


def find_highest_load(
    units: Mapping[Zone, int], load: Fraction, *, is_cross_zone: bool, added: int = 0
) -> Fraction | float:
    """Return the load of the busiest unit when a balancer sends nothing to BAD. A unit can carry a load of 1.

    New units start where there are fewest, one after the other.
    """
    left = {zone: number for zone, number in units.items() if zone != BAD}
    for _ in range(added if left else 0):
        left[min(left, key=left.__getitem__)] += 1
    parts = [(load / len(left), number) for number in left.values()]
    if is_cross_zone or not left:
        parts = [(load, sum(left.values()))]
    return max((part / number if number else math.inf) if part else 0 for part, number in parts)


@st.composite
def services(draw: st.DrawFn) -> tuple[ServiceCapacity, Fraction]:
    """Draw a service, and its exact need."""
    zones = ZONES[: draw(st.integers(1, 6))]
    units = {zone: draw(st.integers(0, 12)) for zone in zones}
    # Half of the needs are close to the capacity, where guards are easily wrong.
    remaining = sum(number for zone, number in units.items() if zone != BAD)
    close = st.sampled_from([Fraction(remaining), Fraction(remaining * 100, 110), Fraction(remaining * 10 + 1, 10)])
    need = draw(st.one_of(HUNDREDTHS, close))
    service = ServiceCapacity(
        id=draw(st.text("ab", min_size=1, max_size=3)),
        name="shop",
        type="auto-scaling-group",
        by_zone={zone: float(number) for zone, number in units.items()},
        need=float(need),
        basis="as drawn",
        is_weak=draw(st.booleans()),
        is_cross_zone=draw(st.booleans()),
        added=draw(st.integers(0, 5)),
    )
    return service, need


def is_overloaded(service: ServiceCapacity, need: Fraction, margin: Fraction) -> bool:
    units = {zone: int(number) for zone, number in service.by_zone.items()}
    load = need * (1 + margin)
    return find_highest_load(units, load, is_cross_zone=service.is_cross_zone, added=int(service.added)) > 1


@settings(max_examples=1000)
@given(services(), st.integers(0, 100))
def test_capacity_suffices_exactly_if_no_unit_gets_more_than_it_can_carry(
    drawn: tuple[ServiceCapacity, Fraction], percent: int
) -> None:
    service, need = drawn
    suffices = check_capacity(service, BAD, percent / 100).suffices
    assert suffices is not is_overloaded(service, need, Fraction(percent, 100))
    if suffices:
        assert not is_overloaded(service, need, Fraction(0))


def ask_guard(*services: ServiceCapacity) -> GuardResult:
    situation = Situation(
        zone=BAD,
        workload="shop",
        zones=ZONES,
        now=0.0,
        states={},
        runs=RecordedRuns(0, ()),
        discoveries={"capacity": Discovery(capacities=services), "status": Discovery()},
        verdict=None,
    )
    (found,) = (each for each in check_guards(situation, {}) if each.name is GuardName.CAPACITY)
    return found


@settings(max_examples=400)
@given(st.lists(services(), min_size=1, max_size=4))
def test_the_guard_passes_exactly_if_every_service_can_do_without_the_zone(
    drawn: list[tuple[ServiceCapacity, Fraction]],
) -> None:
    lacking = [is_overloaded(service, need, Fraction(MARGIN).limit_denominator(100)) for service, need in drawn]
    found = ask_guard(*(service for service, _ in drawn))
    assert found.passed is not any(lacking)
    if any(service.is_weak and is_lacking for (service, _), is_lacking in zip(drawn[:3], lacking[:3], strict=True)):
        assert "weak evidence" in found.finding


@settings(max_examples=400)
@given(services())
def test_a_service_is_scaled_out_to_the_smallest_size_that_suffices(drawn: tuple[ServiceCapacity, Fraction]) -> None:
    service, need = replace(drawn[0], added=0.0), drawn[1]
    size = int(sum(service.by_zone.values()))
    found = plan_scale_out(service, BAD, desired=0, max_size=10_000)
    if len(service.by_zone) == 1 or check_capacity(service, BAD).suffices:
        assert (found.size, found.added) == (0, 0)
        return
    assert check_capacity(replace(service, added=found.added), BAD).suffices
    load = need * Fraction(110, 100)

    def is_enough(size: int) -> bool:
        """Return whether units suffice that are spread evenly, and of which BAD has as many as any other zone."""
        count = len(service.by_zone)
        spread = {zone: size // count + (number < size % count) for number, zone in enumerate(service.by_zone)}
        return find_highest_load(spread, load, is_cross_zone=service.is_cross_zone) <= 1

    assert is_enough(found.size)
    assert not any(is_enough(smaller) for smaller in range(found.size))
    bounded = plan_scale_out(service, BAD, desired=size, max_size=size)
    assert (bounded.size, bounded.added) == (0, 0)
    assert bounded.limit in ("", f"MaxSize {size}")


def test_the_guard_says_what_a_service_lacks_why_and_how_well_it_is_known() -> None:
    service = ServiceCapacity(
        id="arn",
        name="shop",
        type="auto-scaling-group",
        by_zone=dict.fromkeys(ZONES[:3], 2.0),
        need=4.0,
        basis="its current desired size",
        is_weak=True,
        limit="MaxSize 6",
    )
    refused = ask_guard(service)
    assert refused.finding == (
        "shop has 4 healthy units in the other zones, and needs 4.4 with the margin of 10 % (its current desired size; "
        "this is weak evidence, "
        "because the load is only estimated; Holdfast cannot add enough: MaxSize 6)"
    )
    assert "scale_out_first" in refused.remedy
    passed = ask_guard(replace(service, added=1.0))
    assert passed.passed
    assert "for 1 of them, the load is only estimated" in passed.finding


def test_a_margin_of_ten_per_cent_is_exact() -> None:
    """In floats, 100 units and 10 % are a little more than 110."""
    service = ServiceCapacity(id="a", name="a", type="t", by_zone={BAD: 55.0, ZONES[1]: 110.0}, need=100.0, basis="b")
    assert check_capacity(service, BAD).suffices
