"""Threads that run synchronous handlers."""

import contextvars
import logging
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue

from holdfast._errors import LeaseLost
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.results import require_that_it_has_run
from holdfast.queue.worker.running import Finished, Running

log = logging.getLogger(__name__)


class ThreadCrew:
    """As many threads as there are messages, up to so many, each of which handles one after the other.

    A handler that hangs cannot be ended. It is given up, and another thread takes its place: as many again at most.
    """

    def __init__(self, post: Post, context: contextvars.Context) -> None:
        self._post = post
        self._context = context
        self._work: SimpleQueue[Running | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._given = 0
        self._is_stopping = False
        self._threads: set[_Hand] = set()
        self._hung: set[_Hand] = set()
        self._is_short = False

    @property
    def is_stuck(self) -> bool:
        return len(self._hung) >= self._post.concurrency

    def give(self, some: Sequence[Running]) -> None:
        """Handle messages. Raises RuntimeError, and takes none, if there is no thread and none can be started."""
        with self._lock:
            self._given += len(some)
            error = self._grow()
            if error is not None and not self._threads:
                self._given -= len(some)
                raise error
        for running in some:
            self._work.put(running)

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            for _ in self._threads:
                self._work.put(None)

    def join(self, seconds: float) -> bool:
        with self._lock:
            threads = [*self._threads, *self._hung]
        until = time.monotonic() + seconds  # that of the threads, whatever clock the worker has
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _grow(self) -> RuntimeError | None:
        """Start what threads are needed; what keeps the next from being started, until this is called again."""
        size = self._post.concurrency
        while len(self._threads) < min(size, 2 * size - len(self._hung), self._given) and not self._is_stopping:
            # A daemon: a handler that hangs must not keep the process from ending.
            thread = _Hand(target=self._serve, name=f"holdfast-{self._post.queue}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process has as many as it may have
                if not self._is_short:
                    self._is_short = True
                    log.warning(
                        "queue %s: %d threads run handlers, and no more can be started: %s",
                        self._post.queue,
                        len(self._threads),
                        error,
                    )
                return error
            self._is_short = False
            self._threads.add(thread)  # it cannot have ended: that takes the lock
        return None

    def _serve(self) -> None:
        me = threading.current_thread()
        assert isinstance(me, _Hand)
        is_needed = True
        try:
            while is_needed:
                running = self._work.get()
                if running is None:
                    break
                me.running = running
                self._context.copy().run(self._handle, running)
                del running
                is_needed = self._is_needed(me)
        finally:
            with self._lock:
                self._threads.discard(me)
                self._hung.discard(me)

    def _is_needed(self, me: "_Hand") -> bool:
        """Whether a thread that has ended with a message goes on to the next; false: another has taken its place."""
        with self._lock:
            me.running = None
            if me in self._hung:
                self._hung.discard(me)
                self._grow()
                return False
            self._given -= 1
            return True

    def _abandon(self, running: Running) -> None:
        """The handler of this message is not waited for any more."""
        with self._lock:
            for thread in self._threads:
                if thread.running is running:
                    self._threads.discard(thread)
                    self._hung.add(thread)
                    self._given -= 1
                    self._grow()
                    return

    def _handle(self, running: Running) -> None:
        post = self._post
        held, handlers, clock = post.held, post.handlers, post.clock
        started = clock.monotonic()
        if not held.begin(running, started, self._abandon):
            return
        has_obeyed = False
        try:
            handlers.enter(running)
            call = running.call
            assert call is not None
            result = call()
            if result is not None:
                require_that_it_has_run(result)
        except BaseException as error:  # noqa: BLE001 - what a handler raises must not end the thread
            finished = handlers.failed(running, error, clock.monotonic() - started)
            has_obeyed = isinstance(error, LeaseLost)
        else:
            finished = handlers.done(running, clock.monotonic() - started)
        if not held.finish(finished) and not has_obeyed:
            tell_late(finished)


class _Hand(threading.Thread):
    running: Running | None = None


def tell_late(finished: Finished) -> None:
    """A handler that was given up has ended, and not because it was told to."""
    running = finished.running
    log.warning(
        "message %d of %s: its handler ended after %.1f s, which does not count any more: %s",
        running.delivery.id,
        running.delivery.queue,
        finished.seconds,
        running.handling.why,
    )
