"""Acting on a verdict."""

from dataclasses import replace

import pytest

from holdfast import Conflict, Verdict, VerdictKind, Zone, ZoneState, ZoneStatus
from holdfast.evacuate import Evacuator
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import MAX_ATTEMPTS, StatusWriter
from holdfast.testing import FakeClock

ZONES = frozenset({Zone("az1"), Zone("az2")})
VERDICT = Verdict(id="v", workload="shop", kind=VerdictKind.ISOLATED, zone=Zone("az1"), since=1.0, at=2.0)


class Store(MemoryStatusStore):
    """A store in which the first so many writes meet somebody else's, and one comes after somebody took az2 out."""

    def __init__(self, *statuses: ZoneStatus, collisions: int = 0, rival: ZoneStatus | None = None) -> None:
        super().__init__()
        self._statuses.update({(status.zone, status.workload): status for status in statuses})
        self._collisions = collisions
        self._rival = rival

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        if self._collisions:
            self._collisions -= 1
            raise Conflict("somebody else was first")
        if self._rival is not None:
            rival, self._rival = self._rival, None
            super().write(rival, 0)
        return super().write(status, expected)


def status(zone: str, *, out: bool = True, expires: float | None = None, workload: str | None = "shop") -> ZoneStatus:
    return ZoneStatus(
        zone=Zone(zone),
        workload=workload,
        state=ZoneState.OUT if out else ZoneState.IN,
        since=1.0,
        by="test",
        reason="test",
        version=4,
        expires=expires,
    )


def evacuator(store: Store) -> Evacuator:
    clock = FakeClock(wall=1000.0)
    return Evacuator(store, clock, StatusWriter(store, clock))


def test_the_zone_is_marked_as_out_for_its_workload_with_the_verdict_as_the_reason() -> None:
    written = evacuator(Store()).evacuate(VERDICT, ZONES)
    assert written is not None
    assert (written.zone, written.workload, written.state.is_out, written.since) == ("az1", "shop", True, 1000.0)
    assert "verdict v" in written.reason


def test_acting_again_changes_nothing() -> None:
    store = Store()
    acting = evacuator(store)
    assert acting.evacuate(VERDICT, ZONES) is not None
    assert acting.evacuate(VERDICT, ZONES) is None


def test_a_zone_that_was_brought_back_can_be_left_again() -> None:
    written = evacuator(Store(status("az1", out=False))).evacuate(VERDICT, ZONES)
    assert written is not None
    assert (written.state.is_out, written.expires) == (True, None)
    assert written.version > 4


@pytest.mark.parametrize("other", [status("az2"), status("az2", workload=None)])
def test_nothing_is_done_while_another_zone_is_out(other: ZoneStatus) -> None:
    assert evacuator(Store(other)).evacuate(VERDICT, ZONES) is None


@pytest.mark.parametrize("other", [status("az2", expires=999.0), status("az2", workload="other")])
def test_what_has_expired_or_concerns_another_workload_does_not_count(other: ZoneStatus) -> None:
    assert evacuator(Store(other)).evacuate(VERDICT, ZONES) is not None


def test_a_collision_is_tried_again_and_too_many_are_told() -> None:
    assert evacuator(Store(collisions=MAX_ATTEMPTS - 1)).evacuate(VERDICT, ZONES) is not None
    with pytest.raises(Conflict):
        evacuator(Store(collisions=MAX_ATTEMPTS)).evacuate(VERDICT, ZONES)


@pytest.mark.parametrize("workload", ["shop", None])
def test_who_acts_at_the_same_moment_as_somebody_else_steps_back_and_leaves_it_at_that(workload: str | None) -> None:
    store = Store(rival=status("az2", workload=workload))
    acting = evacuator(store)
    with pytest.raises(Conflict, match="zone az2 was taken out at the same time, so az1 was not"):
        acting.evacuate(VERDICT, ZONES)
    assert acting.read_states("shop") == {"az2": ZoneState.OUT}
    assert acting.evacuate(VERDICT, ZONES) is None


def test_the_stricter_of_two_states_of_a_zone_holds() -> None:
    returning = replace(status("az2"), state=ZoneState.RETURNING, share=0.5)
    draining = replace(status("az2", workload=None), state=ZoneState.DRAINING)
    assert evacuator(Store(returning, draining, status("az3", out=False))).read_states("shop") == {
        "az2": ZoneState.DRAINING
    }
    assert evacuator(Store(returning)).read_states("shop") == {"az2": ZoneState.RETURNING}
    assert evacuator(Store(returning)).read_states("cart") == {}
