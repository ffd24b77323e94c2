"""What few messages have: packed into one column, so that the others pay a byte for it. Pure."""

import msgspec


class Extra(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"trace": "t", "deadline": "d", "returned": "r", "publication": "p", "deaths": "x"},
    gc=False,
):
    """Beside the body."""

    trace: bytes | None = None
    """See `holdfast.queue.message`."""
    deadline: int | None = None
    """Milliseconds since the epoch."""
    returned: int = 0
    """Deliveries that do not count as attempts."""
    publication: int | None = None
    """Of which message of a topic it is one."""
    deaths: int = 0
    """Deliveries whose workers were not heard of again."""

    def redriven(self, tries: int) -> "Extra":
        """The same, of a dead letter that begins anew: none of its deliveries so far count."""
        return msgspec.structs.replace(self, returned=tries, publication=None, deaths=0)

    def died(self) -> "Extra":
        """The same, after one more delivery of which nothing was heard."""
        return msgspec.structs.replace(self, deaths=self.deaths + 1)

    def handed_back(self) -> "Extra":
        """The same, after one more delivery that does not count."""
        return msgspec.structs.replace(self, returned=self.returned + 1)


NOTHING = Extra()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Extra)


def encode(extra: Extra) -> bytes | None:
    """As it is kept; None: nothing."""
    return None if extra == NOTHING else _encoder.encode(extra)


def decode(kept: bytes | None) -> Extra:
    """What was kept."""
    return NOTHING if kept is None else _decoder.decode(kept)
