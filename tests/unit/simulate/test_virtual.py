"""Virtual time: processes run side by side in their order, and calls in it are those of the engine."""

import asyncio

from holdfast._errors import CallError, DeadlineExceeded
from holdfast._types import Operation
from holdfast.calls import Attempt, Backoff, Dependency, Jitter, Limit, Retry
from holdfast.calls.engine import Call
from holdfast.calls.runtime import Runtime
from holdfast.simulate.virtual import FailureProcess, Process, Timeline, VirtualClock, seeded_random, simulate_call

OPERATION = Operation("service", "call")


def test_sleeping_moves_the_clock_on_and_takes_no_time() -> None:
    clock = VirtualClock()
    clock.sleep(90.0)
    asyncio.run(clock.sleep_async(10.0))
    clock.sleep(-1.0)
    assert clock.monotonic() == clock.wall() == 100.0


def test_processes_run_in_the_order_of_their_times_and_those_of_one_moment_as_they_came() -> None:
    timeline, seen = Timeline(), list[tuple[str, float]]()

    def process(name: str, *waits: float) -> Process[None]:
        for wait in waits:
            seen.append((name, timeline.clock.now))
            yield wait
        seen.append((name, timeline.clock.now))

    timeline.start(1.0, process("first", 2.0))
    timeline.start(1.0, process("second", 1.0))
    timeline.start(0.0, process("early", 0.0, 2.5))
    timeline.run()
    assert seen == [
        ("early", 0.0),
        ("early", 0.0),  # waiting for nothing is not waiting
        ("first", 1.0),
        ("second", 1.0),
        ("second", 2.0),
        ("early", 2.5),
        ("first", 3.0),
    ]


def test_time_stops_before_what_happens_then() -> None:
    timeline, ticks = Timeline(), list[float]()

    def clockwork() -> Process[None]:
        while True:
            ticks.append(timeline.clock.now)
            yield 1.0

    timeline.start(0.0, clockwork())
    timeline.run(until=3.0)
    assert ticks == [0.0, 1.0, 2.0]
    timeline.run(until=5.0)
    assert ticks == [0.0, 1.0, 2.0, 3.0, 4.0]


def outcome(process: FailureProcess) -> tuple[Exception | None, list[float]]:
    waits = []
    while True:
        try:
            waits.append(next(process))
        except StopIteration as ended:
            return ended.value, waits


def test_a_call_makes_its_attempts_with_the_delays_of_its_policy() -> None:
    runtime = Runtime(VirtualClock(), lambda: 0.5)
    backoff = Backoff(base=1.0, cap=8.0, jitter=Jitter.NONE)
    dependency = Dependency("service", retry=Retry(max_attempts=4, backoff=backoff), runtime=runtime)
    errors = [ConnectionError("first"), ConnectionError("second"), None]

    def attempted(attempt: Attempt) -> FailureProcess:
        yield 0.25
        return errors[attempt.number - 1]

    call = Call(dependency._state, OPERATION, None, 0.0, idempotent=True)
    assert outcome(simulate_call(call, attempted)) == (None, [0.25, 1.0, 0.25, 2.0, 0.25])


def test_a_call_ends_with_the_failure_of_its_last_attempt() -> None:
    dependency = Dependency("service", retry=Retry(max_attempts=1), runtime=Runtime(VirtualClock(), lambda: 0.5))
    error = ConnectionError("only one")

    def attempted(_: Attempt) -> FailureProcess:
        return error
        yield

    assert outcome(simulate_call(Call(dependency._state, OPERATION, None, 0.0, idempotent=True), attempted)) == (
        error,
        [],
    )


def test_a_call_that_succeeds_after_its_deadline_has_failed() -> None:
    clock = VirtualClock()
    dependency = Dependency("service", runtime=Runtime(clock, lambda: 0.5))

    def attempted(_: Attempt) -> FailureProcess:
        clock.sleep(60.0)
        return None
        yield

    late, _ = outcome(simulate_call(Call(dependency._state, OPERATION, None, 0.0, idempotent=True), attempted))
    assert isinstance(late, DeadlineExceeded)


def test_a_call_that_is_refused_ends_with_the_refusal_and_leaves_room_for_others() -> None:
    dependency = Dependency("service", limit=Limit(1), runtime=Runtime(VirtualClock(), lambda: 0.5))

    def attempted(_: Attempt) -> FailureProcess:
        yield 1.0
        return None

    first = simulate_call(Call(dependency._state, OPERATION, None, 0.0, idempotent=True), attempted)
    assert next(first) == 1.0
    refused, _ = outcome(simulate_call(Call(dependency._state, OPERATION, None, 0.0, idempotent=True), attempted))
    assert isinstance(refused, CallError)
    assert outcome(first) == (None, [])
    assert outcome(simulate_call(Call(dependency._state, OPERATION, None, 0.0, idempotent=True), attempted)) == (
        None,
        [1.0],
    )


def test_chance_repeats_for_the_same_parts_and_only_for_them() -> None:
    assert seeded_random("a", 1).random() == seeded_random("a", 1).random()
    assert len({seeded_random(*parts).random() for parts in (("a", 1), ("a", 2), ("b", 1), ("a1",))}) == 4
