"""What an exporter is, and how one is found by its name."""

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
"""Measures gauges when it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTarget:
    """What an exporter is opened for, when it is named in the settings or on the command line."""

    namespace: str
    """Of the metrics in CloudWatch: `shop/worker`."""
    process: int = 0
    """The number of this process among `processes`, from 0 on."""
    processes: int = 1


class Exporter:
    """Hands measurements and log lines to one monitoring system. An exporter overrides what it has a use for.

    Methods are called by any thread, in the middle of the work that is measured: they must be quick, and wait for
    nobody. What they raise is logged by the caller and changes nothing else.
    """

    uses_attributes: ClassVar[bool] = True
    """Whether it reads the attributes of measurements, which take time to make."""
    uses_logs: ClassVar[bool] = False
    """Whether it takes log lines."""
    uses_standard_output: ClassVar[bool] = False
    """Whether `open` makes one that writes to standard output, so that others should not."""

    @classmethod
    def open(cls, argument: str, target: ExportTarget) -> Self:  # noqa: ARG003 - not every exporter needs it
        """Make an exporter from what follows its name and a colon in the settings; `""` if nothing does."""
        if argument:
            raise SettingsError(f"{cls.__name__} takes no argument, found {argument!r}")
        return cls()

    def declare(self, instruments: Sequence[Instrument]) -> None:
        """Learn which instruments a part has, before they are measured. Raise InvalidValue if they cannot be."""

    def record(self, measurements: Sequence[Measurement]) -> None:
        """Take the measurements of one event."""

    def start_series(self, series: Sequence[Series]) -> None:
        """Begin these series at 0, so that their first increase is seen as one."""

    def keep_only(
        self, instruments: Collection[Instrument], labels: tuple[str, ...], breakdowns: Collection[str]
    ) -> None:
        """End the series of all values of the breakdown but these: the others are not told apart any more."""

    def observe(self, instruments: Sequence[Instrument], read: GaugeReader) -> None:
        """Call `read` for the values of these gauges whenever they are exported."""

    def log(self, line: LogLine) -> None:
        """Take one line."""

    def flush(self) -> None:
        """Hand on what is still here."""

    def close(self) -> None:
        """Hand on what is still here, and end. May be repeated."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class GaugeReaders:
    """Calls functions that measure gauges, for exporters that keep values in memory. One that raises is left out."""

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
                    log.exception("gauges cannot be read; further failures are not logged")
                self._has_failed = True
        return found


EXPORTERS: Plugins[type[Exporter]] = Plugins(
    "metrics exporter", package="holdfast.metrics.exporters", group="holdfast.metrics_exporters"
)
"""The exporters by name. One of another distribution is an entry point of the group."""


@contextmanager
def open_exporters(names: Iterable[str], target: ExportTarget) -> Iterator[list[Exporter]]:
    """Open exporters that are given as `NAME` or `NAME:ARGUMENT`, and close them at the end."""
    with ExitStack() as stack:
        opened = []
        for text in names:
            name, _, argument = text.partition(":")
            opened.append(stack.enter_context(EXPORTERS.get(name).open(argument, target)))
        yield opened
