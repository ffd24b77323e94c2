"""Messages as rows of the table. Pure."""

from typing import Final, NamedTuple

from holdfast.queue.backends.sql.extra import Extra, decode
from holdfast.queue.policy import QueuePolicy

NEVER: Final = 1 << 62
"""Sentinel: never expires."""

SECOND: Final = 1000
"""Milliseconds by which the clock may differ between two transactions; also how often the time is stored."""


class Message(NamedTuple):
    """A row that was read. Times are in milliseconds."""

    id: int
    lane: int
    tenant: int
    tries: int
    leased: int
    """Whether it is leased."""
    until: int | None
    """When it becomes ready, while it is leased or delayed; None if it waits."""
    at: int
    """Since when it could be handled."""
    sent: int | None
    """When it was first ready, if it has been delayed since."""
    expires: int | None
    """When its own ttl ends, or None if the queue's ttl applies."""
    party: int | None
    """Its group."""
    kept: bytes | None
    """See `extra`."""
    body: bytes = b""
    """Read only for messages that are leased."""

    @property
    def extra(self) -> Extra:
        """The rare values of the message."""
        return decode(self.kept)

    @property
    def age_from(self) -> int:
        """When it was sent, or first became due."""
        return self.at if self.sent is None else self.sent

    def expires_at(self, policy: QueuePolicy) -> int:
        """Return when the ttl of the message ends."""
        if self.expires is not None:
            return self.expires
        return NEVER if policy.ttl is None else self.age_from + milliseconds(policy.ttl)


def columns(table: str = "m") -> str:
    """Return the columns of a `Message`, without its body."""
    names = "id, lane, tenant, tries, leased, until, at, sent, expires, party, extra"
    return ", ".join(f"{table}.{name}" for name in names.split(", "))


class NewMessage(NamedTuple):
    """A row to be stored."""

    lane: int
    tenant: int
    at: int
    until: int | None
    expires: int | None
    party: int | None
    extra: bytes | None
    body: bytes


def is_id(number: int) -> bool:
    """Return whether a message can have this id; databases do not support all numbers of Python."""
    return 0 < number < NEVER


def is_storable(text: str) -> bool:
    """Return whether a database can store a text: any other need not be searched for."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def milliseconds(seconds: float) -> int:
    """Convert seconds to the milliseconds in which times are stored."""
    return round(seconds * 1000)
