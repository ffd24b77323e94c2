"""The shards of many tenants at once, with NumPy: some millions a second. Needs the extra `shards`. Pure.

Each function here does to an array what the method of the same name does to one number, and gives the same.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from holdfast._errors import MissingExtra
from holdfast.shards.choice import AnyDesign
from holdfast.shards.designed import Designed
from holdfast.shards.designs import Disjoint, Pairs, Parity, Polynomials, Quadruples, Tuples
from holdfast.shards.designs.quadruples import count_of
from holdfast.shards.field import Field
from holdfast.shards.layout import Layout, Numbered
from holdfast.shards.order import LARGEST, TURNS, Order, Permutation

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("many shards at once", "shards") from error

Numbers: TypeAlias = NDArray[np.int64]
Table: TypeAlias = NDArray[np.int32]
"""A row for each tenant: the slots of its shard."""
_Step: TypeAlias = Callable[[Numbers], Numbers]

AT_ONCE = 1 << 15
"""Tenants that are worked on together, so that their arrays stay in the cache of the processor."""
BEYOND = 1 << 63
"""No array of 64 bits holds a number from here on: what of a design comes later is never asked for."""


class Batch:
    """The shards of a design by the array. Immutable; thread-safe."""

    def __init__(self, designed: Designed) -> None:
        self._designed = designed
        self._order = _order(designed.order)
        self._shards = _shards(designed.design)
        self._workers = np.array([place for cell in designed.cells for place in cell], dtype=np.int32)
        self._relieved = np.zeros(len(designed.fleet), dtype=np.bool_)
        self._relieved[list(designed.fleet.reliefs())] = True

    def places(self, tenants: Numbers) -> Table:
        """The slots of the shards of tenants with these numbers. Raises CapacityExhausted past the capacity."""
        if len(tenants):
            for extreme in (int(tenants.min()), int(tenants.max())):
                self._designed.places(extreme)  # which refuses what is outside
        tenants = tenants.astype(np.int64, copy=False)  # fewer bits would not hold the numbers of shards
        found = np.empty((len(tenants), self._designed.size), dtype=np.int32)
        for start in range(0, len(tenants), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            found[some] = self._workers[self._shards(self._order(tenants[some]))]
        if self._relieved.any():
            # Few are concerned, as a rule, and a logarithm must come out the same to the last bit.
            for row in np.flatnonzero(self._relieved[found].any(axis=1)):
                found[row] = self._designed.places(int(tenants[row]))
        return found


def _order(order: Order) -> _Step:
    firsts = np.array([first for first in order.firsts if first < BEYOND], dtype=np.int64)
    steps: dict[int, _Step] = {}

    def step(number: int) -> _Step:
        if number not in steps:
            part = order.part(number)
            classes, turns = _permutation(part.classes), np.array(part.turns, dtype=np.int64)
            steps[number] = partial(_ordered, first=part.first, size=part.class_size, classes=classes, turns=turns)
        return steps[number]

    if len(firsts) == 1:
        return step(0)

    def of_parts(numbers: Numbers) -> Numbers:
        found = np.empty_like(numbers)
        which = np.searchsorted(firsts, numbers, side="right") - 1
        for number in np.unique(which).tolist():
            here = which == number
            found[here] = step(number)(numbers[here])
        return found

    return of_parts


def _ordered(numbers: Numbers, *, first: int, size: int, classes: _Step, turns: Numbers) -> Numbers:
    index, place = np.divmod(numbers - first, size)
    beyond = index >= LARGEST
    index = np.where(beyond, index, classes(np.where(beyond, 0, index))) if beyond.any() else classes(index)
    return first + index * size + (place + turns[index % TURNS]) % size


def _permutation(permutation: Permutation) -> _Step:
    half, mask, size = permutation.half, (1 << permutation.half) - 1, permutation.size
    one, two, three, four = (np.array(table, dtype=np.int64) for table in permutation.tables)

    def once(numbers: Numbers) -> Numbers:
        left, right = numbers >> half, numbers & mask
        left = left ^ one[right]
        right = right ^ two[left]
        left = left ^ three[right]
        right = right ^ four[left]
        joined: Numbers = left << half | right
        return joined

    def walk(numbers: Numbers) -> Numbers:
        numbers = once(numbers)
        outside = np.flatnonzero(numbers >= size)
        while len(outside):
            moved = once(numbers[outside])
            numbers[outside] = moved
            outside = outside[moved >= size]
        return numbers

    return walk


def _shards(design: AnyDesign) -> _Step:
    match design:
        case Quadruples():
            return _quadruples(design)
        case Parity():
            return partial(_parity, design)
        case Polynomials():
            return _polynomials(design)
        case Tuples():
            return partial(_tuples, design)
        case Disjoint():
            firsts = np.arange(0, design.workers, design.per_group)
            return lambda numbers: numbers[:, None] + firsts
        case Pairs():
            return partial(_pairs, design)
        case _:  # families
            return partial(_families, design.count, design.one.workers, _shards(design.one))


def _quadruples(design: Quadruples) -> _Step:
    before = np.array(design.before, dtype=np.int64)
    highs, lows = (np.array(pivots, dtype=np.int64) for pivots in zip(*design.pivots, strict=True))

    def plane(numbers: Numbers, bits: int) -> Numbers:
        index, place = numbers >> (bits - 2), numbers & ((1 << (bits - 2)) - 1)
        pair = np.searchsorted(before, index, side="right") - 1
        high, low = highs[pair], lows[pair]
        rest = index - before[pair]
        low_bit, below = np.int64(1) << low, (np.int64(1) << low) - 1
        v = low_bit | rest & below
        u = np.int64(1) << high | _with_gap(rest >> low, below)
        w = _with_gap(_with_gap(place, below), (np.int64(1) << high) - 1)
        moved = w ^ u
        return np.stack((w, moved, w ^ v, moved ^ v), axis=1)

    def shards(numbers: Numbers) -> Numbers:
        if design.bits == design.start:
            return plane(numbers, design.start)
        found = np.empty((len(numbers), 4), dtype=np.int64)
        left = np.arange(len(numbers))
        for half in range(design.bits - 1, design.start - 1, -1):
            known, here = count_of(half), numbers[left]
            across, again = here >= 2 * known, (here >= known) & (here < 2 * known)
            found[left[across]] = _across(here[across] - 2 * known, half)
            found[left[again]] = plane(here[again] - known, half) + (1 << half)
            left = left[here < known]
        found[left] = plane(numbers[left], design.start)
        return found

    return shards


def _with_gap(numbers: Numbers, below: Numbers) -> Numbers:
    low = numbers & below
    return (numbers ^ low) << 1 | low


def _across(numbers: Numbers, bits: int) -> Numbers:
    index, place = np.divmod(numbers, 1 << (bits - 1))
    difference, shift = np.divmod(index, 1 << (bits - 1))
    difference += 1
    top = np.frexp(difference.astype(np.float64))[1].astype(np.int64) - 1
    below = (np.int64(1) << top) - 1
    shifted: Numbers = np.bitwise_xor(place, shift)
    low, high = _with_gap(place, below), _with_gap(shifted, below) + (1 << bits)
    return np.stack((low, low ^ difference, high, high ^ difference), axis=1)


def _parity(design: Parity, numbers: Numbers) -> Numbers:
    size, start = design.size, design.start
    found = np.repeat(np.arange(size, dtype=np.int64)[None, :] * design.per_group, len(numbers), axis=0)
    patterns = np.array([[0] * size, *design.patterns], dtype=np.int64)
    known = design.capacity
    for doubling in range(design.doublings - 1, -1, -1):
        known >>= size - 1
        if known >= BEYOND:
            continue
        which, numbers = np.divmod(numbers, known)
        found += patterns[which] * (start << doubling)
    numbers, move = np.divmod(numbers, start)
    last = np.zeros(len(numbers), dtype=np.int64)
    for group, step in enumerate(design.steps):
        if group == 0:
            worker = last
        elif group == size - 1:
            worker = -last
        else:
            numbers, worker = np.divmod(numbers, start)
            last = last + worker
        found[:, group] += (worker + step * move) % start
    return found


def _polynomials(design: Polynomials) -> _Step:
    turns, count, per_group = len(design.rounds), design.windows, design.per_group
    # By exponent, group and coefficient, one after the other: to look up in one table is quicker than in several.
    products = (
        np.array(design.products, dtype=np.int64).reshape(-1, per_group, design.groups).transpose(0, 2, 1).ravel()
    )
    windows = np.array(design.rounds, dtype=np.int64)
    add = _adding(design.field)

    def shards(numbers: Numbers) -> Numbers:
        numbers, constant = np.divmod(numbers, per_group)
        groups = windows[0]
        if turns > 1 or count > 1:
            numbers, which = np.divmod(numbers, count)
            groups = windows[numbers % turns, which]
        coefficients = []
        for _ in range(design.overlap):
            numbers, coefficient = np.divmod(numbers, per_group)
            coefficients.append(coefficient)
        found = np.empty((len(constant), design.size), dtype=np.int64)
        for at in range(design.size):
            group = groups[:, at]
            value = constant
            for power, coefficient in enumerate(coefficients):
                value = add(value, products[(power * design.groups + group) * per_group + coefficient])
            found[:, at] = group * per_group + value
        return found

    return shards


def _adding(field: Field) -> Callable[[Numbers, Numbers], Numbers]:
    base, size = field.characteristic, field.size

    def digits(left: Numbers, right: Numbers) -> Numbers:
        total, place = np.zeros_like(left), 1
        while place < size:
            total += (left // place + right // place) % base * place
            place *= base
        return total

    if base == 2:
        return np.bitwise_xor
    return (lambda left, right: (left + right) % size) if base == size else digits


def _tuples(design: Tuples, numbers: Numbers) -> Numbers:
    numbers, step = np.divmod(numbers, design.per_group)
    found = np.empty((len(step), design.size), dtype=np.int64)
    found[:, 0] = step
    for group in range(1, design.size):
        numbers, worker = np.divmod(numbers, design.per_group)
        found[:, group] = group * design.per_group + (worker + step) % design.per_group
    return found


def _pairs(design: Pairs, numbers: Numbers) -> Numbers:
    distance, worker = np.divmod(numbers, design.workers)
    return np.stack((worker, (worker + distance + 1) % design.workers), axis=1)


def _families(count: int, workers: int, shards: _Step, numbers: Numbers) -> Numbers:
    numbers, family = np.divmod(numbers, count)
    found: Numbers = shards(numbers) + family[:, None] * workers
    return found


def table(layout: Layout, tenants: Sequence[Numbered]) -> Table:
    """The slots of many tenants: a row for each, and -1 at the end of those that have fewer than others."""
    width = max([layout.size, *(len(places) for _, places in layout.isolated)])
    found = np.full((len(tenants), width), -1, dtype=np.int32)
    numbers = np.fromiter((tenant.number for tenant in tenants), dtype=np.int64, count=len(tenants))
    alone = [row for row, tenant in enumerate(tenants) if layout.is_isolated(tenant.name)] if layout.isolated else []
    numbers[alone] = 0  # whatever it was, these do not ask for it
    found[:, : layout.size] = Batch(layout.designed).places(numbers)
    for row in alone:
        places = layout.shard(tenants[row]).places
        found[row] = [*places, *[-1] * (width - len(places))]
    return found
