"""Keys for messages that are sent together under one key, so that any of them may be sent again. Pure."""

import hashlib
from collections import Counter

import msgspec

from holdfast.queue.message import Outgoing

_DIGEST_BYTES = 16
"""128 bits: two messages of one tenant do not have the same by chance."""


class BatchKeys:
    """The deduplication key of each message of a batch: it follows from the batch's key and from what the message says.

    Not from its place: whoever sends again what was refused, and nothing else, has other places than before. Messages
    that are equal in everything are told apart by how many of them were there before. For each message some hundred
    bytes are kept here.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._seen: Counter[bytes] = Counter()

    def of(self, message: Outgoing) -> str:
        """The key of the next message; the same for the same body, priority, delay, group and ttl, and for no other.

        Trace and deadline are those of a request, and do not count. Nobody sends a single message with such a key,
        unless it was copied from here.
        """
        said = (self._key, message.priority, message.delay, message.group, message.ttl, message.body)
        digest = hashlib.blake2b(msgspec.msgpack.encode(said), digest_size=_DIGEST_BYTES).digest()
        before = self._seen[digest]
        self._seen[digest] = before + 1
        return f"batch:{digest.hex()}:{before}"
