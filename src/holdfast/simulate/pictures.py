"""SVG pictures of the simulations' results, for light and dark mode: a function for each, and their panels. Pure."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.simulate.advice import Advice
    from holdfast.simulate.amplification import AmplificationResult
    from holdfast.simulate.jitter import ContentionResult
    from holdfast.simulate.metastability import Stall, StallResult
    from holdfast.simulate.timeout import LatencyShift, WindowResult

# Blue and orange can be distinguished with all common kinds of colour blindness: https://jfly.uni-koeln.de/color/
_STYLE = """
  .hf-calls { font: 12px system-ui, sans-serif; background: #fff; max-width: 100%; height: auto; }
  .hf-calls text { fill: #1f2328; } .hf-calls .faint { fill: #59636e; } .hf-calls .head { font-weight: 600; }
  .hf-calls .panel { fill: #f2f4f7; } .hf-calls .bar { fill: #0a5fc2; }
  .hf-calls .line { fill: none; stroke: #0a5fc2; stroke-width: 1.5; stroke-linejoin: round; }
  .hf-calls .wanted { fill: none; stroke: #59636e; stroke-dasharray: 2 3; }
  .hf-calls .mark { stroke: #b34700; stroke-width: 1.5; stroke-dasharray: 5 3; }
  .hf-calls .band { fill: #b34700; opacity: .15; }
  @media (prefers-color-scheme: dark) {
    .hf-calls { background: #0d1117; } .hf-calls text { fill: #f0f6fc; } .hf-calls .faint { fill: #9198a1; }
    .hf-calls .panel { fill: #1c232c; } .hf-calls .bar { fill: #58a6ff; } .hf-calls .line { stroke: #58a6ff; }
    .hf-calls .wanted { stroke: #9198a1; } .hf-calls .mark { stroke: #ffa657; } .hf-calls .band { fill: #ffa657; }
  }
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or logarithmic scale."""

    lowest: float
    highest: float
    is_log: bool = False

    def position(self, value: float) -> float:
        """Return the position of a value, from 0 to 1. Values outside the scale are moved to its end."""
        low, high, at = self.lowest, self.highest, min(self.highest, max(self.lowest, value))
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A rectangular part of the picture, with two scales."""

    left: float
    top: float
    width: float
    height: float
    x_scale: Scale
    y_scale: Scale

    def x(self, value: float) -> float:
        """Return the distance of a value from the left of the picture."""
        return self.left + self.x_scale.position(value) * self.width

    def y(self, value: float) -> float:
        """Return the distance of a value from the top of the picture."""
        return self.top + (1 - self.y_scale.position(value)) * self.height

    def frame(self, title: str, format_value: Callable[[float], str]) -> list[str]:
        """Return the frame, with a title above it and labels at both ends of the y axis."""
        left = self.left - 6
        return [
            self._area("panel", self.left, self.left + self.width),
            *([text(self.left, self.top - 6, title)] if title else []),
            text(left, self.top + 10, format_value(self.y_scale.highest), "faint", "end"),
            text(left, self.top + self.height, format_value(self.y_scale.lowest), "faint", "end"),
        ]

    def label_x_axis(self, ticks: Iterable[float], format_value: Callable[[float], str]) -> list[str]:
        """Return labels of the x axis, below the frame."""
        below = self.top + self.height + 15
        return [text(self.x(value), below, format_value(value), "faint", self._anchor(value)) for value in ticks]

    def line(self, points: Iterable[Point], kind: str = "line") -> str:
        """Return a line through `points`."""
        drawn = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return f'<polyline class="{kind}" points="{drawn}"/>'

    def steps(self, edges: Sequence[float], values: Sequence[float], kind: str = "line") -> str:
        """Return a step line with each value from one edge to the next."""
        pairs = zip(edges, edges[1:], values, strict=False)
        return self.line([point for begin, end, value in pairs for point in ((begin, value), (end, value))], kind)

    def bars(self, edges: Sequence[float], values: Sequence[float]) -> list[str]:
        """Return a bar for each value, from one edge to the next."""
        base = self.top + self.height
        return [
            f'<rect class="bar" x="{self.x(begin):.1f}" y="{self.y(value):.1f}" '
            f'width="{max(0.5, self.x(end) - self.x(begin) - 0.5):.1f}" height="{base - self.y(value):.1f}"/>'
            for begin, end, value in zip(edges, edges[1:], values, strict=False)
            if value > self.y_scale.lowest
        ]

    def mark(self, at: float, word: str, row: int = 0) -> list[str]:
        """Return a vertical line with a label above the frame. Use a higher `row` where labels would overlap."""
        x, top = self.x(at), self.top - 6 - 15 * row
        return [
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{self.top + self.height:.1f}"/>',
            text(x - 5 if self._side(at) == "end" else x + 5, top, word, "word", self._side(at)),
        ]

    def band(self, begin: float, end: float) -> str:
        """Return a shaded band between two x values."""
        return self._area("band", self.x(begin), self.x(end))

    def _side(self, value: float) -> str:
        return "end" if self.x_scale.position(value) > 0.2 else "start"

    def _anchor(self, value: float) -> str:
        """Return the text anchor that keeps labels at an end of the scale within the picture."""
        return "middle" if 0.05 < self.x_scale.position(value) < 0.95 else self._side(value)

    def _area(self, kind: str, left: float, right: float) -> str:
        box = f'x="{left:.1f}" y="{self.top:.1f}" width="{right - left:.1f}" height="{self.height:.1f}"'
        return f'<rect class="{kind}" {box}/>'


def text(x: float, y: float, words: str, kind: str = "word", anchor: str = "start") -> str:
    """Return `words` at a position."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def build_svg(width: float, height: float, title: str, what: str, parts: Iterable[str]) -> str:
    """Return a complete picture, with its title at the top left, and `what` as its description for screen readers."""
    box = f'width="{width:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hf-calls" role="img" {box}>',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(what)}</desc>",
            f"<style>{_STYLE}</style>",
            text(16, 24, title, "head"),
            *parts,
            "</svg>",
            "",
        ]
    )


_WIDTH = 860.0
_BINS = 120


def draw_contention(results: "Sequence[ContentionResult]") -> str:
    """Draw the calls of one run over time, with a panel for each backoff strategy."""
    # Leave out the longest time: without jitter it is ten times the others, which would be a single stroke at the left.
    longest = 1.1 * sorted(result.seconds for result in results)[-2] if len(results) > 1 else results[0].seconds
    edges = [longest * number / _BINS for number in range(_BINS + 1)]
    counts = [_count_in_bins(result.call_times, edges) for result in results]
    highest = max(1.0, *(max(count) for count in counts))
    x_scale, y_scale = Scale(0, longest), Scale(0, highest)
    parts: list[str] = []
    for number, (result, count) in enumerate(zip(results, counts, strict=True)):
        top = 74 + number * 92
        panel = Panel(left=60, top=top, width=_WIDTH - 80, height=60, x_scale=x_scale, y_scale=y_scale)
        later = sum(moment > longest for moment in result.call_times)
        rest = f"; {later:,} calls of this run not shown" if later else ""
        title = f"{result.strategy}: {result.calls:,.0f} calls, {result.seconds:.2f} s{rest}"
        parts += panel.frame(title, lambda value: f"{value:g}")
        parts += panel.bars(edges, count)
        if number == len(results) - 1:
            parts += panel.label_x_axis([0, longest / 2, longest], lambda value: f"{value:.1f} s")
    what = "; ".join(f"{one.strategy}: {one.calls:.0f} calls in {one.seconds:.2f} s" for one in results)
    subtitle = text(16, 42, f"calls in each {longest / _BINS * 1000:.0f} ms of one run; numbers: mean of all", "faint")
    height = 74 + len(results) * 92 + 10
    return build_svg(_WIDTH, height, "Clients that contend for one row", what, [subtitle, *parts])


def draw_amplification(results: "Sequence[AmplificationResult]") -> str:
    """Draw the calls per request to a failing service, on a logarithmic scale."""
    left, longest = 230.0, 430.0
    scale = Scale(1.0, 10.0 * max(1.0, *(result.calls_per_request for result in results)), is_log=True)
    parts = [text(left, 46, "logarithmic scale; the shortest bar is one call per request", "faint")]
    for number, result in enumerate(results):
        top = 60 + number * 28
        # Bars begin at a tenth, so that one call per request has a visible bar.
        wide = longest * scale.position(10 * max(0.1, result.calls_per_request))
        parts += [
            text(left - 8, top + 14, result.policy, "word", "end"),
            f'<rect class="bar" x="{left}" y="{top}" width="{wide:.1f}" height="19"/>',
            text(left + wide + 6, top + 14, f"{result.calls_per_request:,.3f}, {result.success_rate:.1%} succeeded"),
        ]
    what = "; ".join(f"{one.policy}: {one.calls_per_request:.3f}, {one.success_rate:.1%} succeeded" for one in results)
    return build_svg(_WIDTH, 70 + len(results) * 28, "Calls to the last service per request", what, parts)


def draw_metastability(options: "Stall", results: "Sequence[StallResult]") -> str:
    """Draw requests and the server's queue over time, with two panels for each kind of caller."""
    seconds = len(results[0].history)
    busiest = max(one.offered for result in results for one in result.history)
    x_scale, width = Scale(0, seconds), (_WIDTH - 160) / 2
    parts = [text(16, 42, "dotted: requests; line: those that succeeded. Shaded: the stall", "faint")]
    for number, result in enumerate(results):
        top = 78 + number * 118
        after = result.recovery_seconds
        recovery = "never recovers" if after is None else f"recovers after {after} s"
        goodput = Panel(left=60, top=top, width=width, height=80, x_scale=x_scale, y_scale=Scale(0, busiest))
        longest = Scale(0, max(1.0, *(one.queue for one in result.history)))
        queue = Panel(left=_WIDTH - 20 - width, top=top, width=width, height=80, x_scale=x_scale, y_scale=longest)
        offered = [(second + 0.5, one.offered) for second, one in enumerate(result.history)]
        answered = [(second + 0.5, one.answered) for second, one in enumerate(result.history)]
        parts += goodput.frame(f"{result.callers}: {recovery}", lambda value: f"{value:.0f}/s")
        parts.append(goodput.band(options.stall_start, options.stall_end))
        parts += [goodput.line(offered, kind="wanted"), goodput.line(answered)]
        parts += queue.frame("seconds that a new call waits in the queue", lambda value: f"{value:.0f} s")
        waits = [(second + 1, one.queue) for second, one in enumerate(result.history)]
        parts += [queue.band(options.stall_start, options.stall_end), queue.line(waits)]
        for panel in (goodput, queue) if number == len(results) - 1 else ():
            parts += panel.label_x_axis([0, seconds / 2, seconds], lambda value: f"{value:g} s")
    what = "; ".join(
        f"{one.callers}: {'no recovery' if one.recovery_seconds is None else f'{one.recovery_seconds} s to recover'}, "
        f"{one.success_rate:.0%} succeeded"
        for one in results
    )
    return build_svg(_WIDTH, 78 + len(results) * 118 + 8, "A server stalls, and its callers", what, parts)


def draw_timeouts(options: "LatencyShift", windows: "Sequence[WindowResult]") -> str:
    """Draw the false timeouts and the timeout of each rule, window by window."""
    rules = list(windows[0].rules)
    edges = [float(number) for number in range(len(windows) + 1)]
    x_scale, width = Scale(0, len(windows)), (_WIDTH - 180) / 2
    shares = Scale(options.policy.accepted_false_timeouts / 10, 1.0, is_log=True)
    rights = [window.ideal_timeout for window in windows]
    shown = [seen.timeout for window in windows for seen in window.rules.values()] + rights
    times = Scale(min(shown) / 1.5, max(shown) * 1.5, is_log=True)
    parts = [text(16, 42, "dotted: ideal; line: the rule. Shaded: after the latencies have grown", "faint")]
    for number, rule in enumerate(rules):
        top = 78 + number * 118
        seen = [window.rules[rule] for window in windows]
        cut = Panel(left=70, top=top, width=width, height=80, x_scale=x_scale, y_scale=shares)
        timeout = Panel(left=_WIDTH - 20 - width, top=top, width=width, height=80, x_scale=x_scale, y_scale=times)
        parts += cut.frame(f"{rule}: false timeouts", lambda value: f"{value * 100:g} %")
        parts.append(cut.band(options.first_slow_window, len(windows)))
        parts.append(cut.steps(edges, [options.policy.accepted_false_timeouts] * len(windows), kind="wanted"))
        parts.append(cut.steps(edges, [one.false_timeouts for one in seen]))
        parts += timeout.frame("timeout at the end of each window", lambda value: f"{value:.2g} s")
        parts.append(timeout.band(options.first_slow_window, len(windows)))
        parts.append(timeout.steps(edges, rights, kind="wanted"))
        parts.append(timeout.steps(edges, [one.timeout for one in seen]))
        for panel in (cut, timeout) if number == len(rules) - 1 else ():
            parts += panel.label_x_axis(
                [0, len(windows)], lambda value: f"{value * options.policy.window:,.0f} requests"
            )
    last = windows[-1].rules
    what = "; ".join(f"{rule}: {last[rule].false_timeouts:.3%} false timeouts in the last window" for rule in rules)
    return build_svg(_WIDTH, 78 + len(rules) * 118 + 8, "Timeouts, when latencies grow", what, parts)


def draw_latencies(found: "Advice", samples: Sequence[float]) -> str:
    """Draw the distribution of latencies, with the timeout and percentiles."""
    ended = sorted(sample for sample in samples if sample < math.inf)
    shortest = max(1e-6, ended[0])
    longest = 1.2 * max(found.timeout, shortest * 2, *ended[-1:])
    x_scale = Scale(shortest / 1.2, longest, is_log=True)
    factor = (x_scale.highest / x_scale.lowest) ** (1 / _BINS)
    edges = [x_scale.lowest * factor**number for number in range(_BINS + 1)]
    count = _count_in_bins(ended, edges)
    # Logarithmic, because the tail matters, and would be invisible on a linear scale.
    y_scale = Scale(0.5, max(2.0, *count), is_log=True)
    panel = Panel(left=70, top=116, width=_WIDTH - 90, height=200, x_scale=x_scale, y_scale=y_scale)
    marks = [(found.timeout, f"timeout {_format_time(found.timeout)}")]
    marks += [
        (found.percentiles[name], f"{name} {_format_time(found.percentiles[name])}") for name in ("p50", "p99", "p99.9")
    ]
    parts = [text(16, 42, f"{found.count:,} latencies; both scales are logarithmic", "faint")]
    parts += panel.frame("", lambda value: f"{value:,.0f}")
    parts += panel.bars(edges, count)
    for row, (at, word) in enumerate(sorted(marks)):  # labels are left of their lines, so the leftmost is lowest
        if at < math.inf:
            parts += panel.mark(at, word, row)
    ticks = [10.0**power for power in range(-6, 4) if x_scale.lowest <= 10.0**power <= x_scale.highest]
    parts += panel.label_x_axis(ticks, _format_time)
    what = f"{found.count:,} latencies; " + "; ".join(word for _, word in marks)
    return build_svg(_WIDTH, 346, "Latencies, and the timeout that fits them", what, parts)


def _count_in_bins(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Return the number of values between each edge and the next. Values below the first edge are in the first bin."""
    counts = [0.0] * (len(edges) - 1)
    for value in values:
        index = bisect_right(edges, value) - 1
        if index < len(counts):
            counts[max(0, index)] += 1
    return counts


def _format_time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
