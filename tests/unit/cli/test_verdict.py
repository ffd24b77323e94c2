"""`holdfast verdict`: the current verdict, read from the stores."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import Verdict, VerdictKind, Zone, ZoneState, ZoneStatus
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status import SqlStatusStore
from holdfast.watch import WatchStore
from tests.unit.cli.conftest import Run

SETTINGS = """
data_directory = "data"
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""
FAULTS = {"evidence": 14.2, "needed": 21.6, "operation": "Home/Index", "since": 10.0, "held_back": "it waits"}
EVIDENCE: dict[str, Any] = {
    "use1-az1": {"requests": 90, "fault_rate": 0.0, "slow": {"evidence": 0.0, "needed": 9.0, "operation": "all"}},
    "use1-az2": {"requests": 0, "fault_rate": None, "signal": FAULTS, "worst_instances": ["i-1", "i-2"]},
    "orders": {"observability": "gray", "affected_zones": ["use1-az1"]},
    "cache": {"observability": "healthy", "affected_zones": []},
}


@pytest.fixture
def settings(here: Path) -> Path:
    (here / "holdfast.toml").write_text(SETTINGS)
    (here / "data").mkdir()
    return here / "data"


def store(settings: Path, *, detector: str = "calibrated", **changes: Any) -> None:
    fields = {"id": "v", "workload": "shop", "kind": VerdictKind.HEALTHY, "since": 0.0, "at": 20.0, "summary": "well"}
    verdict = Verdict(**{**fields, "evidence": EVIDENCE, **changes})
    with SqliteDatabase(settings / "watch.sqlite") as database:
        WatchStore(database).record("shop", detector, {}, 20.0, opened=None, closed=[], current=verdict)
    with SqliteDatabase(settings / "status.sqlite") as database:
        SqlStatusStore(database)


def test_the_evidence_against_each_zone_is_told_in_sentences(settings: Path, run: Run) -> None:
    store(settings)
    assert run("verdict", "explain").out.splitlines() == [
        "shop: healthy, by detector calibrated",
        "  well",
        "  evaluated up to 1970-01-01 00:00:20Z",
        "  not evacuated: only a verdict of kind isolated evacuates a zone",
        "",
        "use1-az1: 90 requests in the last window, 0.0% of them failed",
        "  slow: no evidence",
        "",
        "use1-az2: 0 requests in the last window",
        "  signal of Home/Index 14.2 of 21.6 nats (66%), since 00:00:10 UTC; held back: it waits",
        "  worst instances: i-1, i-2",
        "",
        "orders is gray: only its consumers see a failure, its own monitoring does not; affected in use1-az1",
        "cache is healthy: neither its consumers nor its own monitoring see a failure",
    ]
    assert run("verdict", "explain", "shop", "--json").result["zones"][1]["signals"][0]["share"] == 0.657


def test_a_verdict_that_only_advises_says_so(settings: Path, run: Run) -> None:
    failing = {"kind": VerdictKind.ISOLATED, "zone": Zone("use1-az2"), "evidence": {"use1-az2": {"requests": 7}}}
    store(settings, detector="threshold", **failing)
    with SqliteDatabase(settings / "status.sqlite") as database:
        status = ZoneStatus(
            zone=Zone("use1-az1"), workload=None, state=ZoneState.OUT, since=1.0, by="operator", reason="test"
        )
        SqlStatusStore(database).write(status, 0)
    told = run("verdict", "explain").out
    assert told.startswith("shop: isolated (use1-az2), by detector threshold\n  well\n  since 1970-01-01 00:00:00Z\n")
    assert "  not evacuated: verdicts of detector threshold only advise, because evacuation.detectors does" in told
    assert "`holdfast zone evacuate use1-az2 --workload shop --reason ...`" in told
    assert "use1-az1: the verdict has no measurements of it (out)\n" in told
    assert "use1-az2: requests 7\n" in told


def test_a_missing_store_verdict_or_workload_is_named(settings: Path, run: Run, here: Path) -> None:
    assert "start the server with `holdfast up`, or name one with --server" in run("verdict", "explain").err
    with SqliteDatabase(settings / "watch.sqlite") as database:
        WatchStore(database)
    with SqliteDatabase(settings / "status.sqlite") as database:
        SqlStatusStore(database)
    assert "there is no verdict about shop yet" in run("verdict", "explain").err
    assert "there is no workload cart in the settings: expected one of shop" in run("verdict", "explain", "cart").err
    (here / "holdfast.toml").write_text('data_directory = "data"\n')
    assert "there are no verdicts: no workload is configured" in run("verdict", "explain").err
