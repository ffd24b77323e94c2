"""Finite fields: q numbers that can be added, multiplied and divided, where q is a prime or a power of one. Pure.

Elements are 0 to q - 1. For a prime q, they add and multiply modulo q. For a power p^m, an element stands for a
polynomial over the integers modulo p, whose coefficients are the digits of the element in base p. Products are reduced
modulo an irreducible polynomial, which is found by trial.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import add, xor

from holdfast._errors import InvalidValue

MAX_FIELD_SIZE = 1 << 16
"""Largest field. Its tables take some hundred kilobytes, and groups of workers are smaller."""


def factor_prime_power(number: int) -> tuple[int, int] | None:
    """Return the prime p and the exponent m with p^m = number, or None if it is no prime power."""
    if number < 2:
        return None
    prime = next((factor for factor in range(2, int(number**0.5) + 1) if number % factor == 0), number)
    exponent, rest = 0, number
    while rest % prime == 0:
        rest //= prime
        exponent += 1
    return (prime, exponent) if rest == 1 else None


def find_largest_prime_power(limit: int) -> int | None:
    """Return the largest prime power up to `limit` that is not too large for a field, or None below 2."""
    return next((number for number in range(min(limit, MAX_FIELD_SIZE), 1, -1) if factor_prime_power(number)), None)


class Field:
    """The field with `size` elements. Immutable; `get_field` returns the same one for each size."""

    def __init__(self, size: int) -> None:
        found = factor_prime_power(size)
        if found is None or size > MAX_FIELD_SIZE:
            raise InvalidValue(f"a field of {size} elements: expected a prime power, 2 to {MAX_FIELD_SIZE}")
        self.size = size
        self.characteristic, exponent = found
        powers = _powers_of_generator(self.characteristic, exponent)
        # Twice, so that a sum of two logarithms needs no modulo.
        self._exponents = (*powers, *powers)
        logarithms = [0] * size
        for power, element in enumerate(powers):
            logarithms[element] = power
        self._logarithms = tuple(logarithms)

    def add_each(self, left: Sequence[int], right: Sequence[int]) -> Sequence[int]:
        if self.characteristic == 2:
            return tuple(map(xor, left, right))
        if self.characteristic == self.size:
            size = self.size
            return [total % size for total in map(add, left, right)]
        return [_add_digits(one, other, self.characteristic) for one, other in zip(left, right, strict=True)]

    def multiply(self, left: int, right: int) -> int:
        if left == 0 or right == 0:
            return 0
        return self._exponents[self._logarithms[left] + self._logarithms[right]]

    def powers(self, element: int, count: int) -> Sequence[int]:
        """Return the first `count` powers of the element, from power 0."""
        found = [1]
        while len(found) < count:
            found.append(self.multiply(found[-1], element))
        return tuple(found[:count])


@lru_cache(maxsize=64)
def get_field(size: int) -> Field:
    """Return the field with `size` elements. Raise InvalidValue if there is none, or it is too large."""
    return Field(size)


def _add_digits(left: int, right: int, base: int) -> int:
    total, digit_value = 0, 1
    while left or right:
        left, one = divmod(left, base)
        right, other = divmod(right, base)
        total += (one + other) % base * digit_value
        digit_value *= base
    return total


def _powers_of_generator(prime: int, exponent: int) -> Sequence[int]:
    """Return all elements except 0 as consecutive powers of one element, a generator."""
    size = prime**exponent
    if exponent == 1:
        candidates = ((generator, 0) for generator in range(1, size))
    else:
        # The element x generates the field if the polynomial is primitive, which is found by trial.
        candidates = ((prime, rest) for rest in range(size))
    for generator, rest in candidates:
        powers = [1]
        while len(powers) < size:
            following = _times(powers[-1], generator, prime, exponent, rest)
            if following in (0, 1):
                break
            powers.append(following)
        if len(powers) == size - 1:
            return tuple(powers)
    raise AssertionError(f"a field of {size} elements has a generator")


def _times(element: int, generator: int, prime: int, exponent: int, rest: int) -> int:
    """Multiply an element by a number (prime fields), or by x modulo x^m minus `rest`."""
    if exponent == 1:
        return element * generator % prime
    size = prime**exponent
    carried, element = divmod(element * prime, size)
    if prime == 2:  # fewer steps, for the largest fields
        return element ^ rest if carried else element
    for _ in range(carried):
        element = _add_digits(element, rest, prime)
    return element
