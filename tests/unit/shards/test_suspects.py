"""Who explains that these workers fail, and nobody else."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import DesignedSharding, Fleet, Suspect, find_suspects
from holdfast.testing import seeded
from tests.table import sampled

TENANTS = 5000
Shards = list[tuple[int, tuple[str, ...]]]


@cache
def fleet() -> Fleet:
    return Fleet.from_groups({f"az{zone}": [f"az{zone}-{number}" for number in range(25)] for zone in range(4)})


@cache
def assigned() -> Shards:
    """5000 tenants on four zones of 25 workers: shards of one worker in each, of which two share two at the most."""
    sharding = DesignedSharding(fleet(), 4, 2, key=b"a secret of sixteen bytes or more")
    return [(tenant, sharding.shard(tenant).workers) for tenant in range(TENANTS)]


def workers_of(*tenants: int) -> set[str]:
    return {worker for tenant in tenants for worker in assigned()[tenant][1]}


def needed(found: list[Suspect[int]]) -> set[int]:
    return {suspect.tenant for suspect in found if suspect.is_likely}


@pytest.mark.no_cover
@given(st.integers(0, TENANTS - 1))
def test_one_poison_tenant_is_first_and_alone_needed(poison: int) -> None:
    first, *others = find_suspects(workers_of(poison), assigned())
    assert first == Suspect(poison, tuple(sorted(workers_of(poison))), (), 1.0, is_likely=True)
    assert len(others) == 9
    for other in others:
        assert not other.is_likely
        assert other.score <= 2 / 6, "two of four workers shared at the most"
        assert set(other.failing) == workers_of(other.tenant) & workers_of(poison)
        assert set(other.healthy) == workers_of(other.tenant) - workers_of(poison)


@pytest.mark.no_cover
@given(st.lists(st.integers(0, TENANTS - 1), min_size=2, max_size=4, unique=True))
def test_of_several_at_once_all_are_listed_and_those_needed_explain_everything(poison: list[int]) -> None:
    failing = workers_of(*poison)
    found = find_suspects(failing, assigned(), limit=200)
    assert set(poison) <= {suspect.tenant for suspect in found if not suspect.healthy}
    chosen = [suspect for suspect in found if suspect.is_likely]
    assert found[: len(chosen)] == chosen, "those who are needed come first"
    assert {worker for suspect in chosen for worker in suspect.failing} == failing
    left = set(failing)
    for suspect in chosen:
        assert not suspect.healthy
        assert left & set(suspect.failing), "each explains something that those before it do not"
        left -= set(suspect.failing)
    assert len(chosen) <= 2 * len(poison), "of sets of four, always taking the best never takes more"
    scores = [suspect.score for suspect in found[len(chosen) :]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.no_cover
@pytest.mark.parametrize("wanted", sampled([(2, 60, 57), (2, 300, 295), (3, 300, 285)]), ids=str)
def test_two_or_three_at_once_are_nearly_always_among_those_who_are_needed(wanted: tuple[int, int, int]) -> None:
    """Not always: other tenants whose workers all fail may explain as much."""
    poison, trials, least = wanted
    randomness = seeded("suspects", poison)
    found = 0
    for _ in range(trials):
        chosen = {int(randomness.random() * TENANTS) for _ in range(poison)}
        found += chosen <= needed(find_suspects(workers_of(*chosen), assigned()))
    assert found >= least


def test_no_more_are_needed_than_would_do() -> None:
    shards = [("c", "1256"), ("e", "1537"), ("f", "2648"), ("a", "1234"), ("b", "5678")]
    found = {suspect.tenant for suspect in find_suspects("12345678", shards) if suspect.is_likely}
    assert found in ({"a", "b"}, {"e", "f"}), "and not the three that come of taking the first every time"


@pytest.mark.no_cover
@given(st.integers(0, TENANTS - 1), st.integers(0, 3))
def test_a_tenant_that_has_not_reached_all_of_its_workers_yet_is_first_or_as_good_as_the_first(
    poison: int, sound: int
) -> None:
    worker = assigned()[poison][1][sound]
    found = find_suspects(workers_of(poison) - {worker}, assigned(), limit=100)
    [it] = [suspect for suspect in found if suspect.tenant == poison]
    assert it.score == found[0].score == 3 / 4
    assert it.healthy == (worker,)
    assert [suspect.tenant for suspect in found if suspect.score == 3 / 4] == [poison], "two shards share two"
    assert not needed(found), "nobody explains it whole"


def test_when_nothing_fails_nobody_is_suspect() -> None:
    assert find_suspects([], assigned()) == []
    assert find_suspects(["no such worker"], assigned()) == []
    assert find_suspects(["az0-1"], []) == []


def test_a_zone_that_fails_is_nobodys_fault() -> None:
    zone = [slot.worker for slot in fleet().slots if slot.group == ("az1",)]
    found = find_suspects(zone, assigned(), limit=TENANTS)
    assert len(found) == TENANTS, "all have a worker there"
    assert not needed(found)
    assert {suspect.score for suspect in found} == {1 / 28}
    assert [suspect.tenant for suspect in found] == list(range(TENANTS)), (
        "who are as good as each other keep their order"
    )


def test_workers_that_nobody_has_all_of_leave_others_explained() -> None:
    """A poison tenant, and a machine that broke at the same time."""
    failing = workers_of(42) | {"az3-0", "az3-1"} - workers_of(42)
    found = find_suspects(failing, assigned())
    assert needed(found) == {42}
    assert found[0].score == 4 / len(failing) < 1


def test_far_too_many_at_once_to_try_all_sets_are_found_one_after_the_other() -> None:
    """Sixty who have a worker each, others who add nothing, and a machine that broke: nobody explains that."""
    shards = [(number, [f"w{number % 60}"]) for number in range(70)]
    failing = [f"w{number}" for number in range(60)] + ["broken"]
    found = find_suspects(failing, shards, limit=65)
    assert needed(found) == {*range(60)}
    assert {worker for suspect in found if suspect.is_likely for worker in suspect.failing} == {*failing[:-1]}
    assert len(needed(find_suspects(failing, shards, limit=20))) == 20, "no more than are listed"


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_no_more_are_listed_than_asked_for(limit: int) -> None:
    failing = workers_of(1, 2, 3)
    found = find_suspects(failing, assigned(), limit=limit)
    assert len(found) == limit
    assert len(needed(found)) == min(limit, 3)
    assert found == find_suspects(failing, assigned(), limit=100)[:limit]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_1_or_more(limit: int) -> None:
    with pytest.raises(InvalidValue, match=f"{limit} suspects: expected 1 or more"):
        find_suspects(["a"], [], limit=limit)


def test_shards_are_read_once_and_may_be_any_collection() -> None:
    shards = ((tenant, [*workers]) for tenant, workers in assigned())
    assert find_suspects(frozenset(workers_of(7)), shards)[0].tenant == 7
    assert next(shards, None) is None


def test_tenants_that_share_one_shard_are_all_suspect() -> None:
    """As with plain shards: one of them is needed, and nothing tells which."""
    shard = frozenset("ab")
    found = find_suspects("ab", [("one", shard), ("other", shard), ("third", frozenset("cd"))])
    assert [(suspect.tenant, suspect.score, suspect.is_likely) for suspect in found] == [
        ("one", 1.0, True),
        ("other", 1.0, False),
    ]


def test_tenants_need_not_be_comparable() -> None:
    """As good as each other, and with nothing to order them by."""
    found = find_suspects("ab", [(object(), "ac"), (object(), "bd"), (object(), "xy")])
    assert len(found) == 2
