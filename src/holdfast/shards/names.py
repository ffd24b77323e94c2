"""Tenants' names, any bytes at all: as they are kept, as people read them, and as numbers to draw by. Pure."""

import hashlib
import math
from collections.abc import Iterable

from holdfast._errors import InvalidValue

_MAX_SHOWN = 80
"""Characters of a name that are shown to people."""


def encode_name(tenant: str | bytes) -> bytes:
    """A tenant's name as it is kept: text is the same as its UTF-8 bytes. Raises InvalidValue for what is neither."""
    if isinstance(tenant, str):
        return tenant.encode("utf-8", "surrogatepass")
    if not isinstance(tenant, bytes):
        raise InvalidValue(f"tenant {tenant!r}: expected text or bytes")
    return tenant


def encode_names(tenants: Iterable[str | bytes]) -> list[bytes]:
    """The names of many. Raises InvalidValue for one name in their place, which would be taken letter by letter."""
    if isinstance(tenants, str | bytes):
        raise InvalidValue(f"tenants {tenants!r}: expected several names, such as a list of one")
    return [encode_name(tenant) for tenant in tenants]


def format_name(name: bytes) -> str:
    """A tenant's name for people, whatever bytes it is: what cannot be printed is escaped."""
    text = name.decode("utf-8", "backslashreplace")
    seen = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:_MAX_SHOWN])
    return (seen if len(text) <= _MAX_SHOWN else f"{seen}...") or "''"


_MASK = (1 << 64) - 1


def hash_name(key: bytes, name: bytes) -> int:
    """64 bits that stand for a name, and that nobody can work out without the key."""
    return int.from_bytes(hashlib.blake2b(name, key=key[:64], digest_size=8).digest())


def mix_bits(number: int) -> int:
    """A number whose every bit depends on every bit: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


def compute_score(number: int, weight: float) -> float:
    """How high a draw scores: one of weight 2 is as good as the better of two draws.

    https://www.snia.org/sites/default/files/SDC15_presentations/dist_sys/Jason_Resch_New_Consistent_Hashings_Rev.pdf
    """
    drawn = (mix_bits(number) >> 12) + 0.5  # 52 bits: with more, the highest would be rounded to a logarithm of 0
    return -weight / math.log(drawn / (1 << 52))
