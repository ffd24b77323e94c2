"""`holdfast replay` prints verdicts and scores, as text and as JSON."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.replay.recorded import START, write_lines

LABELS = "start,end,kind,zone\n{start},{end},isolated,{zone}\n"


@pytest.fixture
def recording(here: Path) -> Path:
    lines = write_lines(40, failing=range(20, 30), operations=1)
    (here / "bins.csv").write_text("\n".join(lines) + "\n")
    (here / "labels.csv").write_text(LABELS.format(start=START + 200, end=START + 300, zone="use1-az2"))
    (here / "wrong.csv").write_text(LABELS.format(start=START + 200, end=START + 300, zone="use1-az1"))
    return here


def test_verdicts_are_a_table_with_a_summary_of_each_judge(run: Run, recording: Path) -> None:
    ran = run("replay", "bins.csv", "--detector", "threshold")
    assert ran.code == 0
    assert ran.out.startswith("40 bins of 10 s, 0.1 hours from 2026-01-01 00:00:00Z: 120 rows in ")
    assert "threshold  shop      isolated  use1-az2  use1-az2: 40.0% of requests fail" in ran.out
    assert "median delay" not in ran.out
    assert "shop has no instances" in ran.err


def test_a_run_is_scored_against_labels(run: Run, recording: Path) -> None:
    ran = run("replay", "bins.csv", "--detector", "threshold", "--no-alarms", "--against", "labels.csv")
    assert ran.code == 0
    assert "threshold  right   20 s   10 s" in ran.out
    assert "missed" in ran.out


def test_json_has_verdicts_and_scores(run: Run, recording: Path) -> None:
    found = run("replay", "bins.csv", "--detector", "threshold", "--against", "labels.csv", "--json").result
    (verdict,) = (each for each in found["verdicts"] if each["judge"] == "threshold")
    assert (verdict["kind"], verdict["zone"], verdict["opened"]) == ("isolated", "use1-az2", START + 220)
    threshold, alarms = found["judges"]
    assert (threshold["right"], threshold["missed"], threshold["false"]) == (1, 0, 0)
    assert threshold["labels"][0]["delay"] == 20
    assert alarms["judge"] == "alarms"


def test_a_run_may_fail_on_its_score(run: Run, recording: Path) -> None:
    words = ("replay", "bins.csv", "--detector", "threshold", "--no-alarms", "--against")
    assert run(*words, "labels.csv", "--fail-on", "missed,wrong,false").code == 0
    ran = run(*words, "wrong.csv", "--fail-on", "missed,wrong")
    assert ran.code == 1
    assert "the run does not pass --fail-on: 1 wrong" in ran.err
    assert run(*words, "wrong.csv", "--fail-on", "false").code == 0


def test_a_picture_is_drawn(run: Run, recording: Path) -> None:
    ran = run("replay", "bins.csv", "--detector", "threshold", "--against", "labels.csv", "--svg", "out.svg")
    assert ran.code == 0
    assert ElementTree.parse("out.svg").getroot().tag.endswith("svg")
    assert "the picture is in out.svg" in ran.err


def test_the_picture_of_several_workloads_shows_the_first(run: Run, recording: Path) -> None:
    text = (recording / "bins.csv").read_text()
    (recording / "two.csv").write_text(text + "\n".join(text.replace("shop", "other").splitlines()[1:]) + "\n")
    ran = run("replay", "two.csv", "--detector", "threshold", "--no-alarms", "--svg", "out.svg")
    assert "the picture shows shop" in ran.err


def test_detectors_have_options_and_deploys_states_and_resources_come_from_files(run: Run, recording: Path) -> None:
    (recording / "deploys.csv").write_text(f"start,end,zone\n{START},{START + 10},\n")
    (recording / "states.csv").write_text(f"start,end,zone,state\n{START},{START + 900},use1-az2,out\n")
    (recording / "resources.csv").write_text("resource,operation\ndb,db/write\n")
    words = ("replay", "bins.csv", "--no-alarms", "--json", "--detector", "threshold")
    files = ("--deploys", "deploys.csv", "--zone-states", "states.csv", "--resources", "resources.csv")
    assert run(*words, "--option", "max_fault_rate=0.9").result["verdicts"] == []
    assert run(*words, *files).result["verdicts"] == []


def test_settings_have_the_zones_of_a_workload(run: Run, recording: Path) -> None:
    (recording / "holdfast.toml").write_text(
        '[[workload]]\nname = "shop"\nregion = "us-east-1"\nzones = ["use1-az1", "use1-az2", "use1-az3", "use1-az4"]\n'
        '[workload.detector]\nname = "threshold"\n'
    )
    found = run("replay", "bins.csv", "--json").result
    assert found["zones"] == {"shop": ["use1-az1", "use1-az2", "use1-az3", "use1-az4"]}
    assert [each["judge"] for each in found["judges"]] == ["threshold", "alarms"]


SHOP = '[[workload]]\nname = "shop"\nregion = "us-east-1"\nzones = [{zones}]\n[workload.detector]\nname = "threshold"\n'


def test_rows_of_zones_that_the_settings_do_not_list_are_left_out_with_a_note(run: Run, recording: Path) -> None:
    (recording / "holdfast.toml").write_text(SHOP.format(zones='"use1-az1", "use1-az3"'))
    note = "40 rows of zone use1-az2, which is not one of shop's zones in the settings, were left out"
    missed = "labels name the zone use1-az2, which was not replayed: use1-az1, use1-az3"
    assert f"holdfast: {note}\n" in run("replay", "bins.csv").err
    found = run("replay", "bins.csv", "--no-alarms", "--json", "--against", "labels.csv").result
    assert found["notes"] == [note, missed]


def test_a_recording_without_any_zone_of_the_settings_is_an_error(run: Run, recording: Path) -> None:
    (recording / "holdfast.toml").write_text(SHOP.format(zones='"use1-az4", "use1-az5"'))
    ran = run("replay", "bins.csv", "--no-alarms")
    assert (ran.code, ran.out) == (2, "")
    assert "shop has use1-az4, use1-az5; rows have use1-az1, use1-az2, use1-az3" in ran.err


def test_labels_of_other_words_expect_no_verdict_and_a_note_says_so(run: Run, recording: Path) -> None:
    (recording / "deploy.csv").write_text(f"start,end,kind,zone\n{START},{START + 9},deploy,use1-az1\n")
    ran = run("replay", "bins.csv", "--detector", "threshold", "--no-alarms", "--against", "deploy.csv")
    assert (ran.code, ran.err) == (0, "holdfast: labels of the kind deploy expect no verdict\n")


def test_bad_rows_are_an_error_or_counted(run: Run, recording: Path) -> None:
    (recording / "bad.csv").write_text((recording / "bins.csv").read_text() + "oops\n")
    ran = run("replay", "bad.csv")
    assert (ran.code, ran.err) == (2, "holdfast: bad.csv, line 122: expected 10 fields, found 1\n")
    ran = run("replay", "bad.csv", "--skip-bad", "--detector", "threshold", "--no-alarms")
    assert (ran.code, "1 bad row skipped\n" in ran.out) == (0, True)


def test_a_healthy_recording_has_no_verdicts(run: Run, here: Path) -> None:
    (here / "bins.csv").write_text("\n".join(write_lines(4)) + "\n")
    assert "\nno verdicts\n" in run("replay", "bins.csv", "--detector", "threshold", "--no-alarms").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "a file is needed"),
        (("none.csv",), "none.csv cannot be read: No such file or directory"),
        (("bins.csv", "--fail-on", "late"), "--fail-on 'late': expected missed, wrong, false"),
        (("bins.csv", "--option", "x"), "--option 'x': expected name=value"),
        (("bins.csv", "--option", "x=1"), "x: unknown option of detector"),
        (("bins.csv", "--detector", "none"), "none"),
        (("bins.csv", "--label", "zone="), "--label 'zone=': expected name=value"),
        (("bins.csv", "--against", "none.csv"), "none.csv cannot be read"),
        (("bins.csv", "--bin-seconds", "0"), "Must be >= 0.5"),
        (("bins.csv", "--bin-seconds", "7"), "rows are 10 s apart; --bin-seconds 7 does not fit"),
        (("bins.csv", "--force"), "--force is for the file of --svg"),
    ],
)
def test_wrong_arguments_are_told(run: Run, recording: Path, words: tuple[str, ...], told: str) -> None:
    ran = run("replay", *words)
    assert ran.code == 2
    assert told in ran.err
