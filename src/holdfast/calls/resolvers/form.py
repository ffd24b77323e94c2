"""How an address is put together from what was found. Pure."""

from holdfast._errors import InvalidValue


def check_form(name: str, form: str, *fields: str) -> str:
    """The form, if it has the first field and no other than these. Raises InvalidValue."""
    expected = " and ".join(f"{{{field}}}" for field in fields)
    try:
        filled = form.format(**dict.fromkeys(fields, "1"))
    except (LookupError, ValueError, AttributeError) as error:
        raise InvalidValue(f"{name} is {form!r}: expected a text with {expected}, and no other braces") from error
    if filled == form.format(**{**dict.fromkeys(fields, "1"), fields[0]: "2"}):
        raise InvalidValue(f"{name} is {form!r}: expected {{{fields[0]}}} in it")
    return form


def fill(form: str, host: str, port: int | str) -> str:
    """The address of a host and a port; the numbers of IPv6 get their brackets."""
    return form.format(host=f"[{host}]" if ":" in host else host, port=port)
