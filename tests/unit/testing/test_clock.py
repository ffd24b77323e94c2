import asyncio
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Tenant
from holdfast.testing import FakeClock, seeded
from tests.table import rows

Run = Callable[[Callable[[], object]], Future[object]]

seconds = st.floats(min_value=0, max_value=1e6)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def manual() -> FakeClock:
    return FakeClock(manual=True)


@pytest.fixture
def run(manual: FakeClock) -> Iterator[Run]:
    """Run a function in a thread; threads that a failed test left parked are woken at the end."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit
        manual.advance(1e9)


def slept(clock: FakeClock, asked: float) -> Callable[[], float]:
    """A function that sleeps and returns the time that it wakes up to."""

    def work() -> float:
        clock.sleep(asked)
        return clock.monotonic()

    return work


def test_time_stands_still_by_itself(clock: FakeClock) -> None:
    assert (clock.wall(), clock.monotonic()) == (clock.wall(), clock.monotonic())


def test_both_times_start_where_the_test_says() -> None:
    clock = FakeClock(wall=5.0, monotonic=7.0)
    assert (clock.wall(), clock.monotonic()) == (5.0, 7.0)


def test_wall_and_monotonic_time_cannot_be_taken_for_one_another(clock: FakeClock) -> None:
    assert clock.wall() != clock.monotonic()


@given(st.lists(seconds))
def test_a_sleep_returns_at_once_and_moves_both_times_on(asked: list[float]) -> None:
    clock = FakeClock()
    for one in asked:
        wall, monotonic = clock.wall(), clock.monotonic()
        clock.sleep(one)
        assert (clock.wall(), clock.monotonic()) == (wall + one, monotonic + one)
    assert clock.sleeps == asked


@given(seconds.filter(bool), seconds.filter(bool))
def test_whoever_sleeps_until_a_deadline_has_reached_it(before: float, wait: float) -> None:
    clock = FakeClock()
    clock.sleep(before)
    deadline = clock.monotonic() + wait
    clock.sleep(deadline - clock.monotonic())
    assert clock.monotonic() >= deadline


def test_an_async_sleep_moves_both_times_on_and_is_recorded_too(clock: FakeClock) -> None:
    wall, monotonic = clock.wall(), clock.monotonic()
    asyncio.run(clock.sleep_async(2.5))
    assert (clock.wall(), clock.monotonic()) == (wall + 2.5, monotonic + 2.5)
    assert clock.sleeps == [2.5]


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("asked", [0.0, -1.0, math.nan])
def test_a_sleep_of_nothing_does_not_block_or_move_time_but_is_recorded(manual: bool, asked: float) -> None:
    clock = FakeClock(manual=manual)
    before = clock.monotonic()
    clock.sleep(asked)
    asyncio.run(clock.sleep_async(asked))
    assert clock.monotonic() == before
    assert clock.sleeps == pytest.approx([asked, asked], nan_ok=True)


@pytest.mark.parametrize("asked", [0.0, 1.0])
def test_an_async_sleep_lets_other_tasks_run(clock: FakeClock, asked: float) -> None:
    async def scene() -> list[str]:
        order: list[str] = []

        async def take_turns(name: str) -> None:
            for _ in range(2):
                order.append(name)
                await clock.sleep_async(asked)

        await asyncio.gather(take_turns("a"), take_turns("b"))
        return order

    assert asyncio.run(scene()) == ["a", "b", "a", "b"]


def test_sleeps_of_several_threads_add_up(clock: FakeClock) -> None:
    start = clock.monotonic()

    def work() -> None:
        for _ in range(500):
            clock.sleep(0.5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.monotonic() == start + 1000
    assert clock.sleeps == [0.5] * 2000


def test_the_test_can_advance_a_clock_that_is_not_manual(clock: FakeClock) -> None:
    wall, monotonic = clock.wall(), clock.monotonic()
    clock.advance(60)
    assert (clock.wall(), clock.monotonic()) == (wall + 60, monotonic + 60)
    assert clock.sleeps == []


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_a_jump_of_the_wall_clock_leaves_the_monotonic_one_alone(clock: FakeClock, by: float) -> None:
    wall, monotonic = clock.wall(), clock.monotonic()
    clock.jump_wall(by)
    assert (clock.wall(), clock.monotonic()) == (wall + by, monotonic)


@pytest.mark.parametrize("by", [-0.1, -math.inf, math.inf, math.nan])
def test_time_only_advances(clock: FakeClock, by: float) -> None:
    before = clock.monotonic()
    with pytest.raises(InvalidValue, match="cannot advance by"):
        clock.advance(by)
    assert clock.monotonic() == before


@pytest.mark.parametrize("by", [-math.inf, math.inf, math.nan])
def test_the_wall_clock_jumps_by_a_finite_time(clock: FakeClock, by: float) -> None:
    with pytest.raises(InvalidValue, match="cannot move the wall clock by"):
        clock.jump_wall(by)


def test_a_parked_thread_wakes_up_at_its_time_and_not_before(manual: FakeClock, run: Run) -> None:
    start = manual.monotonic()
    sleeper = run(slept(manual, 10))
    manual.wait_for_sleepers(1)
    manual.advance(9.5)
    assert manual.sleepers == 1
    manual.advance(0.5)
    assert manual.sleepers == 0
    assert sleeper.result() == start + 10
    assert manual.sleeps == [10]


def test_a_parked_sleeper_does_not_move_time(manual: FakeClock, run: Run) -> None:
    before = manual.wall(), manual.monotonic()
    run(slept(manual, 10))
    manual.wait_for_sleepers(1)
    assert (manual.wall(), manual.monotonic()) == before


def test_a_jump_of_the_wall_clock_wakes_nobody(manual: FakeClock, run: Run) -> None:
    run(slept(manual, 10))
    manual.wait_for_sleepers(1)
    manual.jump_wall(3600)
    assert manual.sleepers == 1


def test_small_steps_reach_what_one_large_step_reaches(manual: FakeClock, run: Run) -> None:
    """0.1 added eight times is less than 0.8 in floating point; nobody who writes a test means that."""
    deadline = manual.monotonic() + 0.8
    sleeper = run(slept(manual, 0.8))
    manual.wait_for_sleepers(1)
    for _ in range(8):
        manual.advance(0.1)
    assert manual.sleepers == 0
    assert sleeper.result() == pytest.approx(deadline, abs=1e-9)
    assert manual.monotonic() >= deadline


def test_tasks_wake_up_in_the_order_of_their_due_times(manual: FakeClock) -> None:
    async def scene() -> list[tuple[float, float]]:
        woken: list[tuple[float, float]] = []

        async def work(asked: float) -> None:
            await manual.sleep_async(asked)
            woken.append((asked, manual.monotonic()))

        async with asyncio.TaskGroup() as group:
            for asked in (3, 1, 4, 2):
                group.create_task(work(asked))
            await manual.wait_for_sleepers_async(4)
            manual.advance(3)
            await manual.wait_for_sleepers_async(1)
            manual.advance(1)
        return woken

    start = manual.monotonic()
    assert asyncio.run(scene()) == [(1, start + 3), (2, start + 3), (3, start + 3), (4, start + 4)]


def test_tasks_that_are_due_together_wake_up_in_the_order_in_which_they_fell_asleep(manual: FakeClock) -> None:
    async def scene() -> list[str]:
        woken: list[str] = []

        async def work(name: str) -> None:
            await manual.sleep_async(1)
            woken.append(name)

        async with asyncio.TaskGroup() as group:
            for name in "cab":
                group.create_task(work(name))
            await manual.wait_for_sleepers_async(3)
            manual.advance(1)
        return woken

    assert asyncio.run(scene()) == ["c", "a", "b"]


def test_threads_are_woken_in_the_order_of_their_due_times(manual: FakeClock, run: Run) -> None:
    late, soon, middle = (run(slept(manual, asked)) for asked in (3, 1, 2))
    manual.wait_for_sleepers(3)
    start = manual.monotonic()
    for number, sleeper in enumerate((soon, middle, late), start=1):
        manual.advance(1)
        assert sleeper.result() == start + number
        assert manual.sleepers == 3 - number


def test_every_sleeper_sees_its_due_time_or_later(manual: FakeClock, run: Run) -> None:
    start = manual.monotonic()
    asked = [0.1 * number for number in range(1, 7)]
    sleepers = [run(slept(manual, one)) for one in asked]
    manual.wait_for_sleepers(len(asked))
    while manual.sleepers:
        manual.advance(0.25)
    for one, sleeper in zip(asked, sleepers, strict=True):
        seen = sleeper.result()
        assert isinstance(seen, float)
        assert seen >= start + one


def test_a_sleeper_that_goes_back_to_sleep_waits_for_the_next_advance(manual: FakeClock, run: Run) -> None:
    ticks: list[float] = []

    def work() -> None:
        for _ in range(3):
            manual.sleep(1)
            ticks.append(manual.monotonic())

    start = manual.monotonic()
    worker = run(work)
    for _ in range(3):
        manual.wait_for_sleepers(1)
        manual.advance(1)
    worker.result()
    assert ticks == [start + 1, start + 2, start + 3]


def test_threads_and_tasks_of_several_event_loops_share_one_clock(manual: FakeClock, run: Run) -> None:
    def in_a_loop() -> float:
        async def work() -> float:
            await manual.sleep_async(5)
            return manual.monotonic()

        return asyncio.run(work())

    start = manual.monotonic()
    sleepers = [run(in_a_loop), run(in_a_loop), run(slept(manual, 5))]
    manual.wait_for_sleepers(3)
    manual.advance(5)
    assert [sleeper.result() for sleeper in sleepers] == [start + 5] * 3


def test_a_cancelled_sleep_leaves_nothing_behind(manual: FakeClock) -> None:
    async def scene() -> None:
        task = asyncio.create_task(manual.sleep_async(5))
        await manual.wait_for_sleepers_async(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert manual.sleepers == 0
        manual.advance(10)

    asyncio.run(scene())


def test_a_sleep_that_is_cancelled_while_it_is_woken_is_cancelled(manual: FakeClock) -> None:
    async def scene() -> None:
        task = asyncio.create_task(manual.sleep_async(5))
        await manual.wait_for_sleepers_async(1)
        manual.advance(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert manual.sleepers == 0


def test_a_loop_that_was_closed_over_its_sleepers_does_not_stop_the_others(manual: FakeClock, run: Run) -> None:
    loop = asyncio.new_event_loop()
    sleep = manual.sleep_async(1)
    task = loop.create_task(sleep)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    other = run(slept(manual, 2))
    manual.wait_for_sleepers(2)
    manual.advance(2)
    other.result()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    sleep.close()


def test_waiting_for_sleepers_that_never_come_fails_and_says_how_many_did(manual: FakeClock, run: Run) -> None:
    run(slept(manual, 1))
    manual.wait_for_sleepers(1)
    with pytest.raises(AssertionError, match=r"1 of 2 sleepers are waiting after 0 real seconds$"):
        manual.wait_for_sleepers(2, timeout=0)


def test_waiting_for_sleepers_of_a_clock_that_parks_none_says_so(clock: FakeClock) -> None:
    with pytest.raises(AssertionError, match=r"only FakeClock\(manual=True\) makes them wait"):
        clock.wait_for_sleepers(1, timeout=0)


part = st.text() | st.integers() | st.floats(allow_nan=False) | st.none()
parts = st.lists(part, max_size=4).map(tuple)


@given(parts)
def test_the_same_parts_give_the_same_numbers(given_parts: tuple[str | int | float | None, ...]) -> None:
    one, two = seeded(*given_parts), seeded(*given_parts)
    assert [one.random() for _ in range(5)] == [two.random() for _ in range(5)]


@rows(
    ("one", "two"),
    [
        (("a", 1), ("a1",)),
        (("a", 1), ("a", "1")),
        (("a", 1), (1, "a")),
        (("ab", "c"), ("a", "bc")),
        ((1,), (1.0,)),
        ((), ("",)),
        ((None,), ("null",)),
        (('a", "b',), ("a", "b")),
    ],
)
def test_parts_that_differ_give_other_numbers(
    one: tuple[str | int | float | None, ...], two: tuple[str | int | float | None, ...]
) -> None:
    assert seeded(*one).random() != seeded(*two).random()


def test_text_counts_whatever_its_class() -> None:
    class Word(StrEnum):
        FIRST = "tenant-1"

    assert seeded(Word.FIRST).random() == seeded("tenant-1").random() == seeded(Tenant("tenant-1")).random()


@pytest.mark.parametrize(
    ("given_parts", "first"), [(("holdfast", 1), 0.6083550074127146), (("é", 0.5, None), 0.5995886746566746)]
)
def test_the_numbers_are_the_same_in_every_version(
    given_parts: tuple[str | int | float | None, ...], first: float
) -> None:
    assert seeded(*given_parts).random() == first


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_numbers_are_the_same_in_every_process(hash_seed: str) -> None:
    script = "from holdfast.testing import seeded; print(seeded('tenant-1', 7).random())"
    printed = subprocess.check_output(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": hash_seed}, text=True
    )
    assert float(printed) == seeded("tenant-1", 7).random()


def test_drawing_from_one_generator_does_not_move_another() -> None:
    one, two = seeded("a"), seeded("a")
    one.random()
    assert two.random() == seeded("a").random()
