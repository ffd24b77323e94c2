"""Events reach whoever listens, in order, and nobody waits for the slow."""

import asyncio
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.push import BATCH_LISTENERS, KEEPALIVE, KEEPALIVE_SECONDS, KEPT_EVENTS, EventHub, StreamEvent

Result = TypeVar("Result")

STUCK = 30.0
"""Seconds until a stream that should move is taken to be stuck."""


def run(story: Callable[[EventHub], Coroutine[Any, Any, Result]]) -> Result:
    async def told() -> Result:
        hub = EventHub()
        hub.start()
        async with asyncio.timeout(STUCK):
            return await story(hub)

    return asyncio.run(told())


def test_listeners_without_a_credential_are_counted_until_they_have_gone() -> None:
    async def story() -> None:
        hub = EventHub(max_anonymous=2)
        hub.start()
        with_credential = [Listener(hub, credential_id="a") for _ in range(3)]
        first, second = Listener(hub), Listener(hub)
        assert not hub.is_full
        await asyncio.sleep(0)
        assert hub.is_full
        first.leave()
        await first.task
        assert not hub.is_full
        hub.close()
        await asyncio.gather(second.task, *(each.task for each in with_credential))
        assert not hub.is_full

    asyncio.run(asyncio.wait_for(story(), STUCK))


class Listener:
    """Somebody who listens, over a connection that takes what it is given until it is `full`."""

    def __init__(
        self,
        hub: EventHub,
        get_first_events: Callable[[], Sequence[StreamEvent]] = list,
        credential_id: str | None = None,
    ) -> None:
        self.told: list[StreamEvent] = []
        self.breaks = False
        self._get_first_events = get_first_events
        self._takes = asyncio.Event()
        self._takes.set()
        self._left = asyncio.Event()
        self.task = asyncio.create_task(
            hub.serve_listener(self._write, self._gone, self._get_first_events, credential_id)
        )

    def full(self) -> None:
        self._takes.clear()

    def empty(self) -> None:
        self._takes.set()

    def leave(self) -> None:
        self._left.set()

    @property
    def events(self) -> list[str]:
        """What was told, without signs of life: the number of each event, and its data."""
        return [
            f"{message['id'].partition('-')[2]} {message['data']}"
            for message in (json.loads(told.websocket_text) for told in self.told if told is not KEEPALIVE)
        ]

    async def _write(self, told: StreamEvent) -> None:
        await self._takes.wait()
        if self.breaks:
            raise OSError("the connection is broken")
        self.told.append(told)

    async def _gone(self) -> None:
        await self._left.wait()


async def listening(hub: EventHub, count: int = 1) -> list[Listener]:
    """Listeners that have begun to listen."""
    before = hub.listener_count
    listeners = [Listener(hub) for _ in range(count)]
    await turns()
    assert hub.listener_count == before + count
    return listeners


async def turns(count: int = 3) -> None:
    """Let everything else happen that is due."""
    for _ in range(count):
        await asyncio.sleep(0)


def publish(hub: EventHub, *data: int) -> None:
    for each in data:
        hub.publish("change", str(each).encode())


def test_an_event_has_a_form_for_streams_and_one_for_sockets() -> None:
    event = StreamEvent("5eed-7", "status", b'{"zone":"use1-az1"}')
    assert event.sse_bytes == b'id: 5eed-7\nevent: status\ndata: {"zone":"use1-az1"}\n\n'
    assert event.websocket_text == '{"id":"5eed-7","event":"status","data":{"zone":"use1-az1"}}'


def test_a_listener_gets_every_event_from_then_on_in_order() -> None:
    async def story(hub: EventHub) -> None:
        publish(hub, 0)
        [listener] = await listening(hub)
        publish(hub, 10, 11, 12)
        await turns(5)
        assert listener.events == ["2 10", "3 11", "4 12"]

    run(story)


def test_every_listener_gets_every_event() -> None:
    async def story(hub: EventHub) -> None:
        listeners = await listening(hub, 3)
        publish(hub, 0)
        await turns()
        assert [listener.events for listener in listeners] == [["1 0"]] * 3

    run(story)


def test_a_greeting_comes_first_and_then_everything_after_it() -> None:
    async def story(hub: EventHub) -> None:
        publish(hub, 0)
        listener = Listener(hub, lambda: [StreamEvent(hub.last_id, "snapshot", b"100")])
        publish(hub, 1)  # before its turn has come
        await turns(1)
        publish(hub, 2)  # right after it
        await turns()
        assert listener.events == ["2 100", "3 2"]

    run(story)


def test_who_joins_while_many_are_told_misses_nothing_and_hears_nothing_twice() -> None:
    async def story(hub: EventHub) -> None:
        listeners = await listening(hub, 2 * BATCH_LISTENERS + 1)
        for number in range(12):
            publish(hub, *range(number % 3 + 1))
            # Some come while the first have been told and the others have not.
            listeners += [Listener(hub, lambda: hub.find_missed(f"{hub.run}-0") or []) for _ in range(30)]
            await turns(1)
        await turns(200)
        everything = listeners[0].events
        assert [event.partition(" ")[0] for event in everything] == [str(number) for number in range(1, 25)]
        assert all(listener.events == everything for listener in listeners)

    run(story)


def test_others_get_their_turn_while_many_are_told() -> None:
    async def story(hub: EventHub) -> None:
        listeners = await listening(hub, 3 * BATCH_LISTENERS)
        publish(hub, 0)
        told: list[int] = []
        while sum(told) < len(listeners):
            await turns(1)
            told.append(sum(len(listener.events) for listener in listeners) - sum(told))
        assert max(told) <= BATCH_LISTENERS

    run(story)


def test_who_does_not_take_an_event_is_cut_off_and_nobody_waits_for_it() -> None:
    async def story(hub: EventHub) -> None:
        slow, quick = await listening(hub, 2)
        slow.full()
        publish(hub, 0, 1)
        await turns(4)
        assert quick.events == ["1 0", "2 1"]
        assert hub.listener_count == 1
        await slow.task
        slow.empty()
        publish(hub, 2)
        await turns()
        assert slow.told == [], "nothing after a gap"

    run(story)


def test_who_is_still_being_greeted_when_something_happens_is_too_slow() -> None:
    async def story(hub: EventHub) -> None:
        listener = Listener(hub, lambda: [StreamEvent(hub.last_id, "snapshot", b"100")])
        listener.full()
        await turns()
        publish(hub, 0)
        await turns()
        await listener.task
        assert (hub.listener_count, listener.told) == (0, [])

    run(story)


def test_a_connection_that_breaks_while_it_is_written_to_is_cut_off() -> None:
    async def story(hub: EventHub) -> None:
        broken, whole = await listening(hub, 2)
        broken.breaks = True
        publish(hub, 0)
        await turns()
        await broken.task
        assert (hub.listener_count, whole.events) == (1, ["1 0"])

    run(story)


def test_a_listener_that_goes_away_is_forgotten() -> None:
    async def story(hub: EventHub) -> None:
        gone, stays = await listening(hub, 2)
        gone.leave()
        await gone.task
        assert hub.listener_count == 1
        publish(hub, 0)
        await turns()
        assert (gone.told, stays.events) == ([], ["1 0"])

    run(story)


def test_listeners_whose_credential_was_revoked_are_cut_off_and_told_apart() -> None:
    async def story(hub: EventHub) -> None:
        revoked, again, other, anonymous = (Listener(hub, credential_id=name) for name in ("a", "a", "b", None))
        await turns()
        assert hub.list_credential_ids_threadsafe() == {"a", "b"}
        await asyncio.to_thread(hub.disconnect_revoked_threadsafe, frozenset({"a", "c"}))
        assert (await revoked.task, await again.task) == (True, True)
        assert hub.list_credential_ids_threadsafe() == {"b"}
        publish(hub, 0)
        await turns()
        assert [listener.events for listener in (revoked, other, anonymous)] == [[], ["1 0"], ["1 0"]]
        hub.close()
        assert (await other.task, await anonymous.task) == (False, False)

    run(story)


def test_a_listener_whose_greeting_fails_is_forgotten_and_the_error_is_told() -> None:
    async def story(hub: EventHub) -> None:
        def get_first_events() -> Sequence[StreamEvent]:
            raise ValueError("nothing is known")

        listener = Listener(hub, get_first_events)
        with pytest.raises(ValueError, match="nothing is known"):
            await listener.task
        assert hub.listener_count == 0

    run(story)


def test_a_listener_that_is_cancelled_by_somebody_else_ends_as_cancelled() -> None:
    async def story(hub: EventHub) -> None:
        [listener] = await listening(hub)
        listener.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listener.task
        assert hub.listener_count == 0

    run(story)


@pytest.mark.parametrize("cut_first", [True, False])
def test_a_listener_that_is_cut_off_and_cancelled_at_once_ends_as_cancelled(cut_first: bool) -> None:
    async def story(hub: EventHub) -> None:
        [listener] = await listening(hub)
        for step in (hub.close, listener.task.cancel) if cut_first else (listener.task.cancel, hub.close):
            step()
        with pytest.raises(asyncio.CancelledError):
            await listener.task

    run(story)


def test_a_listener_that_was_cut_off_can_go_on_with_something_else() -> None:
    async def story(hub: EventHub) -> None:
        async def attend_and_say_goodbye() -> str:
            async def write(_: StreamEvent) -> None:
                pass

            await hub.serve_listener(write, asyncio.Event().wait, list)  # type: ignore[arg-type]
            async with asyncio.timeout(STUCK):  # works only in a task that nobody wants to cancel any more
                await turns()
            return "goodbye"

        task = asyncio.create_task(attend_and_say_goodbye())
        await turns()
        hub.close()
        assert await task == "goodbye"
        assert task.cancelling() == 0

    run(story)


def test_closing_ends_every_stream_after_what_was_published_before() -> None:
    async def story(hub: EventHub) -> None:
        listeners = await listening(hub, 2 * BATCH_LISTENERS)
        publish(hub, 0, 1)
        await turns(1)  # some have been told the first
        hub.close()
        hub.close()
        publish(hub, 2)
        await asyncio.gather(*(listener.task for listener in listeners))
        assert all(listener.events == ["1 0", "2 1"] for listener in listeners)
        assert hub.listener_count == 0
        await turns()

    run(story)


def test_listening_after_the_close_ends_at_once() -> None:
    async def story(hub: EventHub) -> None:
        hub.close()
        listener = Listener(hub)
        await listener.task
        assert listener.told == []

    run(story)


def test_threads_publish_without_losing_or_doubling_an_event() -> None:
    async def story(hub: EventHub) -> None:
        [listener] = await listening(hub)
        each, threads = 50, 4

        def publish_some(thread: int) -> None:
            for number in range(each):
                hub.publish_threadsafe("change", str(thread * each + number).encode())

        workers = [threading.Thread(target=publish_some, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        while len(listener.told) < each * threads:
            await turns()
        for worker in workers:
            worker.join(STUCK)
        numbers, data = zip(*((int(word) for word in event.split()) for event in listener.events), strict=True)
        assert list(numbers) == list(range(1, each * threads + 1))
        for thread in range(threads):
            mine = [value for value in data if value // each == thread]
            assert mine == list(range(thread * each, (thread + 1) * each))

    run(story)


def test_another_thread_may_close_the_hub() -> None:
    async def story(hub: EventHub) -> None:
        [listener] = await listening(hub)
        hub.publish_threadsafe("change", b"0")
        closer = threading.Thread(target=hub.close_threadsafe)
        closer.start()
        await listener.task
        closer.join(STUCK)
        assert listener.events == ["1 0"]

    run(story)


def test_before_the_start_and_after_the_close_nobody_listens_and_threads_may_publish_all_the_same() -> None:
    hub = EventHub()
    hub.publish_threadsafe("early", b"{}")
    hub.close_threadsafe()
    hub.publish_threadsafe("late", b"{}")
    assert hub.listener_count == 0


def test_threads_may_publish_and_close_when_the_event_loop_is_gone() -> None:
    hubs: list[EventHub] = []

    async def story(hub: EventHub) -> None:
        hubs.append(hub)

    run(story)
    hubs[0].publish_threadsafe("late", b"{}")
    hubs[0].close_threadsafe()


class QuickLoop(asyncio.SelectorEventLoop):
    """An event loop for the impatient: what is due next is due now, as soon as there is nothing else to do."""

    _passed = 0.0

    def time(self) -> float:
        return super().time() + self._passed

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._passed += max(0.0, scheduled[0].when() - self.time())
        super()._run_once()  # type: ignore[misc]


def test_a_quiet_stream_shows_a_sign_of_life_in_time_and_never_all_of_them_at_once() -> None:
    async def story() -> None:
        hub = EventHub()
        hub.start()
        listeners = await listening(hub, 2 * KEEPALIVE_SECONDS)
        told: Counter[int] = Counter()
        for second in range(3 * KEEPALIVE_SECONDS):
            before = [len(listener.told) for listener in listeners]
            await asyncio.sleep(1)
            told[second] = sum(len(listener.told) for listener in listeners) - sum(before)
        assert max(told.values()) <= 2 * math.ceil(len(listeners) / KEEPALIVE_SECONDS), "a second may see two beats"
        assert {len(listener.told) for listener in listeners} <= {2, 3, 4}
        assert all(listener.events == [] for listener in listeners)
        hub.close()
        beats = sum(told.values())
        await asyncio.sleep(2 * KEEPALIVE_SECONDS)
        assert sum(len(listener.told) for listener in listeners) == beats

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(story())


def test_a_sign_of_life_finds_out_who_takes_nothing() -> None:
    async def story() -> None:
        hub = EventHub()
        hub.start()
        slow, quick = await listening(hub, 2)
        slow.full()
        await asyncio.sleep(KEEPALIVE_SECONDS + 1)
        assert slow.task.done()
        assert not quick.task.done()

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(story())


@given(published=st.integers(0, 3 * KEPT_EVENTS), seen=st.integers(0, 3 * KEPT_EVENTS))
def test_who_comes_back_gets_exactly_what_was_missed_while_that_is_kept(published: int, seen: int) -> None:
    hub = EventHub()
    publish(hub, *range(1, published + 1))
    missed = hub.find_missed(f"{hub.run}-{seen}")
    if seen > published or published - seen > KEPT_EVENTS:
        assert missed is None
    else:
        assert missed is not None
        assert [event.data for event in missed] == [b"%d" % number for number in range(seen + 1, published + 1)]
        assert [event.id for event in missed] == [f"{hub.run}-{number}" for number in range(seen + 1, published + 1)]


def test_the_latest_event_can_be_continued_from() -> None:
    hub = EventHub()
    assert hub.find_missed(hub.last_id) == []
    publish(hub, 0)
    assert hub.find_missed(hub.last_id) == []


def test_an_event_of_another_run_says_nothing_about_this_one() -> None:
    before, hub = EventHub(), EventHub()
    publish(before, 0, 1)
    publish(hub, 0, 1)
    assert before.run != hub.run
    assert hub.find_missed(before.last_id) is None


@given(st.one_of(st.text(), st.text("0123456789-+_. ²٣", max_size=12), st.integers().map(str)))
def test_an_id_that_makes_no_sense_is_an_id_that_is_not_known(garbage: str) -> None:
    hub = EventHub()
    publish(hub, 0, 1, 2)
    assert hub.find_missed(garbage) is None
    missed = hub.find_missed(f"{hub.run}-{garbage}")
    assert missed is None or (garbage.isascii() and garbage.isdigit() and len(missed) == 3 - int(garbage))


def test_an_id_with_a_number_beyond_all_measure_costs_nothing() -> None:
    hub = EventHub()
    assert hub.find_missed(f"{hub.run}-{'9' * 100_000}") is None
