"""Combine several sinks into one."""

from typing import Generic, TypeVar

from holdfast._types import Sink

__all__ = ["MultiSink"]

Event = TypeVar("Event")


class MultiSink(Generic[Event]):
    """A sink that passes every event to each of its sinks, in order, even if one of them raises.

    It logs the first failure of each sink and counts the others, so that a broken sink does not flood the log.
    """

    def __init__(self, *sinks: Sink[Event]) -> None:
        self.sinks = sinks
        self.failures = [0] * len(sinks)
        """Events lost by each sink because it raised. Not exact if several threads emit concurrently."""

    def emit(self, event: Event) -> None:
        for index, sink in enumerate(self.sinks):
            try:
                sink.emit(event)
            except Exception:
                self.failures[index] += 1
                if self.failures[index] == 1:
                    import logging  # adds 15 ms to `import holdfast`, and only a broken sink needs it

                    log = logging.getLogger(__name__)
                    log.exception("sink %r failed; its further failures are counted, not logged", sink)
