"""Who is tried next: never somebody from outside the shard."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Zone
from holdfast.shards import Designed, Fleet, Shard, Slot, pick

SHARD = [Slot(worker=f"w{number}", group=(f"az{number}",)) for number in range(4)]
NAMES = [slot.worker for slot in SHARD]


def test_workers_take_turns() -> None:
    assert [pick(SHARD, turn=turn) for turn in range(5)] == ["w0", "w1", "w2", "w3", "w0"]


def test_a_shard_is_taken_as_its_slots_are() -> None:
    shard = Shard((3, 1, 4, 2), tuple(SHARD))
    for turn in (None, 0, 1, 6):
        assert pick(shard, turn=turn) == pick(SHARD, turn=turn)
    assert pick(shard, out={"w0"}, tried=["w1"], zones_out={Zone("az2")}) == "w3"
    assert pick(Shard((), ())) is None


def test_without_a_turn_a_shard_begins_with_the_same_worker_everywhere_and_always() -> None:
    """By the names of its workers, and no process counts: so it is known, and is never changed by chance."""
    assert [pick(SHARD) for _ in range(3)] == ["w1"] * 3
    assert [pick([Slot(worker=name) for name in names]) for names in ("abd", "abe", "abf")] == ["a", "b", "f"]


def test_without_a_turn_different_shards_begin_with_different_workers() -> None:
    """Else all would begin in the first zone, whose workers come first in every shard."""
    fleet = Fleet.grouped({f"az{zone}": [f"az{zone}-{number}" for number in range(16)] for zone in range(4)})
    designed = Designed(fleet, 4, 2, key=b"a secret")
    chosen = Counter(pick(designed.shard(tenant)) for tenant in range(4000))
    zones = Counter(str(worker).partition("-")[0] for worker in chosen.elements())
    assert {*zones} == {"az0", "az1", "az2", "az3"}
    assert all(900 < count < 1100 for count in zones.values())
    assert len(chosen) == 64, "and every worker is the first for somebody"


def test_who_begins_with_a_worker_that_is_out_begins_with_another_of_its_shard() -> None:
    first = pick(SHARD)
    assert first is not None
    second = pick(SHARD, tried=[first])
    assert second in {*NAMES} - {first}
    tried: list[str] = []
    while (following := pick(SHARD, tried=tried)) is not None:
        tried.append(following)
    assert sorted(tried) == NAMES, "each is tried once"
    drained = [replace(slot, is_drained=slot.worker == first) for slot in SHARD]
    assert pick(drained) == pick(SHARD, out={first}) == second, "for whatever reason it is left out"


def test_of_those_that_are_equally_deep_different_shards_take_different_ones() -> None:
    shards = [[Slot(worker=f"{shard}-{number}", group=(f"az{number}",)) for number in range(4)] for shard in range(40)]
    chosen = {str(pick(shard, depths={})).partition("-")[2] for shard in shards}
    assert chosen == {"0", "1", "2", "3"}
    assert all(pick(shard, depths={}) == pick(shard) for shard in shards)


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


@given(
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(["az0", "az1", "az2", "az3"])),
    st.none() | st.integers(0, 10),
)
def test_nobody_from_outside_is_ever_named(out: set[str], zones: set[str], turn: int | None) -> None:
    chosen = pick(SHARD, out=out, zones_out={Zone(zone) for zone in zones}, turn=turn)
    left = [slot.worker for slot in SHARD if slot.worker not in out and slot.group[0] not in zones]
    assert chosen in left if left else chosen is None
