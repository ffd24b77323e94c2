"""Tables of every shape, and what is true of them by looking at all pairs."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from hypothesis import strategies as st

from holdfast.shards import Fleet, Slot

Shards = list[tuple[int, ...]]


@st.composite
def shards(draw: st.DrawFn, most: int = 9, largest: int = 6, tenants: int = 14) -> tuple[int, Shards]:
    """How many workers there are, and the shards of some tenants, of different sizes and in any order."""
    workers = draw(st.integers(1, most))
    size = st.integers(1, min(workers, largest))
    one = size.flatmap(lambda count: st.permutations(range(workers)).map(lambda order: tuple(order[:count])))
    return workers, draw(st.lists(one, min_size=0, max_size=tenants))


@st.composite
def apart(draw: st.DrawFn, most: int = 7) -> tuple[int, Shards]:
    """The same where no two tenants share a worker."""
    workers = draw(st.integers(2, most))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=workers))
    order = draw(st.permutations(range(workers)))
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    rows = [tuple(order[end - size : end]) for size, end in zip(sizes, ends, strict=True) if end <= workers]
    return workers, rows


def overlaps_of(rows: Sequence[Sequence[int]]) -> Counter[int]:
    return Counter(len({*one} & {*other}) for one, other in combinations(rows, 2))


def worst_of(rows: Sequence[Sequence[int]]) -> list[int]:
    return [
        max((len({*one} & {*other}) for number, other in enumerate(rows) if number != row), default=0)
        for row, one in enumerate(rows)
    ]


def fleet_of(workers: int, zones: int = 3, weights: Sequence[float] = (1.0,), drained: Sequence[int] = ()) -> Fleet:
    return Fleet(
        slots=tuple(
            Slot(
                worker=f"w{index}",
                group=(f"az{index % zones}", f"cell{index // zones}"),
                weight=weights[index % len(weights)],
                is_drained=index in drained,
            )
            for index in range(workers)
        )
    )


def pairs_of(count: int) -> int:
    return math.comb(count, 2)
