"""What a call through a Dependency costs, beside the bare call and beside the libraries that retry.

The function does nothing; what is measured is the CPU time of the thread, the loop around the calls included, for
everybody alike. `sync` and `async` calls succeed at once; a `retry` is a call that fails once with ConnectionError and
then succeeds, and nobody sleeps between the two. All do the same job, up to three attempts: `_call_peers.py` says how
each is set up, and whether it does the job is checked before anything is measured.

Holdfast does more meanwhile, as it does by default: it keeps a budget, records latencies and bounds the call, inside of
a deadline unless it says otherwise. Asynchronously each attempt has a timeout, which follows from the latencies, and
`asyncio.timeout` is what that stands beside; `no timeout` has none at all.

Last, once: what one dependency holds in memory after 100,000 calls, when as many latencies wait as may.
"""

import asyncio
import gc
import math
import statistics
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context
from functools import partial
from itertools import repeat
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

sys.path[0] = str(Path(__file__).parents[1])  # finds `benchmarks`, and no file of it instead of a standard module

from benchmarks import _call_peers as peers
from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main, paired_ratio
from holdfast.calls import Backoff, Dependency, Retry, Timeouts, deadline
from holdfast.calls.dependency import state_of
from holdfast.calls.runtime import PROCESS

Call = Callable[[], object]
AsyncCall = Callable[[], Awaitable[object]]

AROUND = 60.0
"""Seconds of the deadline around calls."""
TURN = 1000
"""Calls after which the event loop has a turn, as in a program: it clears away the timers that were called off."""
GROUPS = ("sync", "async", "retry", "async retry")
UNBOUNDED = Timeouts(attempt=None, total=None)
CALLS = 100_000

sleep = asyncio.sleep  # the real one, for turns of the event loop


def dependency(timeouts: Timeouts = Timeouts()) -> Dependency:  # noqa: B008 - frozen
    return Dependency(
        "peer", timeouts=timeouts, retry=Retry(max_attempts=peers.ATTEMPTS, backoff=Backoff(base=0, cap=0))
    )


def nothing() -> None:
    pass


async def nothing_async() -> None:
    pass


def failing_once() -> Call:
    """A function that fails at every other call."""
    failed = False

    def call() -> None:
        nonlocal failed
        failed = not failed
        if failed:
            raise ConnectionError

    return call


def failing_once_async() -> AsyncCall:
    failed = False

    async def call() -> None:
        nonlocal failed
        failed = not failed
        if failed:
            raise ConnectionError

    return call


def timed(function: AsyncCall) -> AsyncCall:
    async def call() -> object:
        async with asyncio.timeout(5.0):
            return await function()

    return call


def loop(function: Call, around: float | None, count: int) -> int:
    with nullcontext() if around is None else deadline(around):
        for _ in repeat(None, count):
            function()
    return count


async def loop_async(function: AsyncCall, around: float | None, count: int) -> int:
    with nullcontext() if around is None else deadline(around):
        for _ in repeat(None, count // TURN):
            for _ in repeat(None, TURN):
                await function()
            await sleep(0)
    return count // TURN * TURN


@contextmanager
def awaited(function: AsyncCall, around: float | None, *, sleepless: bool) -> Iterator[Work]:
    with asyncio.Runner() as runner, _sleepless(sleepless):
        # A context of its own, as in a program that is asynchronous throughout: setting a ContextVar takes longer in
        # one in which the synchronous calls before have left something.
        yield lambda count: runner.run(loop_async(function, around, count), context=Context())


@contextmanager
def called(function: Call, around: float | None, *, sleepless: bool) -> Iterator[Work]:
    with _sleepless(sleepless):
        yield partial(loop, function, around)


def _sleepless(sleepless: bool) -> AbstractContextManager[None]:
    return peers.without_sleeping() if sleepless else nullcontext()


def contenders(scale: int) -> Iterator[Contender]:
    """All of them; the numbers are calls in a round, so many that each has about the same share of the time."""
    whole = dependency().call(idempotent=True)
    alone = dependency().call(idempotent=True)
    unbounded = dependency(UNBOUNDED).call(idempotent=True)
    function: Call
    for name, function, around, count in (
        ("raw", nothing, None, 200_000),
        ("tenacity", peers.by_tenacity(nothing), None, 1000),
        ("stamina", peers.by_stamina(nothing), None, 1000),
        ("backoff", peers.by_backoff(nothing), None, 4000),
        ("pybreaker", peers.by_pybreaker(nothing), None, 6000),
        ("redress", peers.by_redress(nothing), None, 2000),
        ("holdfast", whole(nothing), AROUND, 20_000),
        ("holdfast, no deadline", alone(nothing), None, 20_000),
    ):
        yield Contender(f"sync: {name}", partial(called, function, around, sleepless=False), count * scale)
    for name, awaitable, around, count in (
        ("raw", nothing_async, None, 100_000),
        ("asyncio.timeout", timed(nothing_async), None, 3000),
        ("tenacity", peers.by_tenacity(nothing_async), None, 1000),
        ("stamina", peers.by_stamina(nothing_async), None, 1000),
        ("backoff", peers.by_backoff(nothing_async), None, 4000),
        ("redress", peers.by_redress(nothing_async), None, 2000),
        ("hyx", peers.by_hyx(nothing_async), None, 8000),
        ("holdfast", whole(nothing_async), AROUND, 8000),
        ("holdfast, no deadline", alone(nothing_async), None, 8000),
        ("holdfast, no timeout", unbounded(nothing_async), None, 15_000),
    ):
        yield Contender(f"async: {name}", partial(awaited, awaitable, around, sleepless=False), count * scale)
    for name, function, around, count in (
        ("raw", peers.by_hand(failing_once()), None, 20_000),
        ("tenacity", peers.by_tenacity(failing_once()), None, 1000),
        ("stamina", peers.by_stamina(failing_once()), None, 1000),
        ("backoff", peers.by_backoff(failing_once()), None, 2000),
        ("redress", peers.by_redress(failing_once()), None, 1000),
        ("holdfast", whole(failing_once()), AROUND, 2000),
    ):
        yield Contender(f"retry: {name}", partial(called, function, around, sleepless=True), count * scale)
    for name, awaitable, around, count in (
        ("raw", peers.by_hand_async(failing_once_async()), None, 15_000),
        ("tenacity", peers.by_tenacity(failing_once_async()), None, 1000),
        ("stamina", peers.by_stamina(failing_once_async()), None, 1000),
        ("backoff", peers.by_backoff(failing_once_async()), None, 2000),
        ("redress", peers.by_redress(failing_once_async()), None, 1000),
        ("hyx", peers.by_hyx(failing_once_async()), None, 5000),
        ("holdfast", whole(failing_once_async()), AROUND, 2000),
        ("holdfast, no timeout", unbounded(failing_once_async()), None, 2000),
    ):
        yield Contender(f"async retry: {name}", partial(awaited, awaitable, around, sleepless=True), count * scale)


def check_job() -> None:
    """Raise unless all of them make the same attempts."""
    decorate = dependency().call(idempotent=True)
    for one in (peers.by_hand, peers.by_tenacity, peers.by_stamina, peers.by_backoff, peers.by_redress, decorate):
        peers.check(one)
    for another in (
        *(peers.by_hand_async, peers.by_tenacity, peers.by_stamina, peers.by_backoff, peers.by_redress, peers.by_hyx),
        decorate,
    ):
        peers.check_async(another)


def weigh() -> tuple[int, int]:
    """Bytes of one dependency that was called often: those that were allocated and are there, those of its objects.

    Both are of one dependency with one synchronous and one asynchronous function, in one event loop.
    """
    with asyncio.Runner() as runner:
        warm = dependency().call(idempotent=True)
        loop(warm(nothing), None, 1)  # what is made once for all dependencies is not this one's
        runner.run(loop_async(warm(nothing_async), None, TURN))
        del warm
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            weighed = dependency()
            function = weighed.call(idempotent=True)(nothing)
            loop(function, AROUND, CALLS // 2)
            runner.run(loop_async(weighed.call(idempotent=True)(nothing_async), AROUND, CALLS // 2))
            state = state_of(weighed)
            state.learn_at = math.inf
            loop(function, AROUND, state.samples.maxlen or 0)
            assert len(state.samples) == state.samples.maxlen
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return after - before, size_of(weighed, {id(PROCESS), id(runner.get_loop())})


def size_of(whole: object, seen: set[int]) -> int:
    """Bytes of an object and of all that it refers to; classes, modules and functions are everybody's."""
    waiting, total = [whole], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        waiting.extend(gc.get_referents(one))
    return total


def comparison(results: Results) -> Iterator[str]:
    """Nanoseconds for each library and each kind of call, and how many times the bare one that is."""
    yield "".join((f"{'nanoseconds (x raw)':<24}", *(f"{group:>20}" for group in GROUPS)))
    names = dict.fromkeys(contender.partition(": ")[2] for contender in results.samples)
    for name in names:
        yield f"{name:<24}" + "".join(f"{_cell(results, group, name):>20}" for group in GROUPS)


def _cell(results: Results, group: str, name: str) -> str:
    key = f"{group}: {name}"
    if key not in results.samples:
        return ""
    times = paired_ratio(results.seconds(key), results.seconds(f"{group}: raw"))
    return f"{statistics.median(results.seconds(key)) * 1e9:,.0f} ({times:.1f})"


def goals(results: Results) -> Sequence[Goal]:
    for line in comparison(results):
        print(line)
    print()
    allocated, held = weigh()
    print(f"memory of a dependency: {allocated:,} bytes allocated, {held:,} in objects")

    def ratio(name: str, base: str) -> float:
        return paired_ratio(results.seconds(name), results.seconds(base))

    return [
        Goal("sync, times the raw call", ratio("sync: holdfast", "sync: raw"), 20.0, "lower"),
        Goal("sync, share of tenacity", ratio("sync: holdfast", "sync: tenacity"), 1 / 25, "lower"),
        Goal("async, times the raw call", ratio("async: holdfast, no timeout", "async: raw"), 8.0, "lower"),
        Goal(
            "async with a timeout, share of asyncio.timeout",
            ratio("async: holdfast, no deadline", "async: asyncio.timeout"),  # one timeout against one timeout
            1 / 3,
            "lower",
        ),
        Goal("one retry, share of tenacity", ratio("retry: holdfast", "retry: tenacity"), 1 / 5, "lower"),
        Goal(
            "one async retry, share of tenacity",
            ratio("async retry: holdfast", "async retry: tenacity"),
            1 / 5,
            "lower",
        ),
        Goal("memory of a dependency, bytes", max(allocated, held), 64 * 1024, "lower"),
    ]


def build(quick: bool) -> Benchmark:
    check_job()
    return Benchmark(
        contenders=list(contenders(1 if quick else 2)),
        goals=goals,
        rounds=9 if quick else 41,  # short and many: a round that another program disturbed is one of many
        show="seconds",
        timer=time.thread_time,
    )


if __name__ == "__main__":
    sys.exit(main("calls", build))
