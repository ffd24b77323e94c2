"""Numbers that look random and are the same everywhere: what rendezvous hashing draws from. Pure."""

import hashlib
import math

_MASK = (1 << 64) - 1


def number_of(key: bytes, name: bytes) -> int:
    """64 bits that stand for a name, and that nobody can work out without the key."""
    return int.from_bytes(hashlib.blake2b(name, key=key[:64], digest_size=8).digest())


def mixed(number: int) -> int:
    """A number whose every bit depends on every bit: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


def score(number: int, weight: float) -> float:
    """How high a draw scores: one of weight 2 is as good as the better of two draws.

    https://www.snia.org/sites/default/files/SDC15_presentations/dist_sys/Jason_Resch_New_Consistent_Hashings_Rev.pdf
    """
    drawn = (mixed(number) >> 12) + 0.5  # 52 bits: with more, the highest would be rounded to a logarithm of 0
    return -weight / math.log(drawn / (1 << 52))
