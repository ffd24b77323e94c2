"""Shards from names: the same everywhere, spread, weighted, and moved as little as can be."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import Fleet, HashedSharding, Shard, Slot
from holdfast.shards.hashed import build_diagonals, build_rounds
from tests.table import rows, sampled

KEY = b"a secret"


def fleet(*sizes: int) -> Fleet:
    return Fleet.from_groups(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


def lattice(*dimensions: tuple[str, ...], each: int) -> Fleet:
    """So many workers in every combination."""
    return Fleet(
        slots=tuple(
            Slot(worker=f"{'-'.join(group)}-{number}", group=group)
            for group in product(*dimensions)
            for number in range(each)
        )
    )


def names(shard: Shard) -> set[str]:
    return set(shard.workers)


@given(st.text() | st.binary())
def test_a_name_of_any_bytes_has_the_same_shard_everywhere(tenant: str | bytes) -> None:
    one, other = HashedSharding(fleet(5, 5, 5), 3, key=KEY), HashedSharding(fleet(5, 5, 5), 3, key=KEY)
    assert one.shard(tenant) == other.shard(tenant)
    assert len(names(one.shard(tenant))) == 3


@pytest.mark.parametrize(("sizes", "size"), [((5, 5, 5), 3), ((5, 5, 5), 4), ((5, 5, 5), 2), ((20,), 4), ((4, 8), 6)])
def test_a_shard_is_spread_over_the_groups(sizes: tuple[int, ...], size: int) -> None:
    hashed = HashedSharding(fleet(*sizes), size, key=KEY)
    given_more: Counter[tuple[str, ...]] = Counter()
    for tenant in range(300):
        shard = hashed.shard(f"tenant-{tenant}")
        groups = Counter(slot.group for slot in shard.slots)
        assert len(names(shard)) == len(set(shard.slot_indexes)) == size
        assert shard.slots == tuple(hashed.fleet.slots[index] for index in shard.slot_indexes)
        counts = [groups.get((f"az{zone}",), 0) for zone in range(len(sizes))]
        assert max(counts) - min(counts) <= 1
        given_more.update(groups)
    assert max(given_more.values()) < 1.5 * min(given_more.values())


def test_a_tenant_may_have_a_larger_shard_and_keeps_what_it_had() -> None:
    hashed = HashedSharding(fleet(9, 9, 9), 3, key=KEY)
    for tenant in ("a", "b", "c"):
        assert names(hashed.shard(tenant)) < names(hashed.shard(tenant, 6)) < names(hashed.shard(tenant, 9))


@pytest.mark.no_cover
@pytest.mark.parametrize("tenants", sampled([600, 3000]))
def test_one_worker_more_or_less_changes_one_worker_of_a_few(tenants: int) -> None:
    before = Fleet.from_workers(f"w{number}" for number in range(200))
    after = before.add(Slot(worker="new"))
    one, other = HashedSharding(before, 4, key=KEY), HashedSharding(after, 4, key=KEY)
    moved = 0
    for tenant in range(tenants):
        old, new = names(one.shard(str(tenant))), names(other.shard(str(tenant)))
        assert new - old in (set(), {"new"})
        assert len(old - new) <= 1
        moved += old != new
    assert 0 < moved / tenants < 2 * 4 / 201


def test_a_drained_worker_is_in_no_shard_and_the_others_stay() -> None:
    before = fleet(6, 6)
    one, other = HashedSharding(before, 4, key=KEY), HashedSharding(before.drain("az0-3"), 4, key=KEY)
    for tenant in range(300):
        old, new = names(one.shard(str(tenant))), names(other.shard(str(tenant)))
        assert old - new <= {"az0-3"}
        assert "az0-3" not in new


@pytest.mark.no_cover
@pytest.mark.parametrize("tenants", sampled([4000, 20_000]))
def test_a_worker_of_twice_the_weight_is_in_twice_as_many_shards(tenants: int) -> None:
    slots = [Slot(worker=f"w{number}", weight=2.0 if number < 10 else 1.0) for number in range(40)]
    hashed = HashedSharding(Fleet(slots=tuple(slots)), 1, key=KEY)
    load = Counter(hashed.shard(str(tenant)).workers[0] for tenant in range(tenants))
    heavy = sum(load[f"w{number}"] for number in range(10)) / 10
    light = sum(load[f"w{number}"] for number in range(10, 40)) / 30
    assert heavy / light == pytest.approx(2.0, rel=0.1)


def test_the_key_decides_who_is_next_to_whom() -> None:
    one, other = HashedSharding(fleet(20, 20), 4, key=b"one"), HashedSharding(fleet(20, 20), 4, key=b"other")
    assert sum(one.shard(str(tenant)) == other.shard(str(tenant)) for tenant in range(200)) < 5


@pytest.mark.parametrize(("sizes", "size"), [((40,), 4), ((20, 20), 4), ((12, 12, 12), 3)])
def test_the_odds_it_states_are_those_that_are_found(sizes: tuple[int, ...], size: int) -> None:
    hashed = HashedSharding(fleet(*sizes), size, key=KEY)
    shards = [names(hashed.shard(str(tenant))) for tenant in range(400)]
    for shared in (size - 1, size):
        close: set[int] = set()
        for (one, left), (other, right) in combinations(enumerate(shards), 2):
            if len(left & right) >= shared:
                close |= {one, other}
        assert len(close) / 400 == pytest.approx(hashed.expected_fraction_sharing(shared, 400), abs=0.08)


@pytest.mark.parametrize("tenants", sampled([2000, 5000]))
@pytest.mark.parametrize(
    ("dimensions", "size"), [(("abc",), 4), (("abc", "xy"), 3)], ids=["a group gives more", "a lattice"]
)
def test_the_odds_it_states_are_those_that_are_found_where_not_all_groups_give_as_many(
    dimensions: tuple[str, ...], size: int, tenants: int
) -> None:
    hashed = HashedSharding(lattice(*map(tuple, dimensions), each=12), size, key=KEY)
    found = Counter(frozenset(hashed.shard(str(tenant)).slot_indexes) for tenant in range(tenants))
    share = sum(count for count in found.values() if count > 1) / tenants
    assert share == pytest.approx(hashed.expected_fraction_sharing(size, tenants), rel=0.4)


def test_the_odds_of_a_large_fleet() -> None:
    """Of a million tenants with four of 2048 workers by chance, one in ninety has a neighbour that shares three."""
    large = HashedSharding(Fleet.from_workers(f"w{number}" for number in range(2048)), 4, key=KEY)
    assert large.expected_fraction_sharing(3, 1_000_000) == pytest.approx(0.0112, rel=0.02)
    small = HashedSharding(Fleet.from_workers(f"w{number}" for number in range(100)), 4, key=KEY)
    assert small.expected_fraction_sharing(3, 10_000) == pytest.approx(0.62, abs=0.02)
    assert small.expected_fraction_sharing(0, 2) == 1.0
    uneven = HashedSharding(fleet(20, 20), 3, key=KEY)
    assert uneven.expected_fraction_sharing(3, 100) > HashedSharding(fleet(40), 3, key=KEY).expected_fraction_sharing(
        3, 100
    ), "not all threes occur"
    assert not math.isnan(small.expected_fraction_sharing(4, 1))


@pytest.mark.parametrize("size", [0, -1, 13])
def test_a_size_that_no_shard_has_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 12"):
        HashedSharding(fleet(4, 4, 4), size, key=KEY)
    with pytest.raises(InvalidValue, match="expected 1 to 12"):
        HashedSharding(fleet(4, 4, 4), 3, key=KEY).shard("tenant-1", size)


def test_a_fleet_without_workers_has_no_shards() -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 0"):
        HashedSharding(fleet(1).drain("az0-0"), 1, key=KEY)


@pytest.mark.parametrize("empty", [Fleet.from_workers([]), Fleet.from_workers("a").drain("a")], ids=["none", "drained"])
def test_a_fleet_without_workers_or_groups_has_no_shards(empty: Fleet) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 0"):
        HashedSharding(empty, 1, key=KEY)


ZONES, VERSIONS, RACKS = ("az1", "az2", "az3"), ("v1", "v2"), ("r1", "r2", "r3", "r4")


@pytest.mark.parametrize(
    ("dimensions", "each", "sizes"),
    [
        ((ZONES, VERSIONS), 3, range(1, 19)),
        ((VERSIONS, (*VERSIONS[::-1], "v3", "v4")), 2, range(1, 17)),
        ((RACKS, VERSIONS), 2, range(1, 17)),
        ((ZONES, VERSIONS, RACKS), 2, (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 24, 25, 40, 48)),
    ],
)
def test_a_shard_is_spread_over_every_dimension(
    dimensions: tuple[tuple[str, ...], ...], each: int, sizes: range
) -> None:
    hashed = HashedSharding(lattice(*dimensions, each=each), 1, key=KEY)
    for size in sizes:
        for tenant in range(25):
            shard = hashed.shard(str(tenant), size)
            assert len(names(shard)) == size
            for number, groups in enumerate(dimensions):
                load = Counter(slot.group[number] for slot in shard.slots)
                assert max(load.values()) - min(load.get(group, 0) for group in groups) <= 1


def test_all_combinations_are_used_alike() -> None:
    hashed = HashedSharding(lattice(ZONES, VERSIONS, each=3), 2, key=KEY)
    load = Counter(slot.group for tenant in range(3000) for slot in hashed.shard(str(tenant)).slots)
    assert len(load) == 6
    assert max(load.values()) < 1.15 * min(load.values())


def test_groups_of_the_same_name_in_two_dimensions_are_drawn_apart() -> None:
    """Rack 1 of row 1, say."""
    hashed = HashedSharding(lattice(("1", "2"), ("1", "2"), each=3), 1, key=KEY)
    load = Counter(slot.group for tenant in range(1000) for slot in hashed.shard(str(tenant)).slots)
    assert len(load) == 4
    assert max(load.values()) < 1.5 * min(load.values())


def test_a_worker_named_as_its_group_is_in_no_more_shards_than_others() -> None:
    hashed = HashedSharding(Fleet.from_groups({"a": ["a", "b", "c"], "d": ["d", "e", "f"]}), 1, key=KEY)
    load = Counter(hashed.shard(str(tenant)).workers[0] for tenant in range(3000))
    assert max(load.values()) < 1.5 * min(load.values())


@pytest.mark.no_cover
@pytest.mark.parametrize("size", [2, 4, 6, 9])
def test_one_worker_more_in_a_lattice_moves_only_those_who_win_it(size: int) -> None:
    before = lattice(ZONES, VERSIONS, each=8)
    after = before.add(Slot(worker="new", group=("az2", "v1")))
    one, other = HashedSharding(before, size, key=KEY), HashedSharding(after, size, key=KEY)
    moved = 0
    for tenant in range(800):
        old, new = one.shard(str(tenant)), other.shard(str(tenant))
        gained, lost = names(new) - names(old), names(old) - names(new)
        assert gained in (set(), {"new"})
        assert len(lost) == len(gained)
        assert all(worker.startswith("az2-v1-") for worker in lost), "for one of the same combination"
        moved += bool(gained)
    assert 0 < moved / 800 < 2 * size / 49


def test_where_groups_come_in_the_list_of_groups_decides_nothing() -> None:
    slots = lattice(ZONES, VERSIONS, each=3).slots
    one, other = (HashedSharding(Fleet(slots=some), 4, key=KEY) for some in (slots, slots[::-1]))
    assert all(names(one.shard(str(tenant))) == names(other.shard(str(tenant))) for tenant in range(200))


def test_a_larger_shard_of_a_lattice_keeps_what_it_had() -> None:
    hashed = HashedSharding(lattice(ZONES, VERSIONS, each=3), 3, key=KEY)
    for tenant in ("a", "b", "c"):
        shards = [names(hashed.shard(tenant, size)) for size in range(1, 19)]
        assert all(one < other for one, other in pairwise(shards))


def test_a_group_that_is_drained_as_a_whole_is_left_out() -> None:
    before = lattice(ZONES, VERSIONS, each=2)
    after = before
    for slot in before.slots:
        if slot.group[0] == "az2":
            after = after.drain(slot.worker)
    hashed = HashedSharding(after, 4, key=KEY)
    for tenant in range(100):
        assert Counter(slot.group[0] for slot in hashed.shard(str(tenant)).slots) == {"az1": 2, "az3": 2}


def without(fleet: Fleet, *groups: tuple[str, ...]) -> Fleet:
    return Fleet(slots=tuple(slot for slot in fleet.slots if slot.group not in groups))


def test_a_combination_without_workers_is_refused_by_name() -> None:
    whole = lattice(ZONES, VERSIONS, each=2)
    with pytest.raises(InvalidValue, match="no worker in az3 / v1: "):
        HashedSharding(without(whole, ("az3", "v1")), 2, key=KEY)
    with pytest.raises(InvalidValue, match="no worker in az2 / v2: "):
        HashedSharding(whole.drain("az2-v2-0").drain("az2-v2-1"), 2, key=KEY)


def test_a_combination_without_workers_is_the_one_that_is_missed() -> None:
    fleet = without(lattice(ZONES, VERSIONS, each=1), ("az3", "v1")).drain("az1-v1-0").drain("az1-v2-0")
    with pytest.raises(InvalidValue, match="no worker in az3 / v1: "):
        HashedSharding(fleet, 2, key=KEY)


def test_a_worker_that_relieves_another_is_one_more() -> None:
    """Shards from names need no slots: it wins some tenants from everybody in its group."""
    before = fleet(4, 4)
    one, other = HashedSharding(before, 2, key=KEY), HashedSharding(before.share_slot("az0-0", "more"), 2, key=KEY)
    moved = [names(one.shard(str(tenant))) - names(other.shard(str(tenant))) for tenant in range(500)]
    assert set().union(*moved) == {f"az0-{number}" for number in range(4)}
    assert sum(map(bool, moved)) / 500 == pytest.approx(1 / 5, abs=0.06)


@pytest.mark.parametrize(("shared", "tenants"), [(-1, 10), (2, 0)])
def test_odds_of_nothing_are_refused(shared: int, tenants: int) -> None:
    with pytest.raises(InvalidValue, match="expected 0 or more, and 1 or more"):
        HashedSharding(fleet(8), 2, key=KEY).expected_fraction_sharing(shared, tenants)


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidValue, match="tenant 17: expected text or bytes"):
        HashedSharding(fleet(8), 2, key=KEY).shard(17)  # type: ignore[arg-type]


DIMENSIONS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def imbalance(cells: Iterable[tuple[int, ...]], dimensions: Sequence[int]) -> int:
    """By how much the groups of a dimension differ, in the worst of them; those with no cell count as well."""
    cells = list(cells)
    found = 0
    for number, count in enumerate(dimensions):
        load = Counter(cell[number] for cell in cells)
        found = max(found, max(load.values()) - min(load.get(group, 0) for group in range(count)))
    return found


@given(DIMENSIONS)
def test_diagonals_are_all_cells_once(dimensions: list[int]) -> None:
    lines = build_diagonals(dimensions)
    assert sorted(cell for line in lines for cell in line) == list(product(*map(range, dimensions)))
    assert {len(line) for line in lines} == {math.lcm(*dimensions)}


@given(DIMENSIONS, st.data())
def test_cells_in_a_row_are_spread_over_each_dimension(dimensions: list[int], data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(build_diagonals(dimensions)))
    start, count = data.draw(st.integers(0, len(line) - 1)), data.draw(st.integers(1, 2 * len(line)))
    cells = [line[(start + step) % len(line)] for step in range(count)]
    assert imbalance(cells, dimensions) <= 1


def test_cells_by_rows_would_not_be_spread() -> None:
    """What the diagonals are for: three cells of a lattice of two by four as they are listed."""
    assert imbalance(list(product(range(2), range(4)))[:3], [2, 4]) == 3


def test_diagonals_of_a_lattice_of_three_by_two_are_one_line() -> None:
    assert build_diagonals([3, 2]) == [[(0, 0), (1, 1), (2, 0), (0, 1), (1, 0), (2, 1)]]
    assert build_diagonals([2, 2]) == [[(0, 0), (1, 1)], [(0, 1), (1, 0)]]
    assert build_diagonals([]) == [[()]], "without dimensions there is one cell"


SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(st.just(shape[0]), st.just(shape[1]), st.integers(1, shape[0] * shape[1]))
)


@given(SHAPES)
def test_windows_of_a_round_are_disjoint_and_all_rounds_take_each_cell_equally_often(
    shape: tuple[int, int, int],
) -> None:
    count, length, size = shape
    found = build_rounds(count, length, size)
    assert len({len(windows) for windows in found}) == 1
    taken: Counter[int] = Counter()
    for windows in found:
        cells = [cell for window in windows for cell in window]
        assert all(len(window) == size for window in windows)
        assert len(set(cells)) == len(cells), "in a round, none overlap"
        taken.update(cells)
    assert sorted(taken) == list(range(count * length))
    assert len(set(taken.values())) == 1


@given(SHAPES)
def test_where_one_round_takes_all_cells_there_is_no_other(shape: tuple[int, int, int]) -> None:
    count, length, size = shape
    found = build_rounds(count, length, size)
    assert (len(found) == 1) == (len(found[0]) * size == count * length)


@given(DIMENSIONS, st.integers(1, 2), st.data())
def test_every_window_is_spread_over_each_dimension(dimensions: list[int], parts: int, data: st.DataObject) -> None:
    """Also where groups are divided into parts, and a shard has several workers of each."""
    lines = [line for _ in range(parts) for line in build_diagonals(dimensions)]
    cells = [cell for line in lines for cell in line]
    size = data.draw(st.integers(1, len(cells)))
    for windows in build_rounds(len(lines), len(lines[0]), size):
        for window in windows:
            assert imbalance([cells[number] for number in window], dimensions) <= 1


@rows(
    ("count", "length", "size", "windows", "turns"),
    [
        (1, 6, 2, 3, 1),  # all cells at once
        (1, 5, 2, 2, 5),  # one cell is left over in each round, another one each time
        (1, 5, 3, 1, 5),
        (2, 3, 4, 1, 6),  # a whole diagonal, and a cell of the other
        (3, 2, 4, 1, 3),  # two whole diagonals
        (4, 2, 4, 2, 1),
        (2, 3, 1, 6, 1),
        (3, 4, 5, 2, 12),  # a whole diagonal and a cell, twice
    ],
)
def test_as_many_windows_are_taken_at_once_as_fit(count: int, length: int, size: int, windows: int, turns: int) -> None:
    found = build_rounds(count, length, size)
    assert (len(found[0]), len(found)) == (windows, turns)
