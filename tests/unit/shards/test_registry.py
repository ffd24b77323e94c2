"""Tenants by name have numbers, and so shards of a design."""

import pytest

from holdfast import CapacityExhausted, Conflict, NotFound
from holdfast.shards import DesignedSharding, Fleet, TenantRegistry
from holdfast.shards.registry import capacity_error, version_conflict
from holdfast.shards.stores import MemoryShardStore


def test_tenants_by_name_have_shards_of_a_design() -> None:
    sharding = DesignedSharding(Fleet.from_workers(f"w{number}" for number in range(16)), 4, 2, key=b"key")
    registry = TenantRegistry(MemoryShardStore(), sharding.capacity)
    one, other = (sharding.shard(number) for number in registry.assign_many(["tenant-1", "tenant-2"]))
    assert sharding.shard(registry.assign("tenant-1")) == one != other
    assert registry.remaining == 138


def test_who_only_asks_is_given_nothing() -> None:
    registry = TenantRegistry(MemoryShardStore(), 10)
    registry.assign("a")
    assert registry.find("a") == 0
    with pytest.raises(NotFound, match="tenant b has no number yet"):
        registry.find("b")
    assert registry.remaining == 9


def test_what_is_released_is_given_to_the_next() -> None:
    registry = TenantRegistry(MemoryShardStore(), 10)
    assert registry.assign_many(["a", "b", "c"]) == [0, 1, 2]
    assert registry.remove(["b", "z"]) == 1
    assert registry.assign("d") == 1
    assert registry.assign_many(name for name in ("d", "a")) == [1, 0]


def test_past_the_capacity_it_is_said_what_to_do() -> None:
    registry = TenantRegistry(MemoryShardStore(), 3)
    with pytest.raises(
        CapacityExhausted,
        match=r"too few shards for 4 more tenants, 3 of 3 are left: remove .* gone, or make a design with more shards",
    ):
        registry.assign_many([*"abcd"])
    assert registry.remaining == 3, "and nobody got one"
    assert registry.assign_many([*"abc"]) == [0, 1, 2]
    with pytest.raises(CapacityExhausted, match="too few shards for 1 more tenant, 0 of 3 are left"):
        registry.assign_many([*"abcda"])


def test_text_is_its_bytes_even_if_it_is_no_text() -> None:
    registry = TenantRegistry(MemoryShardStore(), 10)
    assert registry.assign("ä") == registry.assign("ä".encode()) == 0
    assert registry.assign("\udcff") == 1, "half of a pair is a name, too"
    assert registry.find("\udcff") == 1
    assert registry.assign(b"\xff") == 2, "and is not the byte that it may stand for"
    assert registry.assign("") == 3


def test_what_stores_raise_names_what_was_found() -> None:
    assert isinstance(capacity_error(7, 3, 5), CapacityExhausted)
    assert str(capacity_error(7, 3, 5)).startswith("too few shards for 3 more tenants, 2 of 7 are left: ")
    assert str(capacity_error(7, 1, 9)).startswith("too few shards for 1 more tenant, 0 of 7 are left: "), (
        "as of a smaller design"
    )
    assert isinstance(version_conflict(1, 4), Conflict)
    assert "version 4, and 1 was expected" in str(version_conflict(1, 4))
