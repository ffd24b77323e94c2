"""`holdfast alarms`: the tree, states, history and reasons of alarms, read from the stores."""

import re
from pathlib import Path

import pytest

from holdfast import Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms import Evaluation, SavedAlarms, StateValue, SuppressedActions, SuppressedBy, Suppression
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import BinDelta
from holdfast.telemetry.history import TelemetryHistory
from holdfast.telemetry.series import SeriesTable
from holdfast.testing import FakeClock
from holdfast.watch import WatchedWorkload, WatchStore, WorkloadWatcher
from holdfast.watch.alarm_store import AlarmStore
from holdfast.watch.alarms import AlarmWatch
from tests.unit.alarms.world import START, ZONES, bins
from tests.unit.cli.conftest import Run

SETTINGS = """
data_directory = "data"
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
"""


@pytest.fixture
def settings(here: Path) -> Path:
    (here / "holdfast.toml").write_text(SETTINGS)
    (here / "data").mkdir()
    return here / "data"


@pytest.fixture
def stored(settings: Path) -> None:
    """Stores of five minutes, in which half of the requests in one zone failed."""
    with SqliteDatabase(settings / "telemetry.sqlite") as telemetry, SqliteDatabase(settings / "watch.sqlite") as watch:
        table = SeriesTable()
        history = TelemetryHistory(telemetry, table, 10.0, ["shop"], START)
        alarms = AlarmWatch(AlarmDeclaration(workload="shop", zones=ZONES), history.store, table, AlarmStore(watch))
        content = bins(ZONES[1:]) | bins(ZONES[:1], faults=50)
        for number in range(30):
            end = START + (number + 1) * 10
            history.add([(int(START // 10) + number, content)], {}, {}, end)
            alarms.evaluate(end)
        history.save(START + 300)
        alarms.save()


@pytest.mark.usefixtures("stored")
class TestStored:
    def test_the_tree_is_drawn_down_to_the_operations_in_alarm(self, run: Run) -> None:
        ran = run("alarms", "tree")
        assert ran.code == 0
        lines = ran.out.splitlines()
        assert re.fullmatch(r"shop: \d+ ok, \d+ ALARM, evaluated up to 2023-11-14 22:25:00Z", lines[0])
        assert lines[1:5] == [
            "├─ use1-az1-isolated-impact  [ALARM, reports its changes]",
            "│  ├─ use1-az1-aggregate-alarm  [ALARM]",
            "│  │  ├─ az1-availability  [ALARM]",
            "│  │  │  └─ use1-az1/Home/Index-availability  [ALARM]",
        ]
        assert lines[-1] == "└─ use1-az3-silent  [ok]"
        assert "│  │  ├─ az1-availability  [ALARM, see above]" in lines
        assert sum("use1-az1/Home/Index-availability  " in line for line in lines) == 2
        assert not [line for line in lines if "use1-az2/" in line]

    def test_the_tree_of_one_alarm_is_whole(self, run: Run) -> None:
        ran = run("alarms", "tree", "az2-latency")
        assert ran.out.splitlines()[1:] == [
            "└─ az2-latency  [ok]",
            "   └─ use1-az2/Home/Index-latency  [ok]",
            "      ├─ use1-az2/Home/Index-latency-server-3-in-a-row  [ok]",
            "      └─ use1-az2/Home/Index-latency-server-3-of-5  [ok]",
        ]
        missing = run("alarms", "tree", "nothing")
        assert (missing.code, missing.err) == (
            1,
            "holdfast: there is no alarm nothing: see `holdfast alarms state --all`\n",
        )

    def test_states_begin_with_those_in_alarm(self, run: Run) -> None:
        lines = run("alarms", "state").out.splitlines()
        assert lines[0].split() == ["workload", "alarm", "state", "since", "meaning", "of", "ALARM"]
        assert lines[1].split()[:3] == ["shop", "use1-az1-isolated-impact", "ALARM"]
        assert (
            lines[1]
            .rstrip()
            .endswith("Only use1-az1 is affected, and not by single instances: consider taking it out.")
        )
        states = [line.split()[2] for line in lines[1:]]
        assert states == sorted(states, key=lambda word: word != "ALARM")
        shown = run("alarms", "state", "--json").result
        complete = run("alarms", "state", "--all", "--json").result
        assert len(shown[0]["alarms"]) < len(complete[0]["alarms"])
        assert sum(shown[0]["counts"].values()) == len(complete[0]["alarms"])

    def test_the_history_is_newest_first(self, run: Run) -> None:
        found = run("alarms", "history", "use1-az1-isolated-impact", "--json").result
        assert [item["HistorySummary"] for item in found] == [
            "Successfully executed action holdfast:event",
            "Alarm updated from OK to ALARM",
            "Alarm updated from INSUFFICIENT_DATA to OK",
            'Alarm "use1-az1-isolated-impact" created',
        ]
        ran = run("alarms", "history", "--limit", "1")
        assert len(ran.out.splitlines()) == 2

    def test_the_history_of_all_alarms_shows_news_about_zones_unless_everything_is_asked_for(self, run: Run) -> None:
        found = run("alarms", "history", "--json").result
        summaries = {item["HistorySummary"] for item in found}
        assert "Alarm updated from OK to ALARM" in summaries
        assert "Alarm updated from INSUFFICIENT_DATA to OK" not in summaries
        assert "use1-az1-isolated-impact" in {item["AlarmName"] for item in found}
        assert not [item for item in found if "/" in item["AlarmName"]]
        everything = run("alarms", "history", "--all", "--limit", "1000", "--json").result
        assert len(everything) > len(found)
        assert [item for item in everything if "/" in item["AlarmName"]]

    def test_a_metric_alarm_is_explained_by_its_datapoints(self, run: Run) -> None:
        ran = run("alarms", "explain", "use1-az1/Home/Index-availability-server-3-in-a-row")
        assert ran.code == 0
        lines = ran.out.splitlines()
        assert lines[0].endswith("(shop): ALARM since 2023-11-14 22:23:00Z")
        assert "  condition: 100 * (requests - faults) / requests < 99, in 3 of 3 datapoints of 60 s" in lines
        assert "  decided by: enough datapoints" in lines
        assert lines[-4:] == [
            "   * 2023-11-14 22:23:00Z  50, breaching",
            "   * 2023-11-14 22:24:00Z  50, breaching",
            "  requests: 600, 600, 600, 600, 600",
            "  faults: 300, 300, 300, 300, 300",
        ]

    def test_contributors_and_throughput_are_explained_by_their_inputs(self, run: Run) -> None:
        lines = run("alarms", "explain", "not-single-instance-use1-az1-errors").out.splitlines()
        assert "  5xx-errors-use1-az1: no data, no data, 10, 10, 10, 10, 10" in lines
        assert "missing data: notBreaching" in run("alarms", "explain", "az1-throughput-3-of-5").out

    def test_a_composite_alarm_is_explained_by_the_parts_that_decided(self, run: Run) -> None:
        lines = run("alarms", "explain", "use1-az1-isolated-impact").out.splitlines()
        assert "  decided by: the rule is true, so the alarm is in ALARM" in lines
        assert lines[-1] == (
            '     └─ true: ALARM("not-single-instance-use1-az1")  (not-single-instance-use1-az1 is ALARM)'
        )
        found = run("alarms", "explain", "use1-az2-isolated-impact", "--json").result
        assert found["parts"]["value"] is False

    def test_an_unknown_alarm_or_workload_is_named(self, run: Run) -> None:
        ran = run("alarms", "explain", "nothing")
        assert (ran.code, ran.err) == (1, "holdfast: there is no alarm nothing: see `holdfast alarms state --all`\n")
        assert run("alarms", "history", "nothing").err == ran.err
        ran = run("alarms", "state", "--workload", "other")
        assert "there is no workload other in the settings: expected one of shop" in ran.err


def test_an_alarm_is_followed_from_its_beginning_over_a_killed_watcher_to_its_end(settings: Path, run: Run) -> None:
    clock, name = FakeClock(wall=START), "use1-az2-isolated-impact"
    declaration = AlarmDeclaration(workload="shop", zones=ZONES, options=AlarmOptions(period=10))

    def watch(databases: tuple[SqliteDatabase, SqliteDatabase], bin_count: int, failing: Zone | None = None) -> None:
        """Watch as a new process does, and end without saving more, as a killed one."""
        workload = WatchedWorkload(name="shop", zones=ZONES, detector="threshold", alarms=declaration)
        watcher = WorkloadWatcher([workload], WatchStore(databases[0]), history=databases[1], clock=clock)
        for _ in range(bin_count):
            content = bins() if failing is None else bins() | bins([failing], faults=50)
            watcher.ingest([BinDelta(key, clock.wall(), 10.0, measured) for key, measured in content.items()])
            for _ in range(5):
                clock.advance(2.0)
                watcher.tick()
        clock.advance(2.0)
        watcher.tick()
        clock.advance(8.0)

    def read() -> tuple[str, list[str], bool]:
        """Return the state, the latest changes and the value of the rule, by three commands."""
        [found] = run("alarms", "state", "--json").result
        [state] = [alarm["state"] for alarm in found["alarms"] if alarm["name"] == name]
        changes = [item["HistorySummary"] for item in run("alarms", "history", name, "--json").result]
        return state, changes, run("alarms", "explain", name, "--json").result["parts"]["value"]

    ran = "Successfully executed action holdfast:event"
    began, ended = "Alarm updated from OK to ALARM", "Alarm updated from ALARM to OK"
    with SqliteDatabase(settings / "watch.sqlite") as store, SqliteDatabase(settings / "telemetry.sqlite") as telemetry:
        watch((store, telemetry), 6)
        first = ["Alarm updated from INSUFFICIENT_DATA to OK", f'Alarm "{name}" created']
        assert read() == ("OK", first, False)
        watch((store, telemetry), 4, failing=ZONES[1])
        assert read() == ("ALARM", [ran, began, *first], True)
        lines = run("alarms", "tree", name).out.splitlines()
        assert lines[1] == f"└─ {name}  [ALARM, reports its changes]"
        watch((store, telemetry), 4, failing=ZONES[1])
        assert read() == ("ALARM", [ran, began, *first], True)
        watch((store, telemetry), 6)
        assert read() == ("OK", [ran, ended, ran, began, *first], False)


def test_without_a_store_the_message_says_where_it_was_looked_for(settings: Path, run: Run) -> None:
    assert "there is no store at" in run("alarms", "state").err


def test_alarms_that_were_never_evaluated_are_shown_without_a_state(settings: Path, run: Run) -> None:
    with SqliteDatabase(settings / "watch.sqlite") as watch, SqliteDatabase(settings / "telemetry.sqlite") as telemetry:
        WatchStore(watch)
        TelemetryHistory(telemetry, SeriesTable(), 10.0, [], START)
    assert run("alarms", "tree").out.splitlines()[0] == "shop: never evaluated"
    for names in (["--all"], ["az1-availability"], ["use1-az1-silent"]):
        assert run("alarms", "history", *names).out == "no alarm has changed yet\n"
    assert (
        run("alarms", "history").out
        == "there is no news about alarms yet; --all also shows single operations and first states\n"
    )
    assert "decided by: it was never evaluated" in run("alarms", "explain", "use1-az1-silent").out


def test_several_workloads_need_a_name(settings: Path, run: Run, here: Path) -> None:
    second = "[[" + SETTINGS.partition("[[")[2].replace('"shop"', '"cart"')
    (here / "holdfast.toml").write_text(SETTINGS + second)
    with SqliteDatabase(settings / "watch.sqlite") as watch, SqliteDatabase(settings / "telemetry.sqlite") as telemetry:
        WatchStore(watch)
        TelemetryHistory(telemetry, SeriesTable(), 10.0, [], START)
    assert "name a workload: expected one of shop, cart" in run("alarms", "history").err
    assert len(run("alarms", "state", "--json").result) == 2


@pytest.mark.parametrize(
    ("suppression", "line"),
    [
        (
            Suppression(StateValue.ALARM, True, SuppressedBy.WAIT_PERIOD, START + 120),
            "WaitPeriod: it waits for database-impact, until 2023-11-14 22:22:00Z; then they run",
        ),
        (
            Suppression(StateValue.ALARM, True, SuppressedBy.ALARM),
            "Alarm: database-impact is in ALARM; they run some time after it has ended",
        ),
        (
            Suppression(StateValue.OK, False, SuppressedBy.EXTENSION_PERIOD, START + 120),
            "ExtensionPeriod: database-impact was in ALARM, until 2023-11-14 22:22:00Z; none is pending",
        ),
        (Suppression(StateValue.OK), None),
    ],
)
def test_an_explanation_says_what_suppresses_actions_and_until_when(
    suppression: Suppression, line: str | None, settings: Path, run: Run, here: Path
) -> None:
    resource = '[[workload.alarms.resource]]\nname = "database"\noperations = ["db/query"]\n'
    (here / "holdfast.toml").write_text(SETTINGS + resource)
    name = "use1-az1-isolated-impact"
    suppressed = {name: SuppressedActions("database-impact", suppression, StateValue.OK)}
    with SqliteDatabase(settings / "watch.sqlite") as watch, SqliteDatabase(settings / "telemetry.sqlite") as telemetry:
        AlarmStore(watch).save("shop", Evaluation(START + 60), SavedAlarms(suppressed=suppressed))
        TelemetryHistory(telemetry, SeriesTable(), 10.0, [], START)
    found = [each for each in run("alarms", "explain", name).out.splitlines() if "suppressed" in each]
    assert found == ([] if line is None else [f"  actions are suppressed by {line}"])
