"""Tenants' names, which may be any bytes: as stored bytes, as text for people, and as keyed hashes. Pure."""

import hashlib
import math
from collections.abc import Iterable

from holdfast._errors import InvalidValue

_MAX_SHOWN = 80
"""Maximum number of characters of a name in messages and tables."""


def encode_name(tenant: str | bytes) -> bytes:
    """Return a tenant's name as bytes; text becomes UTF-8. Raise InvalidValue for other types."""
    if isinstance(tenant, str):
        return tenant.encode("utf-8", "surrogatepass")
    if not isinstance(tenant, bytes):
        raise InvalidValue(f"tenant {tenant!r}: expected text or bytes")
    return tenant


def encode_names(tenants: Iterable[str | bytes]) -> list[bytes]:
    """Return tenants' names as bytes. Raise InvalidValue for a single name, which would be split into letters."""
    if isinstance(tenants, str | bytes):
        raise InvalidValue(f"tenants {tenants!r}: expected several names, such as a list of one")
    return [encode_name(tenant) for tenant in tenants]


def format_name(name: bytes) -> str:
    """Return a tenant's name for people: bytes that cannot be printed are escaped, and a long name is cut."""
    text = name.decode("utf-8", "backslashreplace")
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:_MAX_SHOWN])
    return (shown if len(text) <= _MAX_SHOWN else f"{shown}...") or "''"


_MASK = (1 << 64) - 1


def hash_name(key: bytes, name: bytes) -> int:
    """Return a keyed 64-bit hash of a name, which cannot be computed without the key."""
    return int.from_bytes(hashlib.blake2b(name, key=key[:64], digest_size=8).digest())


def mix_bits(number: int) -> int:
    """Mix the bits of a 64-bit number by the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


def compute_score(number: int, weight: float) -> float:
    """Return the weighted rendezvous score of a random number: weight 2 is like the better of two draws.

    https://www.snia.org/sites/default/files/SDC15_presentations/dist_sys/Jason_Resch_New_Consistent_Hashings_Rev.pdf
    """
    drawn = (mix_bits(number) >> 12) + 0.5  # 52 bits: with more, the highest would round to 1, and its logarithm be 0
    return -weight / math.log(drawn / (1 << 52))
