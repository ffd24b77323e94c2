"""The queues behind the API: opened when they are needed, and not by one tenant alone."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import EngineUnavailable, InvalidValue
from holdfast.queue import OutgoingMessage, RefusedMessage, SentMessage, open_backend
from holdfast.queue.backend import FULL_CAPABILITIES, Backend, QueueChange
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.server.executor import BoundedExecutor
from holdfast.server.queues import MAX_QUERIES, MAX_QUERIES_PER_TENANT, MAX_SENDING_PER_TENANT, Queues
from holdfast.testing import FakeClock
from tests.unit.queue.toy import LimitedBackend
from tests.unit.server.queue_api import QUEUE, Api, running

STUCK = 30.0


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend(f"sqlite:{tmp_path / 'queue.sqlite'}") as backend:
        backend.change("orders", QueueChange(), create=True)
        yield backend


def test_the_store_is_opened_by_the_first_who_needs_it_and_once(backend: Backend) -> None:
    opened: list[Backend] = []

    def opening() -> Backend:
        opened.append(backend)
        return backend

    queues = Queues(opening)

    async def use() -> Sequence[str]:
        await asyncio.gather(*(queues.ask(lambda each: each.inspect("orders")) for _ in range(8)))
        return await queues.list_names()

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

    queues = Queues(opening)

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

    queues = Queues(opening)
    with pytest.raises(EngineUnavailable, match="away"):
        queues.open()
    assert queues.open() is backend
    assert queues.open() is backend


def test_closing_closes_what_was_opened_and_may_be_repeated(backend: Backend) -> None:
    queues = Queues(lambda: backend)
    queues.close()
    backend.inspect("orders")  # which nobody had opened
    queues.open()
    queues.close()
    queues.close()
    with pytest.raises(Exception, match="closed"):
        backend.inspect("orders")


class Slow:
    """Keeps messages only when it is told to go on."""

    capabilities = FULL_CAPABILITIES

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def send(self, queue: str, messages: Sequence[OutgoingMessage]) -> Sequence[SentMessage | RefusedMessage]:
        assert self.go_on.wait(STUCK)
        return [SentMessage(id=1, queue=queue, lane=0, trace="", pressure=0.0)]


def test_a_tenant_whose_requests_take_long_is_refused_more_and_others_are_not() -> None:
    slow = Slow()
    queues = Queues(lambda: cast("Backend", slow))

    def send(tenant: str) -> Any:
        return asyncio.ensure_future(queues.send("orders", tenant, [OutgoingMessage(tenant=tenant, body=b"")]))

    async def use() -> None:
        sent = [send("noisy") for _ in range(MAX_SENDING_PER_TENANT)]
        await asyncio.sleep(0)
        with pytest.raises(
            EngineUnavailable, match=rf"in progress \({MAX_SENDING_PER_TENANT} requests of tenant noisy\)"
        ):
            await send("noisy")
        sent += [send("quiet") for _ in range(MAX_SENDING_PER_TENANT)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in sent)
        slow.go_on.set()
        await asyncio.gather(*sent)
        await send("noisy")

    asyncio.run(use())


def test_what_the_backend_cannot_do_is_refused() -> None:
    backend = LimitedBackend()
    backend.change("orders", QueueChange(), create=True)
    queues = Queues(lambda: backend)
    with pytest.raises(InvalidValue, match="does not support groups"):
        asyncio.run(queues.send("orders", "anna", [OutgoingMessage(tenant="anna", body=b"", group="g")]))
    assert backend.inspect("orders").totals.waiting == 0


def test_a_tenant_that_asks_too_much_is_refused_more_and_others_are_not() -> None:
    go_on = threading.Event()
    queues = Queues(lambda: cast("Backend", None))

    def ask(tenant: str | None) -> Any:
        return asyncio.ensure_future(queues.ask(lambda _: go_on.wait(STUCK), tenant))

    async def use() -> None:
        asked = [ask("noisy") for _ in range(MAX_QUERIES_PER_TENANT)]
        await asyncio.sleep(0)
        with pytest.raises(
            EngineUnavailable, match=rf"in progress \({MAX_QUERIES_PER_TENANT} requests of tenant noisy\)"
        ):
            await ask("noisy")
        asked += [ask(who) for who in ("quiet", None) for _ in range(MAX_QUERIES_PER_TENANT)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in asked)
        go_on.set()
        assert await asyncio.gather(*asked) == [True] * len(asked)
        assert await ask("noisy")

    asyncio.run(use())


def test_all_together_are_no_more_than_there_may_be() -> None:
    go_on = threading.Event()
    queues = Queues(MemoryBackend)

    async def use() -> None:
        asked = [asyncio.ensure_future(queues.ask(lambda _: go_on.wait(STUCK))) for _ in range(MAX_QUERIES)]
        await asyncio.sleep(0)
        with pytest.raises(
            EngineUnavailable, match=rf"too many requests in progress \({MAX_QUERIES} requests of holdfast-queues\)"
        ):
            await queues.list_names()
        go_on.set()
        await asyncio.gather(*asked)
        assert await queues.list_names() == []

    asyncio.run(use())


def test_what_nobody_waits_for_any_more_counts_until_it_is_done() -> None:
    """Else whoever hangs up at once, again and again, would have as much under way as it likes."""
    go_on = threading.Event()
    queues = Queues(lambda: cast("Backend", None))

    def fail(_: Backend) -> None:
        assert go_on.wait(STUCK)
        raise EngineUnavailable("away")

    def ask() -> Any:
        return asyncio.ensure_future(queues.ask(fail, "noisy"))

    async def use() -> None:
        asked = [ask() for _ in range(MAX_QUERIES_PER_TENANT)]
        await asyncio.sleep(0)
        for each in asked:
            each.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*asked, return_exceptions=True)
        )
        with pytest.raises(EngineUnavailable, match=r"in progress \(\d+ requests of tenant noisy\)"):
            await ask()
        go_on.set()
        while True:  # those that were left alone end in threads of their own
            with pytest.raises(EngineUnavailable) as refused:
                await ask()
            if str(refused.value) == "away":
                return

    asyncio.run(use())


def test_what_is_refused_is_logged_once_a_second_at_the_most(caplog: pytest.LogCaptureFixture) -> None:
    clock, go_on = FakeClock(), threading.Event()
    executor = BoundedExecutor("holdfast-test", threads=1, max_running=4, max_per_tenant=1, clock=clock)

    async def use() -> None:
        asked = asyncio.ensure_future(executor.run(lambda: go_on.wait(STUCK), "noisy"))
        await asyncio.sleep(0)
        for seconds in (0.0, 0.9, 0.2):
            clock.advance(seconds)
            for _ in range(3):
                with pytest.raises(EngineUnavailable):
                    await executor.run(lambda: True, "noisy")
        go_on.set()
        await asked

    asyncio.run(use())
    what = "request refused: too many in progress (1 request of tenant noisy)"
    assert [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "holdfast.server"] == [
        ("WARNING", what),
        ("WARNING", f"{what} (5 more were refused before)"),
    ]


@pytest.mark.parametrize("path", ["messages/1", "usage?tenant=anna"])
def test_a_tenant_that_asks_too_much_over_http_keeps_nobody_else_out(
    tmp_path: Path, backend: Backend, path: str
) -> None:
    go_on = threading.Event()

    async def use(api: Api) -> tuple[int, int]:
        queues: Queues = api.app.state.services.queues
        asked = [
            asyncio.ensure_future(queues.ask(lambda _: go_on.wait(STUCK), "anna"))
            for _ in range(MAX_QUERIES_PER_TENANT)
        ]
        await asyncio.sleep(0)
        refused = await api.ask("anna", "GET", f"/v1/queues/{QUEUE}/{path}")
        another = asyncio.ensure_future(api.ask("viewer", "GET", f"/v1/queues/{QUEUE}/{path}"))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*asked)
        return refused.status_code, (await another).status_code

    with running(tmp_path, backend, FakeClock()) as api:
        refused, another = asyncio.run(use(api))
    assert refused == 503
    assert another in (200, 404), "there is no such message, or nothing of this tenant"


def test_a_failed_request_counts_no_longer(backend: Backend) -> None:
    queues = Queues(lambda: backend)

    async def use() -> None:
        for _ in range(2 * MAX_SENDING_PER_TENANT):
            with pytest.raises(Exception, match="no queue nowhere"):
                await queues.send("nowhere", "anna", [OutgoingMessage(tenant="anna", body=b"")])

    asyncio.run(use())
