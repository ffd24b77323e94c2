"""Metrics and log lines of a canary itself."""

import logging
from collections.abc import Sequence

from holdfast.canary.probe import ProbeResult, ResultKind
from holdfast.metrics.instruments import ANY_DETAIL, Instrument, InstrumentType, Label, LogLine, Measurement, Series
from holdfast.metrics.sink import MetricsSink

_LABELS = (Label("workload"), Label("operation"), Label("zone"))
_COUNTS = ("Probes", "FailedProbes", "UnmeasuredProbes")

PROBES = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.canary.probes",
    unit="{probe}",
    description="Probes that have ended.",
    labels=_LABELS,
    detail=Label("result"),
    cloudwatch_names={
        ResultKind.PASSED: ("Probes",),
        ResultKind.FAILED: ("Probes", "FailedProbes"),
        ResultKind.UNMEASURED: ("UnmeasuredProbes",),
    },
    cloudwatch_zeros=_COUNTS,
)
DURATION = Instrument(
    type=InstrumentType.HISTOGRAM,
    name="holdfast.canary.probe.duration",
    unit="s",
    description="Duration of probes that passed or failed.",
    labels=_LABELS,
    prometheus_name="holdfast_canary_probe_seconds",
    cloudwatch_names={ANY_DETAIL: ("ProbeLatency",)},
    cloudwatch_unit="Milliseconds",
)
LAG = Instrument(
    type=InstrumentType.HISTOGRAM,
    name="holdfast.canary.lag",
    unit="s",
    description="Seconds by which probes began late.",
    cloudwatch_names={ANY_DETAIL: ("ProbeLag",)},
    cloudwatch_unit="Milliseconds",
)


class CanaryMetrics(MetricsSink[ProbeResult]):
    """A sink that measures and logs results, for one or more exporters: `Canary(probes, sink, results=...)`."""

    instruments = (PROBES, DURATION, LAG)

    def measure(self, event: ProbeResult) -> Sequence[Measurement]:
        labels = (event.probe.workload, str(event.probe.operation), event.probe.zone)
        found = [Measurement(Series(PROBES, labels, event.kind.value), 1), Measurement(Series(LAG), event.lag)]
        if event.kind is not ResultKind.UNMEASURED:
            found.append(Measurement(Series(DURATION, labels), event.seconds))
        return found

    def describe(self, event: ProbeResult) -> LogLine | None:
        """Return a line if the result has changed: metrics tell how long a failure lasts."""
        if not event.has_changed:
            return None
        passed, probe = event.kind is ResultKind.PASSED, event.probe

        def message() -> str:
            if passed:
                return f"{probe.name} passes again"
            verb = "failed" if event.kind is ResultKind.FAILED else "could not be probed"
            return f"{probe.name} {verb}: {event.error}"

        return LogLine(
            logger="holdfast.canary",
            level=logging.WARNING,
            subject=probe.name,
            event=event.kind,
            message=message,
            fields=lambda: {
                "workload": probe.workload,
                "operation": str(probe.operation),
                "zone": probe.zone,
                "address": probe.address,
                "status": event.status,
                "seconds": round(event.seconds, 6),
            },
            interval=0.0,  # at most one line in each interval of the probe
        )
