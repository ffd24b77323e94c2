"""Say in one plain sentence what a verdict is about. Pure."""

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holdfast._types import Zone
from holdfast.detect import latency
from holdfast.detect.findings import Finding, Signal
from holdfast.detect.instances import InstanceReport
from holdfast.detect.measurements import Measurements
from holdfast.detect.streams import StreamStep
from holdfast.telemetry.window import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.detect.regional import ResourceView

ALL_REQUESTS = "all requests"
"""The name of the pool of all operations."""


class EvaluatedWindow(NamedTuple):
    """One window with everything that was found in it."""

    window: Window
    step: StreamStep
    measurements: Measurements
    findings: "Sequence[Finding]"

    @property
    def zones_out(self) -> list[Zone]:
        return sorted(self.window.zones_out)

    def name_stream(self, row: int) -> str:
        """Return the name of an operation, or that of the pool."""
        keys = self.step.state.keys
        return str(keys[row]) if row < len(keys) else ALL_REQUESTS

    def get_rate(self, row: int, zones: "list[int]") -> float:
        """Return the share of failed requests in the last seconds."""
        found = self.step.state.counts
        requests = float(found.requests_10s[row, zones].sum())
        return float(found.faults_10s[row, zones].sum()) / requests if requests else 0.0

    def read(self, zone: int) -> dict[str, Any]:
        """Return the measurements of a zone in this window."""
        requests, faults = (
            each[:, zone].sum(axis=0) for each in (self.measurements.requests, self.measurements.faults)
        )
        return {
            "requests": int(requests.sum()),
            "failed_requests": int(faults.sum()),
            "fault_rate": round(float(faults.sum() / requests.sum()), 4) if requests.sum() else None,
            "instances": int(np.count_nonzero(requests)),
            "failing_instances": int(np.count_nonzero(faults)),
        }


def describe_finding(evaluated: EvaluatedWindow, finding: Finding, report: InstanceReport | None = None) -> str:
    """Return the sentence about a zone, or about its worst instances if the `report` blames them."""
    zone = evaluated.window.zones[finding.zone]
    stream, since = evaluated.name_stream(finding.row), f"since {format_time(finding.since)}"
    if report is not None:
        return f"{_describe_instances(zone, finding, report, stream)}; {since}"
    others = [index for index in range(len(evaluated.window.zones)) if index != finding.zone]
    reading = evaluated.read(finding.zone)
    if finding.signal is Signal.FAULTS:
        own, rest = evaluated.get_rate(finding.row, [finding.zone]), evaluated.get_rate(finding.row, others)
        instances = f"{reading['failing_instances']} of {reading['instances']} instances"
        if reading["instances"] == 1:
            instances = "the zone has only one instance, which may be what fails"
        return f"{zone} fails {_percent(own)} of {stream}, the others {_percent(rest)}; {instances}; {since}"
    if finding.signal is Signal.THROUGHPUT:
        expected = float(evaluated.step.predicted_requests[finding.zone])
        share = reading["requests"] / expected if expected else 0.0
        return f"{zone} gets {_percent(share)} of its share of the current traffic; {since}"
    if finding.signal is Signal.SLOW:
        found = evaluated.step.state.slow
        rise = float(
            (found.faults_40s + 0.5)[finding.row, finding.zone] / (found.expected_40s + 0.5)[finding.row, finding.zone]
        )
        return f"{zone} has {rise:.1f} times as many slow requests as usual {_name_scope(stream)}; {since}"
    shifts = latency.get_shifts(evaluated.step.state.latency, is_latest=True)[finding.row]
    own_factor = math.exp(float(shifts[finding.zone]))
    rest_factor = math.exp(max(float(shifts[each]) for each in others))
    return (
        f"{zone} takes {own_factor:.1f} times as long as usual for {stream}, the others {rest_factor:.1f} times; "
        f"{since}"
    )


def _describe_instances(zone: Zone, finding: Finding, report: InstanceReport, stream: str) -> str:
    is_slow, is_one = finding.signal is not Signal.FAULTS, len(report.worst) == 1
    if is_slow:
        action = f"{'is' if is_one else 'are'} slower than usual {_name_scope(stream)}"
    else:
        scope = _name_scope(stream) if stream == ALL_REQUESTS else f"of {stream}"
        action = f"{'fails' if is_one else 'fail'} requests {scope}"
    healthy = report.instances - len(report.worst)
    rest = f"the other {healthy} instances of the zone {'are' if is_slow else 'do'} not"
    if healthy == 1:
        rest = f"the other one {'is' if is_slow else 'does'} not"
    return f"{', '.join(report.worst)} in {zone} {action}, {rest}"


def _name_scope(stream: str) -> str:
    return "in all operations together" if stream == ALL_REQUESTS else f"in {stream}"


def describe_resource(view: "ResourceView") -> str:
    """Return the sentence about a shared resource."""
    where = f", which is in {view.zone}," if view.zone else ""
    silent = f"; no answers in {', '.join(view.silent)}" if view.silent else ""
    return (
        f"consumers of {view.name}{where} are affected in {', '.join(view.affected)}{silent}; "
        f"since {format_time(view.since)}: fail it over, do not evacuate a zone"
    )


def describe_silence(evaluated: EvaluatedWindow, zone: int, path: str) -> str:
    """Return the sentence about a zone that reports no requests."""
    bins = float(evaluated.step.state.throughput.silent_bins[zone])
    since = format_time(evaluated.window.end - bins * evaluated.window.seconds)
    name = evaluated.window.zones[zone]
    if path:
        return f"{name} reports no requests since {since}, and {path}"
    return f"{name} reports no requests since {since}: it may have failed, or only its telemetry"


def format_time(at: float) -> str:
    """Return a time of day in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


def _percent(share: float) -> str:
    """Return a share with two digits. Below 0.001 %, it is the remainder of an average, and not worth mentioning."""
    value = 100 * share
    if value < 0.001:
        return "0 %"
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %" if value >= 0.1 else f"{value:.2g} %"
