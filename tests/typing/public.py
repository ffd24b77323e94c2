"""The shapes that users of the package may rely on. Nothing runs here: the type checker reads it."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, assert_type

import holdfast
from holdfast import (
    Carrier,
    Clock,
    Conflict,
    DatabaseLocked,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    MissingExtra,
    Operation,
    Outcome,
    RequestDetail,
    Side,
    Sink,
    StatusStore,
    SystemClock,
    Tenant,
    Verdict,
    VerdictKind,
    Zone,
    ZoneState,
    ZoneStatus,
    ZoneView,
)
from holdfast.calls import Attempt, Dependency, Endpoint, Endpoints, current_attempt, deadline, remaining
from holdfast.detect import Detector
from holdfast.engines import Migration
from holdfast.engines.aws import FoundZone, ZoneFinder, ZoneOptions, ZoneSource, find_zone
from holdfast.telemetry import Window
from holdfast.telemetry.meter import MeasuredBlock, Meter
from holdfast.testing import FakeClock, seeded

assert_type(holdfast.__version__, str)


async def clocks_take_each_others_place(system: SystemClock, fake: FakeClock) -> None:
    either: list[Clock] = [system, fake]
    for clock in either:
        assert_type(clock.wall(), float)
        assert_type(clock.monotonic(), float)
        block: Callable[[float], None] = clock.sleep
        suspend: Callable[[float], Coroutine[Any, Any, None]] = clock.sleep_async
        block(1)
        await suspend(0.5)


async def a_fake_clock_is_in_the_hands_of_the_test() -> None:
    clock = FakeClock(wall=0, monotonic=0, manual=True)
    assert_type(clock.sleeps, list[float])
    assert_type(clock.sleepers, int)
    steer: list[Callable[[float], None]] = [clock.advance, clock.jump_wall]
    wait: Callable[[int], None] = clock.wait_for_sleepers
    wait_async: Callable[[int], Coroutine[Any, Any, None]] = clock.wait_for_sleepers_async
    steer[0](1)
    wait(1)
    await wait_async(1)


def chance_is_made_of_plain_parts() -> None:
    assert_type(seeded("a", 1, 0.5, None), Random)


def tenants_and_zones_are_text() -> None:
    tenant, zone = Tenant("tenant-1"), Zone("use1-az1")
    assert_type(tenant, Tenant)
    assert_type(zone, Zone)
    texts: list[str] = [tenant, zone]
    texts.sort()


def values_have_these_fields(
    operation: Operation, carrier: Carrier, outcome: Outcome, status: ZoneStatus, verdict: Verdict
) -> None:
    assert_type((operation.service, operation.name, str(operation)), tuple[str, str, str])
    assert_type((carrier.trace, carrier.remaining, carrier.retry_owner), tuple[str | None, float | None, str | None])

    assert_type((outcome.workload, outcome.operation, outcome.zone), tuple[str, Operation, Zone])
    assert_type((outcome.instance, outcome.at, outcome.side, outcome.is_ignored), tuple[str, float, Side, bool])
    assert_type((outcome.count_2xx, outcome.count_3xx), tuple[int, int])
    assert_type((outcome.count_4xx, outcome.count_5xx), tuple[int, int])
    assert_type((outcome.success_seconds, outcome.fault_seconds), tuple[Sequence[float], Sequence[float]])
    assert_type(outcome.detail, RequestDetail | None)

    assert_type((status.zone, status.workload, status.state), tuple[Zone, str | None, ZoneState])
    assert_type((status.since, status.by, status.reason), tuple[float, str, str])
    assert_type((status.expires, status.version, status.is_out(0)), tuple[float | None, int, bool])

    assert_type((verdict.id, verdict.workload, verdict.kind), tuple[str, str, VerdictKind])
    assert_type((verdict.zone, verdict.since, verdict.at), tuple[Zone | None, float, float])
    assert_type(verdict.evidence, Mapping[str, Any])


class Everything:
    """Takes whatever is emitted, and so may stand wherever a sink of one kind of event is wanted."""

    def emit(self, event: object) -> None: ...


def a_sink_of_everything_takes_outcomes(everything: Everything) -> None:
    sink: Sink[Outcome] = everything
    sink.emit(
        Outcome(workload="w", operation=Operation("s", "n"), zone=Zone("z"), instance="i", at=0, side=Side.SERVER)
    )


async def a_measured_function_keeps_its_signature(meter: Meter) -> None:
    @meter.measured("Load", client_errors=(KeyError, ValueError))
    def load(name: str, *, limit: int = 10) -> list[str]:
        return [name] * limit

    @meter.measured(Operation("Orders", "Save"), client_errors=lambda error: "caller" in str(error))
    async def save(name: str) -> int:
        return len(name)

    class Orders:
        @meter.measured()
        def count(self, since: float) -> int:
            return int(since)

    assert_type(load("a", limit=2), list[str])
    saving: Callable[[str], Coroutine[Any, Any, int]] = save
    assert_type(await saving("a"), int)
    assert_type(Orders().count(1.5), int)
    with meter.measure("Import") as block:
        assert_type(block, MeasuredBlock)
        block.status = 429


def protocols_have_these_answers(view: ZoneView, store: StatusStore, detector: Detector[int]) -> None:
    assert_type(view.zones_out(), frozenset[Zone])
    assert_type(view.zones_out("shop"), frozenset[Zone])
    assert_type(store.read(), Sequence[ZoneStatus])
    assert_type(store.write(store.read()[0], expected=0), ZoneStatus)
    window = Window(workload="shop", start=0.0, seconds=10.0, zones=(Zone("use1-az1"),))
    assert_type(detector.step(1, window), tuple[int, Verdict])


def errors_are_caught_by_what_the_caller_would_do(
    locked: DatabaseLocked, invalid: InvalidValue, missing: MissingExtra, conflict: Conflict
) -> None:
    unavailable: EngineUnavailable = locked
    value: ValueError = invalid
    importing: ImportError = missing
    root: list[HoldfastError] = [unavailable, invalid, missing, conflict]
    assert_type(root[0].slug, str)
    assert_type((value.args, importing.name), tuple[tuple[Any, ...], str | None])


def a_migration_is_numbered_statements(step: Migration) -> None:
    assert_type((step.number, step.name, step.statements, step.fingerprint), tuple[int, str, tuple[str, ...], str])


async def a_decorated_function_keeps_its_signature(pricing: Dependency) -> None:
    @pricing.call(idempotent=True)
    def price(sku: str, *, currency: str = "EUR") -> float:
        return len(sku) / len(currency)

    @pricing.call(idempotent=False, operation="create")
    async def create(item: int) -> bytes:
        return bytes(item)

    assert_type(price("a", currency="b"), float)
    awaited: Coroutine[Any, Any, bytes] = create(1)
    assert_type(await awaited, bytes)
    assert_type(pricing.run(int, "7", idempotent=True), int)
    assert_type(await pricing.run_async(create, 7, idempotent=True), bytes)
    for attempt in pricing.attempts(idempotent=True):
        with attempt as same:
            assert_type(same.timeout, float)
            assert_type(attempt.idempotency_key, str)
    async for attempt in pricing.attempts(idempotent=True):
        with attempt:
            assert_type(attempt.number, int)


def what_surrounds_a_call_is_typed(endpoints: Endpoints) -> None:
    with deadline(1.5) as bound:
        assert_type(bound.remaining(), float)
    assert_type(remaining(), float | None)
    assert_type(current_attempt(), Attempt)
    assert_type(endpoints.next(), Endpoint)
    zone, address = endpoints.next()
    assert_type(zone, Zone)
    assert_type(address, str)


def zone_of_this_process() -> None:
    found = ZoneFinder(ZoneOptions(zone="use1-az1")).find()
    assert_type(found, FoundZone)
    assert_type(found.source, ZoneSource)
    assert_type(find_zone(), Zone)
    find_zone("use1-az1")  # type: ignore[arg-type]
