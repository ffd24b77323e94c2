"""What other shuffle sharders do, in Python, for benchmarks and tests to compare with.

Each is written anew after the public source that it names and does what that does, faults included; what it leaves out
it says. Workers are whole numbers. The work per shard is that of the original, so that what is compared is the method:
all of them run in the same interpreter.
"""

import hashlib
import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt


class Dealer:
    """The dealer of Kubernetes' API priority and fairness: a hand of queues from the digits of a hash value.

    https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/util/shufflesharding/shufflesharding.go
    and `hashFlowID` in .../pkg/util/flowcontrol/apf_controller.go. Left out: the callback for each card, and the slice
    that is used again, neither of which Python would gain from.
    """

    MAX_HASH_BITS = 60
    MAX_DECK_SIZE = 1 << 26

    def __init__(self, deck_size: int, hand_size: int) -> None:
        if deck_size <= 0 or hand_size <= 0:
            raise ValueError(f"a deck of {deck_size}, a hand of {hand_size}: expected both above 0")
        if hand_size > deck_size:
            raise ValueError(f"a hand of {hand_size} from a deck of {deck_size}: expected no more than there are")
        if deck_size > self.MAX_DECK_SIZE:
            raise ValueError(f"a deck of {deck_size}: expected no more than {self.MAX_DECK_SIZE}")
        if self.required_entropy_bits(deck_size, hand_size) > self.MAX_HASH_BITS:
            raise ValueError(
                f"a hand of {hand_size} from a deck of {deck_size} needs "
                f"{self.required_entropy_bits(deck_size, hand_size)} bits: expected no more than {self.MAX_HASH_BITS}"
            )
        self._sizes = range(deck_size, deck_size - hand_size, -1)

    @staticmethod
    def required_entropy_bits(deck_size: int, hand_size: int) -> int:
        """How much of a hash value a hand uses up."""
        return math.ceil(math.log2(deck_size) * hand_size)

    @staticmethod
    def hash_value(schema: bytes, tenant: bytes) -> int:
        """The hash value of a flow."""
        return int.from_bytes(hashlib.sha256(b"%b\0%b" % (schema, tenant)).digest()[:8], "little")

    def deal(self, hash_value: int) -> tuple[int, ...]:
        """The hand of a hash value."""
        drawn: list[int] = []
        hand: list[int] = []
        for size in self._sizes:
            hash_value, remainder = divmod(hash_value, size)
            card = remainder
            for earlier in reversed(drawn):
                if card >= earlier:
                    card += 1
            drawn.append(remainder)
            hand.append(card)
        return tuple(hand)

    def deal_batch(self, hash_values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The hands of many hash values, a row each."""
        hands = np.empty((len(hash_values), len(self._sizes)), dtype=np.int64)
        drawn: list[npt.NDArray[np.int64]] = []
        for column, size in enumerate(self._sizes):
            following = hash_values // np.uint64(size)
            remainder = (hash_values - following * np.uint64(size)).astype(np.int64)
            hash_values = following
            card = remainder.copy()
            for earlier in reversed(drawn):
                card += card >= earlier
            drawn.append(remainder)
            hands[:, column] = card
        return hands


class JavaRandom:
    """`java.util.Random`, as its documentation prescribes it, and `Collections.shuffle` of a list.

    https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/Random.html
    """

    _MASK = (1 << 48) - 1
    _FACTOR = 0x5DEECE66D
    _TERM = 0xB

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ self._FACTOR) & self._MASK

    def next_int(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        while True:
            self._state = (self._state * self._FACTOR + self._TERM) & self._MASK
            drawn = self._state >> 17  # the upper 31 bits
            if bound & (bound - 1) == 0:
                return bound * drawn >> 31
            number = drawn % bound
            if drawn - number + bound - 1 < 1 << 31:
                return number

    def shuffle(self, items: list[int]) -> None:
        """Put a list in another order."""
        for count in range(len(items), 1, -1):
            drawn = self.next_int(count)
            items[count - 1], items[drawn] = items[drawn], items[count - 1]


class SimpleSignature:
    """Infima's stateless sharder: all endpoints of a cell are shuffled, by a seed from the name, and some are taken.

    https://github.com/awslabs/route53-infima/blob/master/src/main/java/com/amazonaws/services/route53/infima/SimpleSignatureShuffleSharder.java
    for lattices of one dimension, one cell included. Left out: lattices of more, and the order in which Java's HashSet
    happens to name the cells: here it is the order in which they are given.
    """

    def __init__(self, cells: Sequence[Sequence[int]], per_cell: int, *, seed: int) -> None:
        if any(len(cell) < per_cell for cell in cells):
            raise ValueError(f"{per_cell} endpoints per cell: expected no more than the smallest cell has")
        self._cells = cells
        self._per_cell = per_cell
        self._seed = str(seed).encode()

    def shard(self, tenant: bytes) -> tuple[int, ...]:
        """The shard of a tenant, cell by cell in the order in which they were drawn."""
        checksum = hashlib.md5(self._seed + tenant, usedforsecurity=False).digest()
        entropy = JavaRandom(int.from_bytes(checksum[:8], "little"))
        order = list(range(len(self._cells)))
        entropy.shuffle(order)
        chosen: list[int] = []
        for number in order:
            endpoints = list(self._cells[number])
            entropy.shuffle(endpoints)
            chosen += endpoints[: self._per_cell]
        return tuple(chosen)


class NoShardsAvailable(Exception):
    """The search of Infima gave up."""


class StatefulSearch:
    """Infima's search for a shard that shares at most so many endpoints with all that it gave before.

    https://github.com/awslabs/route53-infima/blob/master/src/main/java/com/amazonaws/services/route53/infima/StatefulSearchingShuffleSharder.java
    with a fragment store in memory, like the one of its tests. Its faults are kept. Nothing can be given back. For what
    was drawn in one cell the other cells are asked once, without being told: if their answer does not fit it is not
    asked for another, so that a search may end while shards are left. And where the other cells have nothing at all,
    what was drawn in the one cell is taken for a whole shard: it is then too small. Left out: the lattice as a class of
    its own; and chance comes from Python's generator, Java's being unseeded there.
    """

    def __init__(
        self, cells: Mapping[tuple[str, ...], Sequence[int]], per_cell: int, overlap: int, *, seed: int
    ) -> None:
        if any(len(cell) < per_cell for cell in cells.values()):
            raise ValueError(f"{per_cell} endpoints per cell: expected no more than the smallest cell has")
        self._cells = cells
        self._per_cell = per_cell
        self._overlap = overlap
        self._random = random.Random(seed)
        self._fragments: set[tuple[int, ...]] = set()

    def shard(self) -> tuple[int, ...]:
        """A shard for whoever comes next. Raises NoShardsAvailable."""
        found = self._search(list(self._cells))
        if not found:
            raise NoShardsAvailable
        self._fragments.update(self._parts(found))
        return tuple(sorted(found))

    def _search(self, coordinates: list[tuple[str, ...]]) -> list[int]:
        for coordinate in self._random.sample(coordinates, len(coordinates)):
            others = [
                other
                for other in coordinates
                if all(value != mine for value, mine in zip(other, coordinate, strict=True))
            ]
            endpoints = list(self._cells[coordinate])
            self._random.shuffle(endpoints)
            for fragment in combinations(endpoints, self._per_cell):
                if self._collides(fragment):
                    continue
                combined = [*fragment, *self._search(others)]
                if not self._collides(combined):
                    return combined
        return []

    def _collides(self, endpoints: Sequence[int]) -> bool:
        return any(part in self._fragments for part in self._parts(endpoints))

    def _parts(self, endpoints: Sequence[int]) -> Iterator[tuple[int, ...]]:
        return combinations(sorted(endpoints), self._overlap + 1)


class Ring:
    """The shuffle sharding of Grafana's dskit, as used by Mimir and Loki: random walks on a ring of tokens, per zone.

    https://github.com/grafana/dskit/blob/main/ring/ring.go (`shuffleShard`), and shard/shard.go and util.go beside it.
    Left out: Go's generator, whose place Python's takes; the look-back period, read-only instances and the cache; and
    the ring that is made of what was found.
    """

    TOKENS = 512
    """What Mimir gives an ingester unless it is told otherwise."""

    def __init__(
        self, zones: Mapping[str, Sequence[int]], size: int, *, seed: int, tokens_per_instance: int = TOKENS
    ) -> None:
        drawn = random.Random(seed)
        used: set[int] = set()
        self._rings: list[tuple[str, list[int], list[int]]] = []
        for zone in sorted(zones):
            owners: dict[int, int] = {}
            for instance in zones[zone]:
                for _ in range(tokens_per_instance):
                    token = drawn.getrandbits(32)
                    while token in used:
                        token = drawn.getrandbits(32)
                    used.add(token)
                    owners[token] = instance
            tokens = sorted(owners)
            self._rings.append((zone, tokens, [owners[token] for token in tokens]))
        self._per_zone = self.instances_per_zone(size, len(zones)) if zones else 0

    @staticmethod
    def instances_per_zone(size: int, zones: int) -> int:
        """How many instances each zone gives: the same for all, rounded up."""
        return math.ceil(size / zones)

    @staticmethod
    def seed_of(tenant: bytes, zone: str) -> int:
        """What the generator of a tenant in a zone is seeded with; no zone is the one of a ring that has none."""
        name = b"%b\0%b" % (tenant, zone.encode()) if zone else tenant
        return int.from_bytes(hashlib.md5(name, usedforsecurity=False).digest()[:8])

    @staticmethod
    def search_token(tokens: Sequence[int], key: int) -> int:
        """Where on the ring a key falls: at the next token after it, the first one past the end."""
        index = bisect_right(tokens, key)
        return 0 if index == len(tokens) else index

    def shard(self, tenant: bytes) -> tuple[int, ...]:
        """The shard of a tenant, zone by zone; smaller where a zone has too few."""
        chosen: dict[int, None] = {}
        for zone, tokens, owners in self._rings:
            drawn = random.Random(self.seed_of(tenant, zone))
            for _ in range(self._per_zone):
                start = self.search_token(tokens, drawn.getrandbits(32))
                found = self._walk(owners, start, chosen)
                if found is None:
                    break
                chosen[found] = None
        return tuple(chosen)

    @staticmethod
    def _walk(owners: Sequence[int], start: int, chosen: Mapping[int, None]) -> int | None:
        """The next instance that is not taken yet."""
        for step in range(len(owners)):
            instance = owners[(start + step) % len(owners)]
            if instance not in chosen:
                return instance
        return None
