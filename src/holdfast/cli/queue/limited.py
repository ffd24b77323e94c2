"""Limits of tenants for people: in a cell of a table, and one a line. Pure."""

import msgspec

from holdfast.queue.policy import Limits


def shown_limits(limits: Limits | None) -> str:
    """Those that are set, in one line."""
    if limits is None:
        return ""
    # What has its default is left out, as where it is kept.
    return " ".join(f"{name}={_text(value)}" for name, value in msgspec.to_builtins(limits).items()) or "none"


def rows_of(limits: Limits) -> list[tuple[str, str]]:
    """Every limit, with its value."""
    return [(name, _text(value)) for name, value in msgspec.structs.asdict(limits).items()]


def _text(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
