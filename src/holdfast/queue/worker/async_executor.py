"""Run asynchronous handlers in an event loop."""

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

PROBE_INTERVAL_SECONDS = 0.25
"""Seconds between probes whether the loop responds."""
BLOCKED_AFTER_SECONDS = 0.5
"""Seconds without a response after which the loop counts as blocked."""

log = logging.getLogger(__name__)


class AsyncExecutor:
    """Runs up to `concurrency` handlers as tasks of one event loop: a given one, or its own in a separate thread.

    A handler that continues although it was cancelled is abandoned and replaced, with up to `concurrency` extra tasks.
    While a handler blocks the loop, no messages should be leased. `_tasks` and `_abandoned` are changed only in the
    loop's thread.
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
        self._pending_cancellations: set[LeasedMessage] = set()
        """Messages to be cancelled that the loop has not processed yet."""
        self._probed_at: float | None = None
        """When the unanswered probe was sent, or None. Real time, because it is a real loop."""
        self._answered_at = time.monotonic()
        self._was_blocked = False
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
        is_blocked_by_cancelled = bool(self._pending_cancellations) and self._is_blocked
        return len(self._abandoned) >= self._context.concurrency or is_blocked_by_cancelled or self._loop.is_closed()

    @property
    def has_ended(self) -> bool:
        """Whether nothing will be handled here any more."""
        return self._ended.is_set()

    def is_responsive(self) -> bool:
        """Return True if the loop responds, False if something blocks it. Probes it at intervals; not thread-safe."""
        now = time.monotonic()
        if self._probed_at is None and now - self._answered_at >= PROBE_INTERVAL_SECONDS:
            self._probed_at = now
            self._in_loop(self._answer)
        is_blocked = self._is_blocked
        if is_blocked and not self._was_blocked:
            log.warning(
                "queue %s: something blocks the event loop of the handlers: no messages are leased until it responds",
                self._context.queue,
            )
        self._was_blocked = is_blocked
        return not is_blocked

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
            log.exception("queue %s: the event loop of the handlers failed, and ends", self._context.queue)
        finally:
            try:
                self._release_all()
                self._loop.close()
            finally:
                self._ended.set()

    def _run_on(self) -> None:
        """Run the loop until it is stopped, also by a foreign task: the caller restarts it for the other handlers."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:  # from a foreign task: asyncio stops the loop for these
            log.error(  # noqa: TRY400 - the traceback is in the task
                "queue %s: a task that a handler left behind raised %r; the event loop continues",
                self._context.queue,
                error,
            )

    def _release_all(self) -> None:
        """Release the messages that the loop has not handled before it ended."""
        held, now = self._context.leased, self._context.clock.monotonic()
        for message in (*self._tasks, *self._waiting):
            seconds = 0.0 if message.started_at is None else now - message.started_at
            if held.finish(FinishedMessage(message, Release(), seconds)):
                message.current_message.end("its event loop has ended")

    @property
    def _is_blocked(self) -> bool:
        probed_at = self._probed_at
        return probed_at is not None and time.monotonic() - probed_at >= BLOCKED_AFTER_SECONDS

    def _answer(self) -> None:
        self._answered_at = time.monotonic()
        self._probed_at = None

    def _in_loop(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed by its owner: no handler will run there
            # In a separate context: variables set by this one would be visible to all tasks that follow.
            self._loop.call_soon_threadsafe(function, context=self._variables.copy())

    def _start_tasks(self) -> None:
        """Start tasks for waiting messages, as far as the limits allow."""
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
        self._pending_cancellations.add(message)
        self._in_loop(lambda: self._cancel(message))

    def _cancel(self, message: LeasedMessage) -> None:
        self._pending_cancellations.discard(message)
        task = self._tasks.pop(message, None)
        if task is not None:
            self._abandoned.add(task)  # until it has ended, which most do immediately
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
            raise  # the loop was closed: nothing may be done here any more
        except BaseException as error:  # noqa: BLE001 - some of them would make asyncio end the whole loop
            has_stopped_when_told = isinstance(error, asyncio.CancelledError | LeaseLost)
            finish(context, message, started, error, has_stopped_when_told=has_stopped_when_told)
        else:
            finish(context, message, started)
