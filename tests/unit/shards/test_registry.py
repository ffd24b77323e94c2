"""Tenants by name have numbers, and so shards of a design."""

import pytest

from holdfast import CapacityExhausted, Conflict, NotFound
from holdfast.shards import Designed, Fleet, Registry
from holdfast.shards.registry import changed_meanwhile, exhausted
from holdfast.shards.stores import MemoryShardStore


def test_tenants_by_name_have_shards_of_a_design() -> None:
    designed = Designed(Fleet.of(f"w{number}" for number in range(16)), 4, 2, key=b"key")
    registry = Registry(MemoryShardStore(), designed.capacity)
    one, other = (designed.shard(number) for number in registry.numbers(["tenant-1", "tenant-2"]))
    assert designed.shard(registry.number("tenant-1")) == one != other
    assert registry.left == 138


def test_who_only_asks_is_given_nothing() -> None:
    registry = Registry(MemoryShardStore(), 10)
    registry.number("a")
    assert registry.known("a") == 0
    with pytest.raises(NotFound, match="tenant b has no number yet"):
        registry.known("b")
    assert registry.left == 9


def test_what_is_released_is_given_to_the_next() -> None:
    registry = Registry(MemoryShardStore(), 10)
    assert registry.numbers(["a", "b", "c"]) == [0, 1, 2]
    assert registry.release(["b", "z"]) == 1
    assert registry.number("d") == 1
    assert registry.numbers(name for name in ("d", "a")) == [1, 0]


def test_past_the_capacity_it_is_said_what_to_do() -> None:
    registry = Registry(MemoryShardStore(), 3)
    with pytest.raises(
        CapacityExhausted,
        match=r"4 tenants want a shard, and 3 of 3 are left: remove .* are gone, or make a design with more shards",
    ):
        registry.numbers([*"abcd"])
    assert registry.left == 3, "and nobody got one"
    assert registry.numbers([*"abc"]) == [0, 1, 2]
    with pytest.raises(CapacityExhausted, match="1 tenants want a shard, and 0 of 3 are left"):
        registry.numbers([*"abcda"])


def test_text_is_its_bytes_even_if_it_is_no_text() -> None:
    registry = Registry(MemoryShardStore(), 10)
    assert registry.number("ä") == registry.number("ä".encode()) == 0
    assert registry.number("\udcff") == 1, "half of a pair is a name, too"
    assert registry.known("\udcff") == 1
    assert registry.number(b"\xff") == 2, "and is not the byte that it may stand for"
    assert registry.number("") == 3


def test_what_stores_raise_names_what_was_found() -> None:
    assert isinstance(exhausted(7, 3, 5), CapacityExhausted)
    assert str(exhausted(7, 3, 5)).startswith("3 tenants want a shard, and 2 of 7 are left: ")
    assert str(exhausted(7, 1, 9)).startswith("1 tenants want a shard, and 0 of 7 are left: "), "as of a smaller design"
    assert isinstance(changed_meanwhile(1, 4), Conflict)
    assert "version 4, and 1 was expected" in str(changed_meanwhile(1, 4))
