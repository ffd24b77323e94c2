"""Shards that are searched for: bounded overlap, found as long as there is one, given back and taken over."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from benchmarks._shard_peers import NoShardsAvailable, StatefulSearch
from holdfast import CapacityExhausted, InvalidValue, NotFound
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.names import format_name
from holdfast.shards.searched import SearchedSharding, _KeyedRandom
from tests.table import rows

KEY = b"a secret"


def fleet(*sizes: int, drained: Iterable[int] = ()) -> Fleet:
    """Groups of so many workers; one group is none."""
    zones = {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    found = Fleet.from_groups(zones) if len(sizes) > 1 else Fleet.from_workers(zones["az0"])
    for index in drained:
        found = found.drain(found.slots[index].worker)
    return found


def workers(searched: SearchedSharding, indexes: Iterable[int]) -> list[str]:
    return [searched.fleet.slots[index].worker for index in indexes]


def is_spread(all_workers: Fleet, indexes: Iterable[int]) -> bool:
    live = {slot.group: 0 for slot in all_workers.slots if not slot.is_drained}
    counts = [*(live | Counter(all_workers.slots[index].group for index in indexes)).values()]
    return max(counts) - min(counts) <= 1


def left(searched: SearchedSharding) -> list[tuple[int, ...]]:
    """Every shard that could still be given, by trying all there are."""
    taken = [set(indexes) for _, indexes in searched]
    live = [index for index, slot in enumerate(searched.fleet.slots) if not slot.is_drained]
    return [
        indexes
        for indexes in combinations(live, searched.size)
        if is_spread(searched.fleet, indexes)
        and all(len(one.intersection(indexes)) <= searched.overlap for one in taken)
    ]


def fill(searched: SearchedSharding, prefix: str = "tenant") -> int:
    """Assign until there is nothing left; how many there was room for."""
    room = filled(searched, prefix)
    with pytest.raises(CapacityExhausted, match=r"workers? is left that"):
        searched.assign("one too many")
    return room


def filled(searched: SearchedSharding, prefix: str = "tenant") -> int:
    """The same, whatever the reason that it ends."""
    for number in count():
        try:
            searched.assign(f"{prefix}-{number}")
        except CapacityExhausted:
            return number
    raise AssertionError


def most_shared(searched: SearchedSharding) -> int:
    return max((len(set(one) & set(other)) for (_, one), (_, other) in combinations(searched, 2)), default=0)


@given(st.text() | st.binary())
def test_a_name_of_any_bytes_has_a_shard_and_keeps_it(tenant: str | bytes) -> None:
    searched = SearchedSharding(fleet(5, 5, 5), 3, 1, key=KEY)
    searched.assign("somebody else")
    assert searched.find(tenant) is None
    indexes = searched.assign(tenant)
    assert len(set(indexes)) == 3
    assert searched.assign(tenant) == searched.find(tenant) == indexes == tuple(sorted(indexes))
    assert len(searched) == 2
    name = tenant if isinstance(tenant, bytes) else tenant.encode("utf-8", "surrogatepass")
    assert dict(searched)[name] == indexes
    assert searched.remove(name)
    assert searched.find(tenant) is None


@rows(
    ("sizes", "size", "overlap", "drained"),
    [
        ((7,), 3, 1, ()),
        ((8,), 4, 2, ()),
        ((10,), 4, 2, (3, 8)),
        ((9,), 3, 0, ()),
        ((10,), 3, 0, ()),
        ((7,), 3, 2, ()),
        ((6,), 1, 0, ()),
        ((5,), 5, 4, ()),
        ((9,), 5, 2, ()),
        ((4, 4), 2, 1, ()),
        ((4, 4), 4, 2, ()),
        ((4, 4), 4, 1, ()),
        ((3, 3, 3), 3, 1, ()),
        ((3, 3, 3), 4, 2, ()),
        ((3, 4, 2), 5, 2, ()),
        ((3, 4, 2), 7, 5, ()),
        ((2, 4, 4), 7, 4, ()),
        ((2, 2, 2, 2, 2), 3, 1, ()),
        ((2, 2, 2, 2, 2), 3, 0, ()),
        ((4, 4, 2), 3, 1, (8, 9)),
        ((4, 4, 4), 5, 2, (0, 5)),
    ],
)
def test_a_fleet_is_filled_until_really_no_shard_is_left(
    sizes: tuple[int, ...], size: int, overlap: int, drained: tuple[int, ...]
) -> None:
    for key in (b"one", b"two", b"three"):
        searched = SearchedSharding(fleet(*sizes, drained=drained), size, overlap, key=key)
        room = fill(searched)
        assert room == len(searched) > 0
        assert left(searched) == []
        assert most_shared(searched) <= overlap
        for _, indexes in searched:
            assert len(indexes) == size
            assert is_spread(searched.fleet, indexes)
            assert not set(drained).intersection(indexes)


@pytest.mark.parametrize(("sizes", "size"), [((7,), 3), ((6,), 6), ((3, 3), 2), ((3, 3), 4), ((2, 2, 2), 2)])
def test_where_all_but_one_may_be_shared_every_shard_is_given_once(sizes: tuple[int, ...], size: int) -> None:
    searched = SearchedSharding(fleet(*sizes), size, size - 1, key=KEY)
    everything = left(searched)
    assert fill(searched) == len(everything)
    assert sorted(indexes for _, indexes in searched) == everything


def test_where_nothing_may_be_shared_every_worker_is_given_once() -> None:
    searched = SearchedSharding(fleet(40), 3, 0, key=KEY)
    assert fill(searched) == 13
    assert max(Counter(index for _, indexes in searched for index in indexes).values()) == 1


@rows("seed", range(10))
def test_it_goes_on_where_the_search_of_infima_gives_up(seed: int) -> None:
    """Ten workers in each of two zones, one of each, are 100 shards if no two may be the same."""
    cells: dict[tuple[str, ...], range] = {("az0",): range(10), ("az1",): range(10, 20)}
    infima = StatefulSearch(cells, 1, 1, seed=seed)
    searched = SearchedSharding(fleet(10, 10), 2, 1, key=KEY)
    for number in count():
        try:
            searched.adopt(f"infima-{number}", workers(searched, infima.shard()))
        except NoShardsAvailable:
            break
    given_up_at = len(searched)
    assert given_up_at < 100
    assert fill(searched) == 100 - given_up_at
    assert {indexes for _, indexes in searched} == {(one, other) for one in range(10) for other in range(10, 20)}


def test_what_is_released_can_be_given_again_and_in_parts() -> None:
    searched = SearchedSharding(fleet(4), 2, 0, key=KEY)
    searched.adopt("one", ["az0-0", "az0-1"])
    searched.adopt("other", ["az0-2", "az0-3"])
    with pytest.raises(CapacityExhausted):
        searched.assign("third")
    assert searched.remove("one")
    assert searched.assign("third") == (0, 1)
    assert searched.remove("third")
    assert searched.remove("other")
    searched.adopt("fourth", ["az0-1", "az0-3"])
    assert searched.assign("fifth") == (0, 2)
    assert not searched.remove("one")
    assert len(searched) == 2


@pytest.mark.parametrize(("sizes", "size", "overlap"), [((12,), 4, 2), ((6, 6), 4, 1), ((100,), 4, 1), ((9,), 3, 0)])
def test_a_full_fleet_has_room_again_for_each_that_is_released(sizes: tuple[int, ...], size: int, overlap: int) -> None:
    searched = SearchedSharding(fleet(*sizes), size, overlap, key=KEY)
    room = fill(searched)
    gone = [f"tenant-{number}" for number in range(0, room, 3)]
    for tenant in gone:
        assert searched.remove(tenant)
    assert fill(searched, "new") > 0
    assert most_shared(searched) <= overlap
    for name, _ in list(searched):
        assert searched.remove(name)
    assert len(searched) == 0
    assert not searched._used._table, "nothing is kept of shards that are gone"
    assert fill(searched) == room, "as if nobody had ever been there"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=120))
@settings(max_examples=40)
def test_what_is_kept_follows_from_the_shards_there_are_and_not_from_how_they_came(
    changes: list[tuple[bool, int]],
) -> None:
    """In a fleet that is large enough that few neighbours are kept in another way than many."""
    searched = SearchedSharding(fleet(100, 100), 4, 1, key=KEY)
    for is_assigned, tenant in changes:
        if is_assigned:
            searched.assign(str(tenant))
        else:
            searched.remove(str(tenant))
    again = SearchedSharding(searched.fleet, 4, 1, key=KEY)
    for name, indexes in searched:
        again.adopt(name, workers(searched, indexes))
    for index in range(200):
        assert searched._used._with([index]) == again._used._with([index])


@pytest.mark.no_cover
def test_few_neighbours_are_kept_as_a_list_and_many_as_bits() -> None:
    searched = SearchedSharding(fleet(120), 4, 1, key=KEY)
    searched.assign("first")
    assert {type(value) for value in searched._used._table.values()} == {bytes}
    fill(searched)
    assert {type(value) for value in searched._used._table.values()} == {int}
    assert most_shared(searched) <= 1


class Changes(RuleBasedStateMachine):
    """Assign, release and keep in any order, against trying every shard there is."""

    def __init__(self) -> None:
        super().__init__()
        self.searched = SearchedSharding(fleet(4, 3, 3, drained=[2]), 4, 2, key=KEY)
        self.model: dict[bytes, set[int]] = {}

    @rule(tenant=st.binary(max_size=1))
    def assign(self, tenant: bytes) -> None:
        if tenant not in self.model and not left(self.searched):
            with pytest.raises(CapacityExhausted, match=r"workers? is left that"):
                self.searched.assign(tenant)
            return
        indexes = self.searched.assign(tenant)
        if tenant not in self.model:
            assert is_spread(self.searched.fleet, indexes)
            assert len(indexes) == 4
            assert 2 not in indexes, "it is drained"
        assert self.model.setdefault(tenant, set(indexes)) == set(indexes)

    @rule(tenant=st.binary(max_size=1))
    def release(self, tenant: bytes) -> None:
        assert self.searched.remove(tenant) == (self.model.pop(tenant, None) is not None)

    @rule(tenant=st.binary(max_size=1), indexes=st.sets(st.integers(0, 9), min_size=1, max_size=6))
    def keep(self, tenant: bytes, indexes: set[int]) -> None:
        close = [name for name, theirs in self.model.items() if len(theirs & indexes) > 2]
        if self.model.get(tenant, indexes) != indexes or (tenant not in self.model and close):
            with pytest.raises(InvalidValue) as refused:
                self.searched.adopt(tenant, workers(self.searched, indexes))
            assert tenant in self.model or any(
                f"of tenant {format_name(name)}:" in str(refused.value) for name in close
            )
            return
        self.searched.adopt(tenant, workers(self.searched, indexes))
        self.model[tenant] = indexes

    @invariant()
    def nobody_shares_more_than_allowed_and_all_is_there(self) -> None:
        assert {name: set(indexes) for name, indexes in self.searched} == self.model
        assert len(self.searched) == len(self.model)
        assert most_shared(self.searched) <= 2


Changes.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestChanges = Changes.TestCase


def test_a_shard_that_was_given_elsewhere_is_taken_over() -> None:
    searched = SearchedSharding(fleet(5, 5, drained=[0]), 4, 2, key=KEY)
    searched.adopt("old", ["az1-4", "az0-0", "az0-1", "az1-0"])
    searched.adopt("small", ["az0-4"])
    searched.adopt("large", ["az0-1", "az0-2", "az0-3", "az0-4", "az1-1", "az1-2"])
    searched.adopt("old", ["az0-0", "az0-1", "az1-0", "az1-4"])
    assert searched.find("old") == (0, 1, 5, 9)
    assert searched.assign("old") == (0, 1, 5, 9)
    assert [name for name, _ in searched] == [b"old", b"small", b"large"]
    fill(searched)
    assert most_shared(searched) <= 2
    assert left(searched) == []


def test_shards_no_larger_than_the_overlap_are_taken_over_as_often_as_they_come() -> None:
    searched = SearchedSharding(fleet(9), 4, 2, key=KEY)
    for tenant in ("one", "other"):
        searched.adopt(tenant, ["az0-3", "az0-4"])
    assert searched.remove("one")
    assert searched.remove("other")
    assert not searched._used._table


def test_a_shard_that_shares_too_much_is_not_taken_over_and_the_neighbour_is_named() -> None:
    searched = SearchedSharding(fleet(9), 4, 2, key=KEY)
    searched.adopt("far", ["az0-5", "az0-6", "az0-7", "az0-8"])
    searched.adopt("near", ["az0-0", "az0-1", "az0-2", "az0-3"])
    with pytest.raises(InvalidValue, match=r"tenant new shares 3 workers with that of tenant near: .* at most 2"):
        searched.adopt("new", ["az0-1", "az0-2", "az0-3", "az0-4"])
    assert searched.find("new") is None
    assert len(searched) == 2
    searched.remove("near")
    searched.adopt("new", ["az0-1", "az0-2", "az0-3", "az0-4"])


@pytest.mark.parametrize(
    ("listed", "error", "message"),
    [
        ([], InvalidValue, "expected workers, each once"),
        (["az0-1", "az0-1"], InvalidValue, "expected workers, each once"),
        (["az0-1", "az0-99"], NotFound, "no worker az0-99"),
        (["az0-5", "az0-6", "az0-7"], InvalidValue, r"tenant one has another shard: remove it"),
    ],
)
def test_what_is_no_shard_is_not_taken_over(listed: list[str], error: type[Exception], message: str) -> None:
    searched = SearchedSharding(fleet(9), 3, 1, key=KEY)
    searched.adopt("one", ["az0-0", "az0-1", "az0-2"])
    with pytest.raises(error, match=message):
        searched.adopt("one", listed)
    assert list(searched) == [(b"one", (0, 1, 2))]


def test_who_would_rather_fail_early_bounds_the_steps_and_is_told_that_shards_may_be_left() -> None:
    hasty = SearchedSharding(fleet(24), 4, 2, key=KEY, max_steps=4)
    late = f"tenant-{filled(hasty)}"
    with pytest.raises(
        CapacityExhausted, match=r"no shard of 4 workers .* found in 4 steps, and some may be left; allow more steps"
    ):
        hasty.assign(late)
    assert hasty.find(late) is None
    assert left(hasty), "it gave up while there were some"


@pytest.mark.parametrize(("steps", "is_enough"), [(2, False), (4, True)])
def test_the_first_guess_counts_among_the_steps(steps: int, is_enough: bool) -> None:
    """One shard is left, which few guess; a search that may go on takes it at once."""
    searched = SearchedSharding(fleet(4), 2, 0, key=KEY, max_steps=steps)
    searched.adopt("old", ["az0-0", "az0-1"])
    served = 0
    for number in range(50):
        served += filled(searched, f"new-{number}")
        searched.remove(f"new-{number}-0")
    assert (served == 50) is is_enough
    assert served > 0


def test_a_bounded_search_that_ends_before_its_bound_is_certain() -> None:
    searched = SearchedSharding(fleet(6), 3, 0, key=KEY, max_steps=1000)
    assert fill(searched) == 2


def test_what_would_give_more_is_said() -> None:
    full = SearchedSharding(fleet(6), 3, 0, key=KEY)
    fill(full)
    with pytest.raises(
        CapacityExhausted,
        match=r"tenant late .* at most 0 with each of the 2 assigned; remove .*, allow an overlap of 1, or add",
    ):
        full.assign("late")
    distinct = SearchedSharding(fleet(3), 3, 2, key=KEY)
    distinct.assign("one")
    with pytest.raises(CapacityExhausted, match=r"assigned; remove tenants that are gone, or add workers$"):
        distinct.assign("late")


def test_the_same_key_and_order_give_the_same_shards_and_another_key_others() -> None:
    one, same, other = (SearchedSharding(fleet(20, 20), 4, 2, key=key) for key in (b"one", b"one", b"other"))
    shards = [[searched.assign(str(tenant)) for tenant in range(200)] for searched in (one, same, other)]
    assert shards[0] == shards[1]
    assert sum(mine == theirs for mine, theirs in zip(shards[0], shards[2], strict=True)) < 5


def test_numbers_are_drawn_evenly_also_where_a_digest_ends() -> None:
    draws = _KeyedRandom(KEY, b"tenant")
    load = Counter(draws.randbelow(1000) // 10 for _ in range(20_000))
    assert len(load) == 100
    assert all(140 < drawn < 260 for drawn in load.values())


@pytest.mark.parametrize(("sizes", "size"), [((60,), 4), ((20, 20, 20), 3), ((20, 20, 20), 4), ((12,) * 5, 3)])
def test_the_load_is_about_even(sizes: tuple[int, ...], size: int) -> None:
    searched = SearchedSharding(fleet(*sizes), size, size - 2, key=KEY)
    for tenant in range(300):
        searched.assign(str(tenant))
    load = Counter(index for _, indexes in searched for index in indexes)
    assert len(load) == sum(sizes)
    assert max(load.values()) < 2.2 * 300 * size / sum(sizes)


def test_several_groups_of_a_worker_count_as_one() -> None:
    slots = [
        Slot(worker=f"{zone}-{rack}-{number}", group=(zone, rack))
        for zone in ("a", "b")
        for rack in ("r1", "r2")
        for number in range(3)
    ]
    searched = SearchedSharding(Fleet(slots=tuple(slots)), 4, 2, key=KEY)
    fill(searched)
    for _, indexes in searched:
        assert sorted(index // 3 for index in indexes) == [0, 1, 2, 3]


@pytest.mark.no_cover
def test_a_fleet_of_many_workers() -> None:
    searched = SearchedSharding(fleet(66_000), 2, 1, key=KEY)
    searched.adopt("last", ["az0-65999", "az0-65536"])
    assert searched._used._with([65_999]) == 1 << 65_536
    with pytest.raises(InvalidValue, match="shares 2 workers with that of tenant last"):
        searched.adopt("new", ["az0-65536", "az0-65999"])
    assert searched.remove("last")
    searched.adopt("new", ["az0-65536", "az0-65999"])


@rows(
    ("sizes", "drained", "size", "overlap", "message"),
    [
        ((4, 4, 4), (), 0, 0, "shards of 0: expected 1 to 12"),
        ((4, 4, 4), (), 13, 2, "shards of 13: expected 1 to 12"),
        ((4, 4, 6), (), 14, 2, "shards of 14: expected 1 to 13"),
        ((4, 4, 4), (0, 1), 10, 2, "shards of 10: expected 1 to 8"),
        ((4,), (0, 1, 2, 3), 1, 0, "shards of 1: expected 1 to 0"),
        ((9,), (), 3, 3, "overlap 3 of shards of 3: expected 0 to 2"),
        ((9,), (), 3, -1, "overlap -1 of shards of 3: expected 0 to 2"),
        ((60,), (), 40, 20, "combinations of 20 to store: expected at most 100000"),
    ],
)
def test_what_no_shard_can_be_is_refused(
    sizes: tuple[int, ...], drained: tuple[int, ...], size: int, overlap: int, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        SearchedSharding(fleet(*sizes, drained=drained), size, overlap, key=KEY)


def test_the_largest_shards_that_a_fleet_allows_are_found() -> None:
    searched = SearchedSharding(fleet(4, 4, 6), 13, 12, key=KEY)
    assert fill(searched) == 6
    drained = SearchedSharding(fleet(4, 4, 4, drained=[0, 1]), 8, 7, key=KEY)
    assert fill(drained) == len({indexes for _, indexes in drained}) > 1


def test_fewer_steps_than_a_shard_has_workers_are_refused() -> None:
    with pytest.raises(InvalidValue, match="3 steps: expected 4 or more"):
        SearchedSharding(fleet(9), 4, 2, key=KEY, max_steps=3)


def test_a_kept_shard_with_too_many_parts_is_refused() -> None:
    searched = SearchedSharding(fleet(100), 4, 3, key=KEY)
    with pytest.raises(InvalidValue, match="has 100 workers, and too many combinations of 3"):
        searched.adopt("large", [f"az0-{number}" for number in range(100)])
