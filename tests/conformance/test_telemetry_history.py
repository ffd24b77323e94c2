"""The measurements of a day survive a restart, in every database."""

import logging
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import EngineUnavailable, Side
from holdfast.engines import Database, Transaction
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinKey
from holdfast.telemetry.bins import LONG_TERM, MEDIUM_TERM, SHORT_TERM
from holdfast.telemetry.collector import Amendment
from holdfast.telemetry.history import TelemetryHistory
from holdfast.telemetry.query import SeriesAnswer, SeriesQuery
from holdfast.telemetry.series import SeriesTable
from tests.support.telemetry_writer import FIRST, open_database
from tests.unit.telemetry.measured import CART, START, key

ROOT = Path(__file__).parents[2]
NUMBER = int(START // 10)
Address = tuple[str, str]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    """The engine and address of an empty database."""
    if request.param == "sqlite":
        yield "sqlite", str(tmp_path / "telemetry.sqlite")
        return
    url: str = request.getfixturevalue("postgres_url")
    schema = f"telemetry_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        yield "postgres", f"{url}?options=-csearch_path%3D{schema}"
        connection.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture
def database(address: Address) -> Iterator[Database]:
    with open_database(*address) as opened:
        yield opened


def build(
    database: Database, now: float = START, seconds: float = 10.0, workloads: tuple[str, ...] = ("shop",)
) -> TelemetryHistory:
    return TelemetryHistory(database, SeriesTable(), seconds, workloads, now)


def measure(requests: int) -> Bin:
    latencies = Histogram.of([0.01 * requests, 0.3])
    by_second = {int(START): requests}
    return Bin(requests, count_4xx=2, count_5xx=1, faults=1, success_seconds=latencies, by_second=by_second)


def add(history: TelemetryHistory, number: int, bins: Mapping[BinKey, Bin]) -> float:
    """Add a complete bin, counted from START on. Return the time at which it was complete."""
    now = START + 10 * (number + 1) + 1.5
    history.add([(NUMBER + number, bins)], {}, {}, now)
    return now


def fill(history: TelemetryHistory) -> float:
    """Add several bins of two operations, instances and sides, with late measurements. Return the time."""
    now = START
    for number in range(8):
        bins = {key(): measure(number + 1), key(CART, "az2", "i-2", Side.CANARY): measure(3)}
        now = add(history, number, bins if number != 4 else {})
    late = {NUMBER: Amendment(added={key(instance="i-9"): measure(7)}, replaced={key(): measure(50)})}
    late_minutes = {int(START // 60): Amendment(added={key(CART, side=Side.CLIENT): measure(60)})}
    history.add([], late, late_minutes, now)
    return now


QUERIES: list[dict[str, Any]] = [
    {},
    {"by": "zone", "side": Side.CANARY, "step": 10.0},
    {"by": "operation", "step": 60.0},
    {"by": "instance"},
    {"by": "instance", "side": Side.CLIENT},
    {"side": Side.CLIENT},
]


def ask(history: TelemetryHistory, now: float, workload: str = "shop", **options: Any) -> SeriesAnswer:
    query = SeriesQuery(workload=workload, start=START, end=START + 120, **options)
    return history.snapshot(workload).answer(query, now)


def ask_all(history: TelemetryHistory, now: float) -> list[SeriesAnswer]:
    answers = [ask(history, now, **options) for options in QUERIES]
    assert all(answer.series for answer in answers)
    return answers


def count_requests(history: TelemetryHistory, now: float, workload: str = "shop", **options: Any) -> dict[float, int]:
    """Return the requests of the only series by the time after START."""
    series = ask(history, now, workload, **options).series
    return {point.start - START: point.requests for each in series for point in each.points}


def count_rows(database: Database) -> int:
    return database.read(lambda transaction: transaction.execute("select count(*) from holdfast_telemetry_bin"))[0][0]  # type: ignore[no-any-return]


def test_a_new_process_gives_the_same_answers(database: Database) -> None:
    history = build(database)
    now = fill(history)
    history.save(now)
    again = build(database, now)
    assert ask_all(again, now) == ask_all(history, now)
    assert again.nbytes == history.nbytes > 0


def test_bins_that_are_added_after_a_restart_join_those_from_before(database: Database) -> None:
    """The minute in progress goes on, and a bin that is amended later is saved again."""
    history = build(database)
    history.save(add(history, 0, {key(): measure(1)}))
    again = build(database, START + 12)
    now = add(again, 1, {key(): measure(2)})
    again.add([], {NUMBER: Amendment(added={key(instance="i-2"): measure(4)})}, {}, now)
    again.save(now)
    third = build(database, now)
    assert count_requests(third, now, step=10.0) == {0: 11, 10: 5}
    assert count_requests(third, now, step=60.0) == {0: 16}


def test_a_save_without_changes_writes_nothing(database: Database) -> None:
    history = build(database)
    history.save(START)
    assert count_rows(database) == 0


class Unreliable:
    """A database that is unavailable on demand."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_away = False
        self.meanwhile: Callable[[], object] = lambda: None
        """Called while a write fails."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, work: Callable[[Transaction], Any]) -> Any:
        if self.is_away:
            self.meanwhile()
            raise EngineUnavailable("away")
        return self._database.write(work)


def test_a_save_that_fails_keeps_its_changes_for_the_next(database: Database) -> None:
    unreliable: Any = Unreliable(database)
    history = build(unreliable)
    now = add(history, 0, {key(): measure(1)})
    unreliable.is_away = True
    late = {NUMBER: Amendment(added={key(): measure(5)})}
    unreliable.meanwhile = lambda: history.add([], late, {}, now)
    with pytest.raises(EngineUnavailable):
        history.save(now)
    unreliable.meanwhile = lambda: None
    now = add(history, 1, {key(): measure(2)})
    with pytest.raises(EngineUnavailable):
        history.save(now)
    unreliable.is_away = False
    history.save(now)
    assert count_requests(build(database, now), now, step=10.0) == {0: 12, 10: 5}


def test_a_database_that_is_away_for_hours_does_not_fill_the_memory(database: Database) -> None:
    unreliable: Any = Unreliable(database)
    history = build(unreliable)
    unreliable.is_away = True
    now = START
    for number in range(0, 1000, 5):
        now = add(history, number, {key(): measure(1)})
        with pytest.raises(EngineUnavailable):
            history.save(now)
    assert len(history._unsaved) < (SHORT_TERM + MEDIUM_TERM) / 50 + 1000 * 10 / 60
    unreliable.is_away = False
    history.save(now)
    again = build(database, now)
    query = SeriesQuery(workload="shop", start=START, end=now, step=3600.0)
    assert again.snapshot("shop").answer(query, now) == history.snapshot("shop").answer(query, now)


def test_damaged_bins_are_left_out_with_one_line_in_the_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    history = build(database)
    for number in range(3):
        history.save(add(history, number, {key(): measure(number + 1)}))
    damage = "update holdfast_telemetry_bin set content = $1 where tier = 'zones' and start = $2"
    database.write_statement(damage, (b"not a block", START))
    rename = "update holdfast_telemetry_bin set tier = 'hours' where tier = 'zones' and start = $1"
    database.write_statement(rename, (START + 10,))
    now = START + 32
    with caplog.at_level(logging.WARNING):
        again = build(database, now)
    [line] = caplog.messages
    assert line.startswith("left out 1 stored bin of telemetry that cannot be read; the first: a stored bin of")
    assert count_requests(again, now, step=10.0) == {20: 6}
    assert count_requests(again, now, step=60.0) == {0: 15}


def test_old_rows_are_deleted_by_a_save(database: Database) -> None:
    history = build(database)
    history.save(add(history, 0, {key(): measure(1)}))
    assert count_rows(database) == 3, "by instance, by zone, and of the minute"
    history.save(add(history, 100, {key(): measure(1)}))
    assert count_rows(database) == 5, "of the first, the minute and the bin over all instances are left"
    history.save(add(history, 400, {key(): measure(1)}))
    assert count_rows(database) == 6, "of the first, the minute is left, and of the second that by instance is gone"
    history.save(add(history, 9_500, {key(): measure(1)}))
    assert count_rows(database) == 3
    assert build(database, START + LONG_TERM * 3).nbytes == 0


def test_rows_of_a_workload_that_is_no_longer_watched_are_deleted_after_a_day(database: Database) -> None:
    history = build(database, workloads=("shop", "news"))
    history.save(add(history, 0, {key(): measure(1), key(workload="news"): measure(1)}))
    build(database, START + LONG_TERM)
    assert count_rows(database) == 6
    build(database, START + LONG_TERM + 20)
    assert count_rows(database) == 0


def test_bins_of_workloads_are_kept_apart(database: Database) -> None:
    history = build(database, workloads=("shop", "news"))
    now = add(history, 0, {key(): measure(1), key(workload="news"): measure(5)})
    history.save(now)
    again = build(database, now, workloads=("news", "shop"))
    assert count_requests(again, now, "news") == {0: 8}
    assert count_requests(again, now, "shop") == {0: 4}


def test_bins_of_another_length_are_left_out_and_minutes_stay(database: Database) -> None:
    history = build(database)
    now = fill(history)
    history.save(now)
    again = build(database, now, seconds=5.0)
    assert count_requests(again, now, step=5.0, side=Side.CANARY) == {}
    later = now + 120
    assert ask(again, later, step=60.0, by="operation") == ask(history, later, step=60.0, by="operation")


def test_bins_of_a_clock_that_was_ahead_are_not_loaded(database: Database) -> None:
    history = build(database)
    history.save(add(history, 0, {key(): measure(1)}))
    history.save(add(history, 360, {key(): measure(1)}))
    assert build(database, START + 3620).nbytes > build(database, START + 20).nbytes > 0


def test_a_process_that_is_killed_loses_no_bin_that_it_has_saved(address: Address) -> None:
    """It is killed while it works, so that one more bin may be saved than it has said."""
    command = [sys.executable, "-m", "tests.support.telemetry_writer", *address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        printed = [int(process.stdout.readline()) for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        printed += map(int, process.stdout.read().split())
    assert process.returncode == -signal.SIGKILL
    assert printed == list(range(FIRST, FIRST + len(printed)))
    now = (printed[-1] + 1) * 10.0 + 1.5
    with open_database(*address) as database:
        history = build(database, now)
        start = max(FIRST * 10.0, now - SHORT_TERM)
        query = SeriesQuery(workload="shop", start=start, end=now + 20, step=10.0)
        [series] = history.snapshot("shop").answer(query, now).series
    found = {int(point.start // 10): point.requests for point in series.points}
    saved = range(int(start // 10), printed[-1] + 1)
    expected = {number: number - FIRST + 1 for number in saved}
    assert expected.items() <= found.items()
    assert len(found) <= len(expected) + 1
