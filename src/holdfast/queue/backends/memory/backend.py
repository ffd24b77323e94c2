"""The backend in memory. Start reading here: one thread at a time runs a method."""

import threading
from collections.abc import Sequence
from itertools import count
from typing import Self

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineError, InvalidValue, NotFound
from holdfast._names import check_queue_name
from holdfast.queue.backend import (
    FULL_CAPABILITIES,
    Capabilities,
    DeadLetterQuery,
    LeaseRequest,
    LeaseResult,
    QueueChange,
    QueueSnapshot,
    check_change,
    check_query,
    check_request,
)
from holdfast.queue.backends.memory import dead as dead_letters
from holdfast.queue.backends.memory.book import Book, Message, Place, Publication, milliseconds
from holdfast.queue.backends.memory.due import AT_ONCE, drop_old, make_due_ready
from holdfast.queue.backends.memory.lease import Lease
from holdfast.queue.backends.memory.look import look
from holdfast.queue.backends.memory.send import Send
from holdfast.queue.backends.memory.settle import settle
from holdfast.queue.message import (
    DeadLetter,
    OutgoingMessage,
    RefusedMessage,
    SentMessage,
    Settlement,
    check_message,
    check_settlement,
)
from holdfast.queue.policy import QueuePolicy


class MemoryBackend:
    """See `holdfast.queue.backend.Backend`. Its messages are lost when it is closed, or when the process ends."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._is_open = True
        self._books: dict[str, Book] = {}
        self._messages: dict[int, Message] = {}
        self._ids = count(1)

    @property
    def capabilities(self) -> Capabilities:
        return FULL_CAPABILITIES

    def send(
        self, destination: str, messages: Sequence[OutgoingMessage], *, is_topic: bool = False
    ) -> Sequence[SentMessage | RefusedMessage]:
        for message in messages:
            check_message(message)
        if not messages:
            return []
        with self._changed:
            if not is_topic:
                return self._send(self._book(destination), messages)
            books = [self._book(book.name) for book in self._books.values() if destination in book.topics]
            publications = [Publication() for _ in messages]
            by_book = [self._send(book, messages, publications) for book in books]
            return [one for some in zip(*by_book, strict=True) for one in some]

    def lease(self, request: LeaseRequest) -> LeaseResult:
        check_request(request)
        with self._changed:
            return Lease(self._book(request.queue), request).run()

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        for one in settlements:
            check_settlement(one)
        with self._changed:
            self._require_open()
            self._changed.notify_all()
            return [self._settle(one) for one in settlements]

    def wait(self, queue: str, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_open or self._has_something(queue), timeout)

    def sweep(self, queue: str, before: float | None = None) -> int:
        dropped, is_more = 0, True
        while is_more:  # other threads run in between
            with self._changed:
                book = self._book(queue)
                due, gone = make_due_ready(book), drop_old(book, before)
                book.keys.forget(book.at)
                self._changed.notify_all()
            dropped += due.dropped + gone
            is_more = gone > 0 or len(due.messages) >= AT_ONCE
        with self._changed:
            tenants = list(self._book(queue).tenants)
        for start in range(0, len(tenants), AT_ONCE):
            with self._changed:
                self._book(queue).forget_tenants(tenants[start : start + AT_ONCE])
        return dropped

    def inspect(
        self,
        queue: str,
        *,
        tenants: Sequence[str] = (),
        top: int = 20,
        messages: Sequence[int] = (),
        lanes: bool = True,
    ) -> QueueSnapshot:
        if top < 0:
            raise InvalidValue(f"the top {top} tenants: expected 0 or more")
        with self._changed:
            return look(self._book(queue), tenants, top, messages, lanes=lanes)

    def list_dead_letters(self, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        check_query(query)
        with self._changed:
            return dead_letters.dead(self._book(query.queue), query)

    def redrive(self, query: DeadLetterQuery, *, discard: bool = False) -> int:
        check_query(query)
        with self._changed:
            self._changed.notify_all()
            return dead_letters.redrive(self._book(query.queue), query, discard=discard)

    def change(self, queue: str, change: QueueChange, *, create: bool = False) -> QueuePolicy:
        check_change(change)
        with self._changed:
            self._require_open()
            if create and queue in self._books:
                return self._book(queue).policy
            if create:
                self._books[queue] = Book(check_queue_name(queue), change.policy or QueuePolicy(), self._messages)
            book = self._book(queue)
            if change.policy is not None:
                book.policy = change.policy
            for name, limits in change.limits.items():
                book.tenant(name).own_limits = limits
            book.topics.update(change.subscribe)
            book.topics.difference_update(change.unsubscribe)
            self._changed.notify_all()
            return book.policy

    def list_queues(self) -> Sequence[str]:
        with self._changed:
            self._require_open()
            return sorted(self._books)

    def close(self) -> None:
        with self._changed:
            self._is_open = False
            self._books.clear()
            self._messages.clear()
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if not self._is_open:
            raise EngineError("the queues in memory are closed, and their messages are lost")

    def _book(self, queue: str) -> Book:
        self._require_open()
        book = self._books.get(queue)
        if book is None:
            raise NotFound(f"there is no queue {queue}: create it first, by opening it with holdfast.queue.Queue")
        return book.at_time(self._clock.wall())

    def _send(
        self, book: Book, messages: Sequence[OutgoingMessage], publications: Sequence[Publication] = ()
    ) -> list[SentMessage | RefusedMessage]:
        self._changed.notify_all()
        return Send(book, messages, self._ids).run(publications)

    def _settle(self, settlement: Settlement) -> bool:
        receipt = settlement.receipt
        message = self._messages.get(receipt.id)
        if message is None or message.place is not Place.LEASED or message.tries != receipt.deliveries:
            return False
        settle(message.book.at_time(self._clock.wall()), message, settlement.disposition)
        return True

    def _has_something(self, queue: str) -> bool:
        """Return whether a worker that polls now may get a message."""
        book = self._books.get(queue)
        if book is None:
            return False
        now = milliseconds(self._clock.wall())
        firsts = (book.held.first(), *(lanes.first() for lanes in book.ranks))
        return any(first is not None and first <= now for first in firsts)
