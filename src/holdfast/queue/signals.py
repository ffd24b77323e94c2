"""What a handler raises to say what becomes of its message, other than that it failed."""

from holdfast._errors import InvalidValue
from holdfast.queue.message import LONGEST


class Postpone(Exception):
    """Deliver the message again after so many seconds. It does not count as a failure, or as an attempt.

    So it may go on for ever: give the message a `ttl` where it must not.
    """

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= LONGEST:
            raise InvalidValue(f"a message postponed by {seconds} s: expected 0 to {LONGEST}, which is a year")
        super().__init__(seconds)

    @property
    def seconds(self) -> float:
        """Seconds to wait."""
        return float(self.args[0])


class Reject(Exception):
    """Bury the message now: no further attempt would help. The text says why."""
