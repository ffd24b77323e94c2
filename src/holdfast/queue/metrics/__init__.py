"""What workers and queues tell of themselves: metrics, logs, outcomes for the detectors, and alarms.

May import the rest of the queue, `calls` for its sinks and `telemetry`. Each is a sink, which never raises and waits
for nobody far away: give it to `Worker(sink=...)`, and to a `Watcher`, which looks at the queue itself; several at once
are `holdfast.calls.sinks.several.Several`. `opentelemetry` (an extra) is imported by its own name. Start reading at
`tally.py`.
"""

from holdfast.queue.metrics.emf import EmfQueueSink
from holdfast.queue.metrics.logs import LogQueueSink
from holdfast.queue.metrics.outcomes import WorkerOutcomes
from holdfast.queue.metrics.prometheus import PrometheusQueueMetrics
from holdfast.queue.metrics.tally import Observed
from holdfast.queue.metrics.watcher import Watcher

__all__ = ["EmfQueueSink", "LogQueueSink", "Observed", "PrometheusQueueMetrics", "Watcher", "WorkerOutcomes"]
