"""A moment in the past as people write it: a time, or how long ago. Pure."""

from datetime import UTC, datetime

from holdfast._errors import InvalidValue
from holdfast.cli.duration import seconds_of


def moment_of(text: str, now: float) -> float:
    """Seconds since the epoch of a time such as 2026-01-31T12:00Z, or of an age such as 2h30m.

    A time without a zone is UTC, as all times are shown. Raises InvalidValue for what is neither, or is yet to come.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        moment = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if moment > now:
            raise InvalidValue(f"{text} is yet to come: expected a time that is past")
        return moment
    try:
        return now - seconds_of(text)
    except InvalidValue as error:
        raise InvalidValue(
            f"{text[:40]!r}: expected a time such as 2026-01-31T12:00Z, or an age such as 90s, 2h30m or 7d"
        ) from error
