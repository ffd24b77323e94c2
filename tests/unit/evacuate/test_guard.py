"""What a verdict may lead to."""

import pytest

from holdfast import Verdict, VerdictKind, Zone, ZoneState
from holdfast.evacuate import decide_evacuation

ONE, TWO = Zone("az1"), Zone("az2")
BOTH = frozenset({ONE, TWO})


def verdict(kind: VerdictKind = VerdictKind.ISOLATED, zone: Zone | None = ONE) -> Verdict:
    return Verdict(id="v", workload="shop", kind=kind, zone=zone, since=1.0, at=2.0)


def test_an_isolated_zone_is_left() -> None:
    assert decide_evacuation(verdict(), BOTH, {}).zone == ONE


@pytest.mark.parametrize("kind", [kind for kind in VerdictKind if kind is not VerdictKind.ISOLATED])
def test_no_other_verdict_sends_a_zone_away(kind: VerdictKind) -> None:
    assert decide_evacuation(verdict(kind), BOTH, {}).zone is None


@pytest.mark.parametrize("state", [ZoneState.OUT, ZoneState.DRAINING, ZoneState.RETURNING])
def test_never_a_second_zone_while_one_is_not_in(state: ZoneState) -> None:
    decision = decide_evacuation(verdict(), frozenset({ONE, TWO, Zone("az3")}), {TWO: state})
    assert decision.zone is None
    assert f"az2 is {state}, and no second zone is evacuated" in decision.reason


def test_a_zone_of_another_workload_does_not_count() -> None:
    assert decide_evacuation(verdict(), BOTH, {Zone("az9"): ZoneState.OUT}).zone == ONE


def test_a_zone_that_is_out_already_is_left_alone() -> None:
    assert "already" in decide_evacuation(verdict(), BOTH, {ONE: ZoneState.DRAINING}).reason


def test_a_zone_that_fails_again_while_it_returns_is_left_again() -> None:
    assert decide_evacuation(verdict(), BOTH, {ONE: ZoneState.RETURNING}).zone == ONE


def test_the_only_zone_is_never_left() -> None:
    assert decide_evacuation(verdict(), frozenset({ONE}), {}).zone is None
