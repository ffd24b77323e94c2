"""Messages as they lie in the table. Pure."""

from typing import Final, NamedTuple

from holdfast.queue.backends.sql.extra import Extra, decode
from holdfast.queue.policy import QueuePolicy

NEVER: Final = 1 << 62
"""When that ends which has no end."""

SECOND: Final = 1000
"""Milliseconds by which clocks may differ from one look to the next; also how often the time is written down."""


class Message(NamedTuple):
    """One that was found. Times are in milliseconds."""

    id: int
    lane: int
    tenant: int
    tries: int
    leased: int
    """Whether a worker holds it."""
    until: int | None
    """When it is ready again, while it is held; None: it waits."""
    at: int
    """Since when it could be handled."""
    sent: int | None
    """When it was first ready, if it has been delayed since."""
    expires: int | None
    """When it is worth nothing any more; None: after the queue's ttl."""
    party: int | None
    """Its group."""
    kept: bytes | None
    """See `extra`."""
    body: bytes = b""
    """Of those that are handed out; the others stay where they are."""

    @property
    def extra(self) -> Extra:
        """What few messages have."""
        return decode(self.kept)

    @property
    def age_from(self) -> int:
        """When it was sent, or was due for the first time."""
        return self.at if self.sent is None else self.sent

    def expires_at(self, policy: QueuePolicy) -> int:
        """When it is worth nothing any more."""
        if self.expires is not None:
            return self.expires
        return NEVER if policy.ttl is None else self.age_from + milliseconds(policy.ttl)


def columns(table: str = "m") -> str:
    """What is selected for a `Message`, its body apart."""
    names = "id, lane, tenant, tries, leased, until, at, sent, expires, party, extra"
    return ", ".join(f"{table}.{name}" for name in names.split(", "))


class NewMessage(NamedTuple):
    """One that is to be kept."""

    lane: int
    tenant: int
    at: int
    until: int | None
    expires: int | None
    party: int | None
    extra: bytes | None
    body: bytes


def is_id(number: int) -> bool:
    """Whether a message can have such a number; databases do not take all that Python does."""
    return 0 < number < NEVER


def is_storable(text: str) -> bool:
    """Whether a text can be in a database at all: what cannot need not be looked for."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def milliseconds(seconds: float) -> int:
    """As times are kept."""
    return round(seconds * 1000)
