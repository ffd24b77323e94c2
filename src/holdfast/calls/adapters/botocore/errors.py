"""Holdfast's refusals as botocore knows errors: `except (BotoCoreError, ClientError)` catches everything."""

from botocore.exceptions import BotoCoreError

from holdfast._errors import CallError, DeadlineExceeded, HeldBack, HoldfastError, LimitReached
from holdfast.calls.adapters.twins import twin_of


class _OfBotocore(BotoCoreError):
    """An error with a message of its own; those of botocore are made of a format and what goes into it."""

    fmt = "{message}"

    def __init__(self, message: str) -> None:
        BotoCoreError.__init__(self, message=message)  # it keeps this, and is pickled by it


class BotocoreDeadlineExceeded(_OfBotocore, DeadlineExceeded):
    """The time for the whole of it was over before the call began; nothing was sent."""


class BotocoreHeldBack(_OfBotocore, HeldBack):
    """The service asked every caller to wait, and longer than there is time; nothing was sent."""


class BotocoreLimitReached(_OfBotocore, LimitReached):
    """As many calls to the dependency as may be are under way; nothing was sent."""


_TWINS: tuple[tuple[type[HoldfastError], type[HoldfastError]], ...] = (
    (DeadlineExceeded, BotocoreDeadlineExceeded),
    (HeldBack, BotocoreHeldBack),
    (LimitReached, BotocoreLimitReached),
)


def as_botocore(error: CallError) -> HoldfastError:
    """The same error, which is also one of botocore; as it is if it has no counterpart there."""
    return twin_of(error, _TWINS) or error
