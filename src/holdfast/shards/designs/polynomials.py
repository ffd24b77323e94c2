"""One worker of each group, any two shards with at most t - 1 in common: polynomials over a finite field. Pure.

A polynomial of degree below t over the field of q elements has a value at each of k points: that is the worker of each
of k groups of q. Two polynomials that agree at t points are the same one: a Reed-Solomon code (Reed and Solomon,
Polynomial Codes over Certain Finite Fields, 1960). There are q^t of them. Those that differ only by a constant agree
nowhere, and the q of them have every worker of every group once: a class.

With more groups than a shard has workers, each shard has the values of its polynomial at some of the points only, its
window: that cannot make two of them agree more often. Windows without a common point give several shards for each
polynomial. They are taken in rounds, so that every group has its turn.
"""

from collections.abc import Sequence
from itertools import chain
from operator import add

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment
from holdfast.shards.field import get_field


class Polynomials:
    """The design on `groups` groups of `per_group` workers each; worker w of group g is g * per_group + w.

    `per_group` is a prime power, at least as large as the number of groups: there are no more points. `rounds` are the
    windows of each round; without them there is one, of all groups.
    """

    products: Sequence[Sequence[tuple[int, ...]]]
    """For every coefficient but the constant one, and each of its values: what it adds to the value of each group."""

    def __init__(
        self, groups: int, per_group: int, overlap: int, rounds: Sequence[Sequence[Sequence[int]]] | None = None
    ) -> None:
        self.rounds = ((tuple(range(groups)),),) if rounds is None else rounds
        self.size = len(self.rounds[0][0])
        self.field = get_field(per_group)
        if not 0 <= overlap < self.size:
            raise InvalidValue(f"overlap {overlap} of shards of {self.size}: expected 0 to {self.size - 1}")
        if groups > per_group:
            raise InvalidValue(f"{groups} groups of {per_group} workers: expected no more groups than workers in one")
        self.groups = groups
        self.per_group = per_group
        self.overlap = overlap
        self.workers = groups * per_group
        self.windows = len(self.rounds[0])  # shards of each polynomial
        self.capacity = int(per_group ** (overlap + 1)) * self.windows
        points = [self.field.powers(point, overlap + 1) for point in scattered_points(groups, per_group)]
        self.products = [
            [tuple([self.field.multiply(number, powers[exponent]) for powers in points]) for number in range(per_group)]
            for exponent in range(1, overlap + 1)
        ]
        self._firsts = tuple(range(0, self.workers, per_group))

    @property
    def segments(self) -> Sequence[Segment]:
        polynomials, turns = self.per_group**self.overlap, len(self.rounds)
        each = self.per_group * self.windows
        even = Segment(0, each * turns, polynomials // turns)
        odd = Segment(even.end, each, polynomials % turns)
        return tuple(segment for segment in (even, odd) if segment.classes)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        number, constant = divmod(number, self.per_group)
        if len(self.rounds) == self.windows == 1:
            return self.shard_in_class(number, constant)
        number, which = divmod(number, self.windows)
        window = self.rounds[number % len(self.rounds)][which]
        everywhere = self.shard_in_class(number, constant)
        return tuple([everywhere[group] for group in window])

    def shard_in_class(self, index: int, constant: int) -> tuple[int, ...]:
        """The values of a polynomial, one of a class, at all points, each as a worker of its group."""
        values: Sequence[int] = (constant,) * self.groups
        for products in self.products:
            index, coefficient = divmod(index, self.per_group)
            values = self.field.add_each(values, products[coefficient])
        return tuple(map(add, self._firsts, values))


def scattered_points(count: int, size: int) -> Sequence[int]:
    """Points that are not a subfield, nor moves of one: with such, part of the workers could be dealt nothing."""
    listed = dict.fromkeys(point for point in chain((1, 2, 4, 9), range(size)) if point < size)
    return tuple(listed)[:count]
