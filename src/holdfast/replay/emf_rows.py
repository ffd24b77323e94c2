"""Decode recorded lines of embedded metric format into rows. Pure. Needs NumPy."""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from holdfast._errors import InvalidValue
from holdfast._types import Zone
from holdfast.replay.rows import LabelTable, Rows
from holdfast.telemetry.bins import BinDelta, sum_requests
from holdfast.telemetry.block import Histograms
from holdfast.telemetry.source import SourceBatch, SourceWorkload
from holdfast.telemetry.sources.emf import EmfDecoder
from holdfast.telemetry.sources.emf_mapping import EmfMapping

BLOCK_BYTES = 2**20
_ALWAYS = 1e12
"""A time after all records, which are never too early."""
_NAMESPACE = re.compile(rb'"Namespace"\s*:\s*"([A-Za-z0-9._/#:-]{1,255})"')
_ZONE = re.compile(rb'"AZ-ID"\s*:\s*"([A-Za-z0-9-]{1,64})"')


class EmfReader:
    """Reads the records of one file. Without `workloads`, it accepts every workload and zone that it finds."""

    ignored: Sequence[str] = ()

    def __init__(
        self,
        name: str,
        read: Callable[[int], bytes],
        labels: LabelTable,
        *,
        seconds: float,
        workloads: Sequence[SourceWorkload] = (),
        mappings: Sequence[EmfMapping] = (),
        skips_bad: bool = False,
    ) -> None:
        self._name, self._read, self._labels = name, read, labels
        self._seconds, self._skips_bad = seconds, skips_bad
        self.seconds: float | None = seconds
        self._workloads, self._mappings = workloads, mappings
        self._namespaces: set[bytes] = set()
        self._zones: set[bytes] = set()
        self._decoder = EmfDecoder(workloads, mappings, seconds)
        self._line = 0
        self.bad_rows = 0
        self.first_problem = ""

    def read(self) -> Iterator[Rows]:
        """Yield the rows in parts. Raise InvalidValue, with the line, for a bad record, unless these are skipped."""
        rest = b""
        while data := self._read(BLOCK_BYTES):
            lines, found, end = data.rpartition(b"\n")
            if found:
                yield from self._decode(rest + lines + found)
                rest = end
            else:
                rest += data
        if rest:
            yield from self._decode(rest)

    def _decode(self, block: bytes) -> Iterator[Rows]:
        self._find_names(block)
        batch = self._decoder.decode(block, _ALWAYS)
        if batch.refused:
            self._refuse(block, batch)
        self._line += block.count(b"\n")
        deltas = [*batch.deltas, *sum_requests(batch.requests, self._seconds)]
        if deltas:
            yield self._build(sorted(deltas, key=lambda delta: delta.start))

    def _find_names(self, block: bytes) -> None:
        """Accept the workloads and zones of a block, if the settings have none."""
        if self._workloads:
            return
        namespaces, zones = set(_NAMESPACE.findall(block)), set(_ZONE.findall(block))
        if namespaces <= self._namespaces and zones <= self._zones:
            return
        self._namespaces |= namespaces
        self._zones |= zones
        known = frozenset(Zone(each.decode()) for each in self._zones)
        # A namespace is `workload/...`, as in the settings.
        names = {each.decode().partition("/")[0] for each in self._namespaces}
        self._decoder = EmfDecoder([SourceWorkload(each, known) for each in sorted(names)], (), self._seconds)

    def _refuse(self, block: bytes, batch: SourceBatch) -> None:
        if not self.first_problem:
            lines = enumerate(block.split(b"\n"), self._line + 1)
            found = ((number, self._decoder.decode(line, _ALWAYS).problem) for number, line in lines)
            number, problem = next((each for each in found if each[1] is not None), (self._line + 1, batch.problem))
            self.first_problem = f"{self._name}, line {number}: {problem}"
        if not self._skips_bad:
            raise InvalidValue(self.first_problem)
        self.bad_rows += sum(batch.refused.values())

    def _build(self, deltas: Sequence[BinDelta]) -> Rows:
        size = len(deltas)
        measured = [delta.measured for delta in deltas]
        return Rows(
            np.fromiter((self._labels.number(delta.key) for delta in deltas), np.int32, size),
            np.fromiter((delta.start for delta in deltas), np.float64, size),
            np.full(size, np.nan),
            np.fromiter((each.requests for each in measured), np.int64, size),
            np.fromiter((each.faults for each in measured), np.int64, size),
            Histograms.of([each.success_seconds for each in measured]),
        )
