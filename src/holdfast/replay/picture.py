"""Draw a replay as SVG: the fault rate and latency of each zone over time, with verdicts and labels. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from holdfast._types import Side, Zone
from holdfast.metrics.histogram import PER_DOUBLING
from holdfast.replay.judges import ReplayedVerdict
from holdfast.replay.latencies import HIGHEST, LOWEST
from holdfast.replay.tables import Label
from holdfast.simulate.pictures import Panel, Scale, build_svg, text

if TYPE_CHECKING:
    from holdfast.telemetry.block import Floats, Integers
    from holdfast.telemetry.window import Window

_WIDTH = 1060.0
_LEFT = 130.0
_TOP = 96.0
_STRIP = 64.0
_BAND = 14.0
_POINTS = 420
"""Points of a line: half the width of a panel, in pixels."""
_BUCKETS = HIGHEST - LOWEST + 1
_STYLE = """
  .hf-calls .isolated { fill: #b34700; } .hf-calls .instance { fill: #c99700; } .hf-calls .shared { fill: #7a3fb5; }
  .hf-calls .regional { fill: #5b2a2a; } .hf-calls .unknown { fill: #8c959f; } .hf-calls .label { fill: #0a5fc2; }
  .hf-calls .slow { fill: none; stroke: #7a3fb5; stroke-width: 1; opacity: .7; }
  @media (prefers-color-scheme: dark) {
    .hf-calls .isolated { fill: #ffa657; } .hf-calls .instance { fill: #e3b341; } .hf-calls .shared { fill: #d2a8ff; }
    .hf-calls .regional { fill: #ff9492; } .hf-calls .unknown { fill: #6e7681; } .hf-calls .label { fill: #58a6ff; }
    .hf-calls .slow { stroke: #d2a8ff; }
  }
"""


class ZoneHistory:
    """The requests, faults and latencies of one workload by zone, in steps. Steps get longer as time goes on."""

    def __init__(self, zones: Sequence[Zone], seconds: float) -> None:
        self.zones, self.step = tuple(zones), seconds
        self._steps: dict[int, tuple[Integers, Integers, Integers]] = {}

    def add(self, window: "Window") -> None:
        """Add the measurements of servers in a window."""
        cells = window.cells.get(Side.SERVER)
        if cells is None:
            return
        zones = len(self.zones)
        requests, faults = (each.sum(axis=(0, 2)) for each in (cells.requests, cells.faults))
        latencies = cells.success_seconds
        owners = np.repeat(np.arange(cells.requests.size), np.diff(latencies.offsets))
        zone = owners // cells.requests.shape[2] % zones
        places = zone * _BUCKETS + np.clip(latencies.buckets.astype(np.int64) - LOWEST, 0, _BUCKETS - 1)
        counts = np.bincount(places, latencies.values, zones * _BUCKETS).reshape(zones, _BUCKETS)
        self._put(math.floor(window.start / self.step + 1e-6), (requests, faults, counts))
        if len(self._steps) > 2 * _POINTS:
            steps, self._steps = self._steps, {}
            self.step *= 2
            for number, parts in steps.items():
                self._put(number // 2, parts)

    def _put(self, number: int, parts: "tuple[Integers, Integers, Integers]") -> None:
        known = self._steps.get(number)
        self._steps[number] = parts if known is None else tuple(a + b for a, b in zip(known, parts, strict=True))  # type: ignore[assignment]

    def find_fault_rates(self) -> "tuple[Floats, Floats]":
        """Return the middles of the steps, and the fault rate of each zone in each step; NaN without requests."""
        numbers = sorted(self._steps)
        requests, faults = (np.array([self._steps[each][index] for each in numbers]).T for index in (0, 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            return (np.array(numbers) + 0.5) * self.step, np.where(requests > 0, faults / requests, np.nan)

    def find_latencies(self) -> "Floats":
        """Return the 90th percentile of each zone in each step, in seconds; NaN if it is not known."""
        found = np.array([self._steps[each][2] for each in sorted(self._steps)])
        totals = found.sum(axis=2)
        ranks = np.argmax(np.cumsum(found, axis=2) >= np.ceil(0.9 * totals)[..., None], axis=2)
        return np.where(totals > 0, np.exp2((ranks + LOWEST + 0.5) / PER_DOUBLING), np.nan).T


def draw_replay(
    workload: str,
    history: ZoneHistory,
    span: tuple[float, float],
    verdicts: Sequence[ReplayedVerdict],
    *,
    labels: Sequence[Label] = (),
    judges: Sequence[str] = (),
) -> str:
    """Draw one workload: a panel for each zone, and below it a row of bands for each judge."""
    start, end = span
    times, rates = history.find_fault_rates()
    latencies = history.find_latencies()
    own = [each for each in verdicts if each.workload == workload]
    top_rate = max(0.01, float(np.nanmax(rates, initial=0.0)))
    slowest = float(np.nanmax(latencies, initial=0.001)) * 1.05
    x_scale = Scale(start, end)
    row = _STRIP + len(judges) * (_BAND + 4) + 34
    parts = [f"<style>{_STYLE}</style>", text(16, 44, _describe(judges), "faint"), *_draw_legend()]
    for number, zone in enumerate(history.zones):
        top = _TOP + number * row
        panel = Panel(
            left=_LEFT, top=top, width=_WIDTH - _LEFT - 70, height=_STRIP, x_scale=x_scale, y_scale=Scale(0, top_rate)
        )
        slow = Panel(left=_LEFT, top=top, width=panel.width, height=_STRIP, x_scale=x_scale, y_scale=Scale(0, slowest))
        parts += panel.frame(str(zone), lambda rate: f"{rate:.1%}")
        parts.append(text(_WIDTH - 64, top + 10, _format_seconds(slowest), "faint"))
        parts += _draw_labels(panel, zone, labels)
        parts += [slow.line(points, "slow") for points in _split(times, latencies[number])]
        parts += [panel.line(points) for points in _split(times, rates[number])]
        parts += _draw_verdicts(panel, zone, own, judges, end)
    bottom = _TOP + len(history.zones) * row
    axis = Panel(left=_LEFT, top=bottom - 34, width=_WIDTH - _LEFT - 70, height=0, x_scale=x_scale, y_scale=Scale(0, 1))
    parts += axis.label_x_axis([start + (end - start) * share / 4 for share in range(5)], _format_time(end - start))
    isolated = [each for each in own if each.kind == "isolated"]
    what = "; ".join(
        f"{each.judge}: {each.kind} {each.zone or each.resource or ''} from {each.opened:.0f}" for each in isolated[:50]
    )
    title = f"{workload}: fault rate and latency of each zone, and verdicts"
    return build_svg(_WIDTH, bottom + 8, title, what or "no isolation", parts)


def _describe(judges: Sequence[str]) -> str:
    return (
        "blue: share of failed requests (left scale); violet: 90th percentile of the latency (right scale); "
        f"shaded: labels; bars: {', '.join(judges) or 'no judge'}"
    )


def _draw_legend() -> list[str]:
    parts, left = [], 16.0
    for kind in ("isolated", "instance", "shared", "regional", "unknown"):
        parts.append(f'<rect class="{kind}" x="{left:.0f}" y="54" width="12" height="12"/>')
        parts.append(text(left + 17, 64, kind, "faint"))
        left += 90
    return parts


def _draw_labels(panel: Panel, zone: Zone, labels: Iterable[Label]) -> list[str]:
    low, high = panel.x_scale.lowest, panel.x_scale.highest
    return [
        panel.band(max(low, label.start), min(high, label.end))
        for label in labels
        if label.zone in (None, zone) and label.end > low and label.start < high
    ]


def _draw_verdicts(
    panel: Panel, zone: Zone, verdicts: Iterable[ReplayedVerdict], judges: Sequence[str], end: float
) -> list[str]:
    rows = {judge: panel.top + panel.height + 5 + number * (_BAND + 4) for number, judge in enumerate(judges)}
    parts = [text(_LEFT - 6, top + 11, judge, "faint", "end") for judge, top in rows.items()]
    for each in verdicts:
        if each.zone not in (None, zone) or each.judge not in rows:
            continue
        left = panel.x(each.opened)
        width = max(2.0, panel.x(end if each.closed is None else each.closed) - left)
        box = f'x="{left:.1f}" y="{rows[each.judge]:.1f}" width="{width:.1f}" height="{_BAND:.0f}"'
        parts.append(f'<rect class="{each.kind}" {box}><title>{escape(each.summary)}</title></rect>')
    return parts


def _split(times: "Floats", values: "Floats") -> Iterable[list[tuple[float, float]]]:
    """Yield the points of a line, in parts where values are missing."""
    points: list[tuple[float, float]] = []
    for at, value in zip(times.tolist(), values.tolist(), strict=True):
        if not math.isnan(value):
            points.append((at, value))
        elif points:
            yield points
            points = []
    if points:
        yield points


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _format_time(length: float) -> Callable[[float], str]:
    """Return a function that writes a time, with its day if the picture is longer than one."""
    pattern = "%d %b %H:%M" if length > 86_400 else "%H:%M:%S"
    return lambda at: datetime.fromtimestamp(at, UTC).strftime(pattern)
