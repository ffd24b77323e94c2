"""An event loop that runs asynchronous handlers."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast._errors import LeaseLost
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.running import Running
from holdfast.queue.worker.thread_crew import tell_late


class LoopCrew:
    """So many handlers at a time, each a task of an event loop: that of a thread of its own, or one that runs already.

    A handler that is cancelled and goes on all the same is given up, and another takes its place: as many again at
    most. Its sets are changed in the event loop alone.
    """

    def __init__(self, post: Post, context: contextvars.Context, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._post = post
        self._context = context
        self._waiting: deque[Running] = deque()
        self._tasks: dict[Running, asyncio.Task[None]] = {}
        self._hung: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._ended = threading.Event()
        self._loop = loop or asyncio.new_event_loop()
        if loop is None:
            threading.Thread(target=self._run, name=f"holdfast-{post.queue}-loop", daemon=True).start()
        self._is_own = loop is None

    @property
    def is_stuck(self) -> bool:
        return len(self._hung) >= self._post.concurrency or self._loop.is_closed()

    def give(self, some: Sequence[Running]) -> None:
        self._waiting.extend(some)
        self._in_loop(self._fill)

    def stop(self) -> None:
        self._in_loop(self._stop)

    def join(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            self._ended.set()

    def _in_loop(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, by whoever it belongs to: no handler will run there
            # In a context of its own: what is left there would be found by all tasks that follow.
            self._loop.call_soon_threadsafe(function, context=self._context.copy())

    def _fill(self) -> None:
        """As many tasks as there are messages for."""
        size = self._post.concurrency
        while self._waiting and len(self._tasks) < min(size, 2 * size - len(self._hung)):
            running = self._waiting.popleft()
            if running.is_over:
                continue
            task = self._loop.create_task(self._handle(running), context=self._context.copy())
            self._tasks[running] = task
            task.add_done_callback(lambda task, running=running: self._forget(running, task))  # type: ignore[misc]

    def _forget(self, running: Running, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(running, None)
        self._hung.discard(task)
        self._fill()
        self._end_if_done()

    def _stop(self) -> None:
        self._is_stopping = True
        for task in (*self._tasks.values(), *self._hung):
            task.cancel()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._is_stopping and not self._tasks and not self._hung:
            if self._is_own:
                self._loop.stop()
            else:
                self._ended.set()

    def _interrupt(self, running: Running) -> None:
        self._in_loop(lambda: self._cancel(running))

    def _cancel(self, running: Running) -> None:
        task = self._tasks.pop(running, None)
        if task is not None:
            self._hung.add(task)  # until it has ended, which most do at once
            task.cancel()
            self._fill()

    async def _handle(self, running: Running) -> None:
        post = self._post
        held, handlers, clock = post.held, post.handlers, post.clock
        started = clock.monotonic()
        if not held.begin(running, started, self._interrupt):
            return
        has_obeyed = False
        try:
            handlers.enter(running)
            call = running.call
            assert call is not None
            await call()
        except GeneratorExit:
            raise  # the loop was closed over it: nothing may be done here any more
        except BaseException as error:  # noqa: BLE001 - asyncio would end the whole loop for some of them
            finished = handlers.failed(running, error, clock.monotonic() - started)
            has_obeyed = isinstance(error, asyncio.CancelledError | LeaseLost)
        else:
            finished = handlers.done(running, clock.monotonic() - started)
        if not held.finish(finished) and not has_obeyed:
            tell_late(finished)
