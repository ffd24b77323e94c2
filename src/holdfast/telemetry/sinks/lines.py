"""From outcomes, as the middleware and callers tell them, to lines of embedded metric format. Pure."""

from collections.abc import Iterator

from holdfast._types import Outcome, Sink
from holdfast.telemetry.emf import RequestRecord, encode_emf


class EmfSink:
    """Writes outcomes as lines to another sink, such as `ServerSink`: one line for each request.

    Only the class of a status is known of an outcome, so lines say 200, 300, 400 or 500. Internal ones are left out:
    what Holdfast itself refuses, or asks for, is no sign of a zone's health.
    """

    def __init__(self, lines: Sink[bytes], *, component: str, region: str) -> None:
        self._lines = lines
        self._component = component
        self._region = region

    def emit(self, event: Outcome) -> None:
        if event.internal:
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
    """The status and the seconds of each; one that was not measured took none."""
    successes, faults = iter(outcome.success_seconds), iter(outcome.fault_seconds)
    for status, count in ((200, outcome.count_2xx), (300, outcome.count_3xx), (400, outcome.count_4xx)):
        for _ in range(count):
            yield status, next(successes, 0.0)
    for _ in range(outcome.count_5xx):
        yield 500, next(faults, 0.0)
