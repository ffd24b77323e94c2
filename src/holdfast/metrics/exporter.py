"""The interface of an exporter, and the registry of exporters by name."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar, Self

from holdfast._errors import SettingsError
from holdfast._plugins import Plugins
from holdfast.metrics.instruments import Instrument, LogLine, Measurement, Series

log = logging.getLogger(__name__)

GaugeReader = Callable[[], Iterable[Measurement]]
"""Returns current gauge values when called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportContext:
    """The process that exports its metrics, and the namespace to export them to."""

    namespace: str
    """CloudWatch namespace, such as `shop/worker`."""
    process: int = 0
    """Index of this process among `processes`, from 0 on."""
    processes: int = 1


class Exporter:
    """Base of exporters, which pass measurements and log lines to a monitoring system. Override what it supports.

    Methods are called by any thread, in the middle of the measured work: they must be quick and must not block. The
    caller logs what they raise; it has no other effect.
    """

    uses_attributes: ClassVar[bool] = True
    """Whether the exporter reads attributes of measurements, which take time to build."""
    uses_logs: ClassVar[bool] = False
    """Whether the exporter accepts log lines."""
    uses_standard_output: ClassVar[bool] = False
    """Whether an exporter made by `open` writes to standard output, so that other code should not."""

    @classmethod
    def open(cls, argument: str, context: ExportContext) -> Self:  # noqa: ARG003 - not every exporter needs it
        """Create an exporter from `argument`, the text after the colon in `NAME:ARGUMENT` (`""` if there is none)."""
        if argument:
            raise SettingsError(f"{cls.__name__} takes no argument, found {argument!r}")
        return cls()

    def declare(self, instruments: Sequence[Instrument]) -> None:
        """Register the instruments of a part before they are measured. Raise InvalidValue if they are not supported."""

    def record(self, measurements: Sequence[Measurement]) -> None:
        """Record the measurements of one event."""

    def start_series(self, series: Sequence[Series]) -> None:
        """Start these series at 0, so that their first increase is visible."""

    def keep_only(
        self, instruments: Collection[Instrument], labels: tuple[str, ...], breakdowns: Collection[str]
    ) -> None:
        """Export the series of these values of the breakdown label only, such as tenants. The total still has all."""

    def observe(self, instruments: Sequence[Instrument], read: GaugeReader) -> None:
        """Call `read` for the values of these gauges whenever they are exported."""

    def log(self, line: LogLine) -> None:
        """Export one log line."""

    def flush(self) -> None:
        """Write buffered measurements."""

    def close(self) -> None:
        """Write buffered measurements and release resources. May be repeated."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class GaugeReaders:
    """The gauge readers of an exporter that keeps values in memory. Skips a reader that raises."""

    def __init__(self) -> None:
        self._reads: list[GaugeReader] = []
        self._has_failed = False

    def add(self, read: GaugeReader) -> None:
        self._reads.append(read)

    def measure(self) -> list[Measurement]:
        found: list[Measurement] = []
        for read in self._reads:
            try:
                found += read()
            except Exception:
                if not self._has_failed:
                    log.exception("cannot read gauges; further failures are not logged")
                self._has_failed = True
        return found


EXPORTERS: Plugins[type[Exporter]] = Plugins(
    "metrics exporter", package="holdfast.metrics.exporters", group="holdfast.metrics_exporters"
)
"""Exporters by name. Other distributions add theirs as entry points of the group."""


@contextmanager
def open_exporters(names: Iterable[str], context: ExportContext) -> Iterator[list[Exporter]]:
    """Open exporters given as `NAME` or `NAME:ARGUMENT`, and close them at the end."""
    with ExitStack() as stack:
        opened = []
        for text in names:
            name, _, argument = text.partition(":")
            opened.append(stack.enter_context(EXPORTERS.get(name).open(argument, context)))
        yield opened
