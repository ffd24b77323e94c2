import logging
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from holdfast import EngineUnavailable, InvalidValue
from holdfast.queue import OutgoingMessage, QueuePolicy
from holdfast.queue.alarms import AlarmKind, AlarmRules, QueueAlarm, QueueReading
from holdfast.queue.backend import Ack, Bury, LeaseRequest, QueueChange, QueueSnapshot, Settlement
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.events import BackendErrorEvent, PollEvent, QueueObservation
from holdfast.queue.watcher import QueueWatcher
from holdfast.testing import FakeClock
from tests.table import sampled
from tests.unit.forked import in_child
from tests.unit.queue.made import Kept, Scraped, delivery, polled

STUCK = 10.0
"""Real seconds until a thread is taken to be stuck."""


class Absent(MemoryBackend):
    """A store that can be away."""

    error: Exception | None = None
    looks = 0

    def inspect(self, queue: str, **options: Any) -> QueueSnapshot:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return super().inspect(queue, **options)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(manual=True)


@pytest.fixture
def backend(clock: FakeClock) -> Iterator[Absent]:
    with Absent(clock) as backend:
        backend.change("mail", QueueChange(), create=True)
        yield backend


def bury(backend: MemoryBackend, *tenants: str) -> None:
    backend.send("mail", [OutgoingMessage(tenant=tenant, body=b"") for tenant in tenants])
    leased = backend.lease(LeaseRequest(queue="mail", count=len(tenants), lease=30)).deliveries
    backend.settle([Settlement(delivery.receipt, Bury("no")) for delivery in leased])


def kinds(kept: Kept) -> list[str]:
    return [type(event).__name__ for event in kept.all]


def test_a_look_tells_how_deep_the_queue_is(backend: Absent, clock: FakeClock) -> None:
    kept = Kept()
    backend.send("mail", [OutgoingMessage(tenant="acme", body=b"")] * 3)
    seen = QueueWatcher("mail", backend, kept, clock=clock).inspect()
    assert seen is not None
    assert sum(lane.ready for lane in seen.lanes) == 3
    told, reading = kept.all
    assert told == seen
    assert isinstance(reading, QueueReading)
    assert reading.alarms == {AlarmKind.DEAD_LETTERS: False, AlarmKind.FIRST_ATTEMPT_AGE: False}


def test_dead_letters_open_an_alarm_and_redriving_them_closes_it(backend: Absent, clock: FakeClock) -> None:
    from holdfast.queue.backend import DeadLetterQuery

    kept = Kept()
    watcher = QueueWatcher("mail", backend, kept, rules=AlarmRules(open_after=2, close_after=2), clock=clock)
    bury(backend, "acme", "bolt")
    watcher.inspect()
    assert watcher.open_alarms == set()
    watcher.inspect()
    assert watcher.open_alarms == {AlarmKind.DEAD_LETTERS}
    backend.redrive(DeadLetterQuery(queue="mail"))
    watcher.inspect()
    watcher.inspect()
    assert watcher.open_alarms == set()
    alarms = [event for event in kept.all if isinstance(event, QueueAlarm)]
    assert [(alarm.kind, alarm.is_open, alarm.value) for alarm in alarms] == [
        (AlarmKind.DEAD_LETTERS, True, 2),
        (AlarmKind.DEAD_LETTERS, False, 0),
    ]


def test_first_attempts_that_come_late_open_an_alarm_that_names_the_tenant(backend: Absent, clock: FakeClock) -> None:
    kept = Kept()
    watcher = QueueWatcher("mail", backend, kept, rules=AlarmRules(first_attempt_age=60, open_after=2), clock=clock)
    for _ in range(2):
        watcher.emit(polled(delivery("noisy", age=61), delivery("noisy", age=65)))
        watcher.emit(polled(delivery(age=5000, queue="pay"), queue="pay"))  # another queue's worker
        watcher.inspect()
    [alarm] = [event for event in kept.all if isinstance(event, QueueAlarm)]
    assert (alarm.kind, alarm.tenant, alarm.threshold) == (AlarmKind.FIRST_ATTEMPT_AGE, "noisy", 60)
    assert 60 <= alarm.value <= 65


@pytest.mark.parametrize("hears", [True, False])
def test_workers_that_do_not_get_on_or_are_not_there_are_noticed_by_what_waits(
    backend: Absent, clock: FakeClock, *, hears: bool
) -> None:
    watcher = QueueWatcher("mail", backend, Kept(), rules=AlarmRules(open_after=1), clock=clock)
    backend.send("mail", [OutgoingMessage(tenant="acme", body=b"")])
    clock.advance(50)
    watcher.inspect()
    assert watcher.open_alarms == set()
    clock.advance(50)
    if hears:
        watcher.emit(polled())
    watcher.inspect()
    assert watcher.open_alarms == {AlarmKind.FIRST_ATTEMPT_AGE}


MANY, FEW = 8, 3


@pytest.mark.no_cover  # it would take ten times as long, and no line is reached by it alone
@pytest.mark.parametrize("seconds", sampled([240, 400]))
@pytest.mark.parametrize(
    ("tenants", "sent", "handled", "noise", "policy", "opens"),
    [
        pytest.param(MANY, 8, 10, 6000, {}, False, id="one is noisy"),
        pytest.param(FEW, 8, 10, 6000, {}, False, id="one is noisy beside few"),
        pytest.param(MANY, 8, 10, 6030, {}, False, id="one is noisy, and goes on"),
        pytest.param(MANY, 8, 10, 0, {}, False, id="all is well"),
        pytest.param(MANY, 15, 10, 0, {}, True, id="too few workers"),
        pytest.param(MANY, 15, 10, 6000, {}, True, id="too few workers, and one is noisy"),
        pytest.param(MANY, 15, 10, 0, {"lanes_per_tenant": 0}, True, id="too few workers, a lane for each"),
        pytest.param(MANY, 15, 10, 0, {"fresh_for": 5}, True, id="too few workers, soon old"),
        pytest.param(MANY, 15, 10, 0, {"fresh_for": 0}, True, id="too few workers, never fresh"),
        pytest.param(MANY, 15, 10, 0, {"fresh_for": 3600}, True, id="too few workers, never old"),
        pytest.param(1, 15, 10, 0, {"spill_above": None}, True, id="too few workers for one"),
        pytest.param(MANY, 3, 1, 0, {}, True, id="hardly any workers"),
    ],
)
def test_one_tenant_does_not_open_the_alarm_and_too_few_workers_do(
    *, tenants: int, sent: int, handled: int, noise: int, policy: dict[str, Any], opens: bool, seconds: int
) -> None:
    """Minutes of real lanes and turns; so much is sent, and handled, a second. With workers heard of, and without.

    The noise is sent before, in thousands; what is left of it, every second.
    """
    clock = FakeClock()
    opened: dict[bool, set[AlarmKind]] = {True: set(), False: set()}
    with MemoryBackend(clock) as backend:
        backend.change("mail", QueueChange(policy=QueuePolicy(**{"spill_above": 500, **policy})), create=True)
        watchers = {hears: QueueWatcher("mail", backend, Kept(), clock=clock) for hears in opened}
        for _ in range(noise // 1000):
            backend.send("mail", [OutgoingMessage(tenant="noisy", body=b"")] * 1000)
        before = 0
        for second in range(seconds):
            clock.advance(1.0)
            names = [f"tenant {(second * sent + number) % tenants}" for number in range(sent)]
            backend.send("mail", [OutgoingMessage(tenant=name, body=b"") for name in names])
            backend.send("mail", [OutgoingMessage(tenant="noisy", body=b"")] * (noise % 1000))
            leased = backend.lease(LeaseRequest(queue="mail", count=handled, lease=30, leased_so_far=before))
            before += len(leased.deliveries)
            watchers[True].emit(PollEvent(queue="mail", at=clock.wall(), requested=handled, result=leased))
            backend.settle([Settlement(one.receipt, Ack()) for one in leased.deliveries])
            if second % 10 == 9:
                for hears, watcher in watchers.items():
                    watcher.inspect()
                    opened[hears] |= watcher.open_alarms
    expected = {AlarmKind.FIRST_ATTEMPT_AGE} if opens else set()
    assert opened == {True: expected, False: expected}


@pytest.mark.parametrize("tenants", [1, 3])
def test_excess_of_everybody_is_too_much_for_the_workers(tenants: int, clock: FakeClock) -> None:
    """Nothing is late but what is spilled, and that becomes more and more."""
    with MemoryBackend(clock) as backend:
        backend.change("mail", QueueChange(policy=QueuePolicy(spill_above=20)), create=True)
        watcher = QueueWatcher("mail", backend, Kept(), clock=clock)
        for second in range(300):
            clock.advance(1.0)
            backend.send("mail", [OutgoingMessage(tenant=f"t{number % tenants}", body=b"") for number in range(15)])
            leased = backend.lease(LeaseRequest(queue="mail", count=10, lease=30, leased_so_far=second * 10))
            watcher.emit(PollEvent(queue="mail", at=clock.wall(), requested=10, result=leased))
            backend.settle([Settlement(one.receipt, Ack()) for one in leased.deliveries])
            if second % 10 == 9:
                watcher.inspect()
    assert watcher.open_alarms == {AlarmKind.FIRST_ATTEMPT_AGE}


def test_dead_letters_are_noticed_behind_any_number_of_lanes(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.queue.backends.memory.look.LANES", 3)
    with MemoryBackend(clock) as backend:
        backend.change("mail", QueueChange(policy=QueuePolicy(lanes_per_tenant=0)), create=True)
        bury(backend, "poisoned")
        backend.send("mail", [OutgoingMessage(tenant=f"t{number}", body=b"") for number in range(9)])
        watcher = QueueWatcher("mail", backend, Kept(), rules=AlarmRules(open_after=1), clock=clock)
        watcher.inspect()
    assert watcher.open_alarms == {AlarmKind.DEAD_LETTERS}


def test_a_store_that_is_away_is_told_logged_once_and_survived(
    backend: Absent, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    watcher = QueueWatcher("mail", backend, kept, clock=clock)
    backend.error = EngineUnavailable("gone fishing")
    with caplog.at_level(logging.INFO, "holdfast.queue"):
        assert [watcher.inspect() for _ in range(3)] == [None, None, None]
        backend.error = None
        assert watcher.inspect() is not None
    assert kinds(kept) == [
        "BackendErrorEvent",
        "BackendErrorEvent",
        "BackendErrorEvent",
        "QueueSnapshot",
        "QueueReading",
    ]
    assert isinstance(kept.all[0], BackendErrorEvent)
    assert (kept.all[0].operation, kept.all[0].error) == ("inspect", "EngineUnavailable")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "gone fishing" in caplog.text


def test_a_queue_that_nobody_has_made_yet_is_no_end(clock: FakeClock) -> None:
    with MemoryBackend(clock) as backend:
        watcher = QueueWatcher("mail", backend, Kept(), clock=clock)
        assert watcher.inspect() is None
        backend.change("mail", QueueChange(), create=True)
        assert watcher.inspect() is not None


def test_an_alarm_stays_open_while_the_store_is_away(backend: Absent, clock: FakeClock) -> None:
    watcher = QueueWatcher("mail", backend, Kept(), rules=AlarmRules(open_after=1, close_after=1), clock=clock)
    bury(backend, "acme")
    watcher.inspect()
    backend.error = EngineUnavailable("away")
    watcher.inspect()
    assert watcher.open_alarms == {AlarmKind.DEAD_LETTERS}


def test_a_sink_that_raises_does_not_stop_the_looks(
    backend: Absent, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def emit(self, event: QueueObservation) -> None:
            raise RuntimeError("no")

    bury(backend, "acme")
    watcher = QueueWatcher("mail", backend, Broken(), rules=AlarmRules(open_after=1), clock=clock)
    with caplog.at_level(logging.ERROR):
        assert watcher.inspect() is not None
    assert watcher.open_alarms == {AlarmKind.DEAD_LETTERS}
    assert "the event is dropped" in caplog.text


def test_the_thread_looks_again_and_again_also_after_a_surprise_until_it_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = Absent()
    backend.change("mail", QueueChange(), create=True)
    backend.error = RuntimeError("a surprise")
    seen = threading.Semaphore(0)

    class Counting:
        def emit(self, event: QueueObservation) -> None:
            seen.release()

    watcher = QueueWatcher("mail", backend, Counting(), interval=0.01)
    surprised = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: surprised.set()  # type: ignore[method-assign]
    logging.getLogger("holdfast.queue.watcher").addHandler(handler)
    try:
        with watcher:
            watcher.start()  # may be repeated
            assert surprised.wait(STUCK)
            backend.error = None
            for _ in range(3):
                assert seen.acquire(timeout=STUCK)
    finally:
        logging.getLogger("holdfast.queue.watcher").removeHandler(handler)
    assert not any("watcher" in thread.name for thread in threading.enumerate())
    looks = backend.looks
    watcher.stop()
    assert backend.looks == looks
    watcher.start()
    while seen.acquire(blocking=False):
        pass
    assert seen.acquire(timeout=STUCK)
    watcher.stop()
    backend.close()


def test_a_surprise_is_over_when_a_look_has_succeeded(
    backend: Absent, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = QueueWatcher("mail", backend, Kept(), clock=clock)
    step = watcher._loop.run_step
    clock.advance(step())
    backend.error = RuntimeError("a surprise")
    for _ in range(3):
        clock.advance(step())
    assert "cannot inspect queue mail" in caplog.text
    assert "again, after" not in caplog.text
    backend.error = None
    step()
    assert "can inspect queue mail again, after 3 failed attempts" in caplog.text


class Pauses:
    """What the thread waits on: each pause moves the clock on, and after the last of them it is to stop."""

    def __init__(self, clock: FakeClock, *early: float, jump: float = 0.0) -> None:
        self.clock = clock
        self.left = list(early)
        self.jump = jump
        self.asked: list[float] = []

    def run(self, watcher: QueueWatcher) -> None:
        """Take the steps of the background loop until no pause is left."""
        while not self.wait(watcher._inspect_when_due()):
            pass

    def wait(self, seconds: float) -> bool:
        if not self.left:
            return True
        self.asked.append(seconds)
        self.clock.advance(seconds * self.left.pop(0))
        self.clock.jump_wall(self.jump)
        return False


def test_looks_are_at_the_moments_of_this_host_and_nothing_is_made_up_for(backend: Absent, clock: FakeClock) -> None:
    kept = Kept()
    watcher = QueueWatcher("mail", backend, kept, clock=clock)
    # Woken too early, then in time, in time, and much too late.
    Pauses(clock, 0.5, 1.0, 1.0, 5.5, 1.0).run(watcher)
    moments = [event.at for event in kept.all if isinstance(event, QueueSnapshot)]
    offset = watcher._periodic.offset
    assert [round((moment - offset) % 10, 3) % 10 for moment in moments] == [0, 0, pytest.approx(5, abs=0.01), 0]
    assert [round(after - before, 3) for before, after in pairwise(moments)] == [10, 55, 5]


def test_a_clock_that_was_set_back_does_not_put_off_the_next_look(backend: Absent, clock: FakeClock) -> None:
    pauses = Pauses(clock, 0.5, 1.0, jump=-3600.0)
    pauses.run(QueueWatcher("mail", backend, Kept(), clock=clock))
    assert backend.looks == 2
    assert all(pause <= 10 for pause in pauses.asked)


def test_long_pauses_are_cut_so_that_a_clock_that_was_set_is_noticed(
    monkeypatch: pytest.MonkeyPatch, backend: Absent, clock: FakeClock
) -> None:
    monkeypatch.setenv("HOLDFAST_HOST", "one")  # whose moment is not just now
    pauses = Pauses(clock, 1.0, 1.0)
    pauses.run(QueueWatcher("mail", backend, Kept(), interval=3600.0, clock=clock))
    assert pauses.asked == [10.0, 10.0]


def test_a_sink_may_stop_the_watcher() -> None:
    backend = MemoryBackend()
    backend.change("mail", QueueChange(), create=True)
    stopped = threading.Event()

    class Stopping:
        def emit(self, event: QueueObservation) -> None:
            watcher.stop()
            stopped.set()

    watcher = QueueWatcher("mail", backend, Stopping(), interval=0.01)
    watcher.start()
    assert stopped.wait(STUCK)
    backend.close()


def test_hosts_look_at_moments_of_their_own(monkeypatch: pytest.MonkeyPatch, backend: Absent, clock: FakeClock) -> None:
    offsets = set()
    for host in ("one", "two", "three"):
        monkeypatch.setenv("HOLDFAST_HOST", host)
        offsets.add(QueueWatcher("mail", backend, Kept(), clock=clock)._periodic.offset)
    assert len(offsets) == 3
    assert all(0 <= offset < 10 for offset in offsets)


def test_a_forked_child_has_no_thread_and_locks_that_nobody_holds(backend: Absent, clock: FakeClock) -> None:
    watcher = QueueWatcher("mail", backend, Kept(), clock=clock)
    with watcher._lock, watcher._inspecting:
        in_child(lambda: watcher.inspect() is not None and not watcher._loop.is_running)


def test_what_it_sees_can_be_scraped(backend: Absent, clock: FakeClock) -> None:
    metrics = Scraped()
    watcher = QueueWatcher("mail", backend, metrics, rules=AlarmRules(open_after=1), clock=clock)
    bury(backend, "acme")
    watcher.inspect()
    backend.error = EngineUnavailable("away")
    watcher.inspect()
    text = metrics.render()
    assert 'holdfast_queue_messages{queue="mail",state="dead"} 1\n' in text
    assert 'holdfast_queue_alarm_open{queue="mail",alarm="dead-letters"} 1\n' in text
    assert 'holdfast_queue_alarm_open{queue="mail",alarm="first-attempt-age"} 0\n' in text
    assert 'holdfast_queue_first_attempt_wait_seconds{queue="mail"} 0.0\n' in text
    assert 'holdfast_queue_backend_errors_total{queue="mail",operation="inspect"} 1\n' in text


def test_only_polls_are_of_interest_to_alarms(backend: Absent, clock: FakeClock) -> None:
    watcher = QueueWatcher("mail", backend, Kept(), clock=clock)
    watcher.emit(BackendErrorEvent(queue="mail", at=1.0, operation="lease", error="EngineUnavailable"))
    assert not watcher._polls.take().has_seen_polls
    watcher.emit(PollEvent(queue="mail", at=1.0, requested=1, result=polled().result))
    assert watcher._polls.take().has_seen_polls


@pytest.mark.parametrize(
    ("queue", "options", "message"),
    [
        ("a b", {}, "queue 'a b'"),
        ("mail", {"interval": 0.0}, "period is 0.0"),
        ("mail", {"max_tenants": -1}, "-1 names"),
    ],
)
def test_what_makes_no_sense_is_refused(backend: Absent, queue: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        QueueWatcher(queue, backend, Kept(), **options)
