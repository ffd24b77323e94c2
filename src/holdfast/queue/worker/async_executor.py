"""An event loop that runs asynchronous handlers."""

import asyncio
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast._errors import LeaseLost
from holdfast.queue.message import Release
from holdfast.queue.worker.context import FinishedMessage, LeasedMessage, WorkerContext
from holdfast.queue.worker.executors import finish, require_finished_result

ASK_EVERY = 0.25
"""Seconds between questions whether the loop is alive."""
SILENCE = 0.5
"""Seconds without an answer after which something is taken to block it."""

log = logging.getLogger(__name__)


class AsyncExecutor:
    """So many handlers at a time, each a task of an event loop: that of a thread of its own, or one that runs already.

    A handler that goes on although it was cancelled is given up, and another takes its place: as many again at most.
    While one blocks the loop, nothing should be taken. What is in the loop is changed there alone.
    """

    def __init__(
        self,
        context: WorkerContext,
        variables: contextvars.Context,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._context = context
        self._variables = variables
        self._waiting: deque[LeasedMessage] = deque()
        self._tasks: dict[LeasedMessage, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._unheard: set[LeasedMessage] = set()
        """Those that were to be cancelled, of which the loop does not know yet."""
        self._asked: float | None = None
        """When it was asked for a sign of life that it has not given yet. Real time, as it is a real loop."""
        self._answered = time.monotonic()
        self._was_silent = False
        self._is_stopping = False
        self._is_done = False
        self._ended = threading.Event()
        self._is_own = loop is None
        self._loop = loop or asyncio.new_event_loop()
        if self._is_own:
            try:
                threading.Thread(target=self._run, name=f"holdfast-{context.queue}-loop", daemon=True).start()
            except BaseException:
                self._loop.close()
                raise

    @property
    def is_stuck(self) -> bool:
        is_blocked = bool(self._unheard) and self._is_silent  # by one of those that were given up
        return len(self._abandoned) >= self._context.concurrency or is_blocked or self._loop.is_closed()

    @property
    def has_ended(self) -> bool:
        """Whether nothing will be handled here any more."""
        return self._ended.is_set()

    def is_responsive(self) -> bool:
        """Whether the loop goes round; false: something blocks it. Asks it now and then, in one thread alone."""
        now = time.monotonic()
        if self._asked is None and now - self._answered >= ASK_EVERY:
            self._asked = now
            self._in_loop(self._answer)
        is_silent = self._is_silent
        if is_silent and not self._was_silent:
            log.warning(
                "queue %s: something blocks the event loop of its handlers: no messages are taken until it goes on",
                self._context.queue,
            )
        self._was_silent = is_silent
        return not is_silent

    def submit(self, some: Sequence[LeasedMessage]) -> None:
        self._waiting.extend(some)
        self._in_loop(self._start_tasks)

    def stop(self) -> None:
        self._in_loop(self._stop)

    def join(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_done:
                self._run_on()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        except Exception:
            log.exception("queue %s: the event loop of its handlers is broken, and ends", self._context.queue)
        finally:
            try:
                self._release_all()
                self._loop.close()
            finally:
                self._ended.set()

    def _run_on(self) -> None:
        """Run the loop until it is stopped. Whoever does that beside us, all the others still need it."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:  # asyncio leaves the loop for them, in a task that is not ours
            log.error(  # noqa: TRY400 - the traceback is in the task
                "queue %s: a task that a handler has left behind raised %r; the event loop goes on",
                self._context.queue,
                error,
            )

    def _release_all(self) -> None:
        """The loop has ended: what it has not handled is for others."""
        held, now = self._context.leased, self._context.clock.monotonic()
        for message in (*self._tasks, *self._waiting):
            seconds = 0.0 if message.started_at is None else now - message.started_at
            if held.finish(FinishedMessage(message, Release(), seconds)):
                message.current_message.end("its event loop has ended")

    @property
    def _is_silent(self) -> bool:
        asked = self._asked
        return asked is not None and time.monotonic() - asked >= SILENCE

    def _answer(self) -> None:
        self._answered = time.monotonic()
        self._asked = None

    def _in_loop(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, by whoever it belongs to: no handler will run there
            # In a context of its own: what is left there would be found by all tasks that follow.
            self._loop.call_soon_threadsafe(function, context=self._variables.copy())

    def _start_tasks(self) -> None:
        """As many tasks as there are messages for."""
        size = self._context.concurrency
        while self._waiting and len(self._tasks) < min(size, 2 * size - len(self._abandoned)):
            message = self._waiting.popleft()
            if message.is_decided:
                continue
            task = self._loop.create_task(self._handle(message), context=self._variables.copy())
            self._tasks[message] = task
            task.add_done_callback(lambda task, message=message: self._forget(message, task))  # type: ignore[misc]

    def _forget(self, message: LeasedMessage, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(message, None)
        self._abandoned.discard(task)
        self._start_tasks()
        self._end_if_done()

    def _stop(self) -> None:
        self._is_stopping = True
        for task in (*self._tasks.values(), *self._abandoned):
            task.cancel()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._is_stopping and not self._tasks and not self._abandoned:
            if self._is_own:
                self._is_done = True
                self._loop.stop()
            else:
                self._ended.set()

    def _interrupt(self, message: LeasedMessage) -> None:
        self._unheard.add(message)
        self._in_loop(lambda: self._cancel(message))

    def _cancel(self, message: LeasedMessage) -> None:
        self._unheard.discard(message)
        task = self._tasks.pop(message, None)
        if task is not None:
            self._abandoned.add(task)  # until it has ended, which most do at once
            task.cancel()
            self._start_tasks()

    async def _handle(self, message: LeasedMessage) -> None:
        context, started = self._context, self._context.clock.monotonic()
        if not context.leased.begin(message, started, self._interrupt):
            return
        try:
            context.handlers.enter(message)
            assert message.call is not None
            require_finished_result(await message.call())
        except GeneratorExit:
            raise  # the loop was closed over it: nothing may be done here any more
        except BaseException as error:  # noqa: BLE001 - asyncio would end the whole loop for some of them
            has_stopped_when_told = isinstance(error, asyncio.CancelledError | LeaseLost)
            finish(context, message, started, error, has_stopped_when_told=has_stopped_when_told)
        else:
            finish(context, message, started)
