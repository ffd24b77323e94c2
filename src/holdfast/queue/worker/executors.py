"""What runs the handlers: threads for synchronous ones, an event loop for the others; made when first needed."""

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
from holdfast.queue.message import Ack
from holdfast.queue.worker.context import FinishedMessage, LeasedMessage, WorkerContext

if TYPE_CHECKING:
    import asyncio

    from holdfast.queue.worker.async_executor import AsyncExecutor

_ACK = Ack()

log = logging.getLogger(__name__)


class HandlerExecutors:
    """All handlers of a worker, each in a copy of the context of its start. With `loop`, coroutines run there."""

    def __init__(self, context: WorkerContext, loop: "asyncio.AbstractEventLoop | None" = None) -> None:
        self._context = context
        self._given_loop = loop
        self._variables = contextvars.copy_context()
        self._threads: ThreadExecutor | None = None
        self._loop: AsyncExecutor | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether so many handlers hang that no more may be begun."""
        return any(executor.is_stuck for executor in self._all())

    def can_accept(self) -> bool:
        """Whether there is any use in asking for messages: handlers do not hang, and their event loop answers."""
        loop = self._loop
        return not self.is_stuck and (loop is None or loop.has_ended or loop.is_responsive())

    def submit(self, some: Sequence[LeasedMessage], *, is_async: bool) -> None:
        """Handle messages. Raises what keeps the first thread from being started, if none is there."""
        if is_async:
            if self._loop is None or self._loop.has_ended:  # one that broke: the next message may fare better
                from holdfast.queue.worker.async_executor import AsyncExecutor  # and asyncio, for those who need it

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
    """As many threads as there are messages, up to so many, each of which handles one after the other.

    A handler that hangs cannot be ended. It is given up, and another thread takes its place: as many again at most.
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
        """Whether so many handlers were given up, and have not returned since, that no more may be begun."""
        return len(self._abandoned) >= self._context.concurrency

    def submit(self, some: Sequence[LeasedMessage]) -> None:
        """Handle messages. Raises RuntimeError, and takes none, if there is no thread and none can be started."""
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
        until = time.monotonic() + seconds  # that of the threads, whatever clock the worker has
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _start_threads(self) -> RuntimeError | None:
        """Start what threads are needed; what keeps the next from being started, until this is called again."""
        size = self._context.concurrency
        while (
            len(self._threads) < min(size, 2 * size - len(self._abandoned), self._submitted) and not self._is_stopping
        ):
            # A daemon: a handler that hangs must not keep the process from ending.
            thread = _HandlerThread(target=self._run_messages, name=f"holdfast-{self._context.queue}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process has as many as it may have
                if not self._is_short:
                    self._is_short = True
                    log.warning(
                        "queue %s: %d threads run handlers, and no more can be started: %s",
                        self._context.queue,
                        len(self._threads),
                        error,
                    )
                return error
            self._is_short = False
            self._threads.add(thread)  # it cannot have ended: that takes the lock
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
        """Whether a thread that has ended with a message goes on to the next; false: another has taken its place."""
        with self._lock:
            me.message = None
            if me in self._abandoned:
                self._abandoned.discard(me)
                self._start_threads()
                return False
            self._submitted -= 1
            return True

    def _abandon(self, message: LeasedMessage) -> None:
        """The handler of this message is not waited for any more."""
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
        except BaseException as error:  # noqa: BLE001 - what a handler raises must not end the thread
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
    """Have a message settled whose handler has ended. Warn of one that was given up, unless it ended for that."""
    seconds = context.clock.monotonic() - started
    finished = (
        FinishedMessage(message, _ACK, seconds)
        if error is None
        else context.handlers.finish_failed(message, error, seconds)
    )
    if not context.leased.finish(finished) and not has_stopped_when_told:
        log.warning(
            "message %d of %s: its handler ended after %.1f s, which does not count any more: %s",
            message.delivery.id,
            message.delivery.queue,
            seconds,
            message.current_message.reason,
        )


def require_finished_result(result: Any) -> None:
    """Raise TypeError if what a handler returned is still to be awaited or gone through: it would pass for handled."""
    if result is None:
        return
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
        raise TypeError("the handler returned a coroutine that nobody awaits: make it `async def`, and await it there")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the handler returned a generator that nobody goes through: go through it in the handler")
    if isinstance(result, Future) or inspect.isawaitable(result):
        raise TypeError(
            f"the handler returned a {type(result).__name__} that nobody awaits: await it in an `async def`, "
            "or wait for its result"
        )
