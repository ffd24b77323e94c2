"""`holdfast aurora simulate` shows how a run ends, for people and for programs, and draws it."""

import re
import sys
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from holdfast.cli.aurora.simulate import FaultName
from holdfast.simulate.aurora import NAMED_FAULTS
from tests.unit.cli.conftest import Run

DOCS = Path(__file__).parents[3] / "docs"
STOPPED = ("aurora", "simulate", "--fault", "cluster-stopped", "--readers", "0")


def test_every_fault_has_its_name_in_the_command_line() -> None:
    assert list(get_args(FaultName)) == list(NAMED_FAULTS)


def test_a_run_is_a_table_of_instances_and_how_it_ended(run: Run) -> None:
    found = run("aurora", "simulate", "--fault", "aborted", "--fault", "duplicate")
    assert (found.code, found.err) == (0, "")
    lines = [line.rstrip() for line in found.out.splitlines()]
    assert lines[0].split() == ["from", "to", "instance", "class", "role", "status"]
    assert "0:00:20  0:12:00  shop-reader-dedicated  db.r6g.large   reader  modifying" in lines
    assert lines[-5:] == [
        "ABORTED after 0:33:20 (hours:minutes:seconds)",
        "path: 38 states, the last one is WaitForOldWriterRetry",
        "notification at 0:15:00: Aurora shop-cluster: class change skipped",
        "notification at 0:33:20: Aurora shop-cluster: class change was stopped by someone",
        "safety rules: none was broken",
    ]


def test_as_json_and_as_a_picture_it_has_all_of_the_run(run: Run, here: Path) -> None:
    found = run(*STOPPED, "--seed", "1", "--svg", "run.svg", "--json").result
    assert (found["status"], found["seconds"], found["violations"], found["changes"]) == ("FAILED", 0.0, [], [])
    assert [each["name"] for each in found["path"]][-3:] == [
        "ClusterStateError",
        "ReleaseLockAfterError",
        "ScalingFailed",
    ]
    assert found["notifications"][0]["subject"].endswith("the cluster cannot be changed")
    assert found["instances"]["shop-writer"][0]["status"] == "stopped"
    assert found["history_events"] == 31
    ElementTree.fromstring((here / "run.svg").read_text())


def test_the_picture_in_the_documentation_is_that_of_the_command_above_it(run: Run, here: Path) -> None:
    command = re.search(
        r"\$ holdfast (aurora simulate .+ --svg run\.svg)\n", (DOCS / "how-to/aurora-simulate.md").read_text()
    )
    assert command is not None
    assert run(*command[1].split()).code == 0
    assert (here / "run.svg").read_text() == (DOCS / "assets/aurora-run.svg").read_text()


def test_wrong_options_are_refused_before_the_run(run: Run, here: Path) -> None:
    assert "flood" in run("aurora", "simulate", "--fault", "flood", "--json").error["detail"]
    rows = {
        "cluster-starting and cluster-stopped contradict": ["cluster-stopped", "cluster-starting"],
        "aborted and timed-out contradict": ["aborted", "timed-out"],
        "there are 0 readers: add one": ["scaled-in"],
    }
    for said, faults in rows.items():
        words = [word for fault in faults for word in ("--fault", fault)]
        assert said in run("aurora", "simulate", *words, "--readers", "0", "--json").error["detail"]
    assert "0 to 14" in run("aurora", "simulate", "--readers", "15", "--json").error["detail"]
    for path, problem in {"nowhere/run.svg": "there is no folder nowhere", ".": ". is a folder"}.items():
        assert problem in run(*STOPPED, "--svg", path, "--json").error["detail"]
    (here / "run.svg").write_text("")
    assert run(*STOPPED, "--svg", "run.svg", "--json").error["error"] == "conflict"


def test_the_reason_of_a_failed_run_and_the_drawn_times_are_shown(run: Run) -> None:
    lines = run(*STOPPED, "--seed", "1").out.splitlines()
    assert lines[-3] == "  Reason: cluster shop-cluster is stopped: start it first"
    assert lines[-2].startswith("seconds: modification ")


def test_a_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("holdfast.simulate.aws.rds", "holdfast.simulate.aws.emulator"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "moto.rds.exceptions", None)
    found = run(*STOPPED, "--json").error
    assert found == {
        "error": "missing-extra",
        "detail": "a simulation of AWS needs the extra 'simulate': pip install 'holdfast-resilience[simulate]'",
    }
