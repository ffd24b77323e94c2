"""Write the outcomes reported by the middleware and by callers as lines of embedded metric format. Pure."""

from collections.abc import Iterator

from holdfast._types import Outcome, Sink
from holdfast.telemetry.emf import RequestRecord, encode_emf


class EmfSink:
    """A sink that writes outcomes as lines to another sink, such as `ServerSink`: one line per request.

    An outcome has only the class of a status, so lines say 200, 300, 400 or 500. Internal outcomes, such as requests
    that Holdfast itself refuses or sends, are left out: they say nothing about a zone's health.
    """

    def __init__(self, lines: Sink[bytes], *, component: str, region: str) -> None:
        self._lines = lines
        self._component = component
        self._region = region

    def emit(self, event: Outcome) -> None:
        if event.is_ignored:
            return
        for status, seconds in _requests(event):
            request = RequestRecord(
                namespace=f"{event.workload}/{self._component}",
                operation=event.operation,
                region=self._region,
                zone=event.zone,
                instance=event.instance,
                at=event.at,
                status=status,
                seconds=seconds,
                side=event.side,
            )
            self._lines.emit(encode_emf(request))


def _requests(outcome: Outcome) -> Iterator[tuple[int, float]]:
    """Yield status and seconds of each request; 0 seconds if the latency was not measured."""
    successes, faults = iter(outcome.success_seconds), iter(outcome.fault_seconds)
    for status, count in ((200, outcome.count_2xx), (300, outcome.count_3xx), (400, outcome.count_4xx)):
        for _ in range(count):
            yield status, next(successes, 0.0)
    for _ in range(outcome.count_5xx):
        yield 500, next(faults, 0.0)
