"""What a failure means for the next attempt. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Why an attempt failed, as far as it matters to what comes next."""

    UNSENT = "unsent"
    """Nothing was sent, provably: no connection came about. Safe to repeat, whatever the call does."""
    TRANSIENT = "transient"
    """The server, or the way to it, failed; it may have done the work."""
    THROTTLED = "throttled"
    """The server says that it is too much now."""
    TIMEOUT = "timeout"
    """No answer in time; the server may have done the work, or still do it."""
    EVENTUAL = "eventual"
    """What was asked for may not have spread yet, such as a 404 just after a create."""
    PERMANENT = "permanent"
    """The same request will fail again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, understood."""

    kind: Kind
    status: int | None = None
    """Of the HTTP response, if there was one."""
    code: str | None = None
    """The service's own name for it, such as ThrottlingException."""
    after: float | None = None
    """Seconds that the server asked to wait."""
