"""Generate the measurements of a service in several zones, bin by bin, with noise and failures. Pure.

The noise is that of real services: traffic follows the day, fault rates fluctuate in each cell, faults come in clumps,
all zones fluctuate together, and each zone a little for itself.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.metrics.histogram import PER_DOUBLING

LOWEST_BUCKET, BUCKETS = -104, 160
"""Latencies from 0.1 ms to 128 s."""
DAY = 86_400.0
_EDGES = (np.arange(BUCKETS + 1) + LOWEST_BUCKET) * math.log(2) / PER_DOUBLING
_TABLE_X = np.linspace(-6, 6, 2401)
_TABLE_Y = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in _TABLE_X])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A service without failures: its traffic, faults and latencies by operation and zone."""

    requests: NDArray[np.float64]
    """Requests per minute by operation and zone, on average over the day."""
    fault_rates: NDArray[np.float64]
    """Share of failed requests by operation and zone."""
    latency: NDArray[np.float64]
    """Median latency by operation, in seconds."""
    spread: NDArray[np.float64]
    """Standard deviation of the logarithm of the latency, by operation."""
    instances: int = 1
    """Instances in each zone."""
    daily: float = 0.0
    """Share by which the traffic rises and falls within a day."""
    cell_shape: float = math.inf
    """Shape of the gamma distribution by which the fault rate of each cell and bin fluctuates."""
    clumped: float = 0.0
    """Share of faults that come three at a time."""
    common_noise: float = 0.0
    zone_noise: float = 0.0
    """Standard deviations of the logarithm of the fault rate, for all zones together and for each zone."""
    latency_common_noise: float = 0.0
    latency_zone_noise: float = 0.0
    """The same for the latency."""
    slow_share: float = 0.0
    slow_factor: float = 5.0
    """Share of requests that take `slow_factor` times as long: a second mode of the distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A change of the service for some time: a failure, a deploy, or a change of traffic."""

    start: float
    end: float
    added: NDArray[np.float64] | float = 0.0
    """Share of requests that fail in addition, by operation and zone."""
    factor: NDArray[np.float64] | float = 1.0
    """Factor of the fault rate."""
    latency: NDArray[np.float64] | float = 1.0
    """Factor of the latency."""
    slow: NDArray[np.float64] | float = 0.0
    """Share of requests that take ten times as long."""
    traffic: NDArray[np.float64] | float = 1.0
    """Factor of the traffic."""
    instance: int | None = None
    """Only this instance of each affected zone fails; `added` then applies to its own requests."""
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


@dataclass(slots=True)
class SimulatedBin:
    """The measurements of one bin, by operation, zone and instance."""

    start: float
    requests: NDArray[np.int64]
    faults: NDArray[np.int64]
    latencies: NDArray[np.int64]
    """By operation, zone, instance and bucket: successful requests."""


@dataclass(slots=True)
class TrafficSimulation:
    """Generates bins one after the other. The same seed gives the same bins."""

    fleet: Fleet
    random: Generator
    effects: Sequence[Effect] = ()
    seconds: float = 10.0
    has_latency: bool = True
    _common: "NDArray[np.float64]" = field(init=False)
    _zone: "NDArray[np.float64]" = field(init=False)
    _latency_common: float = field(default=0.0, init=False)
    _latency_zone: "NDArray[np.float64]" = field(init=False)

    def __post_init__(self) -> None:
        operations, zones = self.fleet.requests.shape
        self._common = np.zeros((operations, 1))
        self._zone = np.zeros(zones)
        self._latency_zone = np.zeros(zones)

    def run(self, start: float, end: float) -> Iterator[SimulatedBin]:
        """Yield all bins between two times."""
        at = start
        while at < end:
            yield self.step(at)
            at += self.seconds

    def step(self, at: float) -> SimulatedBin:
        """Return one bin."""
        fleet, random = self.fleet, self.random
        self._fluctuate()
        traffic = fleet.requests * (self.seconds / 60 * (1 + fleet.daily * math.sin(2 * math.pi * at / DAY)))
        rates = fleet.fault_rates * np.exp(self._common + self._zone)
        added: NDArray[np.float64] | float = 0.0
        slow: NDArray[np.float64] | float = 0.0
        shift = self._latency_common + self._latency_zone + np.zeros_like(rates)
        single: list[tuple[int, NDArray[np.float64]]] = []
        for effect in self.effects:
            strength = effect.strength(at)
            if not strength:
                continue
            traffic = traffic * (1 + (np.asarray(effect.traffic) - 1) * strength)
            rates = rates * (1 + (np.asarray(effect.factor) - 1) * strength)
            shift = shift + np.log(np.asarray(effect.latency)) * strength
            slow = slow + np.asarray(effect.slow) * strength
            if effect.instance is None:
                added = added + np.asarray(effect.added) * strength
            else:
                single.append((effect.instance, np.broadcast_to(effect.added, rates.shape) * strength))
        if math.isfinite(fleet.cell_shape):
            rates = rates * random.gamma(fleet.cell_shape, 1 / fleet.cell_shape, rates.shape)
        chances = np.clip(rates + added, 0.0, 1.0)[:, :, None]
        per_instance = np.broadcast_to((traffic / fleet.instances)[:, :, None], (*traffic.shape, fleet.instances))
        requests = random.poisson(per_instance)
        chances = np.broadcast_to(chances, requests.shape).copy()
        for index, extra in single:
            chances[:, :, index] = np.minimum(chances[:, :, index] + extra, 1.0)
        clumps = 3 * random.binomial(requests, np.minimum(fleet.clumped * chances / 3, 1.0)) if fleet.clumped else 0
        faults = np.minimum(random.binomial(requests, (1 - fleet.clumped) * chances) + clumps, requests)
        return SimulatedBin(at, requests, faults, self._draw_latencies(requests - faults, shift, slow))

    def _fluctuate(self) -> None:
        fleet, random = self.fleet, self.random
        self._common = 0.9 * self._common + math.sqrt(1 - 0.81) * fleet.common_noise * random.standard_normal(
            self._common.shape
        )
        self._zone = 0.5 * self._zone + math.sqrt(0.75) * fleet.zone_noise * random.standard_normal(len(self._zone))
        noise = math.sqrt(1 - 0.81)
        self._latency_common = (
            0.9 * self._latency_common + noise * fleet.latency_common_noise * random.standard_normal()
        )
        self._latency_zone = 0.5 * self._latency_zone + math.sqrt(
            0.75
        ) * fleet.latency_zone_noise * random.standard_normal(len(self._zone))

    def _draw_latencies(
        self, counts: "NDArray[np.int64]", shift: "NDArray[np.float64]", slow: "NDArray[np.float64] | float"
    ) -> "NDArray[np.int64]":
        fleet = self.fleet
        if not self.has_latency:
            return np.zeros((*counts.shape, 0), np.int64)
        if counts.sum() < 60 * counts.size and not np.any(slow) and not fleet.slow_share:
            return self._draw_each(counts, shift)
        chances = self._get_distribution(shift, 1.0)
        if fleet.slow_share:
            chances = (1 - fleet.slow_share) * chances + fleet.slow_share * self._get_distribution(
                shift, fleet.slow_factor
            )
        if np.any(slow):
            weight = np.broadcast_to(slow, shift.shape)[:, :, None]
            chances = (1 - weight) * chances + weight * self._get_distribution(shift, 10.0)
        chances = np.broadcast_to(chances[:, :, None, :], (*counts.shape, BUCKETS))
        return self.random.multinomial(counts, chances)

    def _draw_each(self, counts: "NDArray[np.int64]", shift: "NDArray[np.float64]") -> "NDArray[np.int64]":
        """Draw request by request: quicker than by bucket if there are few requests."""
        cells = np.repeat(np.arange(counts.size), counts.reshape(-1))
        rows, columns = np.divmod(cells // counts.shape[2], counts.shape[1])
        center = np.log(self.fleet.latency)[rows] + shift[rows, columns]
        logs = center + self.fleet.spread[rows] * self.random.standard_normal(len(cells))
        buckets = np.ceil(logs * (PER_DOUBLING / math.log(2))).astype(np.int64) - 1 - LOWEST_BUCKET
        flat = np.bincount(cells * BUCKETS + np.clip(buckets, 0, BUCKETS - 1), minlength=counts.size * BUCKETS)
        return flat.reshape(*counts.shape, BUCKETS)

    def _get_distribution(self, shift: "NDArray[np.float64]", factor: float) -> "NDArray[np.float64]":
        fleet = self.fleet
        center = (np.log(fleet.latency * factor)[:, None] + shift)[:, :, None]
        below = np.interp((_EDGES - center) / fleet.spread[:, None, None], _TABLE_X, _TABLE_Y)
        below[..., 0], below[..., -1] = 0.0, 1.0
        return np.diff(below, axis=-1)
