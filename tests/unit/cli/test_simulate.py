"""`holdfast simulate zones` shows what a scenario does and what the detector says, or writes it into files."""

import sys
from pathlib import Path

import pytest

from holdfast.simulate.zones.scenarios import SCENARIOS
from tests.unit.cli.conftest import Run

SMALL = ("--hours", "1", "--operations", "2")


def test_the_list_has_every_scenario_with_its_description(run: Run) -> None:
    found = run("simulate", "zones", "--list", "--json").result
    assert [each["scenario"] for each in found] == list(SCENARIOS)
    assert all(each["description"] for each in found)
    lines = run("simulate", "zones", "--list").out.splitlines()
    assert lines[1].split() == ["zone-fails", *found[0]["description"].split()]
    assert len(lines) == 1 + len(found)


def test_a_run_has_the_labels_and_the_verdicts_with_their_delays(run: Run) -> None:
    found = run("simulate", "zones", "zone-fails", "--seed", "2", *SMALL, "--json").result
    assert (found["scenario"], found["seed"], found["detector"]) == ("zone-fails", 2, "calibrated")
    assert (found["operations"], found["instances"], len(found["zones"])) == (2, 1, 3)
    assert (found["end"] - found["start"], found["bin_seconds"]) == (3600, 10)
    [label] = found["labels"]
    assert label["kind"] == "isolated"
    assert label["delay"] <= 60
    isolated = [each for each in found["verdicts"] if each["kind"] == "isolated"]
    assert {each["zone"] for each in isolated} == {label["zone"]}
    assert isolated[0]["start"] == label["start"] + label["delay"]
    assert label["zone"] in isolated[0]["summary"]


def test_a_scenario_with_harmless_deploys_says_that_it_has_no_failure(run: Run) -> None:
    out = run("simulate", "zones", "deploys-announced", *SMALL).out
    lines = out.splitlines()
    assert lines[0].startswith("deploys-announced, seed 1: Roll announced deploys through the zones.")
    assert lines[1] == "1 h from 2026-01-01 00:00:00Z; zones: 3, operations: 2, instances in each zone: 1"
    assert lines[3] == "no failure: every verdict but healthy is false"
    assert lines[5].split() == ["verdict", "of", "from", "to", "summary"]
    assert "isolated" not in out


def test_files_are_written_and_listed(run: Run, here: Path) -> None:
    words = ("simulate", "zones", "one-instance", *SMALL, "--instances", "2", "--out", "data")
    found = run(*words, "--json").result
    assert [each["path"] for each in found["files"]] == ["data/labels.csv", "data/bins.csv"]
    for each in found["files"]:
        assert len((here / each["path"]).read_text(encoding="utf-8").splitlines()) == each["rows"] + 1
    [label] = found["labels"]
    assert label["instance"] in {f"{label['zone']}-01", f"{label['zone']}-02"}
    assert "verdicts" not in found
    again = run(*words)
    assert (again.code, again.out) == (1, "")
    assert "labels.csv exists already" in again.err
    assert "data2/bins.csv" in run(*words[:-1], "data2").out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("zone-sings",), "no scenario is called 'zone-sings'"),
        (("--hours", "0.5"), "hours is 0.5: expected 1 to 744"),
        (("--operations", "0"), "operations is 0: expected 1 to 2000"),
        (("--instances", "900"), "instances is 900: expected 1 to 200"),
        (("--seed", "-1"), "seed is -1: expected 0 or more"),
    ],
)
def test_a_wrong_value_is_named(run: Run, words: tuple[str, ...], problem: str) -> None:
    assert problem in run("simulate", "zones", *words, "--json").error["detail"]


def test_without_numpy_the_message_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.simulate.zones")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert "pip install 'holdfast-resilience[server]'" in run("simulate", "zones", "--list", "--json").error["detail"]
