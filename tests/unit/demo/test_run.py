"""How a run goes."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue
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
