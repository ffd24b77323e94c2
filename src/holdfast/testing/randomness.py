"""Chance that repeats itself."""

import hashlib
import json
import random


def seeded(*parts: str | int | float | None) -> random.Random:
    """A generator that gives the same numbers for the same parts, such as the test's name and a round.

    The same in every process, on every machine and in every version of Python: nothing here depends on `hash()`.
    Parts that differ in value, type, number or order give unrelated streams: `seeded("a", 1)` is neither
    `seeded("a1")` nor `seeded("a", "1")`. Python promises only `random()` itself to stay as it is, so a number that
    is written down for good should be derived from that one and not from `shuffle` or `sample`.

    Not for secrets. A generator may be shared by threads, but then who draws which number is up to them: one
    for each thread repeats.
    """
    # JSON keeps parts and their types apart, and is pure ASCII: repr() of text changes with the tables of Unicode.
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - meant to be foreseeable
