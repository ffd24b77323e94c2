"""Make one sink of several."""

from typing import Generic, TypeVar

from holdfast._types import Sink

__all__ = ["MultiSink"]

Event = TypeVar("Event")


class MultiSink(Generic[Event]):
    """Hand every event to each of its sinks, in order, also if one of them raises.

    The first failure of a sink is logged, and the others are counted: a broken sink must not flood the logs.
    """

    def __init__(self, *sinks: Sink[Event]) -> None:
        self.sinks = sinks
        self.failures = [0] * len(sinks)
        """Events that each sink has lost by raising; not exact if several threads lose some at once."""

    def emit(self, event: Event) -> None:
        for index, sink in enumerate(self.sinks):
            try:
                sink.emit(event)
            except Exception:
                self.failures[index] += 1
                if self.failures[index] == 1:
                    import logging  # 15 ms of `import holdfast` that only a broken sink is worth

                    log = logging.getLogger(__name__)
                    log.exception("the sink %r failed; further failures of it are only counted", sink)
