"""What a scrape sees of the queues behind a server."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import EngineUnavailable, NotFound
from holdfast.metrics import LogExporter, PrometheusExporter
from holdfast.queue import Limits, OutgoingMessage
from holdfast.queue.backend import LeaseRequest, QueueChange, QueueSnapshot
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.server.connections import Connections
from holdfast.server.detection.messages import IngestResult
from holdfast.server.metrics import AnsweredRequest, ReceivedTelemetry, RefusedConnection, ServerMetrics
from holdfast.server.queues import SWEEP_EVERY, QueueMonitor, Queues
from holdfast.server.routes.metrics import CACHE_SECONDS, ScrapeCache
from holdfast.testing import FakeClock
from tests.unit.queue.made import Scraped
from tests.unit.server.queue_api import QUEUE, Api, running

STUCK = 10.0


class Watched(MemoryBackend):
    """Counts looks, and does what the test says before each."""

    looks = 0
    error: Exception | None = None
    gate: threading.Event | None = None

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.looked = threading.Semaphore(0)

    def inspect(self, queue: str, **options: Any) -> QueueSnapshot:
        self.looks += 1
        self.looked.release()
        if self.gate is not None:
            assert self.gate.wait(STUCK)
        if self.error is not None:
            raise self.error
        return super().inspect(queue, **options)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(manual=True)


@pytest.fixture
def backend(clock: FakeClock) -> Watched:
    return Watched(clock)


@pytest.fixture
def api(tmp_path: Path, backend: Watched, clock: FakeClock) -> Iterator[Api]:
    with running(tmp_path, backend, clock) as api:
        yield api


def scrape_of(queues: Queues) -> ScrapeCache:
    metrics = Scraped()
    return ScrapeCache(queues, metrics, metrics.prometheus, PrometheusExporter())


def scraped(api: Api, name: str) -> dict[tuple[str, ...], float]:
    response = api("viewer", "GET", "/metrics")
    assert response.status_code == 200
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
        if sample.name == name
    }


def test_a_scrape_tells_how_deep_the_queues_are(api: Api, backend: Watched, clock: FakeClock) -> None:
    backend.send(
        QUEUE, [OutgoingMessage(tenant="anna", body=b"")] * 3 + [OutgoingMessage(tenant="bert", body=b"", delay=60)]
    )
    backend.lease(LeaseRequest(queue=QUEUE, count=1, lease=30))
    clock.advance(7)
    assert scraped(api, "holdfast_queue_messages") == {
        (QUEUE, "ready"): 2,
        (QUEUE, "leased"): 1,
        (QUEUE, "delayed"): 1,
        (QUEUE, "spilled"): 0,
        (QUEUE, "dead"): 0,
    }
    assert scraped(api, "holdfast_queue_oldest_age_seconds") == {(QUEUE,): pytest.approx(7)}
    assert scraped(api, "holdfast_queue_tenant_messages")[QUEUE, "anna", "ready"] == 2


def test_it_counts_what_is_sent_and_refused_by_reason_and_tenant(api: Api, clock: FakeClock) -> None:
    limits = {
        "anna": Limits(max_rate=1.0, max_burst=2.0),
        "bert/../x": Limits(max_waiting=1, spill_rate=1.0, spill_burst=1.0),
    }
    api.backend.change(QUEUE, QueueChange(limits=limits))
    assert scraped(api, "holdfast_queue_refused_total") == {(QUEUE, "max_rate"): 0, (QUEUE, "max_waiting"): 0}
    assert [api.send("anna").status_code for _ in range(5)] == [202, 202, 429, 429, 429]
    assert api.send_many("bert", {"body": "a"}, {"body": "b"}, {"body": "c"}).json()["refused"] == 2
    clock.advance(CACHE_SECONDS)
    assert scraped(api, "holdfast_queue_sent_total") == {(QUEUE,): 3}
    assert scraped(api, "holdfast_queue_refused_total") == {(QUEUE, "max_rate"): 3, (QUEUE, "max_waiting"): 2}
    assert scraped(api, "holdfast_queue_tenant_refused_total") == {
        (QUEUE, "anna", "max_rate"): 3,
        (QUEUE, "bert/../x", "max_waiting"): 2,
    }


def test_it_is_in_the_text_format_of_prometheus(api: Api) -> None:
    response = api("operator", "GET", "/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.text.startswith("# HELP holdfast_queue_sent_total ")


def test_it_tells_what_was_answered_and_who_listens(api: Api, clock: FakeClock) -> None:
    for who, path in (("viewer", "/metrics"), (None, "/metrics"), ("viewer", "/nowhere/else")):
        api(who, "GET", path)
    clock.advance(CACHE_SECONDS)
    assert scraped(api, "holdfast_server_requests_total") == {
        ("GET", "/metrics", "200"): 1,
        ("GET", "/metrics", "401"): 1,
        ("GET", "other", "404"): 1,
    }
    assert scraped(api, "holdfast_server_listeners") == {("events",): 0, ("status",): 0}


def test_lines_of_telemetry_are_counted_by_what_became_of_them() -> None:
    prometheus = PrometheusExporter()
    metrics = ServerMetrics(prometheus, streams={})
    late = IngestResult(2, 1, "bad", {"invalid": 1}, late=4, too_late=5, too_early=7, overflowed=6, lag=2.5)
    for event in (ReceivedTelemetry(IngestResult(3, 0)), ReceivedTelemetry(late), AnsweredRequest("BREW", None, 404)):
        metrics.emit(event)
    lines = prometheus.render().splitlines()
    assert 'holdfast_server_telemetry_records_total{result="accepted"} 5' in lines
    assert 'holdfast_server_telemetry_records_total{result="refused"} 1' in lines
    assert 'holdfast_server_telemetry_refused_total{reason="invalid"} 1' in lines
    for outcome, count in (("late", 4), ("too_late", 5), ("too_early", 7)):
        assert f'holdfast_server_telemetry_untimely_requests_total{{outcome="{outcome}"}} {count}' in lines
    assert "holdfast_server_telemetry_overflowed_requests_total{} 6" in lines
    assert "holdfast_server_telemetry_lag_seconds_sum{} 2.5" in lines
    assert 'holdfast_server_requests_total{method="other",route="other",status="404"} 1' in lines


def test_connections_are_counted_by_their_state_and_refused_ones_by_the_reason() -> None:
    prometheus = PrometheusExporter()
    metrics = ServerMetrics(prometheus, streams={})
    connections = Connections(20, metrics.emit, FakeClock())
    metrics.observe_connections(connections)
    for reason in ("malformed", "head_timeout", "malformed"):
        metrics.emit(RefusedConnection(reason))
    lines = prometheus.render().splitlines()
    assert 'holdfast_server_connections{state="busy"} 0' in lines
    assert 'holdfast_server_connections{state="waiting"} 0' in lines
    assert 'holdfast_server_refused_connections_total{reason="malformed"} 2' in lines
    assert 'holdfast_server_refused_connections_total{reason="head_timeout"} 1' in lines


@pytest.mark.parametrize(("who", "status"), [(None, 401), ("anna", 403), ("viewer", 200), ("operator", 200)])
def test_tenants_do_not_see_each_other_here(api: Api, who: str | None, status: int) -> None:
    assert api(who, "GET", "/metrics").status_code == status


def test_scrapes_within_seconds_share_a_look(api: Api, backend: Watched, clock: FakeClock) -> None:
    backend.send(QUEUE, [OutgoingMessage(tenant="anna", body=b"")])
    for _ in range(3):
        assert scraped(api, "holdfast_queue_messages")[QUEUE, "ready"] == 1
        backend.send(QUEUE, [OutgoingMessage(tenant="anna", body=b"")])
    assert backend.looks == 1
    clock.advance(CACHE_SECONDS)
    assert scraped(api, "holdfast_queue_messages")[QUEUE, "ready"] == 4
    assert backend.looks == 2


def test_scrapes_at_the_same_time_share_a_look_also_if_one_of_them_goes_away(
    backend: Watched, clock: FakeClock
) -> None:
    backend.change(QUEUE, QueueChange(), create=True)
    gate = backend.gate = threading.Event()
    scrape = scrape_of(Queues(lambda: backend, clock=clock))

    async def ask() -> set[str]:
        first, *other_exporter = [asyncio.ensure_future(scrape.render()) for _ in range(20)]
        await asyncio.sleep(0)  # now all of them wait
        first.cancel()
        gate.set()
        return set(await asyncio.gather(*other_exporter))

    [text] = asyncio.run(ask())
    assert QUEUE in text
    assert backend.looks == 1


def test_a_look_that_was_cancelled_is_begun_anew(backend: Watched, clock: FakeClock) -> None:
    scrape = scrape_of(Queues(lambda: backend, clock=clock))

    async def ask() -> str:
        waiting = asyncio.ensure_future(scrape.render())
        await asyncio.sleep(0)
        assert scrape._refreshing is not None
        scrape._refreshing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return await scrape.render()

    assert "holdfast_server_queues_readable{} 1" in asyncio.run(ask())


def test_a_store_that_is_away_gives_no_old_figures_and_is_asked_again(
    api: Api, backend: Watched, clock: FakeClock
) -> None:
    assert scraped(api, "holdfast_queue_lanes_in_use") == {(QUEUE,): 0}
    clock.advance(CACHE_SECONDS)
    backend.error = EngineUnavailable("away")
    assert "holdfast_queue_" not in api("viewer", "GET", "/metrics").text
    backend.error = None
    assert scraped(api, "holdfast_queue_lanes_in_use") == {(QUEUE,): 0}


def test_a_scrape_tells_the_rest_and_says_so_while_the_store_of_queues_is_away(
    api: Api, backend: Watched, clock: FakeClock
) -> None:
    assert scraped(api, "holdfast_server_queues_readable") == {(): 1}
    clock.advance(CACHE_SECONDS)
    backend.error = EngineUnavailable("away")
    assert scraped(api, "holdfast_server_queues_readable") == {(): 0}
    assert scraped(api, "holdfast_server_listeners") == {("events",): 0, ("status",): 0}
    assert scraped(api, "holdfast_server_requests_total")["GET", "/metrics", "200"] > 0
    backend.error = None
    assert scraped(api, "holdfast_server_queues_readable") == {(): 1}


def test_a_queue_that_has_gone_since_it_was_listed_is_left_out(api: Api, backend: Watched) -> None:
    backend.error = NotFound("no queue orders")
    assert scraped(api, "holdfast_queue_messages") == {}


def test_many_tenants_make_a_short_answer(api: Api, backend: Watched) -> None:
    backend.send(QUEUE, [OutgoingMessage(tenant=f"tenant {number}", body=b"") for number in range(500)])
    found = scraped(api, "holdfast_queue_tenant_messages")
    assert sum(found.values()) == 500
    assert len(found) == 21 * 5


def test_a_scrape_makes_no_store() -> None:
    """Where there is none, there is nothing to tell."""

    def opening() -> MemoryBackend:
        raise AssertionError("a store was made")

    queues = Queues(opening, exists=lambda: False)
    [_, _, only] = asyncio.run(scrape_of(queues).render()).splitlines()
    assert only == "holdfast_server_queues_readable{} 1"


def test_alarms_that_the_server_raises_can_be_scraped(
    backend: Watched, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody works on the queue, and no worker could tell of it: the server does."""
    backend.change(QUEUE, QueueChange(), create=True)
    backend.send(QUEUE, [OutgoingMessage(tenant="anna", body=b"")])
    queues, metrics = Queues(lambda: backend, clock=clock), Scraped(LogExporter())
    watch = QueueMonitor(queues, metrics)
    scrape = ScrapeCache(queues, metrics, metrics.prometheus, PrometheusExporter())
    is_late = f'holdfast_queue_alarm_open{{queue="{QUEUE}",alarm="first-attempt-age"}}'

    async def watched(*moments: float) -> str:
        for seconds in moments:
            clock.advance(seconds)
            await watch.inspect()
        return await scrape.render()

    assert f"{is_late} 0\n" in asyncio.run(watched(1.0))
    with caplog.at_level(logging.WARNING):
        text = asyncio.run(watched(60.0, 10.0, 10.0))
    assert f"{is_late} 1\n" in text
    assert f'holdfast_queue_first_attempt_wait_seconds{{queue="{QUEUE}"}} 81.0\n' in text
    assert [record.name for record in caplog.records] == ["holdfast.queue"]
    assert f"queue {QUEUE}: new messages wait 81.0 s for the first attempt" in caplog.text


def test_what_died_with_its_worker_counts_as_waiting_though_no_worker_is_left(
    backend: Watched, clock: FakeClock
) -> None:
    backend.change(QUEUE, QueueChange(), create=True)
    backend.send(QUEUE, [OutgoingMessage(tenant="anna", body=b"")])
    queues, metrics = Queues(lambda: backend, clock=clock), Scraped()
    watch = QueueMonitor(queues, metrics)
    asyncio.run(watch.inspect())
    assert len(backend.lease(LeaseRequest(queue=QUEUE, count=1, lease=2.0)).deliveries) == 1
    clock.advance(SWEEP_EVERY)
    asyncio.run(watch.inspect())
    assert f'holdfast_queue_messages{{queue="{QUEUE}",state="ready"}} 1\n' in metrics.render()
    assert f'holdfast_queue_messages{{queue="{QUEUE}",state="leased"}} 0\n' in metrics.render()


def test_the_watch_goes_on_when_the_store_is_back_and_says_once_that_it_was_away(
    backend: Watched, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Exception] = [EngineUnavailable("away"), EngineUnavailable("away"), RuntimeError("a surprise")]
    backend.change(QUEUE, QueueChange(), create=True)

    def queues() -> list[str]:
        if answers:
            raise answers.pop(0)
        return [QUEUE]

    monkeypatch.setattr(backend, "list_queues", queues)
    metrics = Scraped()
    watch = QueueMonitor(Queues(lambda: backend, clock=clock), metrics)

    async def look() -> None:
        for _ in range(4):
            await watch.inspect()

    with caplog.at_level(logging.WARNING):
        asyncio.run(look())
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert QUEUE in metrics.render()


def test_the_server_watches_while_it_runs(api: Api, backend: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.queues.WATCH_INTERVAL_SECONDS", 0.001)

    async def run() -> None:
        [lifespan] = api.app._lifespan_managers
        async with lifespan(api.app):  # type: ignore[operator]
            for _ in range(2):
                assert await asyncio.to_thread(backend.looked.acquire, timeout=STUCK)
        assert not [task for task in asyncio.all_tasks() if "QueueMonitor" in repr(task)]

    asyncio.run(run())
