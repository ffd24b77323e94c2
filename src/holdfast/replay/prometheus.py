"""Convert Prometheus' answer to a range query into rows. Pure. Needs NumPy.

https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries

A series with a name that ends in `_total` or `_count` is a counter: a row has its increase since the sample before.
Functions remove the name: values of such series are increases in the step that ends with the sample, as of
`sum by (zone, operation, status) (increase(http_requests_total[10s]))`. There are no latencies.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast.replay.latencies import build_empty
from holdfast.replay.rows import LabelTable, Rows
from holdfast.telemetry.bins import BIN_SECONDS
from holdfast.telemetry.block import Floats

LABELS: Mapping[str, tuple[str, ...]] = {
    "workload": ("workload",),
    "service": ("service", "job"),
    "operation": ("operation", "handler", "route", "endpoint", "path"),
    "zone": ("zone", "az_id", "az", "availability_zone", "topology_kubernetes_io_zone"),
    "instance": ("instance", "pod"),
    "status": ("status", "code", "status_code", "http_status_code", "http_response_status_code"),
}
"""The labels of Prometheus that are looked for, in this order, for each of ours."""
_COUNTERS = ("_total", "_count")


class _Series(Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Data(Struct):
    result_type: str = msgspec.field(name="resultType")
    result: list[_Series]


class _Answer(Struct):
    data: _Data


class PrometheusReader:
    """Reads the answer to one range query. Series without a zone or an operation are bad."""

    ignored: Sequence[str] = ()

    def __init__(
        self, name: str, text: bytes, labels: LabelTable, *, mapping: Mapping[str, str], skips_bad: bool = False
    ) -> None:
        """Raise InvalidValue if `text` is no answer to a range query. `mapping` has other names of labels."""
        self._name, self._table, self._skips_bad = name, labels, skips_bad
        self._names = {ours: (mapping[ours],) if ours in mapping else known for ours, known in LABELS.items()}
        self.bad_rows = 0
        self.first_problem = ""
        try:
            answer = msgspec.json.decode(text, type=_Answer)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(
                f"{name}: it is no answer of Prometheus to a range query (/api/v1/query_range): {error}"
            ) from error
        if answer.data.result_type != "matrix":
            raise InvalidValue(
                f"{name}: resultType is {answer.data.result_type[:40]!r}, expected matrix: use /api/v1/query_range"
            )
        self._series = answer.data.result
        self.seconds: float | None = self._find_step()

    def read(self) -> Iterator[Rows]:
        """Yield all rows."""
        step = self.seconds or BIN_SECONDS
        columns: list[tuple[Floats, Floats, int, bool]] = []
        for position, series in enumerate(self._series, 1):
            try:
                number, is_fault = self._find_labels(series.metric)
                starts, counts = _count(series, step)
            except ValueError as error:
                self._refuse(f"series {position}: {error}")
                continue
            columns.append((starts, counts, number, is_fault))
        if not any(len(each[0]) for each in columns):
            return
        starts, requests = (np.concatenate([each[index] for each in columns]) for index in (0, 1))
        lengths = [len(each[0]) for each in columns]
        numbers = np.repeat([each[2] for each in columns], lengths).astype(np.int32)
        faults = np.where(np.repeat([each[3] for each in columns], lengths), requests, 0)
        order = np.argsort(starts, kind="stable")
        size = len(order)
        yield Rows(
            numbers[order],
            starts[order],
            np.full(size, np.nan),
            requests[order].astype(np.int64),
            faults[order].astype(np.int64),
            build_empty(size),
        )

    def _find_step(self) -> float:
        """Return the time between two samples."""
        steps = [later[0] - at[0] for each in self._series for at, later in pairwise(each.values)]
        found = [round(step, 3) for step in steps if step >= 0.5]
        return min(found, default=BIN_SECONDS)

    def _find_labels(self, metric: Mapping[str, str]) -> tuple[int, bool]:
        """Return the number of the series, and whether its requests are faults."""
        if "le" in metric:
            raise InvalidValue("it has the label `le`: expected counts of requests, not a histogram")
        found = {ours: self._find_label(ours, metric) for ours in self._names}
        for needed in ("zone", "operation"):
            if not found[needed]:
                known = " or ".join(self._names[needed])
                raise InvalidValue(f"it has no label {known}: name the label of the {needed} with --label {needed}=...")
        operation = found["operation"]
        service = found["service"] or found["workload"] or "service"
        named = operation if "/" in operation.strip("/") and not found["service"] else f"{service}/{operation}"
        return self._table.find({**found, "operation": named}), found["status"].startswith("5")

    def _find_label(self, ours: str, metric: Mapping[str, str]) -> str:
        return next((metric[each] for each in self._names[ours] if each in metric), "")

    def _refuse(self, problem: str) -> None:
        if not self._skips_bad:
            raise InvalidValue(f"{self._name}, {problem}")
        self.bad_rows += 1
        self.first_problem = self.first_problem or f"{self._name}, {problem}"


def _count(series: _Series, step: float) -> tuple[Floats, Floats]:
    """Return the starts of bins, and the requests in each."""
    times = np.array([at for at, _ in series.values])
    values = np.array([float(value) for _, value in series.values])
    kept = np.isfinite(values) & np.isfinite(times)
    times, values = times[kept], values[kept]
    if np.any(values < 0) or np.any(values > 1e15) or np.any((times < 0) | (times > 1e11)):
        raise InvalidValue("a sample is negative, or has an impossible time")
    if series.metric.get("__name__", "").endswith(_COUNTERS):
        increases = np.diff(values)
        # A counter begins again from 0 when its process restarts.
        return times[:-1], np.where(increases < 0, values[1:], increases)
    # Increases have fractions: their running total is rounded, so that none are lost.
    return times - step, np.diff(np.rint(np.cumsum(values)), prepend=0.0)
