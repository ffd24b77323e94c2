"""Which design a fleet gets, and where its workers are: what fits none is refused with what would help."""

from collections import Counter
from itertools import combinations, islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import Fleet, Slot
from holdfast.shards.design_choice import AnyDesign, choose_design, double_design
from holdfast.shards.designs import Families, Pairs, Parity, Polynomials, Quadruples, Tuples
from holdfast.shards.hashed import build_rounds
from tests.table import rows


def fleet(*sizes: int) -> Fleet:
    """Groups of so many workers; one group is none."""
    if len(sizes) == 1:
        return Fleet.from_workers(f"w{number}" for number in range(sizes[0]))
    return Fleet.from_groups(
        {f"az{zone}": [f"az{zone}-{number}" for number in range(size)] for zone, size in enumerate(sizes)}
    )


SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=7)


@st.composite
def lattices(draw: st.DrawFn) -> Fleet:
    """One to three dimensions, and some workers in every combination, not as many in each, in any order."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    slots = [
        Slot(worker=f"{cell}-{number}", group=tuple(f"d{at}-{group}" for at, group in enumerate(cell)))
        for cell in product(*map(range, counts))
        for number in range(draw(st.integers(2, 9)))
    ]
    return Fleet(slots=tuple(draw(st.permutations(slots))))


@given(SIZES.map(lambda sizes: fleet(*sizes)) | lattices(), st.integers(1, 8), st.integers(0, 7))
def test_what_is_chosen_fits_the_fleet(whole: Fleet, size: int, overlap: int) -> None:
    """Or it is refused: whatever the fleet looks like, never anything else."""
    try:
        design, cells = choose_design(whole, len(whole), size, overlap)
    except InvalidValue:
        return
    assert (design.size, design.overlap) == (size, overlap)
    listed = [index for cell in cells for index in cell]
    assert len(listed) == len(set(listed)) == design.workers <= len(whole)
    assert len({len(cell) for cell in cells}) == 1
    for cell in cells:
        assert len({whole.slots[index].group for index in cell}) == 1, "a cell is of one group"
    seen: set[tuple[int, ...]] = set()
    for number in range(min(design.capacity, 200)):
        indexes = sorted(listed[worker] for worker in design.shard(number))
        for at, groups in enumerate(whole.dimensions()):
            load = Counter(whole.slots[index].group[at] for index in indexes)
            assert max(load.values()) - min(load.get(group, 0) for group in groups) <= 1
        for part in islice(combinations(indexes, overlap + 1), 100):
            assert part not in seen
            seen.add(part)


@given(SIZES, st.integers(1, 5))
def test_shards_that_need_not_differ_by_more_than_one_worker_always_fit(sizes: list[int], size: int) -> None:
    whole = fleet(*sizes)
    if size <= min(sizes) * len(sizes):
        design, _ = choose_design(whole, len(whole), size, size - 1)
        assert design.capacity >= 1


def test_the_first_slots_alone_decide() -> None:
    grown = fleet(16).add(*(Slot(worker=f"more-{number}") for number in range(9)))
    design, cells = choose_design(grown, 16, 4, 2)
    assert isinstance(design, Quadruples)
    assert [list(cell) for cell in cells] == [list(range(16))]


def test_workers_that_relieve_others_are_in_no_design() -> None:
    design, cells = choose_design(fleet(4, 4, 4).share_slot("az0-0", "more").share_slot("az0-1", "other"), 14, 3, 1)
    assert design.workers == 12
    assert {index for cell in cells for index in cell} == set(range(12))


def test_slots_are_dealt_to_the_parts_of_a_group_in_turn() -> None:
    _, cells = choose_design(fleet(12), 12, 3, 1)
    assert [list(cell) for cell in cells] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


@rows(
    ("sizes", "size", "overlap", "message"),
    [
        ((3,), 4, 2, "shards of 4 in a fleet of 3: expected 1 to 3 workers"),
        ((8,), 0, 0, "shards of 0 in a fleet of 8: expected 1 to 8 workers"),
        ((8,), 4, 4, "overlap 4 of shards of 4: expected 0 to 3"),
        ((8,), 4, -1, "overlap -1 of shards of 4: expected 0 to 3"),
        ((8,), 1, 1, "overlap 1 of shards of 1: expected 0 to 0"),
        ((8,), 4, 1, "that share at most 1 need 4 parts of the fleet with 4 workers each, and the smallest has 2"),
        ((8,), 4, 1, "allow a larger overlap, make shards smaller, or add workers"),
        ((1, 1, 1, 1, 1), 4, 1, "the smallest has 1: allow a larger overlap"),
        ((9, 9, 9, 9, 3), 5, 2, "the smallest has 3"),
        ((1, 8, 8), 6, 4, "a group of 1 worker for 2 of each shard: expected 2 or more"),
    ],
)
def test_what_fits_none_is_refused_with_what_would_help(
    sizes: tuple[int, ...], size: int, overlap: int, message: str
) -> None:
    whole = fleet(*sizes)
    with pytest.raises(InvalidValue, match=message):
        choose_design(whole, len(whole), size, overlap)


def test_what_would_help_does_help() -> None:
    with pytest.raises(InvalidValue, match="4 parts of the fleet with 4 workers each"):
        choose_design(fleet(15), 15, 4, 1)
    assert choose_design(fleet(16), 16, 4, 1)[0].capacity == 16, "4 parts with 4 workers each"
    assert choose_design(fleet(15), 15, 4, 2)[0].capacity == 27, "a larger overlap"
    assert choose_design(fleet(15), 15, 3, 1)[0].capacity == 25, "smaller shards"


def test_disjoint_parts_of_a_fleet_are_shards_that_share_nothing() -> None:
    """Plain sharding, without the shuffle."""
    for count, size, capacity in ((8, 2, 4), (16, 4, 4), (9, 3, 3), (12, 1, 12)):
        design, _ = choose_design(fleet(count), count, size, 0)
        assert design.capacity == capacity


@pytest.mark.parametrize(
    "design", [Quadruples(4), Parity(4, 3), Families(Parity(3, 4), 2)], ids=lambda design: type(design).__name__
)
def test_a_design_that_can_be_doubled_is_of_the_same_kind_on_twice_the_workers(design: AnyDesign) -> None:
    after = double_design(design)
    assert type(after) is type(design)
    assert (after.workers, after.size, after.overlap) == (2 * design.workers, design.size, design.overlap)
    assert after.capacity > 2 * design.capacity


@pytest.mark.parametrize(
    "design",
    [
        Pairs(8),
        Tuples(3, 4),
        Polynomials(3, 5, 1),
        Polynomials(5, 5, 1, build_rounds(1, 5, 3)),
        Families(Tuples(3, 4), 2),
        Families(Polynomials(4, 5, 1), 2),
    ],
    ids=lambda design: f"{type(design).__name__}-{design.workers}",
)
def test_a_design_that_cannot_be_doubled_says_what_to_do_instead(design: AnyDesign) -> None:
    with pytest.raises(
        InvalidValue, match=f"shards of {design.size} that share at most {design.overlap} cannot be doubled in place"
    ):
        double_design(design)
