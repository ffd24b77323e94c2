"""A source that follows files of EMF lines."""

from pathlib import Path

import pytest

from holdfast import InvalidValue, Operation, SettingsError, Zone
from holdfast.telemetry import RequestRecord, encode_emf, follow
from holdfast.telemetry.collector import DEFAULT_LATENESS
from holdfast.telemetry.source import PolledSource, SourceContext, SourceWorkload, open_source
from holdfast.telemetry.sources.emf import EmfDecoder

NOW = 1_767_323_050.0
WORKLOADS = (SourceWorkload("shop", frozenset({Zone("use1-az1")})),)
CONTEXT = SourceContext(workloads=WORKLOADS, bin_seconds=10, emf=EmfDecoder(WORKLOADS))
LINE = encode_emf(
    RequestRecord(
        namespace="shop/frontend",
        operation=Operation("Home", "Index"),
        region="us-east-1",
        zone=Zone("use1-az1"),
        instance="i-1",
        at=NOW,
        status=200,
        seconds=0.02,
    )
)


def opened(path: Path, state: str = "") -> PolledSource:
    return open_source("emf_file", {"paths": [str(path)]}, CONTEXT, state)


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.writelines(line + b"\n" for line in lines)


def test_new_lines_become_measurements_and_bad_ones_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "emf.log"
    append(log, LINE)
    source = opened(log)
    assert source.poll(NOW).accepted == 0
    append(log, LINE, b"started", LINE)
    batch = source.poll(NOW)
    assert (batch.accepted, batch.refused) == (2, {"not_json": 1})
    assert [delta.measured.requests for delta in batch.deltas] == [2]
    assert source.poll(NOW).deltas == []
    assert source.lateness == DEFAULT_LATENESS
    source.close()
    source.close()


def test_after_a_restart_no_line_is_lost_or_read_twice(tmp_path: Path) -> None:
    log = tmp_path / "emf.log"
    append(log, LINE)
    first = opened(log)
    first.poll(NOW)
    state = first.state
    first.close()
    append(log, LINE)
    second = opened(log, state)
    assert second.poll(NOW).accepted == 1
    second.close()


def test_a_file_that_cannot_be_read_is_reported_and_its_long_lines_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "emf.log"
    source = opened(log)
    assert source.poll(NOW).problem == f"{log} cannot be read: No such file or directory"
    monkeypatch.setattr(follow, "MAX_LINE_BYTES", 2000)
    append(log, b"x" * 3000, LINE)
    batch = source.poll(NOW)
    assert (batch.accepted, batch.refused) == (1, {"invalid": 1})
    assert source.poll(NOW).problem is None
    source.close()


def test_a_source_is_found_by_its_name_and_its_options_are_checked() -> None:
    with pytest.raises(SettingsError, match="emf_file"):
        open_source("tape", {}, CONTEXT)
    with pytest.raises(InvalidValue, match="paths"):
        open_source("emf_file", {}, CONTEXT)
