"""Parse durations such as `90s`, `30m`, `2h30m`, `1d`, or plain seconds. Pure."""

import re

from holdfast._errors import InvalidValue

MIN_SECONDS = 1.0
"""The minimum, as over HTTP: a zone that is out for less is in again before clients have stopped using it."""
MAX_SECONDS = 31_536_000.0
"""The maximum, a year: a zone that must be out for longer should be removed from the settings."""
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
# Each unit at most once, the largest first: `30m2h` is probably a typing error.
_DURATION = re.compile("".join(rf"(?:(\d{{1,9}}){unit})?" for unit in _UNITS), re.ASCII)
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the duration in seconds. Raise InvalidValue, which says what is expected."""
    found = _DURATION.fullmatch(text)
    if found is not None:
        seconds = float(
            sum(int(count or 0) * size for count, size in zip(found.groups(), _UNITS.values(), strict=True))
        )
    else:
        seconds = float(text) if _SECONDS.fullmatch(text) else 0.0
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise InvalidValue(
            f"duration {text[:40]!r}: expected a duration such as 90s, 30m, 2h30m or 1d, or seconds; at least 1 "
            "second, and at most a year"
        )
    return seconds
