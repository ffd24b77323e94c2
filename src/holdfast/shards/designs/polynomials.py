"""One worker of each group, any two shards with at most t - 1 in common: polynomials over a finite field.

A polynomial of degree below t over the field of q elements has a value at each of k points: that is the worker of each
of k groups of q. Two polynomials that agree at t points are the same one: a Reed-Solomon code (Reed and Solomon,
Polynomial Codes over Certain Finite Fields, 1960). There are q^t of them.

Two that differ only by a constant agree nowhere, and the q of them have every worker of every group once: a class.
"""

from collections.abc import Sequence
from itertools import chain

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment
from holdfast.shards.field import field_of


class Polynomials:
    """The design on `groups` groups of `per_group` workers each; worker w of group g is g * per_group + w.

    `per_group` is a prime power, at least as large as the number of groups: there are no more points.
    """

    __slots__ = ("_field", "_products", "overlap", "per_group", "size")

    def __init__(self, groups: int, per_group: int, overlap: int) -> None:
        self._field = field_of(per_group)
        if not 0 <= overlap < groups:
            raise InvalidValue(f"overlap {overlap} of shards of {groups}: expected 0 to {groups - 1}")
        if groups > per_group:
            raise InvalidValue(f"{groups} groups of {per_group} workers: expected no more groups than workers in one")
        self.size = groups
        self.per_group = per_group
        self.overlap = overlap
        # For every group, and every coefficient but the constant one: what it adds to the value, whatever it is.
        self._products = [
            [[self._field.multiply(number, power) for number in range(per_group)] for power in powers[1:]]
            for powers in (self._field.powers(point, overlap + 1) for point in _scattered_points(groups, per_group))
        ]

    @property
    def workers(self) -> int:
        return self.size * self.per_group

    @property
    def capacity(self) -> int:
        return int(self.per_group ** (self.overlap + 1))

    @property
    def segments(self) -> Sequence[Segment]:
        return (Segment(0, self.per_group, self.per_group**self.overlap),)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        number, constant = divmod(number, self.per_group)
        coefficients = []
        for _ in range(self.overlap):
            number, coefficient = divmod(number, self.per_group)
            coefficients.append(coefficient)
        add, is_binary = self._field.add, self._field.characteristic == 2
        workers, first = [], 0
        for products in self._products:
            value = constant
            for product, coefficient in zip(products, coefficients, strict=True):
                # Where that is all there is to adding, without the call.
                value = value ^ product[coefficient] if is_binary else add(value, product[coefficient])
            workers.append(first + value)
            first += self.per_group
        return tuple(workers)


def _scattered_points(count: int, size: int) -> Sequence[int]:
    """Points that are not a subfield, nor moves of one: with such, part of the workers could be dealt nothing."""
    listed = dict.fromkeys(point for point in chain((1, 2, 4, 9), range(size)) if point < size)
    return tuple(listed)[:count]
