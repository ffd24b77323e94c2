"""The display of a run: live on a terminal, and plain lines elsewhere."""

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
_MAX_SECONDS = 40
"""Maximum seconds that a sparkline shows."""
_OTHER_WIDTH = 18
"""Width of a row without its two sparklines: zone, state, and the space between the columns."""
_MAX_LATENCY = 1.0  # at the top of a sparkline


@contextmanager
def open_display(stream: TextIO | None = None) -> Iterator[Display]:
    """Yield a function that displays the state of the run on `stream`."""
    stream = stream or sys.stdout
    if not stream.isatty():
        yield _LineDisplay(stream)
        return
    console = Console(file=stream)
    with Live(console=console, refresh_per_second=8) as live:
        yield lambda state: live.update(render(state, console.width))


class _LineDisplay:
    """A display that prints every line once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printed = 0

    def __call__(self, state: DemoState) -> None:
        while self._printed < len(state.lines):
            at, text = state.lines[self._printed]
            self._printed += 1
            print(f"{at:6.1f} s  {text}", file=self._stream, flush=True)


def sparkline(values: list[float | None], highest: float) -> str:
    """Return a bar for each value from 0 to `highest`, and a gap for None."""
    return "".join(_BARS[0] if value is None else _BARS[max(1, min(8, round(value / highest * 8)))] for value in values)


def render(state: DemoState, width: int) -> Group:
    """Return the display for a terminal with `width` columns: as many of the latest seconds as fit."""
    seconds = max(1, min(_MAX_SECONDS, (width - _OTHER_WIDTH) // 2))
    table = Table("zone", f"failures, {seconds} s", f"latency, {seconds} s", "", box=None, pad_edge=False)
    samples = list(state.traffic)[-seconds:]
    for zone in ZONES:
        readings: list[dict[str, Any]] = [sample["workloads"][WORKLOAD][zone] for sample in samples]
        shares = [reading["faults"] / reading["requests"] if reading["requests"] else None for reading in readings]
        latencies = [reading["latency"] for reading in readings]
        status = Text("out", "bold yellow") if zone in state.out else Text("in", "green")
        table.add_row(
            zone,
            Text(sparkline(shares, 1.0).rjust(seconds), "red"),
            Text(sparkline(latencies, _MAX_LATENCY).rjust(seconds), "blue"),
            status,
        )
    story = Text("\n".join(f"{at:6.1f} s  {text}" for at, text in list(state.lines)[-12:]))
    return Group(Text(f"Holdfast: {state.address}  (open it in a browser)", "bold"), table, Text(""), story)


def format_summary(summary: Summary) -> str:
    """Return the summary as text for people."""
    found = "detected and evacuated" if summary.found else "NOT detected and evacuated correctly"
    lines = [
        f"Zone {summary.zone} was {found}.",
        f"  fault to verdict        {_format_seconds(summary.seconds_to_verdict)}",
        f"  fault to zone out       {_format_seconds(summary.seconds_to_out)}",
        f"  fault to last request   {_format_seconds(summary.seconds_to_last_request)}",
        f"  before the fault        {_format_phase(summary.before_fault)}",
        f"  until the last request  {_format_phase(summary.until_last_request)}",
        f"  after that              {_format_phase(summary.after)}",
    ]
    lines.append(f"  zonal shifts            {', '.join(summary.shifted) or 'none'}")
    if summary.wrong_zones:
        lines.append(f"  healthy zones accused   {', '.join(summary.wrong_zones)}")
    return "\n".join(lines)


def _format_seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _format_phase(phase: Phase) -> str:
    return f"{phase.failed} of {phase.requests} requests failed"
