"""Writes that depend on a condition: find out whether one took effect although its reply was lost."""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast._errors import HoldfastError, OutcomeUnknown

Stored = TypeVar("Stored")


class ConditionFailed(Exception):
    """The condition does not hold, perhaps because of an earlier attempt of the same call whose reply was lost."""

    def __init__(self, error: Any) -> None:
        """`error` is botocore's ClientError."""
        super().__init__()
        self.was_retried = bool(error.response["ResponseMetadata"].get("RetryAttempts", 0))


def write_conditionally(
    write: Callable[[], object], find: Callable[[], Stored], is_written: Callable[[Stored], bool], name: str
) -> bool:
    """Call `write`; return False if its condition failed, and True if it took effect.

    After a lost reply, `is_written` decides by the value that `find` reads. Raise OutcomeUnknown, with the `name` of
    that value, if it cannot be read, or if the write may still take effect.
    """
    try:
        write()
    except OutcomeUnknown:
        if not is_written(_read_back(find, name)):
            raise
    except ConditionFailed as error:
        return error.was_retried and is_written(_read_back(find, name))
    return True


def _read_back(find: Callable[[], Stored], name: str) -> Stored:
    try:
        return find()
    except HoldfastError as error:  # the caller asked for a write: report that its outcome is unknown
        raise OutcomeUnknown(f"{name} may or may not have been written: {error}") from error
