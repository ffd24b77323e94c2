"""What is kept with a queue, and what a program or its settings have instead, in words. Pure."""

import msgspec

MOST = 10
"""Differences that are named: settings may have thousands of tenants."""


def differences(kept: msgspec.Struct, wanted: msgspec.Struct, whose: str = "") -> list[str]:
    """Each value that differs, such as `limits.rate is 5 and not none`."""
    here = _flat(kept)
    return [
        f"{name}{whose} is {_shown(here[name])} and not {_shown(value)}"
        for name, value in _flat(wanted).items()
        if here[name] != value
    ]


def in_words(differing: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(differing) - MOST} more" if len(differing) > MOST else ""
    return f"{', '.join(differing[:MOST])}{more}"


def _flat(rules: msgspec.Struct) -> dict[str, object]:
    """Each value by its name in the settings."""
    found: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(rules).items():
        inner = (
            {f"{name}.{key}": each for key, each in _flat(value).items()} if isinstance(value, msgspec.Struct) else {}
        )
        found |= inner or {name: value}
    return found


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)
