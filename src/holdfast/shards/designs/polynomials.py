"""One worker of each group, any two shards with at most t - 1 in common: polynomials over a finite field. Pure.

A finite field has q numbers that can be added, multiplied and divided (`field.py`). A polynomial of degree below t over
it has a value at each of k points: these are the workers in k groups of q. Two polynomials that agree at t points are
the same one, so this is a Reed-Solomon code (Reed and Solomon, Polynomial Codes over Certain Finite Fields, 1960).
There are q^t polynomials. The q that differ only by a constant are a class, and have every worker of every group once.

With more groups than a shard has workers, a shard has the values of its polynomial at some of the points only: its
window. That cannot make two polynomials agree more often. Disjoint windows give several shards for each polynomial. The
windows change in rounds, so that all groups are used.
"""

from collections.abc import Sequence
from itertools import chain
from operator import add

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment
from holdfast.shards.field import get_field


class Polynomials:
    """Shards with one worker of each of some groups (a window), of which any two share at most `overlap`.

    A window is a subset of the `groups` groups. Worker w of group g is g * per_group + w. `per_group` is a prime power
    and not below `groups`, because a field has no more points. Each of `windows_by_round` is a set of disjoint windows;
    consecutive classes use them in turn. The default is a single window with all groups.
    """

    products: Sequence[Sequence[tuple[int, ...]]]
    """For every coefficient but the constant, and each of its values: the number it adds to the value of each group."""

    def __init__(
        self,
        groups: int,
        per_group: int,
        overlap: int,
        windows_by_round: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> None:
        self.windows_by_round = ((tuple(range(groups)),),) if windows_by_round is None else windows_by_round
        self.size = len(self.windows_by_round[0][0])
        self.field = get_field(per_group)
        if not 0 <= overlap < self.size:
            raise InvalidValue(f"overlap {overlap} of shards of {self.size}: expected 0 to {self.size - 1}")
        if groups > per_group:
            raise InvalidValue(f"{groups} groups of {per_group} workers: expected no more groups than workers in one")
        self.groups = groups
        self.per_group = per_group
        self.overlap = overlap
        self.workers = groups * per_group
        self.windows = len(self.windows_by_round[0])  # shards of each polynomial
        self.capacity = int(per_group ** (overlap + 1)) * self.windows
        points = [self.field.powers(point, overlap + 1) for point in scattered_points(groups, per_group)]
        self.products = [
            [tuple([self.field.multiply(number, powers[exponent]) for powers in points]) for number in range(per_group)]
            for exponent in range(1, overlap + 1)
        ]
        self._firsts = tuple(range(0, self.workers, per_group))

    @property
    def segments(self) -> Sequence[Segment]:
        polynomials, turns = self.per_group**self.overlap, len(self.windows_by_round)
        each = self.per_group * self.windows
        even = Segment(0, each * turns, polynomials // turns)
        odd = Segment(even.end, each, polynomials % turns)
        return tuple(segment for segment in (even, odd) if segment.classes)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        number, constant = divmod(number, self.per_group)
        if len(self.windows_by_round) == self.windows == 1:
            return self.shard_in_class(number, constant)
        number, which = divmod(number, self.windows)
        window = self.windows_by_round[number % len(self.windows_by_round)][which]
        everywhere = self.shard_in_class(number, constant)
        return tuple([everywhere[group] for group in window])

    def shard_in_class(self, index: int, constant: int) -> tuple[int, ...]:
        """Return one worker of every group: the values of the polynomial of class `index` with this constant term."""
        values: Sequence[int] = (constant,) * self.groups
        for products in self.products:
            index, coefficient = divmod(index, self.per_group)
            values = self.field.add_each(values, products[coefficient])
        return tuple(map(add, self._firsts, values))


def scattered_points(count: int, size: int) -> Sequence[int]:
    """Return points that are no subfield, shifted or not: with those of one, some workers could get no tenants."""
    listed = dict.fromkeys(point for point in chain((1, 2, 4, 9), range(size)) if point < size)
    return tuple(listed)[:count]
