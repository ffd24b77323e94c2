"""Dependencies in threads and in forked processes."""

import asyncio
import functools
import os
import threading

from holdfast._errors import AttemptTimedOut
from holdfast.calls import Backoff, Dependency, Limit, Retry, RetryBudget, Timeouts
from tests.unit.forked import in_child


def test_a_lock_that_another_thread_holds_at_the_fork_does_not_stop_the_child() -> None:
    dependency = Dependency("pricing", retry=Retry(backoff=Backoff(base=0, cap=0)), limit=Limit(5))
    failures = [ConnectionResetError()]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        state = dependency._state
        with state.bucket._lock, state.in_flight._lock, state._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def work() -> bool:
        def flaky() -> str:
            if failures:
                raise failures.pop()
            return "done"

        return dependency.run(flaky, idempotent=True) == "done" and dependency.latency(50) is not None

    try:
        in_child(work)
    finally:
        done.set()
        thread.join()


def test_a_child_that_is_forked_in_an_event_loop_has_timers_of_its_own() -> None:
    dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=Timeouts(attempt=0.05))

    async def hang() -> bool:
        dependency._state.timeout = 0.05
        try:
            await dependency.run_async(asyncio.Event().wait, idempotent=True)
        except AttemptTimedOut:
            return True
        return False

    def work() -> bool:
        asyncio.events._set_running_loop(None)  # as `ProcessPoolExecutor` and others do in their children
        return asyncio.run(asyncio.wait_for(hang(), 10))

    async def main() -> None:
        async def answer() -> None:
            in_child(work)

        await dependency.run_async(answer, idempotent=True)

    dependency._state.timeout = 30.0
    asyncio.run(main())


def test_calls_of_the_parent_take_no_place_in_the_child() -> None:
    dependency = Dependency("pricing", limit=Limit(1))

    @dependency.call(idempotent=True)
    def forks_inside() -> None:
        in_child(lambda: dependency.run(lambda: True, idempotent=True))

    forks_inside()
    assert dependency.in_flight == 0


def test_children_of_one_parent_do_not_jitter_alike() -> None:
    reads, writes = zip(*[os.pipe() for _ in range(3)], strict=True)

    def draw(pipe: int) -> bool:
        delay = Backoff(base=1, cap=1).delay(1, 0, Dependency("pricing")._state.runtime.chance)
        return os.write(pipe, repr(delay).encode()) > 0

    for pipe in writes:
        in_child(functools.partial(draw, pipe))
        os.close(pipe)
    drawn = [os.read(pipe, 100) for pipe in reads]
    for pipe in reads:
        os.close(pipe)
    assert len(set(drawn)) == 3


def test_threads_count_every_call_once() -> None:
    dependency = Dependency(
        "pricing",
        retry=Retry(max_attempts=1000, backoff=Backoff(base=0, cap=0)),
        budget=RetryBudget(capacity=1e9),
        limit=Limit(64),
    )
    calls, lock, results = [0], threading.Lock(), []

    @dependency.call(idempotent=True)
    def sometimes() -> int:
        with lock:
            calls[0] += 1
            number = calls[0]
        if number % 7 == 0:
            raise ConnectionResetError
        return number

    def work() -> None:
        results.extend([sometimes() for _ in range(300)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(set(results)) == 2400
    assert dependency.in_flight == 0
    assert dependency.tokens == 1e9
