"""How a run goes."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.cli import main
from holdfast.demo.run import FAULTS, DemoOptions, DemoRun


def options(**changes: Any) -> DemoOptions:
    return DemoOptions(**{"directory": Path("unused"), **changes})


@pytest.mark.parametrize(
    "changes",
    [{"zone": "use1-az9"}, {"rate": 5}, {"rate": 201}, {"rate": 20, "bin_seconds": 1}, {"bin_seconds": 0}, {"rate": 0}],
)
def test_what_could_not_be_found_or_sent_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        options(**changes)


def test_the_usual_run_takes_about_a_minute() -> None:
    usual = options()
    assert usual.healthy_seconds + usual.timeout + usual.recovery_seconds < 90


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_does_something(fault: str) -> None:
    assert FAULTS[fault].errors or FAULTS[fault].delay


def test_a_folder_with_the_records_of_another_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "client.jsonl").write_text("")
    with pytest.raises(InvalidValue, match="is not empty"):
        DemoRun(options(directory=tmp_path), lambda _: None).run()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(InvalidValue, match=rf"{folder} cannot be written: .*; name another folder"):
            DemoRun(options(directory=folder), lambda _: None).run()


def test_refused_options_leave_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["demo", "--rate", "3"]) == 2
    assert main(["demo", "--rate", "3", "--directory", str(tmp_path / "new")]) == 2
    assert "rate is 3: expected 9 to 200 requests per second" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
