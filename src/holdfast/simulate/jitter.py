"""Jitter: clients that contend for one row, with different kinds of backoff.

The model is that of https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/: every client reads the
version of one row and writes it back. A write succeeds if no other client wrote in between. Otherwise the client backs
off and starts again. All clients start together, and each stops at its first success. Pure.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from random import Random

from holdfast._backoff import Backoff, Jitter
from holdfast._errors import InvalidValue
from holdfast.simulate.virtual import seeded_random

_NOT_READ = -1
"""Instead of a version: the client has not read the row yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """The clients, their backoff, and the number of runs.

    The defaults are those of https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
    """

    clients: int = 100
    runs: int = 100
    base: float = 0.005
    """Seconds, as for `Backoff`."""
    cap: float = 2.0
    """Seconds."""
    network_latency: float = 0.010
    """Mean seconds of a message, one way."""
    spread: float = 0.002
    """Standard deviation of the network latency, in seconds."""
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.clients <= 2000:
            raise InvalidValue(f"{self.clients} clients: expected 1 to 2000")
        if not 1 <= self.runs <= 10_000:
            raise InvalidValue(f"{self.runs} runs: expected 1 to 10000")
        if not (0 < self.network_latency < math.inf and 0 <= self.spread <= self.network_latency / 4):
            raise InvalidValue(
                f"network_latency {self.network_latency}, spread {self.spread}: expected above 0, at most 1/4 of that"
            )
        if not 0 < self.base < math.inf:  # doubling 0 gives 0
            raise InvalidValue(f"backoff base {self.base}: expected seconds, more than 0")
        Backoff(base=self.base, cap=self.cap)

    def strategies(self) -> dict[str, Backoff]:
        """Return the backoff strategies to compare, by name."""
        jitters = (Jitter.EQUAL, Jitter.FULL, Jitter.DECORRELATED)
        return {
            "no backoff": Backoff(base=0.0, cap=self.cap, jitter=Jitter.NONE),
            "no jitter": Backoff(base=self.base, cap=self.cap, jitter=Jitter.NONE),
            **{f"{jitter} jitter": Backoff(base=self.base, cap=self.cap, jitter=jitter) for jitter in jitters},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionResult:
    """The mean result of all runs with one backoff strategy."""

    strategy: str
    calls: float
    """Writes of all clients together."""
    seconds: float
    """Seconds until the last client succeeded."""
    call_times: tuple[float, ...]
    """Time of each write in the first run, in seconds, for the picture."""


def compare(options: Contention) -> Iterator[ContentionResult]:
    """Yield the result of each backoff strategy."""
    for name, backoff in options.strategies().items():
        chance = seeded_random("jitter", options.seed, name)
        runs = [contend(options, backoff, chance) for _ in range(options.runs)]
        first_call_times, _ = runs[0]
        yield ContentionResult(
            strategy=name,
            calls=sum(len(call_times) for call_times, _ in runs) / options.runs,
            seconds=sum(end for _, end in runs) / options.runs,
            call_times=tuple(first_call_times),
        )


def contend(options: Contention, backoff: Backoff, chance: Random) -> tuple[list[float], float]:
    """Simulate one run. Return when the server got each write, and when the last client learned of its success."""
    gauss, draw, delay = chance.gauss, chance.random, backoff.delay
    mean, spread = options.network_latency, options.spread
    # Between two messages at the server, the network is crossed twice. The sum of two normal times is normal again.
    trip, trip_spread = 2 * mean, math.sqrt(2) * spread
    waiting = [(abs(gauss(mean, spread)), client, _NOT_READ) for client in range(options.clients)]
    heapify(waiting)
    failed = [0] * options.clients
    previous = [0.0] * options.clients
    version, end = 0, 0.0
    call_times = []
    while waiting:
        now, client, seen = waiting[0]
        if seen == _NOT_READ:
            heapreplace(waiting, (now + abs(gauss(trip, trip_spread)), client, version))
            continue
        call_times.append(now)
        if seen == version:
            version += 1
            end = max(end, now + abs(gauss(mean, spread)))
            heappop(waiting)
            continue
        failed[client] += 1
        # The article doubles the base even before the first retry, so its retry numbers are one ahead of ours.
        previous[client] = wait = delay(failed[client] + 1, previous[client], draw)
        heapreplace(waiting, (now + abs(gauss(trip, trip_spread)) + wait, client, _NOT_READ))
    return call_times, end
