"""Tenants' names: any bytes at all. Pure."""

from collections.abc import Iterable

from holdfast._errors import InvalidValue

_LONGEST = 80
"""Characters of a name that are shown to people."""


def name_of(tenant: str | bytes) -> bytes:
    """A tenant's name as it is kept: text is the same as its UTF-8 bytes. Raises InvalidValue for what is neither."""
    if isinstance(tenant, str):
        return tenant.encode("utf-8", "surrogatepass")
    if not isinstance(tenant, bytes):
        raise InvalidValue(f"tenant {tenant!r}: expected text or bytes")
    return tenant


def names_of(tenants: Iterable[str | bytes]) -> list[bytes]:
    """The names of many. Raises InvalidValue for one name in their place, which would be taken letter by letter."""
    if isinstance(tenants, str | bytes):
        raise InvalidValue(f"tenants {tenants!r}: expected several names, such as a list of one")
    return [name_of(tenant) for tenant in tenants]


def shown(name: bytes) -> str:
    """A tenant's name for people, whatever bytes it is: what cannot be printed is escaped."""
    text = name.decode("utf-8", "backslashreplace")
    seen = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:_LONGEST])
    return (seen if len(text) <= _LONGEST else f"{seen}...") or "''"
