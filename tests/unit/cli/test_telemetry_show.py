"""`holdfast telemetry show`: what a workload measured, read from the store or from a server."""

from pathlib import Path

import pytest

from holdfast import Operation, Side, Zone
from holdfast._clock import SystemClock
from holdfast.cli.telemetry.show import draw_bars
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinDelta, BinKey
from holdfast.telemetry.collector import Collector
from holdfast.telemetry.history import TelemetryHistory
from holdfast.telemetry.series import SeriesTable
from tests.unit.cli.conftest import Run

SETTINGS = """
data_directory = "data"
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


@pytest.fixture
def stored(here: Path) -> None:
    """A store with two bins of two zones, of which the second has faults."""
    (here / "holdfast.toml").write_text(SETTINGS)
    (here / "data").mkdir()
    now = SystemClock().wall() // 10 * 10
    with SqliteDatabase(here / "data" / "telemetry.sqlite") as database:
        table = SeriesTable()
        collector = Collector(table)
        history = TelemetryHistory(database, table, 10.0, ["shop"], now)
        for zone, faults in ((Zone("use1-az1"), 0), (Zone("use1-az2"), 5)):
            key = BinKey("shop", Operation("Home", "Index"), zone, f"i-{zone}", Side.SERVER)
            for start in (now - 30, now - 20):
                measured = Bin(
                    count_2xx=20 - faults,
                    count_5xx=faults,
                    faults=faults,
                    success_seconds=Histogram.of([0.1] * (20 - faults)),
                    by_second={int(start): 20},
                )
                collector.add([BinDelta(key, start, 10.0, measured)], start)
        history.add(collector.pop_complete(now), {}, {}, now)
        history.save(now)


@pytest.mark.usefixtures("stored")
class TestStored:
    def test_every_zone_is_a_row_with_its_faults_and_latency(self, run: Run) -> None:
        ran = run("telemetry", "show", "shop")
        assert ran.code == 0
        header, first, second = ran.out.splitlines()
        assert header.split()[:3] == ["zone", "requests", "per"]
        assert first.split()[:8] == ["use1-az1", "40", "2.0", "20/s", "0.00%", "100", "ms", "100"]
        assert second.split()[:5] == ["use1-az2", "40", "2.0", "20/s", "25.00%"]

    @pytest.mark.parametrize(
        ("words", "labels"),
        [
            (["--by", "operation"], ["Home/Index"]),
            (["--by", "instance"], ["i-use1-az1", "i-use1-az2"]),
            (["--by", "instance", "--zone", "use1-az2"], ["i-use1-az2"]),
            (["--operation", "Home/Index", "--instance", "i-use1-az1"], ["use1-az1"]),
            (["--side", "canary"], []),
        ],
    )
    def test_rows_are_chosen_by_options(self, run: Run, words: list[str], labels: list[str]) -> None:
        ran = run("telemetry", "show", "shop", "--json", *words)
        assert [each["label"] for each in ran.result["series"]] == labels

    def test_a_time_without_measurements_is_said_to_have_none(self, run: Run) -> None:
        ran = run("telemetry", "show", "shop", "--side", "client", "--last", "1h")
        assert (ran.code, ran.out) == (0, "no measurements of shop in the last 1h (side client)\n")
        ran = run("telemetry", "show", "shop", "--operation", "Home/Nothing", "--zone", "use1-az1")
        assert ran.out == (
            "no measurements of shop in the last 15m (zone use1-az1, operation Home/Nothing, side server)\n"
        )

    @pytest.mark.parametrize(
        ("words", "code", "problem"),
        [
            (["cart"], 1, "there is no workload cart in the settings: expected one of shop"),
            (["shop", "--operation", "Home"], 2, "operation 'Home': expected service/name"),
            (
                ["shop", "--zone", "use1-az9"],
                1,
                "workload shop has no zone use1-az9: expected one of use1-az1, use1-az2",
            ),
            (["shop", "--zone", "us-east-1a"], 2, "us-east-1a is the name of a zone"),
            (["shop", "--step", "5s"], 2, "step is 5 s: expected at least 10 s"),
        ],
    )
    def test_what_is_wrong_is_told(self, run: Run, words: list[str], code: int, problem: str) -> None:
        ran = run("telemetry", "show", *words)
        assert (ran.code, problem in ran.err) == (code, True), ran.err


def test_without_a_store_the_way_to_name_one_is_told(run: Run, here: Path) -> None:
    (here / "holdfast.toml").write_text(SETTINGS)
    ran = run("telemetry", "show", "shop")
    assert ran.code == 1
    assert "or name a running server with --server" in ran.err


@pytest.mark.parametrize(
    ("values", "top", "bars"),
    [
        ([], None, ""),
        ([0, 0], None, "▁▁"),
        ([1, 4, 8], None, "▂▅█"),
        ([0, 0.001, 0.5, 1], 1.0, "▁▂▅█"),
        ([1] * 90, None, "█" * 30),
    ],
)
def test_small_charts_show_the_course_of_values(values: list[float], top: float | None, bars: str) -> None:
    assert draw_bars(values, top) == bars
