"""The latest state arrives, one at a time and in order, however often it takes."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import Zone
from holdfast._background import constant_backoff
from holdfast._backoff import Backoff, Chance, Jitter
from holdfast.agent.delivery import StateDelivery
from holdfast.agent.state import AgentState

SOON = 10.0


def state(number: int) -> AgentState:
    return AgentState(zone=Zone("use1-az1"), workload=None, changed_at=float(number))


class Desk:
    """Takes what is brought, and answers with what the test says."""

    def __init__(self) -> None:
        self.brought: queue.Queue[AgentState] = queue.Queue()
        self.replies: queue.Queue[bool | Exception] = queue.Queue()

    def receive(self, state: AgentState, stopping: threading.Event) -> bool:
        self.brought.put(state)
        reply = self.replies.get(timeout=SOON)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def next(self) -> AgentState:
        return self.brought.get(timeout=SOON)


@contextmanager
def delivery(desk: Desk, backoff: Backoff = constant_backoff(0.0)) -> Iterator[StateDelivery]:  # noqa: B008 - frozen
    brings = StateDelivery(desk, "test", backoff)
    yield brings
    brings.stop()
    desk.replies.put(True)
    brings.join(SOON)


def test_what_has_arrived_already_is_not_brought_and_what_changes_is() -> None:
    desk = Desk()
    with delivery(desk) as brings:
        brings.start(state(0))
        brings.submit(state(1))
        assert desk.next() == state(1)
        desk.replies.put(True)
        brings.submit(state(2))
        assert desk.next() == state(2)


def test_what_was_submitted_before_the_start_is_brought() -> None:
    desk = Desk()
    with delivery(desk) as brings:
        brings.submit(state(1))
        brings.start(state(0))
        assert desk.next() == state(1)


def test_what_had_arrived_is_brought_once_if_that_is_asked_for() -> None:
    desk = Desk()
    with delivery(desk) as brings:
        brings.start(state(0))
        brings.deliver_once()
        assert desk.next() == state(0)
        brings.deliver_once()
        desk.replies.put(True)
        brings.submit(state(1))
        assert desk.next() == state(1), "and not once more"


def test_what_changed_before_is_brought_instead() -> None:
    desk = Desk()
    with delivery(desk) as brings:
        brings.submit(state(1))
        brings.start(state(0))
        assert desk.next() == state(1)
        brings.deliver_once()
        desk.replies.put(True)
        brings.submit(state(2))
        assert desk.next() == state(2)


def test_of_several_changes_meanwhile_only_the_latest_is_brought() -> None:
    desk = Desk()
    with delivery(desk) as brings:
        brings.start(state(0))
        brings.submit(state(1))
        assert desk.next() == state(1)
        for number in (2, 3, 4):
            brings.submit(state(number))
        assert desk.brought.empty(), "one at a time"
        desk.replies.put(True)
        assert desk.next() == state(4)


def test_what_failed_is_brought_again_after_pauses_that_grow_until_it_arrives() -> None:
    desk = Desk()
    taken: list[float] = []

    class Noted(Backoff):
        def delay(self, retry: int, previous: float, chance: Chance) -> float:
            taken.append(super().delay(retry, previous, chance))
            return taken[-1]

    with delivery(desk, Noted(base=0.001, cap=1.0, jitter=Jitter.NONE)) as brings:
        brings.start(state(0))
        brings.submit(state(1))
        for reply in (False, OSError("broken"), False, True):
            assert desk.next() == state(1)
            desk.replies.put(reply)
        brings.submit(state(2))
        assert desk.next() == state(2)
    assert taken == [0.001, 0.002, 0.004]


def test_a_change_is_brought_at_once_although_the_last_one_failed() -> None:
    desk = Desk()
    with delivery(desk, constant_backoff(3600.0)) as brings:
        brings.start(state(0))
        brings.submit(state(1))
        assert desk.next() == state(1)
        desk.replies.put(False)
        brings.submit(state(0))
        assert desk.next() == state(0), "also one that had arrived before: who knows what the failed one has done"


def test_stopping_ends_the_wait_for_another_try() -> None:
    desk = Desk()
    brings = StateDelivery(desk, "test", constant_backoff(3600.0))
    brings.start(state(0))
    brings.submit(state(1))
    desk.next()
    desk.replies.put(False)
    brings.stop()
    brings.stop()
    brings.join(SOON)
    assert "test" not in {thread.name for thread in threading.enumerate()}
    brings.submit(state(2))
    assert desk.brought.empty()
