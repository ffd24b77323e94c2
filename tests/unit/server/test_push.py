"""Events reach whoever listens, in order, and nobody waits for the slow."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import pytest

from holdfast.server.push import BACKLOG, Event, Hub

Result = TypeVar("Result")
Stream: TypeAlias = AsyncIterator[Event | None]

STUCK = 30.0
"""Seconds until a stream that should move is taken to be stuck."""

NEVER = 3600.0
"""A time without events that no test lives to see."""


def run(story: Callable[[Hub], Coroutine[Any, Any, Result]]) -> Result:
    async def told() -> Result:
        hub = Hub()
        hub.start()
        async with asyncio.timeout(STUCK):
            return await story(hub)

    return asyncio.run(told())


async def listening(hub: Hub, quiet: float = NEVER) -> Stream:
    """A stream that has said that it listens."""
    stream = hub.listen(quiet)
    assert await anext(stream) is None
    return stream


async def rest_of(stream: Stream) -> list[Event | None]:
    return [event async for event in stream]


def test_a_listener_gets_every_event_from_then_on_in_order() -> None:
    async def story(hub: Hub) -> None:
        hub.publish("too early", "0")
        stream = await listening(hub)
        for number in range(3):
            hub.publish("change", str(number))
        assert [await anext(stream) for _ in range(3)] == [
            Event(2, "change", "0"),
            Event(3, "change", "1"),
            Event(4, "change", "2"),
        ]

    run(story)


def test_what_happens_right_after_a_stream_is_live_is_in_it() -> None:
    async def story(hub: Hub) -> None:
        stream = hub.listen(NEVER)
        assert await anext(stream) is None
        assert hub.listeners == 1
        hub.publish("change", "{}")
        assert await anext(stream) == Event(1, "change", "{}")

    run(story)


def test_every_listener_gets_every_event() -> None:
    async def story(hub: Hub) -> None:
        streams = [await listening(hub) for _ in range(3)]
        hub.publish("change", "{}")
        assert [await anext(stream) for stream in streams] == [Event(1, "change", "{}")] * 3

    run(story)


def test_a_quiet_stream_says_so_again_and_again() -> None:
    async def story(hub: Hub) -> None:
        stream = await listening(hub, quiet=0.001)
        assert [await anext(stream) for _ in range(3)] == [None] * 3
        hub.publish("change", "{}")
        assert await anext(stream) == Event(1, "change", "{}")

    run(story)


def test_a_listener_too_far_behind_gets_what_was_kept_for_it_and_is_cut_off() -> None:
    async def story(hub: Hub) -> None:
        slow, quick = await listening(hub), await listening(hub)
        for number in range(1, BACKLOG + 1):
            hub.publish("change", "{}")
            assert await anext(quick) == Event(number, "change", "{}")
        assert hub.listeners == 2
        hub.publish("one too many", "{}")
        assert hub.listeners == 1
        hub.publish("after", "{}")
        kept = await rest_of(slow)
        assert [event.number for event in kept if event is not None] == list(range(1, BACKLOG + 1))
        assert [await anext(quick), await anext(quick)] == [
            Event(BACKLOG + 1, "one too many", "{}"),
            Event(BACKLOG + 2, "after", "{}"),
        ]

    run(story)


def test_closing_ends_every_stream_after_what_was_published_before() -> None:
    async def story(hub: Hub) -> None:
        streams = [await listening(hub) for _ in range(3)]
        hub.publish("last", "{}")
        hub.close()
        hub.close()
        hub.publish("too late", "{}")
        assert [await rest_of(stream) for stream in streams] == [[Event(1, "last", "{}")]] * 3
        assert hub.listeners == 0

    run(story)


def test_a_stream_that_waits_ends_when_the_hub_is_closed() -> None:
    async def story(hub: Hub) -> None:
        stream = await listening(hub)
        waiting = asyncio.create_task(rest_of(stream))
        await asyncio.sleep(0)
        hub.close()
        assert await waiting == []

    run(story)


def test_listening_after_the_close_ends_at_once() -> None:
    async def story(hub: Hub) -> None:
        hub.close()
        assert await rest_of(hub.listen(NEVER)) == []

    run(story)


def test_a_listener_that_goes_away_is_forgotten() -> None:
    async def story(hub: Hub) -> None:
        stream = await listening(hub)
        assert isinstance(stream, AsyncGenerator)
        assert hub.listeners == 1
        await stream.aclose()
        assert hub.listeners == 0

    run(story)


def test_a_listener_that_is_cancelled_is_forgotten() -> None:
    async def story(hub: Hub) -> None:
        stream = await listening(hub)
        waiting = asyncio.create_task(rest_of(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert hub.listeners == 0

    run(story)


def test_threads_publish_without_losing_or_doubling_an_event() -> None:
    async def story(hub: Hub) -> None:
        stream = await listening(hub)
        each, threads = 50, 4

        def publish(name: str) -> None:
            for number in range(each):
                hub.publish_threadsafe(name, str(number))

        workers = [threading.Thread(target=publish, args=(str(number),)) for number in range(threads)]
        for worker in workers:
            worker.start()
        events = [await anext(stream) for _ in range(each * threads)]
        for worker in workers:
            worker.join(STUCK)
        assert [event.number for event in events if event is not None] == list(range(1, each * threads + 1))
        for number in range(threads):
            mine = [event.data for event in events if event is not None and event.name == str(number)]
            assert mine == [str(count) for count in range(each)]

    run(story)


def test_another_thread_may_close_the_hub() -> None:
    async def story(hub: Hub) -> None:
        stream = await listening(hub)
        closer = threading.Thread(target=hub.close_threadsafe)
        closer.start()
        assert await rest_of(stream) == []
        closer.join(STUCK)
        assert await rest_of(hub.listen(NEVER)) == []

    run(story)


def test_before_the_start_and_after_the_close_nobody_listens_and_threads_may_publish_all_the_same() -> None:
    hub = Hub()
    hub.publish_threadsafe("early", "{}")
    hub.close_threadsafe()
    hub.publish_threadsafe("late", "{}")
    assert hub.listeners == 0
