"""What every store of tenants' numbers must do, as tests to inherit.

    class TestMyStore(NumberStoreConformance):
        @pytest.fixture
        def store(self) -> NumberStore:
            return MyStore(...)

Needs pytest and hypothesis. Each test begins with a store that holds nothing.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast._errors import CapacityExhausted
from holdfast.shards import NumberStore

__all__ = ["NumberStoreConformance"]

MANY = 1 << 40
_ONE = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class NumberStoreConformance:
    """The promises of `holdfast.shards.NumberStore`. Override the fixture `store`."""

    @pytest.fixture
    def store(self) -> NumberStore:
        """A store that holds nothing."""
        raise NotImplementedError("override the fixture `store` with an empty store of yours")

    def test_numbers_are_given_from_0_on_and_stay(self, store: NumberStore) -> None:
        """The first is 0, and who asks again gets the same."""
        assert store.count() == 0
        assert store.assign([b"a", b"b"], MANY) == [0, 1]
        assert store.assign([b"c", b"a"], MANY) == [2, 0]
        assert store.find([b"b", b"z", b"a"]) == [1, None, 0]
        assert store.count() == 3

    def test_one_that_is_named_twice_has_one_number(self, store: NumberStore) -> None:
        """In one call as in two."""
        assert store.assign([b"a", b"b", b"a"], MANY) == [0, 1, 0]
        assert store.release([b"a", b"a"]) == 1

    def test_nobody_is_nobody(self, store: NumberStore) -> None:
        """Calls without tenants do nothing."""
        assert store.assign([], MANY) == []
        assert store.find([]) == []
        assert store.release([]) == 0

    def test_what_is_released_is_given_again_lowest_first(self, store: NumberStore) -> None:
        """So that numbers stay below the number of tenants there ever were at once."""
        store.assign([b"a", b"b", b"c", b"d"], MANY)
        assert store.release([b"c", b"a", b"z"]) == 2
        assert store.find([b"a", b"c"]) == [None, None]
        assert store.assign([b"e"], MANY) == [0]
        assert store.assign([b"f", b"g"], MANY) == [2, 4]

    def test_past_the_limit_nobody_gets_a_number(self, store: NumberStore) -> None:
        """Not even those of the same call for whom there would have been one."""
        store.assign([b"a"], 2)
        with pytest.raises(CapacityExhausted, match="all 2 numbers"):
            store.assign([b"b", b"c"], 2)
        assert store.find([b"b", b"c"]) == [None, None]
        assert store.assign([b"b", b"a"], 2) == [1, 0]
        with pytest.raises(CapacityExhausted):
            store.assign([b"c"], 2)
        assert store.assign([b"a"], 0) == [0], "who has one keeps it"

    def test_names_are_any_bytes(self, store: NumberStore) -> None:
        """Empty, NUL, not UTF-8, long: each is a tenant of its own."""
        names = [b"", b"\0", b"\xff\xfe", b"a\0b", b"x" * 1000, "Ä\N{GRINNING FACE}".encode()]
        assert store.assign(names, MANY) == list(range(len(names)))
        assert store.find(names) == list(range(len(names)))

    def test_of_many_at_once_no_two_have_the_same_number(self, store: NumberStore) -> None:
        """Whoever asks for the same tenant gets the same, whoever for others gets others; and none is left out."""

        def ask(worker: int) -> list[int]:
            mine = [f"{worker}-{number}".encode() for number in range(10)]
            ours = [f"ours-{number}".encode() for number in range(10)]
            found: list[int] = []
            for one, other in zip(mine, ours, strict=True):
                found += store.assign([one, other], MANY)
            return found

        with ThreadPoolExecutor(8) as threads:
            asked = list(threads.map(ask, range(8)))
        assert len({tuple(found[1::2]) for found in asked}) == 1, "all see the same tenants alike"
        numbers = {number for found in asked for number in found}
        assert numbers == set(range(8 * 10 + 10))
        assert store.count() == 90

    def test_any_sequence_leaves_each_tenant_one_number_below_the_most_there_were(self, store: NumberStore) -> None:
        """Against a plain model."""

        @_ONE
        @given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]))), max_size=8))
        def hold(steps: list[tuple[bool, list[bytes]]]) -> None:
            store.release([b"a", b"b", b"c", b"d"])
            model: dict[bytes, int] = {}
            for is_assigned, tenants in steps:
                if is_assigned:
                    numbers = store.assign(tenants, MANY)
                    for tenant, number in zip(tenants, numbers, strict=True):
                        assert model.setdefault(tenant, number) == number
                else:
                    assert store.release(tenants) == len(
                        {tenant for tenant in tenants if model.pop(tenant, None) is not None}
                    )
                assert len(set(model.values())) == len(model)
                assert all(number < 4 for number in model.values())
                assert store.count() == len(model)

        hold()
