"""Run handlers: threads for synchronous ones, an event loop for asynchronous ones. Both are created on first use."""

import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from holdfast._errors import LeaseLost
from holdfast._names import format_count
from holdfast.queue.message import Ack
from holdfast.queue.worker.context import FinishedMessage, LeasedMessage, WorkerContext

if TYPE_CHECKING:
    import asyncio

    from holdfast.queue.worker.async_executor import AsyncExecutor

_ACK = Ack()

log = logging.getLogger(__name__)


class HandlerExecutors:
    """Runs all handlers of a worker, each in a copy of the worker's context. Coroutines run in `loop`, if given."""

    def __init__(self, context: WorkerContext, loop: "asyncio.AbstractEventLoop | None" = None) -> None:
        self._context = context
        self._given_loop = loop
        self._variables = contextvars.copy_context()
        self._threads: ThreadExecutor | None = None
        self._loop: AsyncExecutor | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether so many handlers hang that no more may begin."""
        return any(executor.is_stuck for executor in self._all())

    def can_accept(self) -> bool:
        """Return whether messages can be handled: not too many handlers hang, and the event loop responds."""
        loop = self._loop
        return not self.is_stuck and (loop is None or loop.has_ended or loop.is_responsive())

    def submit(self, some: Sequence[LeasedMessage], *, is_async: bool) -> None:
        """Handle messages. Raise RuntimeError if there is no thread and none can be started."""
        if is_async:
            if self._loop is None or self._loop.has_ended:  # start a new loop if the last one broke
                from holdfast.queue.worker.async_executor import AsyncExecutor  # asyncio only where it is needed

                self._loop = AsyncExecutor(self._context, self._variables, self._given_loop)
            self._loop.submit(some)
        else:
            if self._threads is None:
                self._threads = ThreadExecutor(self._context, self._variables)
            self._threads.submit(some)

    def stop(self) -> None:
        for executor in self._all():
            executor.stop()

    def join(self, seconds: float) -> bool:
        have_ended = [executor.join(seconds) for executor in self._all()]
        return all(have_ended)

    def _all(self) -> "list[ThreadExecutor | AsyncExecutor]":
        loop = None if self._loop is None or self._loop.has_ended else self._loop
        return [executor for executor in (self._threads, loop) if executor is not None]


class ThreadExecutor:
    """A thread pool that grows with the messages, up to `concurrency` threads. Each handles one message at a time.

    A hanging handler cannot be ended. Its thread is abandoned and replaced, with up to `concurrency` extra threads.
    """

    def __init__(self, context: WorkerContext, variables: contextvars.Context) -> None:
        self._context = context
        self._variables = variables
        self._work: SimpleQueue[LeasedMessage | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._submitted = 0
        self._is_stopping = False
        self._threads: set[_HandlerThread] = set()
        self._abandoned: set[_HandlerThread] = set()
        self._is_short = False

    @property
    def is_stuck(self) -> bool:
        """Whether `concurrency` abandoned handlers have not returned, so that no more may begin."""
        return len(self._abandoned) >= self._context.concurrency

    def submit(self, some: Sequence[LeasedMessage]) -> None:
        """Handle messages. Raise RuntimeError, and accept none, if there is no thread and none can be started."""
        with self._lock:
            self._submitted += len(some)
            error = self._start_threads()
            if error is not None and not self._threads:
                self._submitted -= len(some)
                raise error
        for message in some:
            self._work.put(message)

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            for _ in self._threads:
                self._work.put(None)

    def join(self, seconds: float) -> bool:
        with self._lock:
            threads = [*self._threads, *self._abandoned]
        until = time.monotonic() + seconds  # real time, whatever clock the worker has
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _start_threads(self) -> RuntimeError | None:
        """Start the missing threads. Return the error if one cannot be started; the next call tries again."""
        size = self._context.concurrency
        while (
            len(self._threads) < min(size, 2 * size - len(self._abandoned), self._submitted) and not self._is_stopping
        ):
            # A daemon, so that a hanging handler does not prevent the process from ending.
            thread = _HandlerThread(target=self._run_messages, name=f"holdfast-{self._context.queue}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process has reached its limit of threads
                if not self._is_short:
                    self._is_short = True
                    log.warning(
                        "queue %s: cannot start more than %s for handlers: %s",
                        self._context.queue,
                        format_count(len(self._threads), "thread"),
                        error,
                    )
                return error
            self._is_short = False
            self._threads.add(thread)  # cannot have ended yet, as that needs the lock
        return None

    def _run_messages(self) -> None:
        me = threading.current_thread()
        assert isinstance(me, _HandlerThread)
        is_needed = True
        try:
            while is_needed:
                message = self._work.get()
                if message is None:
                    break
                me.message = message
                self._variables.copy().run(self._handle, message)
                del message
                is_needed = self._is_needed(me)
        finally:
            with self._lock:
                self._threads.discard(me)
                self._abandoned.discard(me)

    def _is_needed(self, me: "_HandlerThread") -> bool:
        """Return whether a thread that has finished a message takes the next. False means that it was replaced."""
        with self._lock:
            me.message = None
            if me in self._abandoned:
                self._abandoned.discard(me)
                self._start_threads()
                return False
            self._submitted -= 1
            return True

    def _abandon(self, message: LeasedMessage) -> None:
        """Stop waiting for the handler of a message: replace its thread."""
        with self._lock:
            for thread in self._threads:
                if thread.message is message:
                    self._threads.discard(thread)
                    self._abandoned.add(thread)
                    self._submitted -= 1
                    self._start_threads()
                    return

    def _handle(self, message: LeasedMessage) -> None:
        context, started = self._context, self._context.clock.monotonic()
        if not context.leased.begin(message, started, self._abandon):
            return
        try:
            context.handlers.enter(message)
            assert message.call is not None
            require_finished_result(message.call())
        except BaseException as error:  # noqa: BLE001 - no exception of a handler may end the thread
            finish(context, message, started, error, has_stopped_when_told=isinstance(error, LeaseLost))
        else:
            finish(context, message, started)


class _HandlerThread(threading.Thread):
    message: LeasedMessage | None = None


def finish(
    context: WorkerContext,
    message: LeasedMessage,
    started: float,
    error: BaseException | None = None,
    *,
    has_stopped_when_told: bool = False,
) -> None:
    """Settle a message whose handler has ended. Warn if it ended too late, unless it was asked to stop and did."""
    seconds = context.clock.monotonic() - started
    finished = (
        FinishedMessage(message, _ACK, seconds)
        if error is None
        else context.handlers.finish_failed(message, error, seconds)
    )
    if not context.leased.finish(finished) and not has_stopped_when_told:
        log.warning(
            "message %d of %s: its handler ended after %.1f s, too late, and its result is ignored: %s",
            message.delivery.id,
            message.delivery.queue,
            seconds,
            message.current_message.reason,
        )


def require_finished_result(result: Any) -> None:
    """Raise TypeError for an unawaited or unconsumed result of a handler: the message would count as handled."""
    if result is None:
        return
    if inspect.iscoroutine(result):
        result.close()  # otherwise Python warns that it was never awaited
        raise TypeError("the handler returned a coroutine that was not awaited: make it `async def`, and await it")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the handler returned a generator that was not consumed: iterate over it in the handler")
    if isinstance(result, Future) or inspect.isawaitable(result):
        raise TypeError(
            f"the handler returned a {type(result).__name__} that was not awaited: await it in an `async def`, "
            "or wait for its result"
        )
