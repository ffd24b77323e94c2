"""Generate the measurements of a service in several zones, bin by bin, with noise and failures. Pure.

The noise is that of real services: traffic follows the day, fault rates fluctuate in each cell, faults come in clumps,
all zones fluctuate together, and each zone a little for itself. A cell is one operation on one instance of one zone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.metrics.histogram import PER_DOUBLING
from holdfast.telemetry.block import Histograms, Integers

LOWEST_BUCKET, BUCKETS = -104, 160
"""Latencies from 0.1 ms to 128 s, in the buckets of `holdfast.metrics.histogram`."""
DAY = 86_400.0
CLUMP = 3
"""Faults in a clump: a client that tries three times fails three times."""
COMMON_MEMORY, ZONE_MEMORY = 0.9, 0.5
"""Correlation of the noise of all zones, and of each zone, from one bin to the next."""
SLOW_FACTOR = 10.0
"""Factor of the latency of the requests in `Effect.slow`."""

_FEW = 60
"""Mean requests of a cell up to which they are drawn one by one, which is then quicker than by bucket."""
_PER_LOG = PER_DOUBLING / math.log(2)
_EDGES = (np.arange(BUCKETS + 1) + LOWEST_BUCKET) / _PER_LOG
_MIDDLES = np.exp(_EDGES[:-1] + 0.5 / _PER_LOG)
_NORMAL_AT = np.linspace(-6, 6, 2401)
_NORMAL = np.array([0.5 * (1 + math.erf(at / math.sqrt(2))) for at in _NORMAL_AT])
"""The normal distribution, as a table."""

Matrix: TypeAlias = NDArray[np.float64]
"""Values by operation and zone, or an array that can be broadcast to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A service without failures: its traffic, faults and latencies by operation and zone."""

    requests: Matrix
    """Requests per minute by operation and zone, on average over the day."""
    fault_rates: Matrix
    """Share of failed requests by operation and zone."""
    latency: Matrix
    """Median latency by operation, in seconds."""
    spread: Matrix
    """Standard deviation of the logarithm of the latency, by operation."""
    instances: int = 1
    """Instances in each zone."""
    daily: float = 0.0
    """Share by which the traffic rises and falls within a day. It is highest six hours after midnight."""
    traffic_noise: float = 0.0
    """Standard deviation of the logarithm of the traffic, which fluctuates in all zones together."""
    cell_shape: float = math.inf
    """Shape of the gamma distribution by which the fault rate of each operation, zone and bin fluctuates."""
    clumped: float = 0.0
    """Share of faults that come in clumps."""
    common_noise: float = 0.0
    zone_noise: float = 0.0
    """Standard deviations of the logarithm of the fault rate, for all zones together and for each zone."""
    latency_common_noise: float = 0.0
    latency_zone_noise: float = 0.0
    """Standard deviations of the logarithm of the latency, for all zones together and for each zone."""
    slow_share: float = 0.0
    slow_factor: float = 5.0
    """Share of requests that take `slow_factor` times as long: a second mode of the distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A change of the service for some time: a failure, a deploy, or a change of traffic."""

    start: float
    end: float
    added: Matrix | float = 0.0
    """Share of requests that fail in addition, by operation and zone."""
    factor: Matrix | float = 1.0
    """Factor of the fault rate."""
    latency: Matrix | float = 1.0
    """Factor of the latency."""
    slow: Matrix | float = 0.0
    """Share of requests that take `SLOW_FACTOR` times as long."""
    traffic: Matrix | float = 1.0
    """Factor of the traffic."""
    instance: int | None = None
    """The only instance of each zone that `added` applies to; None means all."""
    running: "NDArray[np.int64] | None" = None
    """Number of instances that share the traffic of each zone; None means all."""
    period: float = 0.0
    burst: float = 0.0
    """With `period`, the effect is on for `burst` seconds in every `period` seconds."""
    ramp: float = 0.0
    """Seconds in which the effect grows to its full size."""

    def strength(self, at: float) -> float:
        """Return the strength of the effect, from 0 to 1."""
        if not self.start <= at < self.end:
            return 0.0
        if self.period and (at - self.start) % self.period >= self.burst:
            return 0.0
        return min(1.0, (at - self.start) / self.ramp) if self.ramp else 1.0


@dataclass(frozen=True, slots=True)
class SimulatedBin:
    """The measurements of one bin. The shape of the arrays is operations x zones x instances."""

    start: float
    requests: Integers
    faults: Integers
    latencies: Histograms
    """Latencies of successful requests: a row for each cell, in the order of the arrays."""


@dataclass(slots=True)
class _Conditions:
    """The service in one bin: its usual behaviour, changed by noise and effects."""

    traffic: Matrix
    """Expected requests."""
    rates: Matrix
    added: Matrix | float
    shift: Matrix
    """Added to the logarithm of the latency."""
    slow: Matrix | float
    single: list[tuple[int, Matrix]]
    """Instances that fail alone, with the share of their requests that fails."""
    running: "NDArray[np.int64] | None" = None


@dataclass(slots=True)
class TrafficSimulation:
    """Generates bins one after the other. Equal seeds give equal bins."""

    fleet: Fleet
    random: Generator
    effects: Sequence[Effect] = ()
    seconds: float = 10.0
    has_latency: bool = True
    """Whether latencies are generated. Without them, a bin takes a fraction of the time."""
    _common: Matrix = field(init=False)
    _zone: Matrix = field(init=False)
    _latency_common: float = field(default=0.0, init=False)
    _latency_zone: Matrix = field(init=False)
    _traffic: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        operations, zones = self.fleet.requests.shape
        self._common = np.zeros((operations, 1))
        self._zone = np.zeros(zones)
        self._latency_zone = np.zeros(zones)

    def run(self, start: float, end: float) -> Iterator[SimulatedBin]:
        """Yield all bins that start between two times."""
        for number in range(math.ceil((end - start) / self.seconds)):
            yield self.step(start + number * self.seconds)

    def step(self, at: float) -> SimulatedBin:
        """Return the bin that starts at `at`."""
        fleet, random = self.fleet, self.random
        self._fluctuate()
        now = self._apply_effects(at)
        if math.isfinite(fleet.cell_shape):
            now.rates = now.rates * random.gamma(fleet.cell_shape, 1 / fleet.cell_shape, now.rates.shape)
        requests = random.poisson(_share_traffic(now, fleet.instances))
        chances = np.clip(now.rates + now.added, 0.0, 1.0)[:, :, None]
        if now.single:
            chances = np.broadcast_to(chances, requests.shape).copy()
            for index, share in now.single:
                chances[:, :, index] = np.minimum(chances[:, :, index] + share, 1.0)
        faults = np.zeros_like(requests)
        if fleet.clumped:
            faults = CLUMP * random.binomial(requests, np.minimum(fleet.clumped / CLUMP * chances, 1.0))
        faults = np.minimum(faults + random.binomial(requests, (1 - fleet.clumped) * chances), requests)
        return SimulatedBin(at, requests, faults, self._draw_latencies(requests - faults, now))

    def _apply_effects(self, at: float) -> _Conditions:
        fleet = self.fleet
        rates = fleet.fault_rates * np.exp(self._common + self._zone)
        now = _Conditions(
            traffic=fleet.requests
            * (self.seconds / 60 * math.exp(self._traffic) * (1 + fleet.daily * math.sin(2 * math.pi * at / DAY))),
            rates=rates,
            added=0.0,
            shift=self._latency_common + self._latency_zone + np.zeros_like(rates),
            slow=0.0,
            single=[],
        )
        for effect in self.effects:
            strength = effect.strength(at)
            if not strength:
                continue
            now.traffic = now.traffic * (1 + (np.asarray(effect.traffic) - 1) * strength)
            now.rates = now.rates * (1 + (np.asarray(effect.factor) - 1) * strength)
            now.shift = now.shift + np.log(np.asarray(effect.latency)) * strength
            now.slow = now.slow + np.asarray(effect.slow) * strength
            added = np.asarray(effect.added) * strength
            if effect.instance is None:
                now.added = now.added + added
            else:
                now.single.append((effect.instance, np.broadcast_to(added, rates.shape)))
            if effect.running is not None:
                now.running = effect.running
        return now

    def _fluctuate(self) -> None:
        fleet = self.fleet
        self._common = self._walk(self._common, COMMON_MEMORY, fleet.common_noise)
        self._zone = self._walk(self._zone, ZONE_MEMORY, fleet.zone_noise)
        together = self._walk(np.array([self._latency_common]), COMMON_MEMORY, fleet.latency_common_noise)
        self._latency_common = float(together[0])
        self._latency_zone = self._walk(self._latency_zone, ZONE_MEMORY, fleet.latency_zone_noise)
        if fleet.traffic_noise:  # draws nothing otherwise, so that seeds give the same bins as before
            self._traffic = float(self._walk(np.array([self._traffic]), COMMON_MEMORY, fleet.traffic_noise)[0])

    def _walk(self, before: Matrix, memory: float, noise: float) -> Matrix:
        """Return the next value of a noise that keeps its standard deviation."""
        return memory * before + math.sqrt(1 - memory**2) * noise * self.random.standard_normal(before.shape)

    def _draw_latencies(self, counts: "NDArray[np.int64]", now: _Conditions) -> Histograms:
        total = int(counts.sum()) if self.has_latency else 0
        if total == 0:
            return pack_histograms(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), counts.size)
        if total < _FEW * counts.size:
            return self._draw_each(counts, now)
        chances = self._get_distribution(now.shift, 1.0)
        if self.fleet.slow_share:
            slow = self._get_distribution(now.shift, self.fleet.slow_factor)
            chances = (1 - self.fleet.slow_share) * chances + self.fleet.slow_share * slow
        if np.any(now.slow):
            weight = np.broadcast_to(now.slow, now.shift.shape)[:, :, None]
            chances = (1 - weight) * chances + weight * self._get_distribution(now.shift, SLOW_FACTOR)
        chances = np.broadcast_to(chances[:, :, None, :], (*counts.shape, BUCKETS))
        drawn = self.random.multinomial(counts, chances).reshape(counts.size, BUCKETS)
        cells, buckets = np.nonzero(drawn)
        return pack_histograms(cells, buckets + LOWEST_BUCKET, drawn[cells, buckets], counts.size)

    def _draw_each(self, counts: "NDArray[np.int64]", now: _Conditions) -> Histograms:
        """Draw request by request."""
        fleet, random = self.fleet, self.random
        cells = np.repeat(np.arange(counts.size), counts.reshape(-1))
        pairs = cells // counts.shape[2]
        center = (np.log(fleet.latency)[:, None] + now.shift).reshape(-1)
        spread = np.broadcast_to(fleet.spread[:, None], now.shift.shape).reshape(-1)
        logs = center[pairs] + spread[pairs] * random.standard_normal(len(cells))
        if fleet.slow_share:
            logs += math.log(fleet.slow_factor) * (random.random(len(cells)) < fleet.slow_share)
        if np.any(now.slow):
            chances = np.broadcast_to(now.slow, now.shift.shape).reshape(-1)
            logs += math.log(SLOW_FACTOR) * (random.random(len(cells)) < chances[pairs])
        buckets = np.clip(np.ceil(logs * _PER_LOG).astype(np.int64) - 1 - LOWEST_BUCKET, 0, BUCKETS - 1)
        keys = (cells * BUCKETS + buckets).astype(np.int32)  # sorts twice as fast
        keys.sort()
        first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        values = np.diff(first, append=len(keys))
        found, bucket = np.divmod(keys[first], BUCKETS)
        return pack_histograms(found, bucket + LOWEST_BUCKET, values, counts.size)

    def _get_distribution(self, shift: Matrix, factor: float) -> Matrix:
        """Return the chance of each bucket, by operation and zone."""
        fleet = self.fleet
        center = (np.log(fleet.latency * factor)[:, None] + shift)[:, :, None]
        below = np.interp((_EDGES - center) / fleet.spread[:, None, None], _NORMAL_AT, _NORMAL)
        below[..., 0], below[..., -1] = 0.0, 1.0
        return np.diff(below, axis=-1)


def _share_traffic(now: _Conditions, instances: int) -> Matrix:
    """Return the expected requests by operation, zone and instance."""
    if now.running is None:
        return np.broadcast_to((now.traffic / instances)[:, :, None], (*now.traffic.shape, instances))
    running = np.clip(now.running, 1, instances)
    shares = (np.arange(instances) < running[:, None]) / running[:, None]
    return now.traffic[:, :, None] * shares


def pack_histograms(cells: Integers, buckets: Integers, values: Integers, size: int) -> Histograms:
    """Return `size` histograms from entries that are sorted by cell and bucket."""
    counts = np.bincount(cells, minlength=size)
    offsets = np.zeros(size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    minima, maxima = np.full(size, np.inf), np.full(size, -np.inf)
    filled = np.flatnonzero(counts)
    minima[filled] = np.exp2(buckets[offsets[filled]] / PER_DOUBLING)
    maxima[filled] = np.exp2((buckets[offsets[filled + 1] - 1] + 1) / PER_DOUBLING)
    sums: Matrix = np.bincount(cells, values * _MIDDLES[buckets - LOWEST_BUCKET], size).astype(np.float64, copy=False)
    return Histograms(offsets, buckets, values, np.zeros(size, np.int64), sums, minima, maxima)
