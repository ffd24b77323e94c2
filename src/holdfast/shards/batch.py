"""The shards of many tenants in one call, with NumPy: some millions per second. Needs the extra `shards`. Pure.

Each function computes for an array what the method of the same name computes for one number, with the same result.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from holdfast._errors import MissingExtra
from holdfast.shards.design_choice import AnyDesign
from holdfast.shards.designed import DesignedSharding
from holdfast.shards.designs import Disjoint, Pairs, Parity, Polynomials, Quadruples, Tuples
from holdfast.shards.designs.quadruples import count_quadruples
from holdfast.shards.field import Field
from holdfast.shards.fleet import NO_WORKER
from holdfast.shards.layout import Layout, NumberedTenant
from holdfast.shards.order import CLASS_OFFSETS, MAX_PERMUTATION_SIZE, Permutation, ShardOrder

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("computing shards in batches", "shards") from error

Numbers: TypeAlias = NDArray[np.int64]
SlotTable: TypeAlias = NDArray[np.int32]
"""A row for each tenant: the slot indexes of its shard."""
_Step: TypeAlias = Callable[[Numbers], Numbers]

CHUNK_SIZE = 1 << 15
"""Tenants per step, so that their arrays stay in the cache of the processor."""
NUMBER_LIMIT = 1 << 63
"""Tenant numbers are below this limit of 64-bit arrays, also if a design has more shards."""


class BatchSharding:
    """The shards of a design for arrays of tenant numbers. Immutable; thread-safe."""

    def __init__(self, sharding: DesignedSharding) -> None:
        self._sharding = sharding
        self._order = _build_order(sharding.order)
        self._shards = _build_shards(sharding.design)
        self._workers = np.array([index for cell in sharding.cells for index in cell], dtype=np.int32)
        self._is_shared = np.zeros(len(sharding.fleet), dtype=np.bool_)
        self._is_shared[list(sharding.fleet.slot_sharers())] = True

    def slot_indexes(self, tenants: Numbers) -> SlotTable:
        """Return a row of slot indexes for each tenant number. Raise CapacityExhausted past the capacity."""
        if len(tenants):
            for extreme in (int(tenants.min()), int(tenants.max())):
                self._sharding.slot_indexes(extreme)  # raises if it is out of range
        tenants = tenants.astype(np.int64, copy=False)  # fewer bits could not hold shard numbers
        found = np.empty((len(tenants), self._sharding.size), dtype=np.int32)
        for start in range(0, len(tenants), CHUNK_SIZE):
            some = slice(start, start + CHUNK_SIZE)
            found[some] = self._workers[self._shards(self._order(tenants[some]))]
        if self._is_shared.any():
            # One by one: usually few rows, and their scores must equal those of `DesignedSharding` to the last bit.
            for row in np.flatnonzero(self._is_shared[found].any(axis=1)):
                found[row] = self._sharding.slot_indexes(int(tenants[row]))
        return found


def _build_order(order: ShardOrder) -> _Step:
    firsts = np.array([first for first in order.segment_starts if first < NUMBER_LIMIT], dtype=np.int64)
    steps: dict[int, _Step] = {}

    def step(number: int) -> _Step:
        if number not in steps:
            part = order.segment_order(number)
            classes, offsets = _build_permutation(part.classes), np.array(part.offsets, dtype=np.int64)
            steps[number] = partial(_ordered, first=part.first, size=part.class_size, classes=classes, offsets=offsets)
        return steps[number]

    if len(firsts) == 1:
        return step(0)

    def order_segments(numbers: Numbers) -> Numbers:
        found = np.empty_like(numbers)
        which = np.searchsorted(firsts, numbers, side="right") - 1
        for number in np.unique(which).tolist():
            here = which == number
            found[here] = step(number)(numbers[here])
        return found

    return order_segments


def _ordered(numbers: Numbers, *, first: int, size: int, classes: _Step, offsets: Numbers) -> Numbers:
    index, position = np.divmod(numbers - first, size)
    beyond = index >= MAX_PERMUTATION_SIZE
    index = np.where(beyond, index, classes(np.where(beyond, 0, index))) if beyond.any() else classes(index)
    return first + index * size + (position + offsets[index % CLASS_OFFSETS]) % size


def _build_permutation(permutation: Permutation) -> _Step:
    half, mask, size = permutation.half, (1 << permutation.half) - 1, permutation.size
    one, two, three, four = (np.array(table, dtype=np.int64) for table in permutation.tables)

    def run_rounds(numbers: Numbers) -> Numbers:
        left, right = numbers >> half, numbers & mask
        left = left ^ one[right]
        right = right ^ two[left]
        left = left ^ three[right]
        right = right ^ four[left]
        joined: Numbers = left << half | right
        return joined

    def permute(numbers: Numbers) -> Numbers:
        numbers = run_rounds(numbers)
        outside = np.flatnonzero(numbers >= size)
        while len(outside):
            moved = run_rounds(numbers[outside])
            numbers[outside] = moved
            outside = outside[moved >= size]
        return numbers

    return permute


def _build_shards(design: AnyDesign) -> _Step:
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
            return partial(_families, design.count, design.design.workers, _build_shards(design.design))


def _quadruples(design: Quadruples) -> _Step:
    before = np.array(design.planes_before, dtype=np.int64)
    highs, lows = (np.array(pivots, dtype=np.int64) for pivots in zip(*design.pivots, strict=True))

    def plane(numbers: Numbers, bits: int) -> Numbers:
        index, position = numbers >> (bits - 2), numbers & ((1 << (bits - 2)) - 1)
        pair = np.searchsorted(before, index, side="right") - 1
        high, low = highs[pair], lows[pair]
        rest = index - before[pair]
        low_bit, below = np.int64(1) << low, (np.int64(1) << low) - 1
        v = low_bit | rest & below
        u = np.int64(1) << high | _with_gap(rest >> low, below)
        w = _with_gap(_with_gap(position, below), (np.int64(1) << high) - 1)
        moved = w ^ u
        return np.stack((w, moved, w ^ v, moved ^ v), axis=1)

    def shards(numbers: Numbers) -> Numbers:
        if design.bits == design.start_bits:
            return plane(numbers, design.start_bits)
        found = np.empty((len(numbers), 4), dtype=np.int64)
        left = np.arange(len(numbers))
        for half in range(design.bits - 1, design.start_bits - 1, -1):
            known, here = count_quadruples(half), numbers[left]
            across, again = here >= 2 * known, (here >= known) & (here < 2 * known)
            found[left[across]] = _across(here[across] - 2 * known, half)
            found[left[again]] = plane(here[again] - known, half) + (1 << half)
            left = left[here < known]
        found[left] = plane(numbers[left], design.start_bits)
        return found

    return shards


def _with_gap(numbers: Numbers, below: Numbers) -> Numbers:
    low = numbers & below
    return (numbers ^ low) << 1 | low


def _across(numbers: Numbers, bits: int) -> Numbers:
    index, position = np.divmod(numbers, 1 << (bits - 1))
    difference, shift = np.divmod(index, 1 << (bits - 1))
    difference += 1
    top = np.frexp(difference.astype(np.float64))[1].astype(np.int64) - 1
    below = (np.int64(1) << top) - 1
    shifted: Numbers = np.bitwise_xor(position, shift)
    low, high = _with_gap(position, below), _with_gap(shifted, below) + (1 << bits)
    return np.stack((low, low ^ difference, high, high ^ difference), axis=1)


def _parity(design: Parity, numbers: Numbers) -> Numbers:
    size, start = design.size, design.start
    found = np.repeat(np.arange(size, dtype=np.int64)[None, :] * design.per_group, len(numbers), axis=0)
    patterns = np.array([[0] * size, *design.patterns], dtype=np.int64)
    known = design.capacity
    for doubling in range(design.doublings - 1, -1, -1):
        known >>= size - 1
        if known >= NUMBER_LIMIT:
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
    turns, count, per_group = len(design.windows_by_round), design.windows, design.per_group
    # One flat table by exponent, group and coefficient, because one lookup is faster than several.
    products = (
        np.array(design.products, dtype=np.int64).reshape(-1, per_group, design.groups).transpose(0, 2, 1).ravel()
    )
    windows = np.array(design.windows_by_round, dtype=np.int64)
    add = _build_addition(design.field)

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
        for column in range(design.size):
            group = groups[:, column]
            value = constant
            for power, coefficient in enumerate(coefficients):
                value = add(value, products[(power * design.groups + group) * per_group + coefficient])
            found[:, column] = group * per_group + value
        return found

    return shards


def _build_addition(field: Field) -> Callable[[Numbers, Numbers], Numbers]:
    base, size = field.characteristic, field.size

    def digits(left: Numbers, right: Numbers) -> Numbers:
        total, digit_value = np.zeros_like(left), 1
        while digit_value < size:
            total += (left // digit_value + right // digit_value) % base * digit_value
            digit_value *= base
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


def build_slot_table(layout: Layout, tenants: Sequence[NumberedTenant]) -> SlotTable:
    """Return a row of slot indexes for each tenant, filled with NO_WORKER at the end if others have more."""
    width = max([layout.size, *(len(indexes) for _, indexes in layout.isolated)])
    found = np.full((len(tenants), width), NO_WORKER, dtype=np.int32)
    numbers = np.fromiter((tenant.number for tenant in tenants), dtype=np.int64, count=len(tenants))
    isolated_rows = (
        [row for row, tenant in enumerate(tenants) if layout.is_isolated(tenant.name)] if layout.isolated else []
    )
    numbers[isolated_rows] = 0  # any valid number: these rows are overwritten below
    found[:, : layout.size] = BatchSharding(layout.sharding).slot_indexes(numbers)
    for row in isolated_rows:
        indexes = layout.shard(tenants[row]).slot_indexes
        found[row] = [*indexes, *[NO_WORKER] * (width - len(indexes))]
    return found
