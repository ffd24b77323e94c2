"""PostgreSQL is restarted again and again while processes send and handle messages, and every message is counted."""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast._errors import EngineUnavailable, HoldfastError, OutcomeUnknown
from holdfast.queue import OutgoingMessage, QueuePolicy, SentMessage, open_backend
from holdfast.queue.backend import Ack, Backend, LeaseRequest, QueueChange, Settlement
from tests.services.postgres import RestartablePostgres

QUEUE = "restarts"
TENANTS = 20
BATCH = 20
PATIENCE = 0.1
"""Seconds that a sender waits for a server that is away: short, so that it hears of most restarts."""
BETWEEN = 100
"""Messages that are sent between two restarts, so that each meets a busy server."""
LEASE = 2.0
REPORT_EVERY = 50
STUCK = 120.0


def restarts(
    server: RestartablePostgres, count: int, seed: int, say: Callable[[str], None]
) -> tuple[dict[str, Any], list[str]]:
    """Restart the server `count` times, in good order or by a crash. Return the figures, and what was wrong."""
    chance = random.Random(seed)
    with open_backend(server.url, timeout=PATIENCE) as backend, open_backend(server.url) as patient:
        patient.change(QUEUE, QueueChange(policy=QueuePolicy(lease=LEASE, max_attempts=1000)), create=True)
        run = _Run(backend, patient)
        try:
            for number in range(1, count + 1):
                run.wait_for_sends(BETWEEN)
                is_crash = chance.random() < 0.5
                time.sleep(chance.uniform(0, 0.02))
                run.downs["crash" if is_crash else "restart"] += 1
                (server.crash if is_crash else server.stop)()
                server.start()
                if not number % REPORT_EVERY:
                    say(f"postgres: {number} restarts, {len(run.acknowledged)} sent, {dict(run.errors)}")
        finally:
            run.stop()
        run.drain()
    return run.figures(), run.violations()


class _Run:
    """Senders and workers in threads, and what they were told."""

    def __init__(self, backend: Backend, patient: Backend) -> None:
        self._backend = backend
        self._patient = patient
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        self.downs: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self.acknowledged: dict[int, int] = {}
        """The ids of acknowledged messages, by number."""
        self.undecided: set[int] = set()
        """Messages without a key whose senders do not know whether they were stored."""
        self.handled: dict[int, set[int]] = {}
        works = [self._send_batches, self._send_batches, self._send_singles, self._send_singles]
        works += [self._handle, self._handle]
        self._threads = [threading.Thread(target=self._repeat, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def wait_for_sends(self, count: int) -> None:
        enough, deadline = len(self.acknowledged) + count, time.monotonic() + STUCK
        while len(self.acknowledged) < enough and not self.unexpected:
            if time.monotonic() > deadline:
                raise AssertionError(f"not {count} messages were sent within {STUCK:g} s: {dict(self.errors)}")
            time.sleep(0.005)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(STUCK)

    def drain(self) -> None:
        """Handle everything that is left, including messages whose workers have lost their leases."""
        deadline = time.monotonic() + STUCK
        while time.monotonic() < deadline:
            self._handle_some(self._patient)
            lanes = self._patient.inspect(QUEUE).lanes
            if not any(lane.ready or lane.leased or lane.delayed for lane in lanes):
                return
            self._patient.wait(QUEUE, 0.1)

    def figures(self) -> dict[str, Any]:
        return {
            "restarts": sum(self.downs.values()),
            "of these crashes": self.downs["crash"],
            "sent under restarts": len(self.acknowledged),
            "errors of senders and workers": dict(sorted(self.errors.items())),
            "messages lost": len(self.acknowledged.keys() - self.handled.keys()),
        }

    def violations(self) -> list[str]:
        found = [f"an error that a restart must not cause: {error}" for error in self.unexpected]
        if lost := sorted(self.acknowledged.keys() - self.handled.keys()):
            found.append(f"{len(lost)} acknowledged messages were never handled, such as {lost[:5]}")
        if strange := sorted(self.handled.keys() - self.acknowledged.keys() - self.undecided):
            found.append(f"{len(strange)} messages were handled and never acknowledged, such as {strange[:5]}")
        if twice := sorted(number for number, ids in self.handled.items() if len(ids) > 1):
            found.append(f"{len(twice)} messages were stored twice, such as {twice[:5]}")
        return found

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._stopping.is_set() and not self.unexpected:
            try:
                work()
            except (EngineUnavailable, OutcomeUnknown) as error:
                self.errors[type(error).__name__] += 1
            except BaseException as error:
                self.errors[type(error).__name__] += 1
                self.unexpected.append(f"{type(error).__name__}: {error}")

    def _send_batches(self) -> None:
        """Send a batch with keys until it is acknowledged."""
        numbers = [next(self._numbers) for _ in range(BATCH)]
        messages = [_message(number, key=str(number)) for number in numbers]
        while True:
            try:
                results = self._backend.send(QUEUE, messages)
            except (EngineUnavailable, OutcomeUnknown) as error:
                self.errors[type(error).__name__] += 1
                continue
            self._acknowledge(numbers, results)
            return

    def _send_singles(self) -> None:
        """Send one message without a key, by the short path."""
        number = next(self._numbers)
        try:
            results = self._backend.send(QUEUE, [_message(number)])
        except OutcomeUnknown:
            self.undecided.add(number)
            raise
        self._acknowledge([number], results)

    def _acknowledge(self, numbers: list[int], results: Any) -> None:
        for number, result in zip(numbers, results, strict=True):
            if not isinstance(result, SentMessage):
                raise HoldfastError(f"message {number} was refused: {result}")
            self.acknowledged[number] = result.id

    def _handle(self) -> None:
        self._handle_some(self._backend)

    def _handle_some(self, backend: Backend) -> None:
        deliveries = backend.lease(LeaseRequest(queue=QUEUE, count=100, lease=LEASE)).deliveries
        for delivery in deliveries:
            self.handled.setdefault(int(delivery.body), set()).add(delivery.id)
        if deliveries:
            backend.settle([Settlement(delivery.receipt, Ack()) for delivery in deliveries])
        else:
            backend.wait(QUEUE, 0.05)


def _message(number: int, key: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(tenant=f"tenant-{number % TENANTS}", body=b"%d" % number, key=key)
