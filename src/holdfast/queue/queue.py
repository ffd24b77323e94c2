"""`Queue` and `Topic`, for programs that send and handle messages. Start reading at `Queue`."""

import logging
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar, overload

import msgspec

from holdfast._backoff import Backoff
from holdfast._clock import Clock, SystemClock
from holdfast._errors import Backpressure, InvalidValue
from holdfast._forks import register_after_fork
from holdfast._multi_sink import MultiSink
from holdfast._names import check_queue_name
from holdfast._types import Sink
from holdfast.calls.context import current_scope
from holdfast.calls.runtime import PROCESS
from holdfast.calls.scope import OverrideScope, Scope, find_trace
from holdfast.queue.backend import Backend, QueueChange, require_support, require_topics
from holdfast.queue.events import SendEvent
from holdfast.queue.job import HandlerOptions, Job, get_function_name, require_no_generator
from holdfast.queue.message import (
    DEFAULT_PRIORITY,
    MAX_DURATION,
    Delivery,
    OutgoingMessage,
    RefusalReason,
    RefusedMessage,
    SentMessage,
)
from holdfast.queue.open import get_backend_kind, open_backend
from holdfast.queue.policy import QueuePolicy, format_differences, list_differences
from holdfast.queue.rules.disposition import DEFAULT_BACKOFF

Parameters = ParamSpec("Parameters")
Argument = TypeVar("Argument")
Result = TypeVar("Result")
Handler: TypeAlias = Callable[[Delivery], Awaitable[None] | None]
HandlerFunction = TypeVar("HandlerFunction", bound=Handler)

log = logging.getLogger(__name__)


class Queue:
    """A named queue for the work of many tenants.

    `backend` is a backend, or an address such as `sqlite:work.sqlite` (see `open_backend`). An address is opened on
    first use, and again in a forked child. `close` leaves a passed backend open. A queue that does not exist is created
    with `policy`. An existing queue keeps its policy, and a warning lists the differences. Thread-safe.

    A message carries the trace and the deadline of the code that sends it (see `holdfast.calls`). To have it handled
    regardless of that deadline, send it within `with detached()`.

    `sink`, such as a `QueueMetrics`, gets a SendEvent for everything that is sent through this object.
    """

    def __init__(
        self,
        name: str,
        backend: Backend | str,
        *,
        policy: QueuePolicy | None = None,
        clock: Clock | None = None,
        sink: Sink[SendEvent] | None = None,
    ) -> None:
        self.name = check_queue_name(name)
        self.jobs: dict[str, Job[..., Any]] = {}
        self.handler: Handler | None = None
        """The function that handles messages that call no job."""
        self.handler_options = HandlerOptions()
        self._clock = clock or SystemClock()
        self._sink = None if sink is None else MultiSink(sink)  # which logs what a sink raises
        # Not `self._clock`: without a clock from the caller, a backend with a server uses the server's time.
        self._lazy_backend = LazyBackend(backend, clock, lambda opened: self._make(opened, policy))

    @property
    def backend(self) -> Backend:
        """The backend of the queue. Opened on first use."""
        return self._lazy_backend.get()

    @property
    def policy(self) -> QueuePolicy:
        """The current policy, read from the backend. Creates the queue if it does not exist."""
        return self.backend.change(self.name, QueueChange(), create=True)

    @property
    def address(self) -> str:
        """The address of the backend, without its password, for logs and messages."""
        return self._lazy_backend.address

    def open(self) -> None:
        """Open the backend now, so that an invalid address fails here. May be repeated."""
        self._lazy_backend.get()

    def send(
        self,
        body: bytes,
        *,
        tenant: str,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0.0,
        group: str | None = None,
        key: str | None = None,
        ttl: float | None = None,
    ) -> SentMessage:
        """Send one message. It is stored when this returns. `OutgoingMessage` describes the options.

        Raise Backpressure if the tenant exceeds a limit. After OutcomeUnknown the message may have been stored: send it
        again with the same `key`, and it is stored once.
        """
        return self.send_one(
            OutgoingMessage(tenant=tenant, body=body, priority=priority, delay=delay, group=group, key=key, ttl=ttl)
        )

    async def send_async(
        self,
        body: bytes,
        *,
        tenant: str,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0.0,
        group: str | None = None,
        key: str | None = None,
        ttl: float | None = None,
    ) -> SentMessage:
        """Send one message as `send` does, without blocking the event loop."""
        return await self.send_one_async(
            OutgoingMessage(tenant=tenant, body=body, priority=priority, delay=delay, group=group, key=key, ttl=ttl)
        )

    def send_many(self, messages: Sequence[OutgoingMessage]) -> Sequence[SentMessage | RefusedMessage]:
        """Send messages in one transaction, much faster than one by one. Raise InvalidValue for unsupported options."""
        backend = self.backend
        require_support(backend, messages)
        results = backend.send(self.name, add_trace_and_deadline(messages, self._clock))
        if self._sink is not None:
            self._sink.emit(SendEvent(queue=self.name, at=self._clock.wall(), messages=messages, results=results))
        return results

    async def send_many_async(self, messages: Sequence[OutgoingMessage]) -> Sequence[SentMessage | RefusedMessage]:
        """Send messages as `send_many` does, without blocking the event loop."""
        return await _run_in_thread(self.send_many, messages)

    def send_one(self, message: OutgoingMessage) -> SentMessage:
        """Send one message. Raise Backpressure if its tenant exceeds a limit."""
        [result] = self.send_many([message])
        if isinstance(result, RefusedMessage):
            raise build_backpressure(self.name, result)
        return result

    async def send_one_async(self, message: OutgoingMessage) -> SentMessage:
        """Send one message as `send_one` does, without blocking the event loop."""
        return await _run_in_thread(self.send_one, message)

    @overload
    def job(self, function: Callable[Parameters, Result], /) -> Job[Parameters, Result]: ...

    @overload
    def job(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        timeout: float | None = None,
        max_attempts: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> Callable[[Callable[Parameters, Result]], Job[Parameters, Result]]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        timeout: float | None = None,
        max_attempts: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> Any:
        """Register a function, synchronous or asynchronous, as a job of this queue: `@queue.job`.

        `name` identifies the job in its messages; default: the function's name. `HandlerOptions` describes the others.
        """
        options = HandlerOptions(timeout=timeout, max_attempts=max_attempts, backoff=backoff)

        def decorate(function: Callable[..., Any]) -> Job[..., Any]:
            require_no_generator(function)
            called = name or get_function_name(function)
            if called in self.jobs:
                raise InvalidValue(f"queue {self.name} already has a job {called}: give one of them another name")
            self.jobs[called] = job = Job(self, function, called, options)
            return job

        return decorate if function is None else decorate(function)

    @overload
    def handle(self, function: HandlerFunction, /) -> HandlerFunction: ...

    @overload
    def handle(
        self,
        function: None = None,
        /,
        *,
        timeout: float | None = None,
        max_attempts: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> Callable[[HandlerFunction], HandlerFunction]: ...

    def handle(
        self,
        function: Handler | None = None,
        /,
        *,
        timeout: float | None = None,
        max_attempts: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> Any:
        """Register the handler of messages that call no job: `@queue.handle`. It gets the Delivery."""
        options = HandlerOptions(timeout=timeout, max_attempts=max_attempts, backoff=backoff)

        def decorate(function: Handler) -> Handler:
            require_no_generator(function)
            if self.handler is not None:
                raise InvalidValue(f"queue {self.name} already has a handler: a queue has at most one")
            self.handler, self.handler_options = function, options
            return function

        return decorate if function is None else decorate(function)

    def close(self) -> None:
        """Close the backend if the queue opened it; stop workers first. May be repeated. Later use opens it again."""
        self._lazy_backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _make(self, backend: Backend, policy: QueuePolicy | None) -> None:
        stored = backend.change(self.name, QueueChange(policy=policy), create=True)
        if policy is not None and stored != policy:
            log.warning(
                "queue %s already exists with a different policy: %s. The policy in a program applies only when the "
                "queue is created: change it with `holdfast queue limits`, `holdfast queue resize` or over HTTP, or "
                "change the program",
                self.name,
                format_differences(list_differences(stored, policy)),
            )


async def _run_in_thread(function: Callable[[Argument], Result], argument: Argument) -> Result:
    import asyncio  # only programs with an event loop need it

    return await asyncio.to_thread(function, argument)


def build_backpressure(queue: str, result: RefusedMessage) -> Backpressure:
    """Return the error for a refused message."""
    why = "exceeds its max_rate" if result.reason is RefusalReason.MAX_RATE else "has too many messages waiting"
    return Backpressure(
        f"queue {queue}: tenant {result.tenant} {why}; try again in {result.retry_after:.3f} s", result.retry_after
    )


class Topic:
    """A name under which messages are sent to every queue that subscribes to it.

    `backend` is the address or the backend of these queues: all of them share it. `sink` gets a SendEvent for every
    queue to which messages are published. Thread-safe.
    """

    def __init__(
        self, name: str, backend: Backend | str, *, clock: Clock | None = None, sink: Sink[SendEvent] | None = None
    ) -> None:
        self.name = check_queue_name(name, "topic")
        self._clock = clock or SystemClock()
        self._sink = None if sink is None else MultiSink(sink)
        self._lazy_backend = LazyBackend(backend, clock)

    def subscribe(self, queue: Queue) -> None:
        """Deliver messages published from now on to `queue`. Raise NotFound for a queue of another backend."""
        queue.open()
        self._backend().change(queue.name, QueueChange(subscribe=[self.name]))

    def unsubscribe(self, queue: Queue) -> None:
        """Stop delivering to `queue`. Messages that are already in it stay."""
        queue.open()
        self._backend().change(queue.name, QueueChange(unsubscribe=[self.name]))

    def publish(self, messages: Sequence[OutgoingMessage]) -> Sequence[SentMessage | RefusedMessage]:
        """Send messages to all subscribers in one transaction. Return a result for each message in every queue."""
        backend = self._backend()
        require_support(backend, messages)
        results = backend.send(self.name, add_trace_and_deadline(messages, self._clock), is_topic=True)
        if self._sink is not None and messages:
            at, queues = self._clock.wall(), len(results) // len(messages)
            for first in range(queues):
                copies = results[first::queues]
                self._sink.emit(SendEvent(queue=copies[0].queue, at=at, messages=messages, results=copies))
        return results

    async def publish_async(self, messages: Sequence[OutgoingMessage]) -> Sequence[SentMessage | RefusedMessage]:
        """Publish messages as `publish` does, without blocking the event loop."""
        return await _run_in_thread(self.publish, messages)

    def close(self) -> None:
        self._lazy_backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _backend(self) -> Backend:
        backend = self._lazy_backend.get()
        require_topics(backend)
        return backend


class LazyBackend:
    """A backend that is opened from its address on first use and again in a forked child, or a backend as passed.

    Thread-safe. Without a clock it uses the time of the server, if there is one. `prepare` is called with the backend
    before `get` first returns it.
    """

    def __init__(
        self, backend: Backend | str, clock: Clock | None, prepare: Callable[[Backend], object] = lambda _: None
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._prepare = prepare
        self._lock = threading.Lock()
        self._opened: Backend | None = None
        self._inherited: list[Backend] = []
        register_after_fork(self)

    def get(self) -> Backend:
        """Return the backend, and open it first if necessary."""
        opened = self._opened
        if opened is not None:
            return opened
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    @property
    def address(self) -> str:
        return (
            get_backend_kind(self._backend).describe(self._backend)
            if isinstance(self._backend, str)
            else type(self._backend).__name__
        )

    def close(self) -> None:
        """Close the backend if it was opened here. May be repeated; `get` opens it again."""
        with self._lock:
            backend, self._opened = self._opened, None
        if backend is not None and isinstance(self._backend, str):
            backend.close()

    def reset_after_fork(self) -> None:
        """Start with an unlocked lock and no open backend, in the child of a fork."""
        self._lock = threading.Lock()
        if self._opened is not None:
            # It is the parent's: a reference keeps it from being closed when it is collected.
            self._inherited.append(self._opened)
            self._opened = None

    def _open(self) -> Backend:
        if not isinstance(self._backend, str):
            self._prepare(self._backend)
            return self._backend
        backend = open_backend(self._backend, clock=self._clock)
        try:
            self._prepare(backend)
        except BaseException:
            backend.close()
            raise
        return backend


class HandlerScope(Scope, eq=False):
    """The scope of a handler. Its deadline applies to calls that the handler makes, not to messages that it sends."""


def add_trace_and_deadline(messages: Sequence[OutgoingMessage], clock: Clock) -> Sequence[OutgoingMessage]:
    """Return the messages with the current trace and deadline, where they have none of their own."""
    scope = current_scope()
    if scope is None:
        return messages
    trace, seconds = find_trace(scope), _seconds_left(scope)
    if trace is None and seconds is None:
        return messages
    deadline = None if seconds is None else clock.wall() + seconds
    return [
        msgspec.structs.replace(
            message,
            trace=message.trace or trace,
            deadline=deadline if message.deadline is None else message.deadline,
        )
        for message in messages
    ]


def _seconds_left(scope: Scope) -> float | None:
    found: Scope | None = scope
    while isinstance(found, HandlerScope | OverrideScope):  # the latter only has the deadline around it
        found = found.enclosing
    seconds = math.inf if found is None else found.expires - PROCESS.monotonic()
    return None if seconds > MAX_DURATION else max(0.0, seconds)
