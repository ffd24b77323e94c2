"""The queues behind the API: opened when they are needed, and not by one tenant alone."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import EngineUnavailable
from holdfast.queue import Backend, Change, Outgoing, Refused, Sent, open_backend
from holdfast.server.queues import SHARE, Queues

STUCK = 30.0


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend(f"sqlite:{tmp_path / 'queue.sqlite'}") as backend:
        backend.change("orders", Change(), create=True)
        yield backend


def test_the_store_is_opened_by_the_first_who_needs_it_and_once(backend: Backend) -> None:
    opened: list[Backend] = []

    def opening() -> Backend:
        opened.append(backend)
        return backend

    queues = Queues(opening, lambda: ["orders"])

    async def use() -> Sequence[str]:
        await asyncio.gather(*(queues.ask(lambda each: each.look("orders")) for _ in range(8)))
        return await queues.names()

    assert opened == []
    assert asyncio.run(use()) == ["orders"]
    assert opened == [backend]


def test_who_comes_while_the_store_is_opened_waits_for_it(backend: Backend) -> None:
    opened: list[Backend] = []
    is_opening, is_coming, go_on = threading.Event(), threading.Event(), threading.Event()

    def opening() -> Backend:
        opened.append(backend)
        is_opening.set()
        assert go_on.wait(STUCK)
        return backend

    queues = Queues(opening, list)

    def come() -> Backend:
        is_coming.set()
        return queues.open()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(queues.open)
        assert is_opening.wait(STUCK)
        second = threads.submit(come)
        assert is_coming.wait(STUCK)
        go_on.set()
        assert first.result(STUCK) is second.result(STUCK) is backend
    assert opened == [backend]


def test_a_store_that_could_not_be_opened_is_opened_the_next_time(backend: Backend) -> None:
    answers: list[Backend | Exception] = [EngineUnavailable("away"), backend]

    def opening() -> Backend:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    queues = Queues(opening, list)
    with pytest.raises(EngineUnavailable, match="away"):
        queues.open()
    assert queues.open() is backend
    assert queues.open() is backend


def test_closing_closes_what_was_opened_and_may_be_repeated(backend: Backend) -> None:
    queues = Queues(lambda: backend, list)
    queues.close()
    backend.look("orders")  # which nobody had opened
    queues.open()
    queues.close()
    queues.close()
    with pytest.raises(Exception, match="closed"):
        backend.look("orders")


class Slow:
    """Keeps messages only when it is told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def send(self, queue: str, messages: Sequence[Outgoing]) -> Sequence[Sent | Refused]:
        assert self.go_on.wait(STUCK)
        return [Sent(id=1, queue=queue, lane=0, trace="", pressure=0.0)]


def test_a_tenant_whose_requests_take_long_is_refused_more_and_others_are_not() -> None:
    slow = Slow()
    queues = Queues(lambda: cast("Backend", slow), list)

    def send(tenant: str) -> Any:
        return asyncio.ensure_future(queues.send("orders", tenant, [Outgoing(tenant=tenant, body=b"")]))

    async def use() -> None:
        sent = [send("noisy") for _ in range(SHARE)]
        await asyncio.sleep(0)
        with pytest.raises(EngineUnavailable, match=f"{SHARE} requests of tenant noisy are under way"):
            await send("noisy")
        sent += [send("quiet") for _ in range(SHARE)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in sent)
        slow.go_on.set()
        await asyncio.gather(*sent)
        await send("noisy")

    asyncio.run(use())


def test_a_failed_request_counts_no_longer(backend: Backend) -> None:
    queues = Queues(lambda: backend, list)

    async def use() -> None:
        for _ in range(2 * SHARE):
            with pytest.raises(Exception, match="no queue nowhere"):
                await queues.send("nowhere", "anna", [Outgoing(tenant="anna", body=b"")])

    asyncio.run(use())
