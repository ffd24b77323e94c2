"""Rare values of messages, packed into one column, so that other messages need one byte for them. Pure."""

import msgspec


class Extra(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"trace": "t", "deadline": "d", "returned": "r", "publication": "p", "expired_leases": "x"},
    gc=False,
):
    """The rare values of a message."""

    trace: bytes | None = None
    """See `holdfast.queue.message`."""
    deadline: int | None = None
    """Milliseconds since the epoch."""
    returned: int = 0
    """Deliveries that do not count as attempts."""
    publication: int | None = None
    """The message of a topic of which this is a copy."""
    expired_leases: int = 0
    """Leases that expired without settlement."""

    def redriven(self, tries: int) -> "Extra":
        """Return the values of a dead letter that is redriven: none of its deliveries so far counts."""
        return msgspec.structs.replace(self, returned=tries, publication=None, expired_leases=0)

    def died(self) -> "Extra":
        """Return the values after one more lease that expired without settlement."""
        return msgspec.structs.replace(self, expired_leases=self.expired_leases + 1)

    def handed_back(self) -> "Extra":
        """Return the values after one more delivery that does not count as an attempt."""
        return msgspec.structs.replace(self, returned=self.returned + 1)


NOTHING = Extra()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Extra)


def encode(extra: Extra) -> bytes | None:
    """Return the stored form, or None for all defaults."""
    return None if extra == NOTHING else _encoder.encode(extra)


def decode(kept: bytes | None) -> Extra:
    """Return the values of a stored form."""
    return NOTHING if kept is None else _decoder.decode(kept)
