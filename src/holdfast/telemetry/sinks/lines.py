"""Write the outcomes reported by the middleware, meters and callers as lines of embedded metric format. Pure."""

from collections.abc import Iterator

from holdfast._errors import InvalidValue
from holdfast._types import Outcome, RequestDetail, Sink
from holdfast.telemetry.emf import LineOptions, encode_request

__all__ = ["EmfSink"]


class EmfSink:
    """A sink that writes outcomes as lines to another sink, such as `ServerSink`: one line per request.

    `component` is the part of the CloudWatch namespace after the workload. `log_group` is needed by the CloudWatch
    agent. `is_one_box` marks an instance that runs a new version before all others.

    A line has the details of its request. Without them, its status is the first of its class: 200, 300, 400 or 500.
    Ignored outcomes, such as requests that Holdfast itself refuses or sends, are left out: they say nothing about a
    zone's health.
    """

    def __init__(
        self, lines: Sink[bytes], *, component: str, region: str, log_group: str = "", is_one_box: bool = False
    ) -> None:
        for name, text in (("component", component), ("region", region)):
            if not text or not text.isprintable():
                raise InvalidValue(f"{name} {text!r}: expected printable text, such as frontend and us-east-1")
        self._lines = lines
        self._options = LineOptions(component, region, is_one_box, log_group)

    def emit(self, event: Outcome) -> None:
        if event.is_ignored:
            return
        options, detail = self._options, event.detail
        namespace = f"{event.workload}/{options.component}"
        for status, seconds in _requests(event):
            self._lines.emit(
                encode_request(
                    options,
                    namespace=namespace,
                    operation=event.operation,
                    zone=event.zone,
                    instance=event.instance,
                    at=event.at,
                    side=event.side,
                    detail=RequestDetail(status=status) if detail is None else detail,
                    seconds=seconds,
                )
            )


def _requests(outcome: Outcome) -> Iterator[tuple[int, float]]:
    """Yield status and seconds of each request; 0 seconds if the latency was not measured."""
    successes, faults = iter(outcome.success_seconds), iter(outcome.fault_seconds)
    for status, count in ((200, outcome.count_2xx), (300, outcome.count_3xx), (400, outcome.count_4xx)):
        for _ in range(count):
            yield status, next(successes, 0.0)
    for _ in range(outcome.count_5xx):
        yield 500, next(faults, 0.0)
