"""Work that is no HTTP request, measured by zone."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import InvalidValue, Operation, Outcome, RequestDetail, Side, Zone
from holdfast.calls import deadline
from holdfast.calls.context import SCOPE
from holdfast.calls.runtime import Runtime
from holdfast.calls.scope import IncomingScope
from holdfast.telemetry.meter import Meter
from holdfast.testing import FakeClock
from tests.table import every_row

HERE = Zone("use1-az1")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def emit(self, event: Outcome) -> None:
        self.outcomes.append(event)

    @property
    def statuses(self) -> list[int]:
        return [outcome.detail.status for outcome in self.outcomes if outcome.detail is not None]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runtime(clock: FakeClock) -> Runtime:
    return Runtime(clock, lambda: 0.5)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def meter(kept: Kept, runtime: Runtime) -> Meter:
    return Meter("shop", zone=HERE, sink=kept, instance="i-1", runtime=runtime)


def test_a_call_is_reported_with_its_latency_and_its_result_is_returned(
    meter: Meter, kept: Kept, clock: FakeClock
) -> None:
    @meter.measured("Import")
    def work(first: int, *, second: int = 0) -> int:
        """Add."""
        clock.advance(0.25)
        return first + second

    assert work(1, second=2) == 3
    assert (work.__name__, work.__doc__) == ("work", "Add.")
    assert kept.outcomes == [
        Outcome(
            workload="shop",
            operation=Operation("shop", "Import"),
            zone=HERE,
            instance="i-1",
            at=clock.wall(),
            side=Side.SERVER,
            count_2xx=1,
            success_seconds=(0.25,),
            detail=RequestDetail(status=200),
        )
    ]


def test_a_coroutine_is_measured_until_it_ends(meter: Meter, kept: Kept, clock: FakeClock) -> None:
    @meter.measured(Operation("Orders", "Import"))
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        clock.advance(0.5)
        return number

    pending = work(7)
    assert kept.outcomes == []
    assert asyncio.run(pending) == 7
    [outcome] = kept.outcomes
    assert (outcome.operation, outcome.success_seconds) == (Operation("Orders", "Import"), (0.5,))


def test_an_object_with_an_asynchronous_call_is_measured_until_it_ends(
    meter: Meter, kept: Kept, clock: FakeClock
) -> None:
    class Handler:
        async def __call__(self) -> None:
            clock.advance(0.5)

    handle = meter.measured()(Handler())
    asyncio.run(handle())
    [outcome] = kept.outcomes
    assert (outcome.operation, outcome.success_seconds) == (Operation("shop", "Handler"), (0.5,))


def test_the_operation_is_the_functions_name_unless_told(meter: Meter, kept: Kept) -> None:
    class Orders:
        @meter.measured()
        def load(self) -> str:
            return "loaded"

    assert Orders().load() == "loaded"
    meter.measured()(functools.partial(int, "7"))()
    named = [outcome.operation.name.rpartition(">.")[2] for outcome in kept.outcomes]
    assert named == ["Orders.load", "partial"]


class Invalid(Exception):
    pass


def blame(error: Exception) -> bool:
    return "caller" in str(error)


def raise_in_predicate(error: Exception) -> bool:
    raise KeyError("a mistake in the predicate")


def test_an_exception_is_a_fault_unless_the_caller_caused_it(meter: Meter, kept: Kept) -> None:
    rows: list[tuple[Any, BaseException, int]] = [
        ((), ValueError(), 500),
        (Invalid, Invalid(), 400),
        ((KeyError, Invalid), Invalid(), 400),
        ((KeyError, Invalid), ValueError(), 500),
        (blame, ValueError("the caller's"), 400),
        (blame, ValueError("ours"), 500),
        (raise_in_predicate, ValueError(), 500),
        (Exception, asyncio.CancelledError(), 499),
        ((), KeyboardInterrupt(), 499),
    ]

    def check(row: tuple[Any, BaseException, int]) -> None:
        client_errors, error, status = row
        kept.outcomes.clear()

        @meter.measured("Import", client_errors=client_errors)
        def work() -> None:
            raise error

        @meter.measured("Import", client_errors=client_errors)
        async def work_async() -> None:
            raise error

        def drive() -> None:
            with pytest.raises(StopIteration):
                work_async().send(None)

        for call in (work, drive):
            with pytest.raises(type(error)) as caught:
                call()
            assert caught.value is error
        assert kept.statuses == [status, status]
        assert [bool(outcome.fault_seconds) for outcome in kept.outcomes] == [status >= 500] * 2

    every_row(rows, check)


def test_a_block_reports_the_status_that_it_sets(meter: Meter, kept: Kept) -> None:
    rows: list[tuple[int | None, Exception | None, int]] = [
        (None, None, 200),
        (429, None, 429),
        (302, None, 302),
        (429, ValueError(), 429),
        (503, ValueError(), 503),
        (200, ValueError(), 500),
    ]

    def check(row: tuple[int | None, Exception | None, int]) -> None:
        status, error, reported = row
        kept.outcomes.clear()
        with suppress(ValueError), meter.measure("Import") as block:
            block.status = status
            if error is not None:
                raise error
        assert kept.statuses == [reported]

    every_row(rows, check)


def test_a_block_can_add_details_for_the_log(meter: Meter, kept: Kept) -> None:
    with meter.measure("Import") as block:
        block.path, block.source_ip, block.is_cache_refresh = "/orders", "203.0.113.7", True
    [outcome] = kept.outcomes
    assert outcome.detail == RequestDetail(status=200, path="/orders", source_ip="203.0.113.7", is_cache_refresh=True)


def test_work_inside_a_request_has_its_trace(meter: Meter, kept: Kept) -> None:
    token = SCOPE.set(IncomingScope(1e9, None, None, TRACE))
    try:
        with meter.measure("Import"):
            pass
    finally:
        SCOPE.reset(token)
    [outcome] = kept.outcomes
    assert outcome.detail == RequestDetail(status=200, trace="0af7651916cd43dd8448eb211c80319c")


@pytest.mark.parametrize(("seconds", "status"), [(0.5, 499), (1.0, 504)])
def test_work_that_is_cancelled_is_a_fault_only_after_its_deadline(
    meter: Meter, kept: Kept, clock: FakeClock, runtime: Runtime, seconds: float, status: int
) -> None:
    with suppress(asyncio.CancelledError), deadline(1.0, runtime=runtime), meter.measure("Import"):
        clock.advance(seconds)
        raise asyncio.CancelledError
    assert kept.statuses == [status]


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generate, generate_async])
def test_a_generator_is_refused_because_a_call_only_creates_it(meter: Meter, function: Callable[[], Any]) -> None:
    with pytest.raises(InvalidValue, match="is a generator"):
        meter.measured()(function)


def test_a_decorator_without_parentheses_or_of_a_class_is_refused(meter: Meter) -> None:
    with pytest.raises(InvalidValue, match=r"write @meter.measured\(\), with parentheses"):
        meter.measured(generate)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="is a class: decorate its methods"):
        meter.measured()(Kept)


def test_a_block_is_entered_once(meter: Meter) -> None:
    block = meter.measure("Import")
    with block:
        pass
    with pytest.raises(InvalidValue, match="make a new one"), block:
        pass


def test_a_sink_that_raises_reaches_nobody(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, event: Outcome) -> None:
            raise OSError("no space left on device")

    meter = Meter("shop", zone=HERE, sink=Broken(), runtime=runtime)
    for _ in range(3):
        with meter.measure("Import"):
            pass
    assert meter.dropped_outcomes == 3
    [record] = caplog.records
    assert "further ones are only counted" in record.getMessage()


@pytest.mark.parametrize(("workload", "zone"), [("a b", "use1-az1"), ("shop", "us-east-1a")])
def test_a_workload_or_a_zone_that_can_be_none_is_refused(workload: str, zone: str, kept: Kept) -> None:
    with pytest.raises(InvalidValue):
        Meter(workload, zone=Zone(zone), sink=kept)


def test_an_instance_is_the_host_unless_told_and_the_side_can_be_the_clients(
    kept: Kept, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOST", "node-7")
    with Meter("shop", zone=HERE, sink=kept, side=Side.CLIENT, runtime=runtime).measure("Import"):
        pass
    [outcome] = kept.outcomes
    assert (outcome.instance, outcome.side) == ("node-7", Side.CLIENT)
