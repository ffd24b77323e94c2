"""Run probes regularly, and send their results to a sink."""

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import replace

from holdfast._clock import Clock, SystemClock
from holdfast._types import Outcome, Sink
from holdfast.calls.context import detached
from holdfast.calls.dependency import Dependency
from holdfast.calls.periodic import PeriodicSchedule, Ticker, host_name
from holdfast.calls.retry import Retry
from holdfast.calls.runtime import Runtime
from holdfast.calls.timeout import Timeouts
from holdfast.canary.checks import Checker, Tls
from holdfast.canary.probe import Probe, ProbeResult, ResultKind, build_outcome, judge_answer, judge_error

logger = logging.getLogger("holdfast.canary")

MAX_IN_FLIGHT = 200
"""Maximum probes at the same time, far below the usual limit of 1,024 open files. More wait; `lag` is how long."""
RANDOM_SHARE = 0.1
"""Share of the spread that is random. Without it, a problem that recurs with the interval could be missed forever."""
MIN_SPREAD = 0.001


def build_schedule(probe: Probe, host: str) -> PeriodicSchedule:
    """Return the times of a probe on this host.

    A probe begins early enough in each interval to end in it, even if it times out: then each bin of the server has
    exactly one result.
    """
    spread = max((probe.interval - probe.timeout) * (1 - RANDOM_SHARE), MIN_SPREAD)
    return PeriodicSchedule(probe.interval, f"canary {probe.name}", host=host, spread=spread)


class Canary:
    """Runs probes in an event loop, each at its own times. A probe that hangs or fails has no effect on the others.

    `sink` gets an outcome for each result, `results` the result itself. Each probe is one call with one attempt, so
    that no retry hides a failure. Zones that are out are probed, too. The calls emit no events: only the outcomes of
    side `canary` count.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        sink: Sink[Outcome],
        *,
        results: Sink[ProbeResult] | None = None,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        host: str | None = None,
    ) -> None:
        self._sink = sink
        self._results = results
        self._clock = clock or SystemClock()
        self._random = randomness or random.Random()  # noqa: S311 - no secret
        self._host = host_name() if host is None else host
        tls = Tls()
        runtime = Runtime(self._clock, self._random.random)
        self._runners = [_ProbeRunner(probe, tls, runtime) for probe in probes]
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def run(self) -> None:
        """Probe until the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for runner in self._runners:
                tasks.create_task(self._repeat(runner))

    async def run_once(self) -> list[ProbeResult]:
        """Make each probe once, now. Return the results in the order of the probes."""
        return await asyncio.gather(*(self._probe(runner, self._clock.wall()) for runner in self._runners))

    async def _repeat(self, runner: "_ProbeRunner") -> None:
        probe = runner.probe
        ticker = Ticker(build_schedule(probe, self._host), self._clock)
        while True:
            try:
                due = await ticker.wait_async()
                delay = self._random.uniform(0, (probe.interval - probe.timeout) * RANDOM_SHARE)
                await self._clock.sleep_async(delay)
                await self._probe(runner, due + delay)
            except Exception:
                logger.exception("cannot probe %s; trying again in %g s", probe.name, probe.interval)
                await self._clock.sleep_async(probe.interval)

    async def _probe(self, runner: "_ProbeRunner", due: float) -> ProbeResult:
        async with self._slots:
            lag = max(0.0, self._clock.wall() - due)
            result = replace(await runner.run(self._clock), lag=lag)
        outcome = build_outcome(result)
        if outcome is not None:
            self._sink.emit(outcome)
        if self._results is not None:
            self._results.emit(result)
        return result


class _ProbeRunner:
    """One probe with its state."""

    def __init__(self, probe: Probe, tls: Tls, runtime: Runtime) -> None:
        self.probe = probe
        self._checker = Checker(probe, tls)
        self._dependency = Dependency(
            f"canary {probe.name}",
            timeouts=Timeouts(connect=probe.timeout, attempt=probe.timeout, total=probe.timeout),
            retry=Retry(max_attempts=1),
            runtime=runtime,
        )
        self._last: tuple[ResultKind, int | None] | None = None

    async def run(self, clock: Clock) -> ProbeResult:
        probe, began = self.probe, clock.monotonic()
        try:
            with detached():  # a deadline around this must not look like a failure of the endpoint
                answer = await self._dependency.run_async(
                    self._checker.check, idempotent=False, operation=str(probe.operation)
                )
        except Exception as error:  # noqa: BLE001 - every error is a result
            at, seconds = clock.wall(), clock.monotonic() - began
            result = judge_error(probe, error, at=at, seconds=seconds, phase=self._checker.phase, wall=clock.wall)
        else:
            result = judge_answer(probe, answer, at=clock.wall(), seconds=clock.monotonic() - began)
        current = (result.kind, result.status)
        has_changed = result.kind is not ResultKind.PASSED if self._last is None else current != self._last
        self._last = current
        return replace(result, has_changed=has_changed)
