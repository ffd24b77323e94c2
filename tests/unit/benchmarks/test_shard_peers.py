"""The sharders that benchmarks compare with do what their originals do."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._shard_peers import Dealer, JavaRandom, NoShardsAvailable, Ring, SimpleSignature, StatefulSearch
from tests.table import rows, sampled

LETTERS = range(20)
ONE_CELL: dict[tuple[str, ...], Sequence[int]] = {("",): LETTERS}
TWO_CELLS: dict[tuple[str, ...], Sequence[int]] = {("az1",): range(10), ("az2",): range(10, 20)}
FOUR_CELLS: dict[tuple[str, ...], Sequence[int]] = {
    ("az1", "v1"): range(5),
    ("az1", "v2"): range(5, 10),
    ("az2", "v1"): range(10, 15),
    ("az2", "v2"): range(15, 20),
}


def signature(tenant: bytes) -> tuple[int, ...]:
    return SimpleSignature([range(10), range(10, 20)], 2, seed=5353).shard(tenant)


def ring(tenant: bytes) -> tuple[int, ...]:
    return Ring({"a": range(10), "b": range(10, 20)}, 4, seed=1, tokens_per_instance=16).shard(tenant)


def dealer(tenant: bytes) -> tuple[int, ...]:
    return Dealer(20, 4).deal(Dealer.hash_value(b"schema", tenant))


@pytest.mark.parametrize("shard", [dealer, signature, ring])
def test_a_name_has_one_shard_of_different_workers(shard: Callable[[bytes], tuple[int, ...]]) -> None:
    shards = [shard(b"tenant-%d" % number) for number in range(200)]
    assert shards == [shard(b"tenant-%d" % number) for number in range(200)]
    assert all(len(set(one)) == 4 and set(one) <= set(range(20)) for one in shards)
    assert len(set(shards)) > 150
    assert len(Counter(worker for one in shards for worker in one)) == 20


class TestDealer:
    """https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/util/shufflesharding/shufflesharding_test.go"""

    @pytest.mark.parametrize(("deck", "hand", "bits"), [(1024, 6, 60), (512, 8, 72)])
    def test_a_hand_needs_so_many_bits(self, deck: int, hand: int, bits: int) -> None:
        assert Dealer.required_entropy_bits(deck, hand) == bits

    @pytest.mark.parametrize(
        ("deck", "hand", "message"),
        [
            (-100, 8, "expected both above 0"),
            (100, 0, "expected both above 0"),
            (100, 101, "expected no more than there are"),
            (1 << 27, 2, "a deck of 134217728"),
            (512, 8, "needs 72 bits: expected no more than 60"),
        ],
    )
    def test_what_cannot_be_dealt_evenly_is_refused(self, deck: int, hand: int, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Dealer(deck, hand)

    @pytest.mark.parametrize(
        ("deck", "hand"),
        [(4, 4), (8, 8), (10, 10), (12, 12), (128, 8), (256, 7), (512, 6), (1024, 6), (2048, 4)],
    )
    @given(hash_value=st.integers(0, (1 << 64) - 1))
    def test_no_card_is_dealt_twice_and_a_batch_is_dealt_alike(self, deck: int, hand: int, hash_value: int) -> None:
        one = Dealer(deck, hand).deal(hash_value)
        assert len(set(one)) == hand
        assert set(one) <= set(range(deck))
        batch = Dealer(deck, hand).deal_batch(np.array([hash_value, 0], dtype=np.uint64))
        assert batch.tolist() == [list(one), list(range(hand))]

    @pytest.mark.parametrize(("deck", "hand"), [(6, 3), (5, 5), (7, 2), (9, 4)])
    def test_every_hand_is_dealt_as_often_as_any_other_in_any_order(self, deck: int, hand: int) -> None:
        hands = Counter(Dealer(deck, hand).deal(value) for value in range(math.perm(deck, hand)))
        assert len(hands) == math.perm(deck, hand)
        assert set(hands.values()) == {1}

    @pytest.mark.parametrize("dealt", sampled([(40, 3), (20, 4), (128, 3), (50, 4)], keep=2), ids=str)
    def test_the_same_for_larger_decks_in_a_batch(self, dealt: tuple[int, int]) -> None:
        deck, hand = dealt
        hands = Dealer(deck, hand).deal_batch(np.arange(math.perm(deck, hand), dtype=np.uint64))
        hands.sort(axis=1)
        coded = hands @ (128 ** np.arange(hand))
        counts = np.bincount(np.unique(coded, return_counts=True)[1])
        assert counts.nonzero()[0].tolist() == [math.factorial(hand)]
        assert counts.sum() == math.comb(deck, hand)

    def test_a_hash_value_is_the_first_eight_bytes_of_the_digest_the_lowest_first(self) -> None:
        # printf 'schema\0tenant' | sha256sum begins with these bytes
        assert Dealer.hash_value(b"schema", b"tenant") == int.from_bytes(bytes.fromhex("ea6df6c04b1be8cd"), "little")


class TestJavaRandom:
    """What OpenJDK 17 prints."""

    def test_its_numbers(self) -> None:
        assert drawn(42, 10, 10) == [0, 3, 8, 4, 0, 5, 5, 8, 9, 3]
        assert drawn(42, 16, 10) == [11, 0, 10, 0, 4, 15, 4, 11, 10, 1]

    def test_numbers_that_would_favour_some_are_drawn_again(self) -> None:
        assert drawn(1, (1 << 30) + 1, 5) == [215764588, 880641847, 874970313, 446064254, 77814904]

    def test_its_shuffle(self) -> None:
        items = list(range(10))
        JavaRandom(42).shuffle(items)
        assert items == [4, 6, 2, 1, 7, 9, 8, 5, 3, 0]


def drawn(seed: int, bound: int, count: int) -> list[int]:
    source = JavaRandom(seed)
    return [source.next_int(bound) for _ in range(count)]


class TestSimpleSignature:
    """Known answers are what the same steps give in OpenJDK 17."""

    @pytest.mark.parametrize(
        ("tenant", "one_cell", "two_cells"),
        [
            (b"0", (11, 15, 10, 16), (13, 14, 1, 7)),
            (b"1", (3, 12, 19, 0), (13, 14, 3, 5)),
            (b"tenant-7", (11, 1, 12, 7), (13, 10, 5, 1)),
        ],
    )
    def test_known_answers(self, tenant: bytes, one_cell: tuple[int, ...], two_cells: tuple[int, ...]) -> None:
        assert SimpleSignature([LETTERS], 4, seed=5353).shard(tenant) == one_cell
        assert SimpleSignature([range(10), range(10, 20)], 2, seed=5353).shard(tenant) == two_cells

    def test_a_seed_below_nothing_and_three_cells(self) -> None:
        sharder = SimpleSignature([range(7), range(7, 14), range(14, 20)], 2, seed=-3)
        assert sharder.shard(b"x") == (3, 1, 11, 8, 15, 19)

    def test_ten_thousand_names_load_every_endpoint_alike(self) -> None:
        """https://github.com/awslabs/route53-infima: SimpleSignatureShuffleSharderTests, within a tenth of 2000."""
        sharder = SimpleSignature([LETTERS], 4, seed=5353)
        load = Counter(worker for number in range(10_000) for worker in sharder.shard(b"%d" % number))
        assert len(load) == 20
        assert all(abs(count / 2000 - 1) < 0.1 for count in load.values())

    def test_a_cell_that_is_too_small_is_refused(self) -> None:
        with pytest.raises(ValueError, match="3 endpoints per cell"):
            SimpleSignature([range(4), range(4, 6)], 3, seed=1)


class TestStatefulSearch:
    """https://github.com/awslabs/route53-infima: StatefulSearchingShuffleSharderTests"""

    @pytest.mark.parametrize("seed", range(5))
    def test_five_endpoints_have_one_shard_of_four_that_shares_at_most_two(self, seed: int) -> None:
        search = StatefulSearch({("",): range(5)}, 4, 2, seed=seed)
        assert len(search.shard()) == 4
        with pytest.raises(NoShardsAvailable):
            search.shard()

    @rows("seed", range(5))
    @rows(("cells", "per_cell", "count"), [(ONE_CELL, 4, 100), (TWO_CELLS, 2, 45), (FOUR_CELLS, 2, 20)])
    def test_shards_share_at_most_two_and_stay_in_their_cells(
        self, cells: dict[tuple[str, ...], Sequence[int]], per_cell: int, count: int, seed: int
    ) -> None:
        search = StatefulSearch(cells, per_cell, 2, seed=seed)
        shards = [search.shard() for _ in range(count)]
        assert all(len(set(one)) == 4 for one in shards)
        assert all(len(set(one) & set(other)) <= 2 for one, other in combinations(shards, 2))
        assert len({worker for one in shards for worker in one}) == 20
        for one in shards:
            used = [coordinate for coordinate, cell in cells.items() if set(cell) & set(one)]
            assert len(used) == (1 if cells is ONE_CELL else 2)
            assert all(len(set(values)) == len(values) for values in zip(*used, strict=True)), "never one value twice"

    @pytest.mark.parametrize("seed", range(5))
    def test_it_is_complete_in_one_cell(self, seed: int) -> None:
        search = StatefulSearch({("",): range(8)}, 2, 1, seed=seed)
        assert len({search.shard() for _ in range(28)}) == 28
        with pytest.raises(NoShardsAvailable):
            search.shard()

    @pytest.mark.parametrize("seed", range(5))
    def test_its_fault_of_giving_up_while_shards_are_left_is_kept(self, seed: int) -> None:
        search = StatefulSearch(TWO_CELLS, 1, 1, seed=seed)
        assert 50 < len(exhaust(search)) < 100

    @pytest.mark.parametrize("seed", range(5))
    def test_its_fault_of_shards_that_are_too_small_is_kept(self, seed: int) -> None:
        """One zone has one pair: once it is used, pairs of the other zone count as whole shards."""
        shards = exhaust(StatefulSearch({("az1",): range(2), ("az2",): range(2, 10)}, 2, 1, seed=seed))
        assert [len(one) for one in shards] == [4] + [2] * (math.comb(8, 2) - 1)
        assert all(len(set(one) & set(other)) <= 1 for one, other in combinations(shards, 2))

    def test_the_seed_decides(self) -> None:
        one, same, other = (StatefulSearch(TWO_CELLS, 2, 2, seed=seed) for seed in (1, 1, 2))
        assert [one.shard() for _ in range(20)] == [same.shard() for _ in range(20)]
        assert one.shard() != other.shard()

    def test_a_cell_that_is_too_small_is_refused(self) -> None:
        with pytest.raises(ValueError, match="11 endpoints per cell"):
            StatefulSearch(TWO_CELLS, 11, 2, seed=1)


def exhaust(search: StatefulSearch) -> list[tuple[int, ...]]:
    shards: list[tuple[int, ...]] = []
    while True:
        try:
            shards.append(search.shard())
        except NoShardsAvailable:
            return shards


class TestRing:
    """https://github.com/grafana/dskit/tree/main/ring: shard/shard_test.go, util_test.go and ring_test.go"""

    @pytest.mark.parametrize(("size", "zones", "expected"), [(1, 1, 1), (1, 3, 1), (3, 3, 1), (4, 3, 2), (6, 3, 2)])
    def test_every_zone_gives_as_many_rounded_up(self, size: int, zones: int, expected: int) -> None:
        assert Ring.instances_per_zone(size, zones) == expected

    @pytest.mark.parametrize(("key", "place"), [(0, 0), (3, 1), (4, 1), (5, 0), (7, 0)])
    def test_a_key_falls_at_the_next_token_after_it(self, key: int, place: int) -> None:
        assert Ring.search_token([3, 5], key) == place

    def test_the_seed_is_the_start_of_a_digest_that_a_zone_changes(self) -> None:
        # printf 'tenant' | md5sum, and printf 'tenant\0zone-a' | md5sum, begin with these bytes
        assert Ring.seed_of(b"tenant", "") == 0xADFB689897B2B525
        assert Ring.seed_of(b"tenant", "zone-a") == 0x63FB28B9FB6AF074

    @pytest.mark.parametrize(
        ("zones", "size", "expected"),
        [
            ({}, 2, []),
            ({"a": range(2)}, 3, [2]),
            ({"a": range(3)}, 2, [2]),
            ({"a": range(2), "b": range(2, 4), "c": range(4, 6)}, 3, [1, 1, 1]),
            ({"a": range(2), "b": range(2, 4), "c": range(4, 6)}, 4, [2, 2, 2]),
            ({"a": range(3), "b": range(3, 6), "c": range(6, 7)}, 6, [2, 2, 1]),
        ],
    )
    def test_shards_are_spread_over_the_zones(
        self, zones: dict[str, Sequence[int]], size: int, expected: list[int]
    ) -> None:
        made = Ring(zones, size, seed=7, tokens_per_instance=128)
        for tenant in range(50):
            shard = made.shard(b"%d" % tenant)
            assert len(set(shard)) == len(shard)
            assert [len(set(shard) & set(members)) for members in zones.values()] == expected

    def test_a_larger_shard_has_all_of_a_smaller_one(self) -> None:
        zones = {"a": range(20), "b": range(20, 40)}
        rings = [Ring(zones, size, seed=7, tokens_per_instance=32) for size in (2, 4, 8)]
        for tenant in range(100):
            for smaller, larger in pairwise(made.shard(b"%d" % tenant) for made in rings):
                assert set(smaller) < set(larger)

    def test_one_instance_less_changes_one_of_those_who_had_it(self) -> None:
        class Without(Ring):
            def _drop(self, instance: int) -> None:
                [(zone, tokens, owners)] = self._rings
                kept = [(token, owner) for token, owner in zip(tokens, owners, strict=True) if owner != instance]
                self._rings = [(zone, [token for token, _ in kept], [owner for _, owner in kept])]

        before, after = (Without({"": range(30)}, 4, seed=7, tokens_per_instance=64) for _ in range(2))
        after._drop(11)
        for tenant in range(300):
            old, new = (set(made.shard(b"%d" % tenant)) for made in (before, after))
            assert old - new == old & {11}
            assert len(new) == 4
