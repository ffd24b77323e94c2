"""Recorded lines of embedded metric format become rows."""

from io import BytesIO
from typing import Any

import pytest

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Zone
from holdfast.replay import emf_rows
from holdfast.replay.emf_rows import EmfReader
from holdfast.replay.rows import LabelTable, Rows
from holdfast.telemetry.emf import RequestRecord, encode_emf
from holdfast.telemetry.source import SourceWorkload
from tests.unit.replay.recorded import START


def write(second: float, zone: str = "use1-az1", *, workload: str = "shop", is_fault: bool = False) -> bytes:
    return encode_emf(
        RequestRecord(
            namespace=f"{workload}/web",
            operation=Operation("cart", "add"),
            region="us-east-1",
            zone=Zone(zone),
            instance="i-1",
            at=START + second,
            status=500 if is_fault else 200,
            seconds=0.04,
        )
    )


def read(*lines: bytes, **options: Any) -> tuple[EmfReader, list[Rows], LabelTable]:
    labels = LabelTable()
    reader = EmfReader("a.log", BytesIO(b"\n".join(lines)).read, labels, seconds=10.0, **options)
    return reader, list(reader.read()), labels


def test_requests_are_counted_in_bins_whatever_workloads_and_zones_there_are() -> None:
    lines = [write(21, is_fault=True), write(1), write(2), write(3, "use1-az2"), write(4, workload="other"), b""]
    _, (rows,), labels = read(*lines)
    found = sorted(
        (labels.keys[number].workload, labels.keys[number].zone, start - START, requests, faults)
        for number, start, requests, faults in zip(
            rows.numbers.tolist(), rows.starts.tolist(), rows.requests.tolist(), rows.faults.tolist(), strict=True
        )
    )
    assert found == [
        ("other", "use1-az1", 0, 1, 0),
        ("shop", "use1-az1", 0, 2, 0),
        ("shop", "use1-az1", 20, 1, 1),
        ("shop", "use1-az2", 0, 1, 0),
    ]
    assert rows.starts.tolist() == sorted(rows.starts.tolist())
    assert rows.latencies.row(0).quantile(0.5) == pytest.approx(0.04)


def test_blocks_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emf_rows, "BLOCK_BYTES", 100)
    _, parts, labels = read(*(write(second) for second in range(5)), b"")
    assert sum(int(rows.requests.sum()) for rows in parts) == 5
    assert len(labels.keys) == 1


def test_a_line_that_is_no_record_is_named() -> None:
    with pytest.raises(InvalidValue, match=r"a\.log, line 2: a line is no JSON object"):
        read(write(1), b"oops")
    reader, (rows,), _ = read(write(1), b"oops", b"{}", skips_bad=True)
    assert (len(rows), reader.bad_rows) == (1, 2)
    assert reader.first_problem.startswith("a.log, line 2: ")
    assert read(b"oops", skips_bad=True)[1] == []


def test_the_first_problem_of_several_blocks_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emf_rows, "BLOCK_BYTES", 10)
    reader, parts, _ = read(write(1), b"first", b"another one", write(2), skips_bad=True)
    assert (sum(map(len, parts)), reader.bad_rows) == (2, 2)
    assert reader.first_problem.startswith("a.log, line 2: ")


def test_with_settings_only_their_workloads_are_read() -> None:
    known = [SourceWorkload("shop", frozenset({Zone("use1-az1")}))]
    _, (rows,), _ = read(write(1), workloads=known)
    assert len(rows) == 1
    with pytest.raises(InvalidValue, match="line 1: workload shop has no zone 'use1-az2'"):
        read(write(1, "use1-az2"), workloads=known)
