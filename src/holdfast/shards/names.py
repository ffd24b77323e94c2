"""Tenants' names: any bytes at all. Pure."""

_LONGEST = 80
"""Characters of a name that are shown to people."""


def name_of(tenant: str | bytes) -> bytes:
    """A tenant's name as it is kept: text is the same as its UTF-8 bytes."""
    return tenant.encode("utf-8", "surrogatepass") if isinstance(tenant, str) else tenant


def shown(name: bytes) -> str:
    """A tenant's name for people, whatever bytes it is: what cannot be printed is escaped."""
    text = name.decode("utf-8", "backslashreplace")
    seen = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:_LONGEST])
    return (seen if len(text) <= _LONGEST else f"{seen}...") or "''"
