"""Who is tried next: never somebody from outside the shard."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Zone
from holdfast.shards import Designed, Fleet, Slot, pick

SHARD = [Slot(worker=f"w{number}", group=(f"az{number}",)) for number in range(4)]
NAMES = [slot.worker for slot in SHARD]


def test_workers_take_turns() -> None:
    assert [pick(SHARD, turn=turn) for turn in range(5)] == ["w0", "w1", "w2", "w3", "w0"]


def test_what_is_out_tried_or_drained_is_left_out() -> None:
    assert pick(SHARD, out={"w0"}, tried=["w1"], zones_out={Zone("az2")}) == "w3"
    assert pick([Slot(worker="a", is_drained=True), Slot(worker="b")]) == "b"


def test_the_shard_of_a_tenant_is_what_is_picked_from() -> None:
    fleet = Fleet.grouped({f"az{zone}": [f"az{zone}-{number}" for number in range(5)] for zone in range(3)})
    shard = Designed(fleet, 3, 1, key=b"a secret").shard(7)
    first, second, third = shard.workers
    assert [pick(shard.slots, turn=turn) for turn in range(3)] == [first, second, third]
    assert pick(shard.slots, tried=[first], zones_out={Zone(shard.slots[1].group[0])}) == third
    assert pick(shard.slots, tried=shard.workers) is None


def test_whatever_dimension_is_out_is_left_out() -> None:
    lattice = [Slot(worker=f"{zone}-{version}", group=(zone, version)) for zone in ("az1", "az2") for version in "12"]
    assert pick(lattice, zones_out={Zone("az1"), Zone("1")}) == "az2-2"


def test_the_least_deep_is_taken_where_depths_are_known() -> None:
    depths = {"w0": 5.0, "w1": 2.0, "w2": 2.0, "w3": 9.0}
    assert pick(SHARD, depths=depths) == "w1"
    assert pick(SHARD, depths=depths, turn=2) == "w2", "of two that are alike, by turns"
    assert pick(SHARD, depths={"w0": 1.0, "w1": 1.0}, turn=3) == "w3", "one that is not listed counts as empty"


def test_the_picture_of_the_article() -> None:
    """Rainbow on workers 1 and 4 fails; rose is served by 8, sunflower by 6."""
    down = {"1", "4"}
    rainbow, rose, sunflower = ([Slot(worker=name) for name in shard] for shard in (("1", "4"), ("1", "8"), ("4", "6")))
    assert pick(rainbow, out=down) is None
    assert pick(rose, out=down) == "8"
    assert pick(sunflower, out=down) == "6"


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(["az0", "az1", "az2", "az3"])), st.integers(0, 10))
def test_nobody_from_outside_is_ever_named(out: set[str], zones: set[str], turn: int) -> None:
    chosen = pick(SHARD, out=out, zones_out={Zone(zone) for zone in zones}, turn=turn)
    left = [slot.worker for slot in SHARD if slot.worker not in out and slot.group[0] not in zones]
    assert chosen in left if left else chosen is None
