import asyncio
import time

import pytest

from holdfast import SystemClock


def test_the_wall_clock_is_the_time_of_the_machine() -> None:
    before = time.time()
    now = SystemClock().wall()
    assert before <= now <= time.time()


def test_the_monotonic_clock_does_not_go_back() -> None:
    before = time.monotonic()
    now = SystemClock().monotonic()
    assert before <= now <= time.monotonic()


def test_sleep_blocks_for_the_seconds_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(time, "sleep", asked.append)
    SystemClock().sleep(1.5)
    assert asked == [1.5]


@pytest.mark.parametrize("seconds", [0, 0.0, -1.0])
def test_sleep_of_zero_or_less_makes_no_system_call(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(time, "sleep", asked.append)
    SystemClock().sleep(seconds)
    assert asked == []


def test_sleep_async_suspends_for_the_seconds_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def remember(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", remember)
    asyncio.run(SystemClock().sleep_async(1.5))
    assert asked == [1.5]


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_sleep_async_of_zero_or_less_still_lets_other_tasks_run(seconds: float) -> None:
    async def scene() -> list[str]:
        order: list[str] = []

        async def other() -> None:
            order.append("other")

        task = asyncio.create_task(other())
        await SystemClock().sleep_async(seconds)
        order.append("sleeper")
        await task
        return order

    assert asyncio.run(scene()) == ["other", "sleeper"]
