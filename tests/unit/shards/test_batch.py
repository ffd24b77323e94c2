"""Many shards at once are the same as one by one."""

import runpy
import subprocess
import sys
from functools import cache
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import CapacityExhausted, InvalidValue, MissingExtra
from holdfast.shards import DesignedSharding, Fleet, Layout, NumberedTenant, Slot
from holdfast.shards import batch as batch_module
from holdfast.shards.batch import CHUNK_SIZE, BatchSharding, build_slot_table
from holdfast.shards.design_choice import AnyDesign
from holdfast.shards.designs import Disjoint, Families, Parity, Polynomials, Tuples
from holdfast.shards.order import MAX_PERMUTATION_SIZE
from tests.table import every_row, rows, sampled

KEY = b"a secret of sixteen bytes or more"
MOST = (1 << 63) - 1


def fleet(*sizes: int) -> Fleet:
    """Groups of so many workers; one group is none."""
    if len(sizes) == 1:
        return Fleet.from_workers(f"w{number}" for number in range(sizes[0]))
    return Fleet.from_groups(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def lattice(zones: int, versions: int, each: int) -> Fleet:
    cells = [(f"az{zone}", f"v{version}") for zone in range(zones) for version in range(versions)]
    return Fleet(
        slots=tuple(Slot(worker=f"{'-'.join(cell)}-{number}", group=cell) for cell in cells for number in range(each))
    )


def relieved(before: Fleet, *indexes: int) -> Fleet:
    for number, index in enumerate(indexes):
        before = before.share_slot(before.slots[index].worker, f"more-{number}", weight=1.0 + number)
    return before


@cache
def designs() -> dict[str, DesignedSharding]:
    """One of each kind, and of each way to make it."""

    def of(some: Fleet, size: int, overlap: int, first: int | None = None) -> DesignedSharding:
        return DesignedSharding(some, size, overlap, key=KEY, design_slot_count=first)

    def doubled(sharding: DesignedSharding, times: int) -> DesignedSharding:
        for time in range(times):
            sharding = sharding.double([f"twin-{time}-{number}" for number in range(len(sharding.fleet))])
        return sharding

    return {
        "quadruples": of(fleet(64), 4, 2),
        "quadruples, least": of(fleet(4), 4, 2),
        "quadruples, large": of(fleet(2048), 4, 2),
        "quadruples, doubled": doubled(of(fleet(16), 4, 2), 1),
        "quadruples, doubled past 32 bits": doubled(of(fleet(1024), 4, 2), 2),
        "quadruples, doubled often": doubled(of(fleet(8), 4, 2), 4),
        "quadruples, spare": of(fleet(32).add(*(Slot(worker=f"s{number}") for number in range(5))), 4, 2, 32),
        "parity": of(fleet(25, 25, 25, 25), 4, 2),
        "parity, uneven": of(fleet(7, 9, 8), 3, 1),
        "parity, without groups": of(fleet(103), 4, 2),
        "parity, odd": of(fleet(6, 6, 6, 6, 6), 5, 3),
        "parity, two of each group": of(fleet(30, 30, 30), 6, 4),
        "parity, doubled": doubled(of(fleet(6, 6, 6), 3, 1), 1),
        "parity, doubled often": doubled(of(fleet(5, 5, 5, 5), 4, 2), 3),
        "parity, past 64 bits": of(fleet(*[512] * 9), 9, 7),
        "parity, doubled past 64 bits": doubled(of(fleet(*[512] * 8), 8, 6), 1),
        "parity, doubled at 64 bits": doubled(of(fleet(*[725] * 7), 7, 5), 1),
        "polynomials, prime": of(fleet(23, 23, 23, 23), 4, 1),
        "polynomials, prime power": of(fleet(25, 26, 25, 30), 4, 1),
        "polynomials, power of three": of(fleet(27, 27, 27, 27, 27), 5, 2),
        "polynomials, binary": of(fleet(64, 64, 64, 64), 4, 1),
        "polynomials, 512": of(fleet(512, 512, 512, 512), 4, 1),
        "nothing shared": of(fleet(24, 25, 26), 3, 0),
        "nothing shared, without groups": of(fleet(8), 2, 0),
        "nothing shared, doubled often": doubled(of(fleet(6, 5, 5), 3, 0), 3),
        "nothing shared, families, doubled": doubled(of(fleet(*[5] * 6), 3, 0), 2),
        "polynomials, past 64 bits": of(fleet(*[512] * 11), 11, 8),
        "windows": of(fleet(11, 11, 11, 11, 11), 3, 1),
        "windows, binary": of(fleet(16, 16, 16, 16, 16), 4, 2),
        "windows, prime power": of(fleet(*[9] * 7), 3, 1),
        "windows, past 64 bits": of(fleet(*[512] * 10), 9, 8),
        "tuples": of(fleet(7, 7, 7), 3, 2),
        "tuples, one": of(fleet(7), 1, 0),
        "tuples, more classes than are shuffled": of(fleet(*[64] * 8), 8, 7),
        "tuples, past 64 bits": of(fleet(*[512] * 8), 8, 7),
        "pairs, even": of(fleet(8), 2, 1),
        "pairs, odd": of(fleet(9), 2, 1),
        "families": of(fleet(*[5] * 6), 3, 1),
        "families of tuples": of(fleet(*[4] * 6), 3, 2),
        "families of polynomials": of(fleet(*[7] * 8), 4, 1),
        "families, doubled": doubled(of(fleet(*[5] * 6), 3, 1), 2),
        "lattice": of(lattice(3, 2, 7), 3, 1),
        "lattice, whole": of(lattice(2, 2, 5), 4, 2),
        "lattice, larger than it": of(lattice(2, 2, 12), 6, 4),
        "reliefs": of(relieved(fleet(32), 3, 3, 7, 31), 4, 2),
        "reliefs, drained": of(relieved(fleet(7, 7, 7), 0, 8, 8).drain("az0-0").drain("more-1"), 3, 1),
        "reliefs, all drained": of(relieved(fleet(7, 7, 7), 0).drain("az0-0").drain("more-0"), 3, 1),
        "reliefs, doubled": doubled(of(relieved(fleet(16), 5), 4, 2), 1),
    }


def test_all_kinds_of_designs_are_among_them() -> None:
    found = designs()
    assert {type(sharding.design) for sharding in found.values()} == set(get_args(AnyDesign))
    rotating = [
        one.design
        for one in found.values()
        if isinstance(one.design, Polynomials) and len(one.design.windows_by_round) > 1
    ]
    assert len(rotating) >= 3
    of_families = {type(one.design.design) for one in found.values() if isinstance(one.design, Families)}
    assert of_families == {Disjoint, Parity, Polynomials, Tuples}
    fields = {one.design.field.size for one in found.values() if isinstance(one.design, Polynomials)}
    assert {11, 9, 27, 64} <= fields
    assert sum(sharding.capacity > MOST for sharding in found.values()) >= 5
    assert sum(len(sharding.order.segments) > 1 for sharding in found.values()) >= 8


def last_of(sharding: DesignedSharding) -> int:
    """The last tenant that an array can have; in the very last class that it can, sums would be too large."""
    return min(sharding.capacity - 1, MOST - max(part.class_size for part in sharding.order.segments))


def one_by_one(sharding: DesignedSharding, tenants: list[int]) -> list[list[int]]:
    return [[*sharding.slot_indexes(tenant)] for tenant in tenants]


@pytest.mark.parametrize("many", sampled([120, 600]))
def test_an_array_of_tenants_has_the_shards_that_each_has(many: int) -> None:
    every_row(designs(), lambda name: check_an_array(name, many))


ALL_SEGMENTS = 600
"""With so many tenants of each design, those of all its segments are looked at; else those of a few."""


def check_an_array(name: str, many: int) -> None:
    sharding = designs()[name]
    batch = BatchSharding(sharding)
    last = last_of(sharding)
    tenants = {*range(min(last + 1, many)), *range(max(0, last - many // 3), last + 1)}
    steps = many * 5 // 3 - 3
    tenants |= {min(last, step * last // steps) for step in range(steps + 1)}
    segments = sharding.order.segments
    if many < ALL_SEGMENTS:  # a segment of many classes takes long to shuffle, and one design has more than a hundred
        segments = [*segments[:4], *segments[4:][-4:]]
        tenants = {tenant for tenant in tenants if any(part.first <= tenant < part.end for part in segments)}
    for part in segments:  # where one segment ends and another begins
        tenants |= {number for number in range(part.first - 3, part.first + 3) if 0 <= number <= last}
        edge = part.first + MAX_PERMUTATION_SIZE * part.class_size  # where classes are no longer shuffled
        tenants |= {number for number in range(edge - 3, edge + 3) if 0 <= number <= last}
    listed = sorted(tenants, key=lambda number: number * 2654435761 % 1_000_003)
    found = batch.slot_indexes(np.array(listed, dtype=np.int64))
    assert found.dtype == np.int32
    assert found.shape == (len(listed), sharding.size)
    assert found.tolist() == one_by_one(sharding, listed)
    assert batch.slot_indexes(np.array(listed[:9], dtype=np.int64)).tolist() == found[:9].tolist(), (
        "the same when asked again"
    )


@settings(max_examples=200)
@given(st.data())
def test_any_tenants_of_any_design_have_the_shards_that_each_has(data: st.DataObject) -> None:
    sharding = designs()[data.draw(st.sampled_from([*designs()]))]
    last = last_of(sharding)
    tenants = data.draw(st.lists(st.integers(0, last) | st.sampled_from([0, last]), max_size=20))
    given_array = np.array(tenants, dtype=np.int64)
    found = BatchSharding(sharding).slot_indexes(given_array)
    assert found.tolist() == one_by_one(sharding, tenants)
    assert given_array.tolist() == tenants, "what was handed in is left as it was"


@settings(max_examples=60)
@given(st.data())
def test_any_fleet_has_the_same_shards_at_once(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 14), min_size=1, max_size=7))
    size = data.draw(st.integers(1, 6))
    overlap = data.draw(st.integers(0, size - 1))
    some = fleet(*sizes)
    if data.draw(st.booleans()):
        some = relieved(some, *data.draw(st.lists(st.integers(0, len(some) - 1), max_size=3)))
    try:
        sharding = DesignedSharding(
            some, size, overlap, key=data.draw(st.binary(max_size=8)), design_slot_count=sum(sizes)
        )
        if data.draw(st.booleans()):
            sharding = sharding.double([f"twin-{number}" for number in range(len(some))])
    except InvalidValue:
        return
    tenants = data.draw(st.lists(st.integers(0, sharding.capacity - 1), max_size=30))
    assert BatchSharding(sharding).slot_indexes(np.array(tenants, dtype=np.int64)).tolist() == one_by_one(
        sharding, tenants
    )


@pytest.mark.parametrize("name", ["quadruples", "parity, doubled often", "windows", "reliefs"])
def test_nobody_has_no_shards(name: str) -> None:
    found = BatchSharding(designs()[name]).slot_indexes(np.array([], dtype=np.int64))
    assert found.shape == (0, designs()[name].size)


@pytest.mark.parametrize("count", [1, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1, 2 * CHUNK_SIZE + 5])
def test_however_many_there_are_each_has_its_own(count: int) -> None:
    sharding = designs()["quadruples, large"]
    tenants = np.arange(count, dtype=np.int64) * 1009 + 3
    found = BatchSharding(sharding).slot_indexes(tenants)
    for row in {0, count // 2, min(count - 1, CHUNK_SIZE - 1), min(count - 1, CHUNK_SIZE), count - 1}:
        assert tuple(found[row]) == sharding.slot_indexes(int(tenants[row]))


@pytest.mark.parametrize("name", ["quadruples", "parity", "windows", "pairs, odd", "families", "tuples", "reliefs"])
def test_numbers_outside_are_refused_wherever_they_stand(name: str) -> None:
    sharding = designs()[name]
    batch = BatchSharding(sharding)
    for tenants in ([sharding.capacity], [0, sharding.capacity, 1], [1, 2, MOST]):
        with pytest.raises(CapacityExhausted, match="has no shard of its own"):
            batch.slot_indexes(np.array(tenants, dtype=np.int64))
    for tenants in ([-1], [0, -1, 1], [1, -MOST]):
        with pytest.raises(InvalidValue, match="expected 0 or more"):
            batch.slot_indexes(np.array(tenants, dtype=np.int64))


@rows("dtype", ["int16", "int32", "uint8", "uint32"])
@rows(
    "name",
    ["quadruples, doubled past 32 bits", "parity, doubled often", "tuples, past 64 bits", "windows", "pairs, even"],
)
def test_smaller_kinds_of_numbers_are_the_same_numbers(name: str, dtype: str) -> None:
    sharding = designs()[name]
    last = min(sharding.capacity - 1, np.iinfo(dtype).max)
    tenants = sorted({0, 1, last, last // 2, last // 3})
    assert BatchSharding(sharding).slot_indexes(np.array(tenants, dtype=dtype)).tolist() == one_by_one(
        sharding, tenants
    )


def test_without_numpy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match="shards"):
        runpy.run_path(str(batch_module.__file__))


def layout() -> Layout:
    before = Layout.create(fleet(7, 7, 7), 3, 1, key=KEY)
    more = [Slot(worker=f"s{number}", group=(f"az{number % 3}",)) for number in range(9)]
    return before.with_fleet(relieved(before.fleet.add(*more), 0, 9))


@pytest.mark.parametrize(("count", "other"), [(3, 1), (1, 2), (5, 4), (3, 3)])
def test_a_table_has_a_row_for_each_tenant_also_for_those_who_are_isolated(count: int, other: int) -> None:
    """Rows are as wide as the largest shard, and filled up with -1."""
    some = layout().isolate(b"t7", count).isolate(b"past the capacity", other)
    tenants = [NumberedTenant(f"t{number}".encode(), number) for number in reversed(range(49))]
    tenants.insert(20, NumberedTenant(b"past the capacity", 10**9))
    found = build_slot_table(some, tenants)
    assert found.shape == (50, max(3, count, other))
    for tenant, row in zip(tenants, found.tolist(), strict=True):
        indexes = [*some.shard(tenant).slot_indexes]
        assert row == [*indexes, *[-1] * (found.shape[1] - len(indexes))]


def test_a_table_where_nobody_is_isolated_is_that_of_the_design() -> None:
    tenants = [NumberedTenant(b"%d" % number, number) for number in range(49)]
    assert build_slot_table(layout(), tenants).tolist() == one_by_one(layout().sharding, [*range(49)])
    assert build_slot_table(layout(), []).shape == (0, 3)
    assert build_slot_table(layout().isolate(b"elsewhere", 4), tenants)[:, 3].tolist() == [-1] * 49
    with pytest.raises(CapacityExhausted):
        build_slot_table(layout().isolate(b"0"), [*tenants, NumberedTenant(b"49", 49)])


def test_without_numpy_the_message_says_what_to_install() -> None:
    script = "import sys; sys.modules['numpy'] = None; import holdfast.shards; import holdfast.shards.batch"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingExtra: computing shards in batches needs the extra 'shards'" in outcome.stderr


def test_who_does_not_want_many_at_once_does_not_pay_for_numpy() -> None:
    code = "import sys, holdfast.shards, holdfast.shards.stores; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
