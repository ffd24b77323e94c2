"""The queue of the soak as its producers and workers open it, and what its jobs do."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from holdfast._errors import DatabaseFull, EngineUnavailable, OutcomeUnknown
from holdfast.queue import OutgoingMessage, Postpone, Queue, Reject, current_message, open_backend
from holdfast.queue.backend import Backend, LeaseRequest, LeaseResult, Receipt
from tests.soak.items import ATTEMPTS, POSTPONED, QUEUE, SLOW_SECONDS, SOON, Fate, Item
from tests.soak.ledger import Handling, Ledger, now
from tests.support.disk import FaultyDisk

PASSING = (EngineUnavailable, DatabaseFull, OutcomeUnknown)
"""What happens when a server is restarted, or a disk is full: it is tried again."""
PAUSE = 0.05
GLANCE = 0.005
FULL_CAPABILITIES = "disk-is-full"
"""The file in the soak's folder that says so to all its processes."""
PATIENCE = 0.3
"""Seconds to wait for a server that is away: less than a restart takes, so that somebody hears of it."""

Result = TypeVar("Result")


class Disk(FaultyDisk):
    """A disk that is full for all processes at once, while there is a certain file."""

    def __init__(self, flag: Path) -> None:
        super().__init__()
        self._flag = flag
        threading.Thread(target=self._watch, daemon=True).start()

    def synced(self, path: Path) -> None:
        """Nothing is remembered: here nobody cuts the power."""

    def _watch(self) -> None:
        while True:
            self.full = self._flag.exists()
            time.sleep(GLANCE)


def end_with_parent() -> None:
    """End this process when the soak ends, however that ends: its end of our standard input is closed then."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until there is something to end in good order


def persistently(work: Callable[[], Result]) -> Result:
    """Try until nothing is in the way."""
    while True:
        try:
            return work()
        except PASSING:
            time.sleep(PAUSE)


def open_patiently(url: str, directory: Path) -> Backend:
    """The backend of a process of the soak, on a disk that may be full."""
    if url.startswith("sqlite:"):
        Disk(directory / FULL_CAPABILITIES).__enter__()
        return persistently(lambda: open_backend(url))
    return persistently(lambda: open_backend(url, timeout=PATIENCE))


class Noting:
    """A backend that remembers when each message was asked for; all else is as it was."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._leased: dict[Receipt, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def lease(self, request: LeaseRequest) -> LeaseResult:
        at = now()
        leased = self._backend.lease(request)
        self._leased.update((delivery.receipt, at) for delivery in leased.deliveries)
        return leased

    def asked_at(self, receipt: Receipt) -> int:
        """When; asked once."""
        return self._leased.pop(receipt)


class Jobs:
    """The queue with its jobs. Each writes down what it did before it returns."""

    def __init__(self, backend: Backend, ledger: Ledger | None = None) -> None:
        self._noting = Noting(backend)
        self.queue = Queue(QUEUE, cast("Backend", self._noting))
        self._ledger = ledger
        self._blocking = self.queue.job(name="blocking", backoff=SOON)(self._block)
        self._cooperative = self.queue.job(name="cooperative", backoff=SOON)(self._cooperate)
        self._hopeless = self.queue.job(name="hopeless", backoff=SOON, max_attempts=ATTEMPTS)(self._fail)

    def message(self, item: Item) -> OutgoingMessage:
        job = self.queue.jobs[item.job]
        return item.message(job.encode(number=item.number, fate=item.fate))

    def _block(self, number: int, fate: Fate) -> None:
        began = now()
        if fate is Fate.SLOW:
            time.sleep(SLOW_SECONDS)
        self._end(number, fate, began)

    async def _cooperate(self, number: int, fate: Fate) -> None:
        began = now()
        if fate is Fate.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        self._end(number, fate, began)

    def _fail(self, number: int, fate: Fate) -> None:
        self._end(number, fate, now())

    def _end(self, number: int, fate: Fate, began: int) -> None:
        delivery = current_message().delivery
        is_first = delivery.receipt.deliveries == 1
        outcome = fate.value
        if fate is Fate.SLOW or (fate in (Fate.FAILS_ONCE, Fate.POSTPONED_ONCE) and not is_first):
            outcome = Fate.DONE.value
        if self._ledger is not None:
            leased = self._noting.asked_at(delivery.receipt)
            attempt = Handling(number, delivery.id, delivery.receipt.deliveries, leased, began, now(), outcome, "")
            self._ledger.write(attempt.line())
        match outcome:
            case Fate.FAILS_ONCE | Fate.FAILS_ALWAYS:
                raise RuntimeError(f"number {number} fails, as it should")
            case Fate.POSTPONED_ONCE:
                raise Postpone(POSTPONED)
            case Fate.REJECTED:
                raise Reject(f"number {number} is rejected, as it should be")
