"""What a handler raises to say what becomes of its message, other than that it failed."""

from holdfast._errors import InvalidValue
from holdfast.queue.message import LONGEST


class Postpone(Exception):
    """Deliver the message again after so many seconds. It does not count as a failure, or as an attempt.

    So it may go on for ever: give the message a `ttl` where it must not.
    """

    seconds: float = 1.0
    """Seconds to wait. A class derived from this one may set them as well, instead of calling `__init__`."""

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= LONGEST:
            raise InvalidValue(f"a message postponed by {seconds} s: expected 0 to {LONGEST}, which is a year")
        super().__init__(seconds)
        self.seconds = float(seconds)


class Reject(Exception):
    """Bury the message now: no further attempt would help. The text says why."""
