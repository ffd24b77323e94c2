"""A canary probes at its own times: once in every bin, whatever other probes do."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Operation, Outcome, Zone
from holdfast.canary import Canary, Probe, ProbeResult, PythonCheck, ResultKind
from holdfast.canary import canary as module
from holdfast.canary.canary import RANDOM_SHARE, build_schedule
from holdfast.telemetry import BIN_SECONDS
from holdfast.testing import FakeClock, seeded

START = 1_750_000_000.0
"""The start of a bin, as the fake clock begins."""


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.results: list[ProbeResult] = []

    def emit(self, event: Outcome | ProbeResult) -> None:
        if isinstance(event, Outcome):
            self.outcomes.append(event)
        else:
            self.results.append(event)


def make_probe(name: str = "Index", function: Callable[[str], object] = bool, **times: float) -> Probe:
    return Probe(
        workload="shop",
        operation=Operation("Home", name),
        zone=Zone("use1-az1"),
        address="x",
        check=PythonCheck(function),
        **times,
    )


def run_for(canary: Canary, clock: FakeClock, probes: int, seconds: int) -> None:
    """Let a canary run on a manual clock, in steps of half a second."""

    async def run() -> None:
        running = asyncio.create_task(canary.run())
        for _ in range(2 * seconds):
            await clock.wait_for_sleepers_async(probes)  # every probe has ended, and waits for its next time
            clock.advance(0.5)
        await clock.wait_for_sleepers_async(probes)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_every_bin_has_exactly_one_result_of_each_probe() -> None:
    clock, kept = FakeClock(manual=True), Kept()
    probes = [make_probe(name) for name in ("Index", "Search", "Cart")]
    canary = Canary(probes, kept, results=kept, clock=clock, randomness=seeded("canary"), host="host-1")
    run_for(canary, clock, len(probes), 60)
    counts = Counter((outcome.operation.name, outcome.at // BIN_SECONDS) for outcome in kept.outcomes)
    bins = [(START + 10 * number) // BIN_SECONDS for number in range(1, 6)]
    assert [counts[name, number] for name in ("Index", "Search", "Cart") for number in bins] == [1] * 15


@given(host=st.text(max_size=20), interval=st.floats(1, 3600), share=st.floats(0.001, 0.999))
def test_a_probe_that_times_out_ends_in_the_interval_in_which_it_began(
    host: str, interval: float, share: float
) -> None:
    probe = make_probe(interval=interval, timeout=interval * share)
    latest = build_schedule(probe, host).offset + (probe.interval - probe.timeout) * RANDOM_SHARE + probe.timeout
    assert latest < interval + 0.002


def test_hosts_and_operations_are_spread_over_the_interval() -> None:
    offsets = {build_schedule(make_probe(name), host).offset for name in "abcdefgh" for host in ("h1", "h2", "h3")}
    assert len(offsets) == 24
    assert min(offsets) < 1
    assert 3.5 < max(offsets) < 4.5
    assert build_schedule(make_probe("a"), "h1") == build_schedule(make_probe("a"), "h1")


def test_a_sink_that_raises_ends_no_probe(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        calls = 0

        def emit(self, _: Outcome) -> None:
            self.calls += 1
            raise RuntimeError("broken")

    clock, sink = FakeClock(manual=True), Broken()
    canary = Canary([make_probe()], sink, clock=clock, host="host-1")
    with caplog.at_level(logging.ERROR, "holdfast.canary"):
        run_for(canary, clock, 1, 60)
    assert sink.calls > 1
    assert "cannot probe shop Home/Index in use1-az1; trying again in 10 s" in caplog.text


def test_a_result_tells_whether_it_differs_from_the_one_before() -> None:
    kinds = iter([True, False, False, True])
    clock, kept = FakeClock(), Kept()
    canary = Canary([make_probe(function=lambda _: next(kinds))], kept, results=kept, clock=clock)
    for _ in range(4):
        asyncio.run(canary.run_once())
    assert [(result.kind, result.has_changed) for result in kept.results] == [
        (ResultKind.PASSED, False),
        (ResultKind.FAILED, True),
        (ResultKind.FAILED, False),
        (ResultKind.PASSED, True),
    ]


def test_more_probes_than_the_limit_wait_for_their_turn_and_their_lag_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 2)
    clock, kept = FakeClock(), Kept()

    def check(_: str) -> None:
        clock.sleep(1.0)

    canary = Canary([make_probe(str(number), check) for number in range(6)], kept, results=kept, clock=clock)
    asyncio.run(canary.run_once())
    assert sorted(result.lag > 0 for result in kept.results)[-4:] == [True] * 4
    assert [result.kind for result in kept.results] == [ResultKind.PASSED] * 6
