"""Replay recorded files: one half reads bins and evaluates alarms, the other one runs detectors.

For large files the first half runs in a second process: both take about as long.
"""

import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np

from holdfast._errors import HoldfastError, InvalidValue
from holdfast._names import format_count
from holdfast._types import Zone
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.detect.detector import DEFAULT_DETECTOR
from holdfast.replay.alarm_judge import AlarmJudge
from holdfast.replay.files import ReadingOptions, RecordedFiles
from holdfast.replay.judges import ALARMS, DetectorJudge, ReplayedVerdict
from holdfast.replay.report import ReplayResult
from holdfast.replay.rows import LabelTable, Rows, concatenate
from holdfast.replay.timeline import (
    HORIZON_SECONDS,
    OutOfOrder,
    RecordedBin,
    Timeline,
    check_bin_seconds,
    find_bin_seconds,
)
from holdfast.replay.windows import StateSpan, WindowBuilder
from holdfast.telemetry.bins import BIN_SECONDS, BinKey
from holdfast.telemetry.block import Integers
from holdfast.telemetry.context import Deployment, SharedResource
from holdfast.telemetry.window import Window

SECOND_PROCESS_BYTES = 8 * 2**20
"""Size of files from which a second process is worth its start."""
_MAX_LOOKAHEAD = 64
"""Parts of files that are read to find out how long a bin is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedWorkload:
    """A workload of the settings."""

    name: str
    zones: tuple[Zone, ...]
    alarms: AlarmDeclaration
    detector: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is replayed, and with which detectors."""

    reading: ReadingOptions
    workloads: tuple[ReplayedWorkload, ...] = ()
    """Workloads of the settings. Zones of all others are found in the data."""
    detectors: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Names and options of detectors; none means the one of the workload's settings, or the default one."""
    default_detector: str = DEFAULT_DETECTOR
    with_alarms: bool = True
    deployments: tuple[Deployment, ...] = ()
    states: tuple[StateSpan, ...] = ()
    resources: tuple[SharedResource, ...] = ()

    def find_workload(self, name: str) -> ReplayedWorkload | None:
        """Return the workload of the settings, if it is there."""
        return next((each for each in self.workloads if each.name == name), None)

    def find_resources(self, name: str) -> tuple[SharedResource, ...]:
        """Return the shared resources of a workload: those of a file, or else of the settings."""
        workload = self.find_workload(name)
        if self.resources or workload is None:
            return self.resources
        return workload.alarms.list_resources()

    def create_builder(self, workload: str, zones: tuple[Zone, ...]) -> WindowBuilder:
        """Return a builder of the workload's windows."""
        return WindowBuilder(
            workload,
            zones,
            deployments=self.deployments,
            states=self.states,
            resources=self.find_resources(workload),
        )

    def declare_alarms(self, workload: str, zones: tuple[Zone, ...]) -> AlarmDeclaration:
        """Return the alarms of a workload: those of the settings, or else the default ones."""
        known = self.find_workload(workload)
        if known is not None:
            return known.alarms
        resources = tuple((each.name, each.operations) for each in self.resources)
        return AlarmDeclaration(workload=workload, zones=zones, resources=resources)


@dataclass(frozen=True, slots=True)
class BinBatch:
    """Bins, oldest first."""

    bins: Sequence[RecordedBin]
    keys: Sequence[BinKey]
    """The labels of series that are new since the last batch."""
    zones: Mapping[str, tuple[Zone, ...]]
    """The zones of each workload."""
    progress: float
    """Share of the files that was read, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Restart:
    """All bins begin again: a later row shows that they were not arranged right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingEnd:
    """The results of the half that reads."""

    alarms: Sequence[ReplayedVerdict]
    seconds: float
    rows: int
    bad_rows: int
    lost_requests: int
    notes: Sequence[str]
    reading_seconds: float
    alarm_seconds: float


Message: TypeAlias = BinBatch | Restart | RecordingEnd
Observer: TypeAlias = Callable[[Window | None], None]


class _NewZones(Exception):
    """A workload has more zones than were known when its first bin was complete."""


class _Reading:
    """The half that reads. It begins again, if rows turn out to be unsorted, or to have more zones."""

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._zones: dict[str, set[Zone]] = {}
        self._horizon = HORIZON_SECONDS

    def run(self) -> Iterator[Message]:
        while True:
            try:
                yield from self._run_once()
            except OutOfOrder:
                self._horizon = math.inf
            except _NewZones:
                pass
            else:
                return
            yield Restart()

    def _run_once(self) -> Iterator[Message]:
        options, labels, timer = self._options, LabelTable(), _Timer()
        judges: dict[str, tuple[AlarmJudge, WindowBuilder]] = {}
        zones: dict[str, tuple[Zone, ...]] = {}
        notes: list[str] = []
        sent = 0
        with RecordedFiles(options.reading, labels) as files:
            assembly = _Assembly(options.reading.seconds, self._horizon)
            for bins in assembly.assemble(files):
                timer.add("reading")
                self._note_zones(labels.keys[sent:], is_fixed=bool(zones))
                if not zones:
                    zones = self._choose_zones()
                    judges = self._create_judges(zones, assembly.seconds, labels.keys, notes)
                for recorded in bins:
                    for judge, builder in judges.values():
                        judge.judge(recorded, labels.keys, builder.find_zones_out(recorded))
                timer.add("alarms")
                yield BinBatch(bins, labels.keys[sent:], zones, files.progress)
                timer.add("waiting")
                sent = len(labels.keys)
            if not zones:
                raise InvalidValue(f"{', '.join(map(str, options.reading.paths))}: there are no rows")
            yield RecordingEnd(
                alarms=[each for judge, _ in judges.values() for each in judge.log.found],
                seconds=assembly.seconds,
                rows=assembly.rows,
                bad_rows=files.bad_rows,
                lost_requests=assembly.lost_requests,
                notes=[*files.notes, *assembly.notes, *self._note_left_out(zones, assembly, labels.keys), *notes],
                reading_seconds=timer.found["reading"],
                alarm_seconds=timer.found["alarms"],
            )

    def _note_zones(self, keys: Sequence[BinKey], *, is_fixed: bool) -> None:
        is_new = False
        for key in keys:
            known = self._zones.setdefault(key.workload, set())
            is_new = is_new or key.zone not in known
            known.add(key.zone)
        if is_fixed and is_new:
            raise _NewZones

    def _choose_zones(self) -> dict[str, tuple[Zone, ...]]:
        found = {}
        for name, zones in self._zones.items():
            workload = self._options.find_workload(name)
            found[name] = tuple(sorted(zones)) if workload is None else workload.zones
        return found

    def _note_left_out(
        self, zones: Mapping[str, tuple[Zone, ...]], assembly: "_Assembly", keys: Sequence[BinKey]
    ) -> list[str]:
        """Return a note for each zone that the settings do not list. Raise InvalidValue if no row is left."""
        left_out: Counter[tuple[str, Zone]] = Counter()
        for number, count in assembly.rows_by_series.items():
            key = keys[number]
            if key.zone not in zones[key.workload]:
                left_out[key.workload, key.zone] += count
        if left_out and left_out.total() == assembly.rows:
            listed = "; ".join(
                f"{name} has {', '.join(zones[name])}" for name in sorted({name for name, _ in left_out})
            )
            found = ", ".join(sorted({zone for _, zone in left_out}))
            raise InvalidValue(f"no row is of a zone that the settings list: {listed}; rows have {found}")
        return [
            f"{format_count(count, 'row')} of zone {zone}, which is not one of {name}'s zones in the settings, "
            f"{'was' if count == 1 else 'were'} left out"
            for (name, zone), count in sorted(left_out.items())
        ]

    def _create_judges(
        self, zones: Mapping[str, tuple[Zone, ...]], seconds: float, keys: Sequence[BinKey], notes: list[str]
    ) -> dict[str, tuple[AlarmJudge, WindowBuilder]]:
        found = {}
        for name, known in zones.items() if self._options.with_alarms else ():
            builder, declaration = self._options.create_builder(name, known), self._options.declare_alarms(name, known)
            has_instances = any(key.instance for key in keys if key.workload == name)
            try:
                found[name] = AlarmJudge(declaration, builder, seconds, has_instances=has_instances), builder
            except InvalidValue as error:
                notes.append(f"alarms are not evaluated: {error}")
                continue
            if not has_instances:
                notes.append(f"{name} has no instances: its alarms <zone>-aggregate-alarm count as isolations")
        return found


class _Assembly:
    """Arranges the rows of files in bins, as soon as the length of a bin is known."""

    def __init__(self, seconds: float | None, horizon: float) -> None:
        self._given, self._horizon = seconds, horizon
        self._timeline: Timeline | None = None
        self.rows = 0
        self.rows_by_series: Counter[int] = Counter()

    @property
    def seconds(self) -> float:
        return BIN_SECONDS if self._timeline is None else self._timeline.seconds

    @property
    def lost_requests(self) -> int:
        return 0 if self._timeline is None else self._timeline.lost_requests

    @property
    def notes(self) -> list[str]:
        skipped = 0.0 if self._timeline is None else self._timeline.skipped_seconds
        return [f"{skipped / 86_400:.1f} days without any row are skipped"] if skipped else []

    def assemble(self, files: RecordedFiles) -> Iterator[list[RecordedBin]]:
        """Yield complete bins, in lists that are not empty."""
        for rows, watermark, seconds in self._find_seconds(files):
            self.rows += len(rows)
            self.rows_by_series.update(dict(zip(*_count_values(rows.numbers), strict=True)))
            self._timeline = self._timeline or Timeline(seconds, self._horizon)
            if bins := list(self._timeline.add(rows, watermark)):
                yield bins
        if self._timeline is not None and (bins := list(self._timeline.finish())):
            yield bins

    def _find_seconds(self, files: RecordedFiles) -> Iterator[tuple[Rows, float, float]]:
        """Yield rows with their watermark and the length of a bin. Hold the first ones back until it is known."""
        seconds, held, watermark = self._given, [], -math.inf
        for number, chunk in enumerate(files.read(), 1):
            held.append(chunk.rows)
            watermark = chunk.watermark
            if self._given is not None and number == 1:
                check_bin_seconds(chunk.rows, self._given)
            seconds = seconds or chunk.seconds or find_bin_seconds(concatenate(held))
            if seconds is not None or number >= _MAX_LOOKAHEAD:
                yield concatenate(held), watermark, seconds or BIN_SECONDS
                held = []
        if held:
            yield concatenate(held), watermark, BIN_SECONDS


def _count_values(numbers: Integers) -> tuple[list[int], list[int]]:
    found, counts = np.unique(numbers, return_counts=True)
    return found.tolist(), counts.tolist()


class _Timer:
    """Adds up the seconds since the last call, by name."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._at = time.perf_counter()

    def add(self, name: str) -> None:
        now = time.perf_counter()
        self.found[name] += now - self._at  # type: ignore[assignment]
        self._at = now


class _Detection:
    """The half that runs detectors."""

    def __init__(self, options: ReplayOptions, observe: Observer | None) -> None:
        self._options, self._observe = options, observe
        self.timer = _Timer()
        self.restart()

    def restart(self) -> None:
        """Forget all bins."""
        self.keys: list[BinKey] = []
        self.zones: Mapping[str, tuple[Zone, ...]] = {}
        self.arrivals: dict[float, float] = {}
        self.start, self.end, self.bins, self.bins_without_data = math.inf, -math.inf, 0, 0
        self._builders: dict[str, WindowBuilder] = {}
        self._judges: dict[str, list[DetectorJudge]] = {}
        if self._observe is not None:
            self._observe(None)

    @property
    def names(self) -> list[str]:
        """The names of the detectors."""
        return list(dict.fromkeys(each.log.judge for judges in self._judges.values() for each in judges))

    @property
    def verdicts(self) -> list[ReplayedVerdict]:
        return [found for judges in self._judges.values() for each in judges for found in each.log.found]

    def add(self, batch: BinBatch) -> None:
        """Judge the bins of a batch."""
        self.timer.add("waiting")
        self.keys += batch.keys
        if not self.zones:
            self.zones = batch.zones
            self._builders = {name: self._options.create_builder(name, zones) for name, zones in batch.zones.items()}
            self._judges = {name: self._create_judges(name) for name in batch.zones}
        for recorded in batch.bins:
            self._judge(recorded)
        self.timer.add("detection")

    def _judge(self, recorded: RecordedBin) -> None:
        self.start, self.end = min(self.start, recorded.start), max(self.end, recorded.end)
        self.bins += 1
        self.bins_without_data += recorded.rows is None
        if recorded.arrived > recorded.end:
            self.arrivals[recorded.start] = recorded.arrived
        for name, builder in self._builders.items():
            window = builder.build(recorded, self.keys)
            for judge in self._judges[name]:
                judge.judge(window)
            if self._observe is not None:
                self._observe(window)

    def _create_judges(self, workload: str) -> list[DetectorJudge]:
        known = self._options.find_workload(workload)
        default = (self._options.default_detector, {}) if known is None else (known.detector, known.options)
        return [DetectorJudge(name, options) for name, options in self._options.detectors or (default,)]


def replay(
    options: ReplayOptions,
    *,
    report_progress: Callable[[float, float], None] | None = None,
    observe: Observer | None = None,
) -> ReplayResult:
    """Replay files. `report_progress` gets the share that was read and the time of the latest bin.

    `observe` gets every window after it was judged, and None if the run begins again.
    """
    began = time.perf_counter()
    detection, end = _Detection(options, observe), None
    with closing(_read(options)) as messages:
        for message in messages:
            match message:
                case BinBatch():
                    detection.add(message)
                    if report_progress is not None:
                        report_progress(message.progress, detection.end)
                case Restart():
                    detection.restart()
                case RecordingEnd():
                    end = message
    if end is None:
        raise HoldfastError("the process that reads the files has ended: it may have been killed for its memory")
    return ReplayResult(
        verdicts=sorted([*detection.verdicts, *end.alarms], key=lambda each: each.opened),
        judges=(*detection.names, *([ALARMS] if options.with_alarms else [])),
        zones=detection.zones,
        start=detection.start,
        end=detection.end,
        seconds=end.seconds,
        bins=detection.bins,
        bins_without_data=detection.bins_without_data,
        arrivals=detection.arrivals,
        rows=end.rows,
        bad_rows=end.bad_rows,
        lost_requests=end.lost_requests,
        notes=list(end.notes),
        reading_seconds=end.reading_seconds,
        alarm_seconds=end.alarm_seconds,
        detection_seconds=detection.timer.found["detection"],
        elapsed_seconds=time.perf_counter() - began,
    )


def _read(options: ReplayOptions) -> Generator[Message]:
    """Yield the messages of the half that reads: of a second process, if the files are large."""
    sizes = [path.stat().st_size for path in options.reading.paths if path.is_file()]
    if sum(sizes) < SECOND_PROCESS_BYTES:
        yield from _Reading(options).run()
        return
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_all, args=(options, sender), daemon=True)
    process.start()
    sender.close()
    try:
        while True:
            try:
                message = receiver.recv()
            except EOFError:
                return
            if isinstance(message, HoldfastError):
                raise message
            yield message
    finally:
        receiver.close()
        process.terminate()
        process.join()


def _send_all(options: ReplayOptions, sender: Connection) -> None:
    """Run the half that reads in a second process."""
    with sender, suppress(BrokenPipeError, KeyboardInterrupt):  # the other process has ended, or says so
        try:
            for message in _Reading(options).run():
                sender.send(message)
        except HoldfastError as error:
            sender.send(error)
