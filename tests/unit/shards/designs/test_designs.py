"""Every pair of every small design: no two shards share more than is promised, and all workers are loaded alike."""

import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards.designs import Design, Disjoint, Families, Pairs, Parity, Polynomials, Quadruples, Tuples
from holdfast.shards.designs.design import Segment
from holdfast.shards.hashed import build_rounds
from tests.table import every_row, rows

MAX_TENANTS = 10_000
"""All designs with up to so many shards are looked at, shard by shard; and the largest below, with some 700,000."""

QUADRUPLES = [Quadruples(bits, start) for bits in range(2, 7) for start in range(2, bits + 1)]
PARITIES = [
    Parity(groups, start) for groups in range(2, 7) for start in range(1, 9) if start ** (groups - 1) <= MAX_TENANTS
]
DOUBLED = [
    Parity(groups, start, doublings)
    for groups in range(2, 6)
    for start in range(1, 5)
    for doublings in (1, 2)
    if (start << doublings) ** (groups - 1) <= MAX_TENANTS
]
POLYNOMIALS = [
    Polynomials(groups, per_group, overlap)
    for per_group in (2, 3, 4, 5, 7, 8, 9, 11, 16, 25, 27)
    for groups in range(1, min(per_group, 6) + 1)
    for overlap in range(groups)
    if per_group ** (overlap + 1) <= MAX_TENANTS
]
DISJOINT = [
    Disjoint(groups, start, doublings) for groups in range(1, 6) for start in (1, 2, 3, 5, 8) for doublings in (0, 1, 2)
]
PAIRS = [Pairs(workers) for workers in (*range(2, 18), 40, 41)]
TUPLES = [
    Tuples(groups, per_group)
    for groups in range(1, 6)
    for per_group in range(1, 9)
    if per_group**groups <= (MAX_TENANTS if groups < 4 else 700)
]
FAMILIES = [
    Families(one, count)
    for one in (
        Tuples(1, 4),
        Tuples(2, 3),
        Tuples(3, 4),
        Parity(2, 4),
        Parity(3, 5),
        Parity(4, 4),
        Parity(3, 3, 1),
        Parity(4, 2, 2),
        Polynomials(3, 4, 0),
        Disjoint(3, 4),
        Disjoint(2, 3, 1),
        Polynomials(3, 5, 1),
        Polynomials(4, 7, 2),
        Polynomials(5, 5, 1, build_rounds(1, 5, 3)),
    )
    for count in (1, 2, 3)
]
WINDOWED = [
    Polynomials(lines * length, per_group, overlap, build_rounds(lines, length, size))
    for per_group, most in ((3, 81), (4, 256), (5, 1300), (7, 700), (8, 600), (9, 730))
    for lines in range(1, 4)
    for length in range(1, per_group // lines + 1)
    for size in range(2, lines * length)
    for overlap in range(1, size)
    if per_group ** (overlap + 1) * (lines * length // size) <= most
]
ALL: list[Design] = [*QUADRUPLES, *PARITIES, *DOUBLED, *POLYNOMIALS, *DISJOINT, *PAIRS, *TUPLES, *FAMILIES, *WINDOWED]
GROUPED: list[Polynomials | Parity | Disjoint | Tuples] = [*POLYNOMIALS, *PARITIES, *DOUBLED, *DISJOINT, *TUPLES]
STEP = 5
SAMPLE = ALL[::STEP]
"""What `make test` looks at, some of each kind; `make proof` looks at all, and at the largest."""
LARGEST: list[Design] = [
    Pairs(500),
    Tuples(3, 50),
    Families(Parity(4, 16), 3),
    Polynomials(6, 27, 2, build_rounds(2, 3, 4)),
    Polynomials(9, 16, 3, build_rounds(3, 3, 4)),
    Quadruples(8),
    Quadruples(7, 5),
    Parity(4, 25),
    Parity(4, 6, 2),
    Polynomials(4, 64, 2),
    Polynomials(5, 16, 3),
]


def name(design: object) -> str:
    assert isinstance(design, Disjoint | Families | Pairs | Parity | Polynomials | Quadruples | Tuples)
    return f"{type(design).__name__}-{design.workers}-{design.size}-{design.overlap}-{design.capacity}"


def shards(design: Design) -> list[tuple[int, ...]]:
    return [design.shard(number) for number in range(design.capacity)]


def check_sharing(design: Design) -> None:
    """Two share `overlap` + 1 workers exactly if some set of that many is in both: so none may come twice."""
    seen: set[tuple[int, ...]] = set()
    size, workers = design.size, design.workers
    for shard in shards(design):
        assert len(set(shard)) == size
        assert 0 <= min(shard) <= max(shard) < workers
        seen.update(combinations(sorted(shard), design.overlap + 1))
    assert len(seen) == design.capacity * math.comb(design.size, design.overlap + 1)


def load_of_a_class(design: Design, segment: Segment) -> int | None:
    """In how many shards of a class a worker is, of those that are in any; None where that differs."""
    match design:
        case Families(design=one, count=count):
            return load_of_a_class(one, Segment(segment.first // count, segment.class_size // count, segment.classes))
        case Parity():
            return None
        case Pairs():
            return 2 if segment.first == 0 and design.workers > 2 else 1
        case Polynomials():
            polynomials = segment.class_size // (design.per_group * design.windows)
            return polynomials * design.windows * design.size // design.groups or 1
    return 1


def check_classes(design: Design) -> None:
    """All shards are in classes, and a class loads its workers alike."""
    end = 0
    for segment in design.segments:
        assert segment.first == end
        assert segment.classes > 0
        end = segment.end
        expected = load_of_a_class(design, segment)
        for first in range(segment.first, segment.end, segment.class_size):
            load = Counter(
                worker for number in range(first, first + segment.class_size) for worker in design.shard(number)
            )
            assert expected is None or set(load.values()) == {expected}
            if segment.first == 0 and isinstance(design, Pairs | Tuples | Polynomials):
                assert len(load) == design.workers
    assert end == design.capacity


def check_load(design: Design) -> None:
    """With all shards taken, every worker has as many."""
    load = Counter(worker for shard in shards(design) for worker in shard)
    assert len(load) == design.workers
    # Where windows take turns, and the polynomials are not a multiple of these, some have had one turn more.
    one = design.design if isinstance(design, Families) else design
    left = one.per_group**one.overlap % len(one.windows_by_round) if isinstance(one, Polynomials) else 0
    assert max(load.values()) - min(load.values()) <= min(left, design.size)


def check_groups(design: Polynomials | Parity | Disjoint | Tuples) -> None:
    """A shard has one worker of each group."""
    for shard in shards(design):
        assert [worker // design.per_group for worker in shard] == list(range(design.size))


@pytest.mark.no_cover
def test_no_two_shards_of_a_sample_share_more_than_is_promised() -> None:
    every_row(SAMPLE, check_sharing, name)


@pytest.mark.no_cover
def test_in_a_sample_all_shards_are_in_classes_and_a_class_loads_its_workers_alike() -> None:
    every_row(SAMPLE, check_classes, name)


@pytest.mark.no_cover
def test_with_all_shards_of_a_sample_taken_every_worker_has_as_many() -> None:
    every_row(SAMPLE, check_load, name)


@pytest.mark.no_cover
def test_a_shard_has_one_worker_of_each_group() -> None:
    every_row(GROUPED[::STEP], check_groups, name)


@pytest.mark.proof
def test_no_two_shards_share_more_than_is_promised() -> None:
    every_row([*ALL, *LARGEST], check_sharing, name)


@pytest.mark.proof
def test_all_shards_are_in_classes_and_a_class_loads_its_workers_alike() -> None:
    every_row(ALL, check_classes, name)


@pytest.mark.proof
def test_with_all_shards_taken_every_worker_has_as_many() -> None:
    every_row(ALL, check_load, name)


@pytest.mark.proof
def test_every_shard_has_one_worker_of_each_group() -> None:
    every_row(GROUPED, check_groups, name)


@pytest.mark.parametrize("design", [each for each in PARITIES if each.per_group % 2 or each.size % 2 == 0], ids=name)
def test_a_class_with_a_check_has_every_worker_once(design: Parity) -> None:
    [segment] = design.segments
    for first in range(0, segment.end, segment.class_size):
        load = Counter(worker for number in range(first, first + segment.class_size) for worker in design.shard(number))
        assert set(load.values()) == {1}
        assert len(load) == design.workers


@pytest.mark.parametrize("design", [each for each in PARITIES if each.per_group % 2 == 0 and each.size % 2], ids=name)
def test_where_no_class_can_have_every_worker_once_load_still_differs_by_little(design: Parity) -> None:
    load: Counter[int] = Counter(dict.fromkeys(range(design.workers), 0))
    for number, shard in enumerate(shards(design), start=1):
        load.update(shard)
        assert max(load.values()) - min(load.values()) <= 4, f"after {number} shards"


@pytest.mark.parametrize("bits", range(2, 6))
def test_doubling_the_workers_moves_no_quadruple(bits: int) -> None:
    before = Quadruples(bits)
    after = before.double()
    assert after.workers == 2 * before.workers
    assert [after.shard(number) for number in range(before.capacity)] == shards(before)
    again = after.double()
    assert [again.shard(number) for number in range(after.capacity)] == shards(after)


@pytest.mark.parametrize(("groups", "start"), [(2, 3), (3, 3), (3, 4), (4, 3), (5, 2)])
def test_doubling_the_workers_of_every_group_moves_no_shard_with_a_check(groups: int, start: int) -> None:
    def list_positions(design: Parity) -> list[list[int]]:
        return [[worker % design.per_group for worker in shard] for shard in shards(design)]

    before = Parity(groups, start)
    after = before.double()
    assert after.per_group == 2 * before.per_group
    assert list_positions(after)[: before.capacity] == list_positions(before)
    again = after.double()
    assert list_positions(again)[: after.capacity] == list_positions(after)


def test_after_a_doubling_the_new_workers_come_first() -> None:
    quadruples, parity = Quadruples(5).double(), Parity(4, 5).double()
    for design, start in ((quadruples, Quadruples(5)), (parity, Parity(4, 5))):
        new = set(range(design.workers))
        for number in range(start.capacity):
            new -= set(design.shard(number))
        assert set(design.shard(start.capacity)) <= new


def test_the_figures_of_a_large_fleet() -> None:
    """2048 virtual name servers, four for each domain: 730 billion sets, of which these never share three."""
    route53 = Quadruples(11)
    assert math.comb(2048, 4) == 730_862_190_080
    assert route53.capacity == 357_389_824
    assert Polynomials(4, 512, 2).capacity == Parity(4, 512).capacity == 134_217_728


@given(st.integers(0, Quadruples(11).capacity - 1), st.integers(0, Quadruples(11).capacity - 1))
def test_any_two_of_a_large_fleet_share_two_at_most(one: int, other: int) -> None:
    design = Quadruples(11)
    first, second = set(design.shard(one)), set(design.shard(other))
    assert len(first) == len(second) == 4
    assert max(first | second) < 2048
    assert (one == other) == (first == second)
    assert one == other or len(first & second) <= 2


@given(st.sampled_from([13, 16, 25, 49, 64, 97, 512]), st.data())
def test_any_two_polynomials_share_no_more_than_is_promised(per_group: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, 4))
    design = Polynomials(5, per_group, overlap)
    one, other = (data.draw(st.integers(0, design.capacity - 1)) for _ in range(2))
    shared = set(design.shard(one)) & set(design.shard(other))
    assert one == other or len(shared) <= overlap


@pytest.mark.parametrize(
    "design",
    [
        Quadruples(3),
        Parity(3, 4),
        Polynomials(3, 5, 1),
        Pairs(5),
        Tuples(2, 3),
        Polynomials(4, 5, 1, build_rounds(1, 4, 3)),
    ],
    ids=name,
)
def test_past_its_capacity_there_is_no_shard(design: Design) -> None:
    for number in (-1, design.capacity):
        with pytest.raises(InvalidValue, match=f"expected 0 to {design.capacity - 1}"):
            design.shard(number)


@rows(
    "build",
    [
        lambda: Quadruples(1),
        lambda: Quadruples(21),
        lambda: Quadruples(4, 5),
        lambda: Parity(1, 4),
        lambda: Parity(3, 0),
        lambda: Parity(3, 4, -1),
        lambda: Polynomials(3, 6, 1),
        lambda: Polynomials(3, 5, 3),
        lambda: Polynomials(3, 5, -1),
        lambda: Polynomials(6, 5, 1),
        lambda: Polynomials(5, 5, 2, build_rounds(1, 5, 2)),
        lambda: Polynomials(6, 5, 1, build_rounds(1, 6, 2)),
        lambda: Pairs(1),
        lambda: Tuples(0, 3),
        lambda: Tuples(3, 0),
        lambda: Families(Tuples(2, 3), 0),
    ],
)
def test_what_is_no_design_is_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(InvalidValue, match="expected"):
        build()
