"""The story for people: live on a terminal, as plain lines anywhere else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.demo.run import ZONES, DemoState, Display
from holdfast.demo.shop import WORKLOAD
from holdfast.demo.summary import Phase, Summary

_BARS = " ▁▂▃▄▅▆▇█"
_SECONDS = 40
"""How much of the past a sparkline shows: it fits an 80-column terminal, twice."""
_SLOWEST = 1.0


@contextmanager
def open_display(stream: TextIO | None = None) -> Iterator[Display]:
    """A way to show the scene, for as long as the run takes."""
    stream = stream or sys.stdout
    if not stream.isatty():
        yield _LineDisplay(stream)
        return
    with Live(console=Console(file=stream), refresh_per_second=8) as live:
        yield lambda state: live.update(_render(state))


class _LineDisplay:
    """Tells every line of the story once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printed = 0

    def __call__(self, state: DemoState) -> None:
        while self._printed < len(state.lines):
            at, line = state.lines[self._printed]
            self._printed += 1
            print(f"{at:6.1f} s  {line}", file=self._stream, flush=True)


def sparkline(values: list[float | None], highest: float) -> str:
    """Values from 0 to `highest` as bars; a gap where there is none."""
    return "".join(_BARS[0] if value is None else _BARS[max(1, min(8, round(value / highest * 8)))] for value in values)


def _render(state: DemoState) -> Group:
    table = Table("zone", f"failures, {_SECONDS} s", f"latency, {_SECONDS} s", "", box=None, pad_edge=False)
    samples = list(state.traffic)[-_SECONDS:]
    for zone in ZONES:
        readings: list[dict[str, Any]] = [sample["workloads"][WORKLOAD][zone] for sample in samples]
        shares = [reading["faults"] / reading["requests"] if reading["requests"] else None for reading in readings]
        latencies = [reading["latency"] for reading in readings]
        status = Text("out", "bold yellow") if zone in state.out else Text("in", "green")
        table.add_row(
            zone,
            Text(sparkline(shares, 1.0).rjust(_SECONDS), "red"),
            Text(sparkline(latencies, _SLOWEST).rjust(_SECONDS), "blue"),
            status,
        )
    story = Text("\n".join(f"{at:6.1f} s  {line}" for at, line in list(state.lines)[-12:]))
    return Group(Text(f"Holdfast: {state.address}  (open it in a browser)", "bold"), table, Text(""), story)


def format_summary(summary: Summary) -> str:
    """The summary for people."""
    found = "found and left" if summary.found else "NOT found"
    lines = [
        f"Zone {summary.zone} was {found}.",
        f"  fault to verdict        {_format_seconds(summary.seconds_to_verdict)}",
        f"  fault to zone out       {_format_seconds(summary.seconds_to_out)}",
        f"  fault to last request   {_format_seconds(summary.seconds_to_last_request)}",
        f"  before the fault        {_format_phase(summary.before_fault)}",
        f"  until the last request  {_format_phase(summary.until_last_request)}",
        f"  after it                {_format_phase(summary.after)}",
    ]
    if summary.wrong_zones:
        lines.append(f"  wrongly accused         {', '.join(summary.wrong_zones)}")
    return "\n".join(lines)


def _format_seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _format_phase(phase: Phase) -> str:
    return f"{phase.failed} of {phase.requests} requests failed"
