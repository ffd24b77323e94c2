"""Those who run the handlers: threads for some, an event loop for others, made when the first message needs them."""

import contextvars
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.queue.worker.post import Post
from holdfast.queue.worker.running import Running
from holdfast.queue.worker.thread_crew import ThreadCrew

if TYPE_CHECKING:
    import asyncio

    from holdfast.queue.worker.loop_crew import LoopCrew


class Crew(Protocol):
    """Runs handlers of one kind, so many at a time."""

    @property
    def is_stuck(self) -> bool:
        """Whether so many handlers were given up, and have not returned since, that no more may be begun."""

    def give(self, some: Sequence[Running]) -> None:
        """Handle messages."""

    def stop(self) -> None:
        """End, as soon as nothing is under way."""

    def join(self, seconds: float) -> bool:
        """Wait for the end; false: some handlers have not returned."""


class Crews:
    """All handlers of a worker. With `loop`, the asynchronous ones run in that one and not in a thread.

    Every handler has a copy of the context in which this was made: what one leaves behind, the next does not find.
    """

    def __init__(self, post: Post, loop: "asyncio.AbstractEventLoop | None" = None) -> None:
        self._post = post
        self._given_loop = loop
        self._context = contextvars.copy_context()
        self._threads: ThreadCrew | None = None
        self._loop: LoopCrew | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether so many handlers hang that no more may be begun."""
        return any(crew.is_stuck for crew in self._all())

    def can_take(self) -> bool:
        """Whether there is any use in asking for messages: handlers do not hang, and their event loop answers."""
        loop = self._loop
        return not self.is_stuck and (loop is None or loop.has_ended or loop.answers())

    def give(self, some: Sequence[Running], *, is_async: bool) -> None:
        """Handle messages. Raises what keeps the first thread from being started, if none is there."""
        if is_async:
            if self._loop is None or self._loop.has_ended:  # one that broke: the next message may fare better
                from holdfast.queue.worker.loop_crew import LoopCrew  # and asyncio, for those who need it

                self._loop = LoopCrew(self._post, self._context, self._given_loop)
            self._loop.give(some)
        else:
            if self._threads is None:
                self._threads = ThreadCrew(self._post, self._context)
            self._threads.give(some)

    def stop(self) -> None:
        """End all of them, as soon as nothing is under way."""
        for crew in self._all():
            crew.stop()

    def join(self, seconds: float) -> bool:
        """Wait for the end; false: some handlers have not returned."""
        have_ended = [crew.join(seconds) for crew in self._all()]
        return all(have_ended)

    def _all(self) -> list[Crew]:
        loop = None if self._loop is None or self._loop.has_ended else self._loop
        return [crew for crew in (self._threads, loop) if crew is not None]
