"""A fleet changes one slot at a time, and refuses what would void its promises."""

import math

import pytest

from holdfast import InvalidValue, NotFound
from holdfast.shards import Fleet, Slot

ZONES = {"az1": ["a", "b"], "az2": ["c", "d"]}


def workers(fleet: Fleet) -> list[str]:
    return [slot.worker for slot in fleet.slots]


def test_workers_have_slots_in_the_order_they_came() -> None:
    fleet = Fleet.grouped(ZONES)
    assert workers(fleet) == ["a", "b", "c", "d"]
    assert fleet.groups() == {("az1",): [0, 1], ("az2",): [2, 3]}
    assert fleet.place_of("c") == 2
    assert len(Fleet.of("abc")) == 3


def test_what_is_added_comes_last() -> None:
    fleet = Fleet.grouped(ZONES).add(Slot(worker="e", group=("az1",)))
    assert fleet.groups()[("az1",)] == [0, 1, 4]


def test_a_worker_is_replaced_in_its_slot() -> None:
    fleet = Fleet.grouped(ZONES).drain("b")
    assert fleet.slots[1].is_drained
    fleet = fleet.replace(1, "z")
    assert workers(fleet) == ["a", "z", "c", "d"]
    assert not fleet.slots[1].is_drained
    assert fleet.slots[1].group == ("az1",)


def test_a_fleet_is_doubled_group_by_group() -> None:
    fleet = Fleet.grouped(ZONES).double(["e", "f", "g", "h"])
    assert fleet.groups() == {("az1",): [0, 1, 4, 5], ("az2",): [2, 3, 6, 7]}
    with pytest.raises(InvalidValue, match="1 workers to double a fleet of 8"):
        fleet.double(["i"])


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_is_a_number_above_nothing(weight: float) -> None:
    with pytest.raises(InvalidValue, match="weight"):
        Slot(worker="a", weight=weight)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidValue, match="without a name"):
        Slot(worker="")
    with pytest.raises(InvalidValue, match="worker a is in two slots"):
        Fleet.of(["a", "b", "a"])
    with pytest.raises(InvalidValue, match="expected as many for each"):
        Fleet(slots=(Slot(worker="a", group=("az1",)), Slot(worker="b")))
    with pytest.raises(NotFound, match="no worker z"):
        Fleet.of("ab").place_of("z")
    with pytest.raises(InvalidValue, match="slot 2: expected 0 to 1"):
        Fleet.of("ab").replace(2, "c")


def test_two_workers_on_one_machine_are_refused_unless_allowed() -> None:
    """What shards share would no longer say what fails together."""
    slots = (Slot(worker="a", host="m-1"), Slot(worker="b", host="m-2"), Slot(worker="c", host="m-1"))
    with pytest.raises(InvalidValue, match=r"workers a and c are both on m-1.*share_hosts"):
        Fleet(slots=slots)
    assert len(Fleet(slots=slots, share_hosts=True)) == 3
    assert len(Fleet.of("abc")) == 3, "machines that are not named are different ones"
