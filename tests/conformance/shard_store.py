"""What every store of tenants' numbers and of layouts must do, as tests to inherit.

    class TestMyStore(ShardStoreConformance):
        @pytest.fixture
        def store(self) -> ShardStore:
            return MyStore(...)

Each test begins with a store that holds nothing.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast._errors import CapacityExhausted, Conflict
from holdfast.shards import ShardStore, StoredLayout

__all__ = ["ShardStoreConformance"]

MAX_TENANTS = 1 << 40
NAMES = (
    b"",
    b"\0",
    b"\0\0",
    b"A",
    b"a",
    b"a\0",
    b"ab",
    b"a\xff",
    b"b",
    b"x" * 1000,
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
)
"""Names in the order of their bytes, where an order of letters, or one that ends at a NUL, would have another."""
_ONE = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class ShardStoreConformance:
    """The promises of `holdfast.shards.ShardStore`. Override the fixture `store`."""

    @pytest.fixture
    def store(self) -> ShardStore:
        """A store that holds nothing."""
        raise NotImplementedError("override the fixture `store` with an empty store of yours")

    def test_numbers_are_given_from_0_on_and_stay(self, store: ShardStore) -> None:
        """The first is 0, and who asks again gets the same."""
        assert store.count() == 0
        assert store.assign([b"a", b"b"], MAX_TENANTS) == [0, 1]
        assert store.assign([b"c", b"a"], MAX_TENANTS) == [2, 0]
        assert store.find([b"b", b"z", b"a"]) == [1, None, 0]
        assert store.count() == 3

    def test_one_that_is_named_twice_has_one_number(self, store: ShardStore) -> None:
        """In one call as in two."""
        assert store.assign([b"a", b"b", b"a"], MAX_TENANTS) == [0, 1, 0]
        assert store.remove([b"a", b"a"]) == 1

    def test_nobody_is_nobody(self, store: ShardStore) -> None:
        """Calls without tenants do nothing."""
        assert store.assign([], MAX_TENANTS) == []
        assert store.find([]) == []
        assert store.remove([]) == 0

    def test_what_is_released_is_given_again_lowest_first(self, store: ShardStore) -> None:
        """So that numbers stay below the number of tenants there ever were at once."""
        store.assign([b"a", b"b", b"c", b"d"], MAX_TENANTS)
        assert store.remove([b"c", b"a", b"z"]) == 2
        assert store.find([b"a", b"c"]) == [None, None]
        assert store.assign([b"e"], MAX_TENANTS) == [0]
        assert store.assign([b"f", b"g"], MAX_TENANTS) == [2, 4]

    def test_past_the_limit_nobody_gets_a_number(self, store: ShardStore) -> None:
        """Not even those of the same call for whom there would have been one."""
        store.assign([b"a"], 2)
        with pytest.raises(CapacityExhausted, match="too few shards for 2 more tenants, 1 of 2 are left"):
            store.assign([b"b", b"c"], 2)
        assert store.find([b"b", b"c"]) == [None, None]
        assert store.assign([b"b", b"a"], 2) == [1, 0]
        with pytest.raises(CapacityExhausted):
            store.assign([b"c"], 2)
        assert store.assign([b"a"], 0) == [0], "who has one keeps it"

    def test_no_layout_allows_more_tenants_than_there_may_be(
        self, store: ShardStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many shards it has."""
        monkeypatch.setattr(f"{type(store).__module__}.MAX_TENANTS", 2)
        store.write_layout(b"{}", 0, 1.0, 10)
        assert store.assign([b"a", b"b"], MAX_TENANTS) == [0, 1]
        with pytest.raises(CapacityExhausted):
            store.assign([b"c"], MAX_TENANTS)

    def test_names_are_any_bytes(self, store: ShardStore) -> None:
        """Empty, NUL, not UTF-8, long: each is a tenant of its own."""
        names = [b"", b"\0", b"\xff\xfe", b"a\0b", b"x" * 1000, "Ä\N{GRINNING FACE}".encode()]
        assert store.assign(names, MAX_TENANTS) == list(range(len(names)))
        assert store.find(names) == list(range(len(names)))

    def test_of_many_at_once_no_two_have_the_same_number(self, store: ShardStore) -> None:
        """Whoever asks for the same tenant gets the same, whoever for others gets others; and none is left out."""

        def ask(worker: int) -> list[int]:
            mine = [f"{worker}-{number}".encode() for number in range(10)]
            ours = [f"ours-{number}".encode() for number in range(10)]
            found: list[int] = []
            for one, other in zip(mine, ours, strict=True):
                found += store.assign([one, other], MAX_TENANTS)
            return found

        with ThreadPoolExecutor(8) as threads:
            asked = list(threads.map(ask, range(8)))
        assert len({tuple(found[1::2]) for found in asked}) == 1, "all see the same tenants alike"
        numbers = {number for found in asked for number in found}
        assert numbers == set(range(8 * 10 + 10))
        assert store.count() == 90

    def test_any_sequence_leaves_each_tenant_one_number_below_the_most_there_were(self, store: ShardStore) -> None:
        """Against a plain model."""

        @_ONE
        @given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]))), max_size=8))
        def hold(steps: list[tuple[bool, list[bytes]]]) -> None:
            store.remove([b"a", b"b", b"c", b"d"])
            model: dict[bytes, int] = {}
            for is_assigned, tenants in steps:
                if is_assigned:
                    numbers = store.assign(tenants, MAX_TENANTS)
                    for tenant, number in zip(tenants, numbers, strict=True):
                        assert model.setdefault(tenant, number) == number
                else:
                    assert store.remove(tenants) == len(
                        {tenant for tenant in tenants if model.pop(tenant, None) is not None}
                    )
                assert len(set(model.values())) == len(model)
                assert all(number < 4 for number in model.values())
                assert store.count() == len(model)

        hold()

    def test_tenants_are_listed_in_the_order_of_their_bytes(self, store: ShardStore) -> None:
        """Whatever order they came in, and by their bytes, not by letters."""
        assert store.list_tenants(None, 10) == []
        names = [*NAMES[::2], *reversed(NAMES[1::2])]
        numbers = dict(zip(names, store.assign(names, MAX_TENANTS), strict=True))
        listed = [(name, numbers[name]) for name in NAMES]
        assert store.list_tenants(None, len(NAMES)) == listed
        assert store.list_tenants(None, 1000) == listed
        assert store.list_tenants(None, 0) == []

    def test_tenants_are_listed_page_by_page(self, store: ShardStore) -> None:
        """A page begins after the last name of the one before, whether that tenant is still there or not."""
        numbers = dict(zip(NAMES, store.assign(NAMES, MAX_TENANTS), strict=True))
        for size in (1, 2, 5, len(NAMES)):
            found: list[tuple[bytes, int]] = []
            while page := store.list_tenants(found[-1][0] if found else None, size):
                assert len(page) <= size
                found += page
            assert found == list(numbers.items())
        store.remove([b"a"])
        assert store.list_tenants(b"a", 2) == [(b"a\0", numbers[b"a\0"]), (b"ab", numbers[b"ab"])]
        assert store.list_tenants(b"aa", 1) == [(b"ab", numbers[b"ab"])]
        assert store.list_tenants(b"", 1) == [(b"\0", numbers[b"\0"])], "after the empty name is not at the beginning"
        assert store.list_tenants(NAMES[-1], 5) == []

    def test_tenants_are_listed_once_while_others_come_and_go(self, store: ShardStore) -> None:
        """Who was there all the time is in the list, once and with its number; and the list stays in order."""
        lasting = [f"{number:03}".encode() for number in range(60)]
        numbers = dict(zip(lasting, store.assign(lasting, MAX_TENANTS), strict=True))
        is_done = threading.Event()

        def come_and_go(worker: int) -> int:
            turn = 0
            while not is_done.is_set():
                name = f"{turn * 7 % 60:03}-{worker}".encode()
                store.assign([name], MAX_TENANTS)
                store.remove([name])
                turn += 1
            return turn

        with ThreadPoolExecutor(4) as threads:
            turns = [threads.submit(come_and_go, worker) for worker in range(4)]
            try:
                for _ in range(10):
                    found: list[tuple[bytes, int]] = []
                    while page := store.list_tenants(found[-1][0] if found else None, 7):
                        found += page
                    names = [name for name, _ in found]
                    assert names == sorted(set(names))
                    assert {name: number for name, number in found if name in numbers} == numbers
            finally:
                is_done.set()
        assert all(turn.result() for turn in turns)

    def test_any_names_are_listed_as_they_sort(self, store: ShardStore) -> None:
        """Against sorting them."""

        @_ONE
        @given(st.sets(st.binary(max_size=4), max_size=12), st.none() | st.binary(max_size=4), st.integers(1, 5))
        def hold(names: set[bytes], after: bytes | None, limit: int) -> None:
            store.remove([name for name, _ in store.list_tenants(None, 1000)])
            numbers = dict(zip(names, store.assign([*names], MAX_TENANTS), strict=True))
            expected = sorted(entry for entry in numbers.items() if after is None or entry[0] > after)
            assert store.list_tenants(after, limit) == expected[:limit]

        hold()

    def test_layouts_follow_each_other(self, store: ShardStore) -> None:
        """From version 1 on, each with its time and text, to the last bit."""
        assert store.list_layouts(0) == []
        texts = (b"{}", b"", b"\0\xff" * 50_000)
        for version, text in enumerate(texts):
            written = store.write_layout(text, version, 1_750_000_000.1 + version / 3, MAX_TENANTS)
            assert written == StoredLayout(version + 1, 1_750_000_000.1 + version / 3, text)
        kept = [StoredLayout(number + 1, 1_750_000_000.1 + number / 3, text) for number, text in enumerate(texts)]
        for after in range(5):
            assert store.list_layouts(after) == kept[after:]

    def test_a_layout_is_kept_only_if_the_newest_is_the_one_expected(self, store: ShardStore) -> None:
        """Neither over another, nor past a gap; the refusal names what there is, and nothing is kept."""
        for expected in (1, -1, 7):
            with pytest.raises(Conflict, match=f"at version 0, and {expected} was expected"):
                store.write_layout(b"gap", expected, 5.0, MAX_TENANTS)
        store.write_layout(b"one", 0, 1.0, MAX_TENANTS)
        store.write_layout(b"two", 1, 2.0, MAX_TENANTS)
        for expected in (0, 1, 3, 9):
            with pytest.raises(Conflict, match=f"at version 2, and {expected} was expected"):
                store.write_layout(b"stale", expected, 5.0, MAX_TENANTS)
        assert [layout.text for layout in store.list_layouts(0)] == [b"one", b"two"]

    def test_of_all_who_write_the_same_version_one_does(self, store: ShardStore) -> None:
        """The others are told so."""
        together = threading.Barrier(8)

        def write(writer: int) -> StoredLayout | None:
            together.wait(30)
            try:
                return store.write_layout(b"%d" % writer, 0, float(writer), MAX_TENANTS)
            except Conflict:
                return None

        with ThreadPoolExecutor(8) as threads:
            written = [layout for layout in threads.map(write, range(8)) if layout is not None]
        assert len(written) == 1
        assert store.list_layouts(0) == written

    def test_of_many_writers_that_try_again_none_is_lost(self, store: ShardStore) -> None:
        """Each version has one writer, and whoever was told that a layout is kept finds it."""

        def write(writer: int) -> list[StoredLayout]:
            written: list[StoredLayout] = []
            newest = 0
            while len(written) < 5:
                try:
                    written.append(
                        store.write_layout(b"%d-%d" % (writer, len(written)), newest, float(newest), MAX_TENANTS)
                    )
                    newest += 1
                except Conflict:
                    newest = store.list_layouts(0)[-1].version
            return written

        with ThreadPoolExecutor(6) as threads:
            written = [layout for some in threads.map(write, range(6)) for layout in some]
        assert store.list_layouts(0) == sorted(written)
        assert [layout.version for layout in store.list_layouts(0)] == list(range(1, 31))

    def test_layouts_that_were_followed_before_are_forgotten(self, store: ShardStore) -> None:
        """A layout held until its follower began: it goes when that was before the time, and the newest stays."""
        assert store.delete_old_layouts(1e18) == 0
        for version in range(4):
            store.write_layout(b"%d" % version, version, 10.0 * (version + 1), MAX_TENANTS)
        assert store.delete_old_layouts(15.0) == 0, "the first held until 20, though it began before"
        assert store.delete_old_layouts(20.0) == 0, "not before, but then"
        assert store.delete_old_layouts(20.5) == 1
        assert [layout.version for layout in store.list_layouts(0)] == [2, 3, 4]
        assert store.delete_old_layouts(1e18) == 2
        assert store.delete_old_layouts(1e18) == 0
        assert store.list_layouts(0) == [StoredLayout(4, 40.0, b"3")]
        assert store.write_layout(b"4", 4, 50.0, MAX_TENANTS).version == 5, "versions go on where they were"

    def test_layouts_are_forgotten_oldest_first_though_clocks_differ(self, store: ShardStore) -> None:
        """Whoever wrote a version may have had a clock that was ahead: that leaves no gap, and nothing for ever."""
        for version, at in enumerate((10.0, 90.0, 20.0, 95.0)):
            store.write_layout(b"", version, at, MAX_TENANTS)
        assert store.delete_old_layouts(30.0) == 0
        assert store.delete_old_layouts(91.0) == 2
        assert [layout.version for layout in store.list_layouts(0)] == [3, 4]

    def test_layouts_and_numbers_have_nothing_to_do_with_each_other(self, store: ShardStore) -> None:
        """Neither counts for the other, and neither goes with the other."""
        store.write_layout(b"one", 0, 1.0, MAX_TENANTS)
        assert store.assign([b"a"], MAX_TENANTS) == [0]
        store.write_layout(b"two", 1, 2.0, MAX_TENANTS)
        assert store.assign([b"b"], MAX_TENANTS) == [1]
        store.delete_old_layouts(3.0)
        assert store.find([b"a", b"b"]) == [0, 1]
        store.remove([b"a", b"b"])
        assert [layout.version for layout in store.list_layouts(0)] == [2]

    def test_a_layout_that_has_no_shard_for_somebody_is_refused(self, store: ShardStore) -> None:
        """Who came between a plan and its change must not be left without."""
        store.assign([b"a", b"b", b"c"], MAX_TENANTS)
        with pytest.raises(Conflict, match="a layout of 2 shards, and a tenant has number 2"):
            store.write_layout(b"small", 0, 1.0, 2)
        assert store.list_layouts(0) == []
        store.remove([b"c"])
        store.write_layout(b"small", 0, 1.0, 2)

    def test_nobody_gets_a_number_that_the_newest_layout_has_no_shard_for(self, store: ShardStore) -> None:
        """Not even from who does not know of it yet, and believes that there are more."""
        store.write_layout(b"large", 0, 1.0, 5)
        store.assign([b"a", b"b"], 5)
        store.write_layout(b"small", 1, 2.0, 2)
        with pytest.raises(CapacityExhausted, match="too few shards for 1 more tenant, 0 of 2 are left"):
            store.assign([b"c"], 5)
        assert store.assign([b"a", b"b"], 5) == [0, 1]
        store.write_layout(b"huge", 2, 3.0, 1 << 80)
        assert store.assign([b"c"], 5) == [2]

    def test_times_do_not_go_back(self, store: ShardStore) -> None:
        """Where the clocks of two who write differ, what came later began later."""
        store.write_layout(b"ahead", 0, 100.0, MAX_TENANTS)
        assert store.write_layout(b"behind", 1, 50.0, MAX_TENANTS).at == 100.0
        assert [layout.at for layout in store.list_layouts(0)] == [100.0, 100.0]

    def test_many_are_found_at_once(self, store: ShardStore) -> None:
        """More than go into one statement, in any order, some several times, some unknown."""
        names = [b"%d" % number for number in range(1000)]
        assert store.assign(names, MAX_TENANTS) == list(range(1000))
        mixed = [*reversed(names), b"unknown", *names[:300]]
        assert store.find(mixed) == [*reversed(range(1000)), None, *range(300)]
