"""What hangs in one executor holds up nothing else, and does not pile up."""

import asyncio
import threading

import pytest

from holdfast import EngineUnavailable
from holdfast.server.executor import BoundedExecutor

STUCK = 10.0


def test_it_returns_what_the_work_returns_and_raises_what_it_raises() -> None:
    async def story() -> None:
        executor = BoundedExecutor("test")
        assert await executor.run(lambda: divmod(7, 2)) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await executor.run(lambda: divmod(7, 0))

    asyncio.run(story())


def test_past_its_bound_it_refuses_at_once_and_takes_more_when_there_is_room() -> None:
    hung = threading.Event()

    async def story() -> None:
        executor = BoundedExecutor("test", threads=1, max_running=3)
        waiting = [asyncio.ensure_future(executor.run(lambda: hung.wait(STUCK))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(EngineUnavailable, match="try again later"):
            await executor.run(hung.is_set)
        assert await asyncio.to_thread(lambda: True), "other threads are free"
        hung.set()
        assert await asyncio.gather(*waiting) == [True, True, True]
        assert await executor.run(hung.is_set)

    asyncio.run(story())


def test_work_whose_caller_went_away_goes_on_and_keeps_its_place_until_it_ends() -> None:
    hung, ended = threading.Event(), threading.Event()

    def work() -> None:
        hung.wait(STUCK)
        ended.set()
        raise RuntimeError("nobody hears of it")

    async def story() -> None:
        executor = BoundedExecutor("test", threads=1, max_running=1)
        caller = asyncio.ensure_future(executor.run(work))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        with pytest.raises(EngineUnavailable):
            await executor.run(hung.is_set)
        hung.set()
        assert await asyncio.to_thread(ended.wait, STUCK)
        while executor._running:  # noqa: ASYNC110 - the place is given back by the loop's own next turn
            await asyncio.sleep(0)
        assert await executor.run(hung.is_set)

    asyncio.run(story())
