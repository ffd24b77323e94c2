"""Sources say what is so, and are silent when they do not know: over real sockets."""

import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest

from holdfast import EngineUnavailable, InvalidValue, Zone, ZoneState, ZoneStatus
from holdfast._background import RECONNECT_BACKOFF
from holdfast._backoff import Backoff, Chance
from holdfast.status import EndpointSource, MemoryStatusStore, ServerSource, StoreSource, ZoneTracker
from holdfast.status.sources import build_source, web
from holdfast.status.sources import server as server_module
from holdfast.status.sources import source as source_module
from holdfast.status.wire import KNOWN_HEADER, TIME_HEADER, StatusChange, StatusSnapshot
from holdfast.testing import FakeClock
from tests.unit.status.sources.scripted import Scripted, hang

ONE, TWO = Zone("az1"), Zone("az2")
STUCK = 10.0


def status(zone: Zone = ONE, *, out: bool = True, version: int = 1) -> ZoneStatus:
    return ZoneStatus(
        zone=zone, state=ZoneState.OUT if out else ZoneState.IN, since=1.0, by="test", reason="test", version=version
    )


class Ear:
    """Listens, and hands over what was said in turn."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[set[str], float]] = queue.Queue()

    def receive(self, statuses: Iterable[ZoneStatus], at: float, zones: frozenset[Zone] | None = None) -> None:
        self.said.put(({each.zone for each in statuses if each.state.is_out}, at))

    def next(self) -> set[str]:
        return self.said.get(timeout=STUCK)[0]

    def until(self, expected: set[str]) -> None:
        deadline = time.monotonic() + STUCK
        while self.next() != expected:
            assert time.monotonic() < deadline, f"{expected} was never said"

    @property
    def is_silent(self) -> bool:
        return self.said.empty()


def snapshot(
    revision: int, *statuses: ZoneStatus, run: str = "run", age: float | None = 0.1, at: float = 50.0
) -> StatusSnapshot:
    return StatusSnapshot(run=run, revision=revision, at=at, age=age, statuses=statuses)


def change(revision: int, one: ZoneStatus, run: str = "run") -> StatusChange:
    return StatusChange(run=run, revision=revision, at=50.0, status=one)


def event(name: str, value: Any, number: str = "x-1") -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (number.encode(), name.encode(), msgspec.json.encode(value))


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that lost somebody try again in milliseconds."""
    monkeypatch.setattr(server_module, "RECONNECT_BACKOFF", Backoff(base=0.01, cap=15.0))
    monkeypatch.setattr(source_module, "REFRESH_SPREAD_SECONDS", 0.01)


# A server as a source: the rules, without a network.


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def known(ear: Ear) -> ServerSource:
    source = ServerSource("http://127.0.0.1:1")
    source._listener = ear
    return source


def test_changes_follow_a_snapshot_one_by_one(known: ServerSource, ear: Ear) -> None:
    known.apply_snapshot(snapshot(3, status(ONE)))
    known.apply_change(change(4, status(TWO)))
    known.apply_change(change(5, status(ONE, out=False)))
    assert [ear.next(), ear.next(), ear.next()] == [{ONE}, {ONE, TWO}, {TWO}]


def test_what_is_known_already_is_not_undone_by_what_was_said_before(known: ServerSource, ear: Ear) -> None:
    known.apply_snapshot(snapshot(5, status(ONE)))
    known.apply_snapshot(snapshot(4))
    known.apply_change(change(5, status(ONE, out=False)))
    known.apply_change(change(3, status(ONE, out=False)))
    assert ear.next() == {ONE}
    assert ear.is_silent


def test_a_server_that_began_anew_counts_from_the_beginning(known: ServerSource, ear: Ear) -> None:
    known.apply_snapshot(snapshot(900, status(ONE)))
    known.apply_snapshot(snapshot(0, run="next"))
    assert [ear.next(), ear.next()] == [{ONE}, set()]


def test_a_gap_in_what_was_told_is_not_guessed_at(
    known: ServerSource, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    poked: list[bool] = []
    monkeypatch.setattr(known, "refresh", lambda: poked.append(True))
    known.apply_snapshot(snapshot(1, status(ONE)))
    assert ear.next() == {ONE}
    known.apply_change(change(3, status(ONE, out=False)))
    known.apply_change(change(2, status(TWO), run="another"))
    assert ear.is_silent
    assert poked == [True, True], "everything is asked for instead"


def test_a_server_that_has_not_read_its_own_store_for_long_counts_as_silent(known: ServerSource, ear: Ear) -> None:
    known.apply_snapshot(snapshot(1, status(ONE), age=60.0))
    known.apply_snapshot(snapshot(2, status(ONE), age=None))
    assert ear.is_silent


# The same over sockets.


def served(body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return 200, headers, body


def quiet(path: str) -> tuple[int, dict[str, str], Any] | None:
    """Streams that say nothing, where a test is about pulling."""
    return (200, {"Content-Type": "text/event-stream"}, hang) if path.endswith("events") else None


@pytest.fixture
def followed(ear: Ear) -> Iterator[Callable[..., ServerSource]]:
    on_open: list[ServerSource] = []

    def follow(address: str, **options: Any) -> ServerSource:
        source = ServerSource(address, **{"poll_interval": 0.05, **options})
        on_open.append(source)
        source.start(ear)
        return source

    yield follow
    for source in on_open:
        source.close()


def test_a_server_is_asked_again_and_again_and_says_when_nothing_is_new(
    ear: Ear, followed: Callable[..., ServerSource]
) -> None:
    body = msgspec.json.encode(snapshot(1, status(ONE)))

    def answer(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        if headers.get("if-none-match") == 'W/"run-1"':
            return 304, {TIME_HEADER: "60.5", "Age": "1"}, b""
        return quiet(path) or served(body, ETag='W/"run-1"')

    with Scripted(answer) as server:
        followed(server.address)
        assert ear.said.get(timeout=STUCK) == ({ONE}, 50.0)
        assert ear.said.get(timeout=STUCK) == ({ONE}, 60.5), "the server's time is new, what it says is not"


def test_a_304_of_a_server_that_lost_its_store_is_silence(ear: Ear, followed: Callable[..., ServerSource]) -> None:
    body = msgspec.json.encode(snapshot(1, status(ONE)))
    many = threading.Semaphore(0)

    def answer(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        if headers.get("if-none-match"):
            many.release()
            return 304, {TIME_HEADER: "60.5", "Age": "15"}, b""
        return quiet(path) or served(body, ETag='W/"run-1"')

    with Scripted(answer) as server:
        followed(server.address)
        assert ear.next() == {ONE}
        for _ in range(3):
            assert many.acquire(timeout=STUCK)
        assert ear.is_silent


@pytest.mark.parametrize(
    "broken",
    [
        lambda: (500, {}, b"{}"),
        lambda: (200, {}, b"no json"),
        lambda: (200, {}, b'{"run": 1}'),
        lambda: (200, {}, b"\xff\xfe"),
        lambda: (304, {}, b""),
        lambda: (304, {"Age": "old", TIME_HEADER: "now"}, b""),
        lambda: (200, {"Content-Length": "5000"}, lambda connection: connection.sendall(b'{"run":')),
    ],
    ids=["error", "text", "other shape", "bytes", "304 without a word", "304 with nonsense", "half an answer"],
)
def test_an_answer_that_makes_no_sense_is_silence_and_the_next_one_counts(
    ear: Ear, followed: Callable[..., ServerSource], broken: Callable[[], tuple[int, dict[str, str], Any]]
) -> None:
    good = msgspec.json.encode(snapshot(1, status(ONE)))
    pulls = iter([broken, broken])

    def answer(path: str, _: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return quiet(path) or next(pulls, lambda: served(good))()

    with Scripted(answer) as server:
        followed(server.address)
        assert ear.next() == {ONE}


def test_a_server_that_hangs_is_given_up_and_asked_anew(
    ear: Ear, followed: Callable[..., ServerSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(web.http_get, "__defaults__", (0.1,))
    good = msgspec.json.encode(snapshot(1, status(ONE)))
    pulls = iter([hang])

    def answer(path: str, _: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return quiet(path) or (200, {}, next(pulls, good))

    with Scripted(answer) as server:
        followed(server.address)
        assert ear.next() == {ONE}


def test_what_is_pushed_is_known_at_once_and_resumed_after_a_cut(
    ear: Ear, followed: Callable[..., ServerSource]
) -> None:
    def first(connection: socket.socket) -> None:
        connection.sendall(event("snapshot", snapshot(1, status(ONE)), "x-7"))
        connection.sendall(b": still here\n\n" + event("status", change(2, status(TWO)), "x-8"))

    def second(connection: socket.socket) -> None:
        connection.sendall(event("status", change(3, status(ONE, out=False)), "x-9"))
        hang(connection)

    streams = iter([first, second])

    def answer(path: str, _: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        if not path.endswith("events"):
            return 503, {}, b""
        return 200, {}, next(streams, hang)

    with Scripted(answer) as server:
        followed(server.address, poll_interval=3600.0)
        assert [ear.next(), ear.next(), ear.next()] == [{ONE}, {ONE, TWO}, {TWO}]
        asked = [headers.get("last-event-id") for path, headers in server.asked if path.endswith("events")]
        assert asked[:2] == [None, "x-8"]


def test_a_stream_that_is_dead_but_looks_alive_is_made_up_for_by_asking(
    ear: Ear, followed: Callable[..., ServerSource]
) -> None:
    bodies = [snapshot(1), snapshot(2, status(ONE))]

    def answer(path: str, _: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return quiet(path) or served(msgspec.json.encode(bodies.pop(0) if len(bodies) > 1 else bodies[0]))

    with Scripted(answer) as server:
        followed(server.address)
        ear.until(set())
        ear.until({ONE})


def test_a_stream_without_a_byte_for_too_long_is_opened_anew(
    ear: Ear, followed: Callable[..., ServerSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "STREAM_TIMEOUT_SECONDS", 0.1)
    streams = iter([hang, lambda connection: connection.sendall(event("snapshot", snapshot(1, status(ONE))))])

    def answer(path: str, _: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return (200, {}, next(streams, hang)) if path.endswith("events") else (503, {}, b"")

    with Scripted(answer) as server:
        followed(server.address, poll_interval=3600.0)
        assert ear.next() == {ONE}


def test_a_token_is_sent_to_servers_and_to_nobody_else(ear: Ear, followed: Callable[..., ServerSource]) -> None:
    with Scripted(lambda path, _: quiet(path) or served(msgspec.json.encode(snapshot(1)))) as server:
        followed(server.address, token="hf_secret")
        ear.next()
        assert {headers["authorization"] for _, headers in server.asked} == {"Bearer hf_secret"}
    with Scripted(lambda _, __: (200, {}, b"")) as server:
        source = build_source(server.address + "/status/{zone}", zones=[ONE], token="hf_secret", poll_interval=0.05)
        source.start(ear)
        ear.next()
        source.close()
        assert "authorization" not in server.asked[0][1]


def test_a_source_that_is_closed_says_nothing_more_and_ends_its_threads(ear: Ear) -> None:
    before = threading.active_count()
    with Scripted(lambda path, _: quiet(path) or served(msgspec.json.encode(snapshot(1, status(ONE))))) as server:
        source = ServerSource(server.address, poll_interval=0.01)
        source.start(ear)
        assert ear.next() == {ONE}
        source.close()
        source.close()
        deadline = time.monotonic() + STUCK
        names = {"holdfast-poll", "holdfast-push"}
        while any(thread.name in names for thread in threading.enumerate()):
            assert time.monotonic() < deadline, "a thread did not end"
            time.sleep(0.01)
    assert threading.active_count() <= before + 2  # what the scripted server still has open


# Addresses that answer for one zone.


@pytest.mark.parametrize(
    ("pattern", "code", "expected"),
    [
        ("/status/{zone}", 200, set()),
        ("/status/{zone}", 500, {ONE}),
        ("exists+/{zone}.txt", 200, {ONE}),
        ("exists+/{zone}.txt", 403, set()),
        ("exists+/{zone}.txt", 404, set()),
    ],
)
def test_an_endpoint_says_by_its_code_whether_the_zone_is_out(
    ear: Ear, pattern: str, code: int, expected: set[Zone]
) -> None:
    with Scripted(lambda path, _: (code if "az1" in path else 404 if "exists" in pattern else 200, {}, b"")) as server:
        pattern = pattern.replace("exists+/", f"exists+{server.address}/").replace(
            "/status", f"{server.address}/status"
        )
        source = EndpointSource(pattern, [ONE, TWO], poll_interval=0.05)
        source.start(ear)
        assert ear.next() == expected
        assert {path.rpartition("/")[2].removesuffix(".txt") for path, _ in server.asked} >= {ONE, TWO}
        source.close()


@pytest.mark.parametrize("code", [301, 401, 403, 404, 429, 502, 503, 504])
def test_an_endpoint_that_answers_anything_else_is_silent(ear: Ear, code: int) -> None:
    answers = iter([code, code])
    with Scripted(lambda _, __: (next(answers, 500), {}, b"")) as server:
        source = EndpointSource(f"{server.address}/status/{{zone}}", [ONE], poll_interval=0.01)
        source.start(ear)
        assert ear.next() == {ONE}, "the first thing that it is heard to say"
        source.close()


def test_an_endpoint_may_be_asked_for_a_workload(ear: Ear) -> None:
    with Scripted(lambda _, __: (500, {}, b"")) as server:
        said: list[ZoneStatus] = []
        ear.receive = lambda statuses, at, zones=None: said.extend(statuses)  # type: ignore[method-assign]
        source = EndpointSource(
            server.address + "/status/{zone}/{workload}", [ONE], workload="shop", poll_interval=0.05
        )
        source.start(ear)
        deadline = time.monotonic() + STUCK
        while not said:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        source.close()
        assert server.asked[0][0] == "/status/az1/shop"
        assert (said[0].workload, said[0].state.is_out) == ("shop", True)


@pytest.mark.parametrize(
    ("pattern", "message"), [("http://127.0.0.1/", r"\{zone\}"), ("127.0.0.1/{zone}", "expected one such as")]
)
def test_an_endpoint_that_cannot_be_one_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        EndpointSource(pattern, [ONE])


# A store, read directly.


class Away(MemoryStatusStore):
    """A store that is away for the first reading."""

    failures = 1

    def read(self) -> Any:
        if self.failures:
            self.failures -= 1
            raise EngineUnavailable("away")
        return super().read()


def test_a_store_that_is_away_is_silent_and_then_read(ear: Ear) -> None:
    store = Away()
    store.write(status(ONE), 0)
    source = StoreSource(store, poll_interval=0.01, clock=FakeClock(wall=77.0))
    source.start(ear)
    assert ear.said.get(timeout=STUCK) == ({ONE}, 77.0)
    source.refresh()
    assert ear.next() == {ONE}
    source.close()


# When, and how often.


def test_a_source_looks_at_once_and_soon_after_a_poke(ear: Ear) -> None:
    source = StoreSource(MemoryStatusStore(), poll_interval=3600.0)
    source.start(ear)
    assert ear.next() == set()
    source.refresh()
    assert ear.next() == set()
    source.close()


def test_pulls_of_many_drift_apart() -> None:
    source = StoreSource(MemoryStatusStore(), poll_interval=1.0)
    pauses = [source._polling.run_step() for _ in range(1000)]
    assert 0.8 <= min(pauses) < 0.81 < 1.19 < max(pauses) <= 1.2


def test_two_of_five_that_are_dead_or_hang_keep_a_board_neither_from_being_right_nor_from_being_read() -> None:
    statuses = [status(ONE)]

    def answer(path: str, _: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return quiet(path) or served(msgspec.json.encode(snapshot(len(statuses), *statuses)))

    with (
        Scripted(answer) as first,
        Scripted(answer) as second,
        Scripted(answer) as third,
        socket.create_server(("127.0.0.1", 0)) as hanging,  # takes connections, and never answers
        socket.socket() as dead,  # bound, and nobody listens
    ):
        dead.bind(("127.0.0.1", 0))
        silent = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in (hanging, dead)]
        alive = [ServerSource(server.address, poll_interval=0.05) for server in (first, second, third)]
        with ZoneTracker(*silent, *alive) as tracker:
            assert tracker.wait(STUCK)
            assert tracker.zones_out("shop") == {ONE}
            statuses.append(status(TWO))
            end = time.monotonic() + STUCK
            while tracker.zones_out("shop") != {ONE, TWO}:
                assert time.monotonic() < end, "the three that live were not heard"
                time.sleep(0.005)
            assert [source.age is None for source in tracker.sources()] == [True, True, False, False, False]


def test_ten_thousand_that_lose_a_server_at_once_do_not_come_back_at_once() -> None:
    first, later = [], []
    for seed in range(10_000):
        chance = random.Random(seed).random
        tries = [RECONNECT_BACKOFF.delay(retry, 0.0, chance) for retry in range(1, 5)]
        first.append(tries[0])
        later.append(tries[-1])
    for moments, bound in ((first, 1.0), (later, 8.0)):
        assert 0 <= min(moments) <= max(moments) <= bound
        buckets = [0] * 10
        for moment in moments:
            buckets[min(int(moment / bound * 10), 9)] += 1
        assert max(buckets) < 1.2 * 10_000 / 10, "spread evenly"


def bounds_of_pauses(followed: Callable[..., ServerSource], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bounds of the first six pauses of a tracker whose server greets it and hangs up."""
    bounds: list[float] = []
    many = threading.Event()

    class Noted(Backoff):
        def delay(self, retry: int, previous: float, chance: Chance) -> float:
            bounds.append(super().delay(retry, previous, lambda: 1.0))
            if len(bounds) >= 6:
                many.set()
            return 0.0

    def greet(connection: socket.socket) -> None:
        connection.sendall(event("snapshot", snapshot(1, status(ONE))))

    monkeypatch.setattr(server_module, "RECONNECT_BACKOFF", Noted(base=0.01, cap=15.0))
    with Scripted(lambda path, _: (200, {}, greet) if path.endswith("events") else (503, {}, b"")) as server:
        followed(server.address, poll_interval=3600.0)
        assert many.wait(STUCK)
    return bounds[:6]


def test_a_server_that_greets_and_hangs_up_is_not_asked_ever_so_often(
    followed: Callable[..., ServerSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bounds_of_pauses(followed, monkeypatch) == [0.01 * 2**number for number in range(6)]


def test_a_stream_that_lived_for_a_while_makes_the_pauses_short_again(
    followed: Callable[..., ServerSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.status.sources.server.STABLE_STREAM_SECONDS", 0.0)
    assert bounds_of_pauses(followed, monkeypatch) == [0.01] * 6


@pytest.mark.parametrize("headers", [{"Age": "15"}, {"Age": "86400"}, {"Age": "old"}, {KNOWN_HEADER: "no"}])
def test_an_endpoint_that_has_not_heard_from_its_own_store_is_silent(ear: Ear, headers: dict[str, str]) -> None:
    answers = iter([(200, headers), (200, headers)])
    with Scripted(lambda _, __: (*next(answers, (500, {"Age": "14"})), b"")) as server:
        source = EndpointSource(f"{server.address}/status/{{zone}}", [ONE], poll_interval=0.01)
        source.start(ear)
        assert ear.next() == {ONE}, "the first thing that it is heard to say"
        source.close()


def test_a_304_without_a_time_is_survived(ear: Ear, followed: Callable[..., ServerSource]) -> None:
    good = msgspec.json.encode(snapshot(1, status(ONE)))
    pulls = iter([(304, {"Age": "1"}, b""), (200, {}, b"[" * 100_000)])
    with Scripted(lambda path, _: quiet(path) or next(pulls, served(good))) as server:
        followed(server.address)
        assert ear.next() == {ONE}
