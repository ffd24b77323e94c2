"""A fleet changes one slot at a time, and refuses what would void its promises."""

import math

import pytest

from holdfast import InvalidValue, NotFound
from holdfast.shards import Fleet, Slot

ZONES = {"az1": ["a", "b"], "az2": ["c", "d"]}


ALREADY = "worker b is in the fleet already: expected a new one; use `replace_with_spare` for a spare one"


def workers(fleet: Fleet) -> list[str]:
    return [slot.worker for slot in fleet.slots]


def relieved(fleet: Fleet) -> dict[str, str]:
    return {slot.worker: slot.shares_slot_of for slot in fleet.slots if slot.shares_slot_of is not None}


def test_workers_have_slots_in_the_order_they_came() -> None:
    fleet = Fleet.from_groups(ZONES)
    assert workers(fleet) == ["a", "b", "c", "d"]
    assert fleet.indexes_by_group() == {("az1",): [0, 1], ("az2",): [2, 3]}
    assert fleet.find_index("c") == 2
    assert len(Fleet.from_workers("abc")) == 3


def test_the_groups_of_the_first_slots_are_those_that_came_first() -> None:
    fleet = Fleet.from_groups(ZONES)
    assert fleet.indexes_by_group(3) == {("az1",): [0, 1], ("az2",): [2]}
    assert fleet.indexes_by_group(2) == {("az1",): [0, 1]}
    assert fleet.indexes_by_group(4) == fleet.indexes_by_group()


def test_dimensions_are_listed_as_they_came() -> None:
    groups = [("az2", "v1"), ("az1", "v2"), ("az2", "v2")]
    fleet = Fleet(slots=tuple(Slot(worker=f"w{number}", group=group) for number, group in enumerate(groups)))
    assert fleet.dimensions() == (("az2", "az1"), ("v1", "v2"))
    assert Fleet.from_workers("ab").dimensions() == ()
    assert Fleet.from_workers([]).dimensions() == ()


def test_what_is_added_comes_last() -> None:
    fleet = Fleet.from_groups(ZONES).add(Slot(worker="e", group=("az1",)))
    assert fleet.indexes_by_group()[("az1",)] == [0, 1, 4]


def test_a_worker_is_replaced_in_its_slot() -> None:
    fleet = Fleet.from_groups(ZONES).drain("b")
    assert fleet.slots[1].is_drained
    fleet = fleet.replace(1, "z")
    assert workers(fleet) == ["a", "z", "c", "d"]
    assert not fleet.slots[1].is_drained
    assert fleet.slots[1].group == ("az1",)


def test_a_worker_is_replaced_by_its_slot_or_by_its_name() -> None:
    fleet = Fleet.from_groups(ZONES).share_slot("b", "r").drain("b")
    for index, worker in enumerate("abcdr"):
        assert fleet.replace(worker, "z") == fleet.replace(index, "z")
    assert workers(fleet.replace("b", "z")) == ["a", "z", "c", "d", "r"]
    new = fleet.replace("b", "z", host="m-1", weight=2.0).slots[1]
    assert new == Slot(worker="z", group=("az1",), host="m-1", weight=2.0)


def test_a_worker_whose_name_is_a_number_is_no_slot() -> None:
    assert workers(Fleet.from_workers(["1", "0"]).replace("0", "z")) == ["1", "z"]
    assert workers(Fleet.from_workers(["1", "0"]).replace(0, "z")) == ["z", "0"]


def test_no_worker_takes_its_own_place_as_a_new_one() -> None:
    with pytest.raises(InvalidValue, match="worker b is in the fleet already"):
        Fleet.from_workers("ab").replace("b", "b")
    with pytest.raises(InvalidValue, match="worker b is in the fleet already"):
        Fleet.from_workers("ab").share_slot("b", "b")


def test_whoever_relieved_a_worker_that_is_replaced_relieves_the_new_one() -> None:
    fleet = Fleet.from_workers("ab").share_slot("a", "r").replace(0, "z")
    assert workers(fleet) == ["z", "b", "r"]
    assert relieved(fleet) == {"r": "z"}
    assert relieved(fleet.replace(2, "s")) == {"s": "z"}, "and one that shares_slot_of is replaced as others are"


def test_a_fleet_is_doubled_group_by_group() -> None:
    fleet = Fleet.from_groups(ZONES).double(["e", "f", "g", "h"])
    assert fleet.indexes_by_group() == {("az1",): [0, 1, 4, 5], ("az2",): [2, 3, 6, 7]}
    with pytest.raises(InvalidValue, match="1 worker to double a fleet of 8"):
        fleet.double(["i"])


def test_twins_are_as_the_workers_they_double_but_new() -> None:
    before = Fleet(slots=(Slot(worker="a", weight=2.0, host="m-1"), Slot(worker="b")))
    fleet = before.share_slot("a", "r", weight=3.0).drain("a").double(["c", "d", "s"])
    assert fleet.slots[3] == Slot(worker="c", weight=2.0), "on a machine of its own, and not drained"
    assert fleet.slots[5] == Slot(worker="s", weight=3.0, shares_slot_of="c"), "a twin shares_slot_of the twin"
    assert fleet.slot_sharers() == {0: [0, 2], 3: [3, 5]}


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_is_a_number_above_nothing(weight: float) -> None:
    with pytest.raises(InvalidValue, match="weight"):
        Slot(worker="a", weight=weight)
    with pytest.raises(InvalidValue, match="weight"):
        Fleet.from_workers("a").share_slot("a", "r", weight=weight)


@pytest.mark.parametrize(
    "name", ["", "\ud800", "a\udfffb", "a\nb", "\t", "\0", "a\x1b[31m", "\x7f", "\u202e", "\u2028", "\xa0"], ids=ascii
)
def test_a_name_is_some_text_that_can_be_shown_as_it_is(name: str) -> None:
    with pytest.raises(InvalidValue, match=r"a worker named .* expected printable text"):
        Slot(worker=name)
    with pytest.raises(InvalidValue, match=r"worker a has the group or host .* expected printable text"):
        Slot(worker="a", group=("az1", name))
    with pytest.raises(InvalidValue, match=r"worker a has the group or host .* expected printable text"):
        Slot(worker="a", host=name)


def test_a_name_that_can_be_shown_is_kept_as_it_is() -> None:
    name = 'a b, "c" \N{SNOWMAN} grün'
    assert Slot(worker=name, group=(name,), host=name) == Slot(worker=f"{name}", group=(f"{name}",), host=f"{name}")
    assert Fleet.from_workers([name]).find_index(name) == 0


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidValue, match="worker a is in two slots"):
        Fleet.from_workers(["a", "b", "a"])
    with pytest.raises(InvalidValue, match="expected the same number for each"):
        Fleet(slots=(Slot(worker="a", group=("az1",)), Slot(worker="b")))
    with pytest.raises(NotFound, match="no worker z"):
        Fleet.from_workers("ab").find_index("z")
    with pytest.raises(NotFound, match="no worker z"):
        Fleet.from_workers("ab").drain("z")
    with pytest.raises(InvalidValue, match="slot 2: expected 0 to 1"):
        Fleet.from_workers("ab").replace(2, "c")
    with pytest.raises(InvalidValue, match="slot -1: expected 0 to 1"):
        Fleet.from_workers("ab").replace(-1, "c")
    for slot in (0, "a"):
        with pytest.raises(InvalidValue, match=ALREADY):
            Fleet.from_workers("ab").replace(slot, "b")
    with pytest.raises(NotFound, match="no worker z"):
        Fleet.from_workers("ab").replace("z", "c")


SHARING = (Slot(worker="a", host="m-1"), Slot(worker="b", host="m-2"), Slot(worker="c", host="m-1"))


def test_two_workers_on_one_machine_are_refused_unless_allowed() -> None:
    """What shards share would no longer say what fails together."""
    with pytest.raises(InvalidValue, match=r"workers a and c are both on m-1.*shared_host_policy"):
        Fleet(slots=SHARING)
    assert len(Fleet(slots=SHARING, shared_host_policy="allow")) == 3
    assert len(Fleet.from_workers("abc")) == 3, "machines that are not named are different ones"


def test_two_workers_on_one_machine_may_be_warned_of() -> None:
    with pytest.warns(UserWarning, match="workers a and c are both on m-1") as caught:
        fleet = Fleet(slots=SHARING, shared_host_policy="warn")
    assert len(caught) == 1
    assert len(fleet) == 3


def test_what_is_said_about_machines_holds_for_every_change() -> None:
    fleet = Fleet(slots=SHARING[:2])
    with pytest.raises(InvalidValue, match="both on m-2"):
        fleet.replace(0, "z", host="m-2")
    with pytest.raises(InvalidValue, match="both on m-1"):
        fleet.share_slot("a", "r", host="m-1")
    assert fleet.share_slot("a", "r", host="m-3").slots[2].host == "m-3"
    shared = Fleet(slots=SHARING, shared_host_policy="allow")
    assert len(shared.share_slot("a", "r", host="m-1")) == 4


def test_a_worker_is_relieved_by_another_of_its_group() -> None:
    fleet = Fleet(slots=(Slot(worker="a", group=("az1",), weight=2.0, host="m-1"),)).share_slot("a", "r")
    assert fleet.slots[1] == Slot(worker="r", group=("az1",), weight=2.0, shares_slot_of="a")
    assert fleet.slot_sharers() == {0: [0, 1]}
    assert fleet.indexes_by_group() == {("az1",): [0]}, "it has no slot of its own"
    assert fleet.share_slot("a", "s", weight=0.5).slots[2].weight == 0.5
    assert fleet.drain("a").share_slot("a", "s").slots[2] == Slot(
        worker="s", group=("az1",), weight=2.0, shares_slot_of="a"
    ), "the new one is not drained"


def test_who_relieves_one_that_relieves_relieves_the_first() -> None:
    fleet = Fleet.from_workers("ab").share_slot("a", "r").share_slot("r", "s")
    assert relieved(fleet) == {"r": "a", "s": "a"}
    assert fleet.slot_sharers() == {0: [0, 2, 3]}


def test_a_fleet_that_nobody_is_relieved_in_has_no_reliefs() -> None:
    assert Fleet.from_workers("ab").slot_sharers() == {}


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        (
            Slot(worker="r", shares_slot_of="z", group=("az1",)),
            "r shares the slot of z: expected a worker with its own slot",
        ),
        (
            Slot(worker="r", shares_slot_of="", group=("az1",)),
            "r shares the slot of : expected a worker with its own slot",
        ),
        (
            Slot(worker="r", shares_slot_of="r", group=("az1",)),
            "r shares the slot of r: expected a worker with its own slot",
        ),
        (
            Slot(worker="r", shares_slot_of="q", group=("az1",)),
            "r shares the slot of q: expected a worker with its own slot",
        ),
        (Slot(worker="r", shares_slot_of="c", group=("az1",)), "r shares the slot of c in another group"),
    ],
)
def test_only_a_worker_of_the_same_group_with_a_slot_is_relieved(slot: Slot, message: str) -> None:
    fleet = Fleet.from_groups(ZONES).share_slot("a", "q")
    with pytest.raises(InvalidValue, match=message):
        fleet.add(slot)


def test_one_that_comes_later_may_be_relieved() -> None:
    """As after a substitution, which puts a worker into a slot further back."""
    fleet = Fleet(slots=(Slot(worker="r", shares_slot_of="a"), Slot(worker="a")))
    assert fleet.slot_sharers() == {1: [1, 0]}
    spare = Fleet.from_workers("abcd").share_slot("d", "r")
    assert spare.replace_with_spare("a", "d").slot_sharers() == {0: [0, 4]}


def test_somebody_unknown_is_not_relieved() -> None:
    with pytest.raises(NotFound, match="no worker z"):
        Fleet.from_workers("ab").share_slot("z", "r")
    with pytest.raises(InvalidValue, match=ALREADY):
        Fleet.from_workers("ab").share_slot("a", "b")


def test_a_spare_worker_gets_the_slot_of_another_which_is_drained() -> None:
    fleet = Fleet(
        slots=(Slot(worker="a", host="m-1"), Slot(worker="b"), Slot(worker="spare", weight=2.0, host="m-2"))
    ).replace_with_spare("a", "spare")
    assert fleet.slots == (
        Slot(worker="spare", weight=2.0, host="m-2"),
        Slot(worker="b"),
        Slot(worker="a", host="m-1", is_drained=True),
    )
    assert fleet.find_index("spare") == 0


def test_whoever_relieved_a_worker_that_is_substituted_relieves_the_spare() -> None:
    fleet = Fleet.from_workers(["a", "b", "spare"]).share_slot("a", "r").replace_with_spare("a", "spare")
    assert workers(fleet) == ["spare", "b", "a", "r"]
    assert relieved(fleet) == {"r": "spare"}


def test_only_a_worker_of_the_same_group_with_its_own_slot_is_a_substitute() -> None:
    fleet = Fleet.from_groups(ZONES).share_slot("a", "r").share_slot("b", "s")
    with pytest.raises(InvalidValue, match="c cannot replace a: expected a worker of the same group"):
        fleet.replace_with_spare("a", "c")
    with pytest.raises(InvalidValue, match=r"r cannot replace b: expected .* with its own slot"):
        fleet.replace_with_spare("b", "r")
    with pytest.raises(InvalidValue, match="s cannot replace r"):
        fleet.replace_with_spare("r", "s")
    for one, other in (("z", "a"), ("a", "z")):
        with pytest.raises(NotFound, match="no worker z"):
            fleet.replace_with_spare(one, other)


def test_a_worker_is_no_substitute_for_itself() -> None:
    with pytest.raises(InvalidValue, match="expected"):
        Fleet.from_workers("ab").replace_with_spare("a", "a")


def test_a_drained_worker_is_no_substitute() -> None:
    with pytest.raises(InvalidValue, match="w1 cannot replace w0: it is drained"):
        Fleet.from_workers(["w0", "w1"]).drain("w1").replace_with_spare("w0", "w1")


def test_machines_with_several_workers_are_told_with_all_of_them() -> None:
    slots = [
        Slot(worker=name, host=host) for name, host in (("a", "x"), ("b", None), ("c", "y"), ("d", "x"), ("e", None))
    ]
    assert Fleet(slots=tuple(slots), shared_host_policy="allow").shared_hosts() == {"x": ("a", "d")}
    assert Fleet.from_workers("ab").shared_hosts() == {}
