"""The metrics and log lines of a canary."""

import logging
from dataclasses import replace

import pytest

from holdfast import Operation, Zone
from holdfast.canary import CanaryMetrics, HttpCheck, Probe, ProbeResult, ResultKind
from holdfast.metrics import LogExporter, PrometheusExporter

PROBE = Probe(
    workload="shop",
    operation=Operation("Home", "Index"),
    zone=Zone("use1-az1"),
    address="http://127.0.0.1:80",
    check=HttpCheck(),
)
PASSED = ProbeResult(probe=PROBE, at=5.0, seconds=0.25, kind=ResultKind.PASSED, status=200, lag=0.5)
FAILED = replace(PASSED, kind=ResultKind.FAILED, status=503, error="refused")
UNMEASURED = replace(PASSED, kind=ResultKind.UNMEASURED, status=None, error="no files")
LABELS = 'workload="shop",operation="Home/Index",zone="use1-az1"'


def test_probes_are_counted_by_result_and_timed_unless_they_were_not_measured() -> None:
    exporter = PrometheusExporter()
    sink = CanaryMetrics(exporter)
    for result in (PASSED, FAILED, UNMEASURED, PASSED):
        sink.emit(result)
    text = exporter.render()
    assert f'holdfast_canary_probes_total{{{LABELS},result="passed"}} 2' in text
    assert f'holdfast_canary_probes_total{{{LABELS},result="failed"}} 1' in text
    assert f'holdfast_canary_probes_total{{{LABELS},result="unmeasured"}} 1' in text
    assert f"holdfast_canary_probe_seconds_count{{{LABELS}}} 3" in text
    assert "holdfast_canary_lag_seconds_count{} 4" in text


def test_only_changes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    sink = CanaryMetrics(LogExporter())
    with caplog.at_level(logging.WARNING, "holdfast.canary"):
        for result in (PASSED, replace(FAILED, has_changed=True), FAILED, FAILED, replace(PASSED, has_changed=True)):
            sink.emit(result)
        sink.emit(replace(UNMEASURED, has_changed=True))
    assert [record.getMessage() for record in caplog.records] == [
        "shop Home/Index in use1-az1 failed: refused",
        "shop Home/Index in use1-az1 passes again",
        "shop Home/Index in use1-az1 could not be probed: no files",
    ]
    assert vars(caplog.records[0])["zone"] == "use1-az1"
    assert vars(caplog.records[0])["status"] == 503
