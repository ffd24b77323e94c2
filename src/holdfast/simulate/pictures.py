"""What the simulations showed, drawn: one function for each. Pure."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.simulate.panel import Panel, Scale, picture, text

if TYPE_CHECKING:
    from holdfast.simulate.advice import Advice
    from holdfast.simulate.amplification import Amplified
    from holdfast.simulate.jitter import Contended
    from holdfast.simulate.metastability import Stall, Stalled
    from holdfast.simulate.timeout import Shift, Window

_WIDTH = 860.0
_BINS = 120


def contention(results: "Sequence[Contended]") -> str:
    """When the calls came that each way to back off made, in one run; a panel for each."""
    # The one without jitter takes ten times as long as the others: they would be a stroke at the left.
    longest = 1.1 * sorted(result.seconds for result in results)[-2] if len(results) > 1 else results[0].seconds
    edges = [longest * number / _BINS for number in range(_BINS + 1)]
    counts = [_counted(result.moments, edges) for result in results]
    highest = max(1.0, *(max(count) for count in counts))
    parts: list[str] = []
    for number, (result, count) in enumerate(zip(results, counts, strict=True)):
        panel = Panel(
            left=60,
            top=74 + number * 92,
            width=_WIDTH - 80,
            height=60,
            across=Scale(0, longest),
            upwards=Scale(0, highest),
        )
        later = sum(moment > longest for moment in result.moments)
        rest = f"; {later:,} of this run not shown" if later else ""
        parts += panel.frame(
            f"{result.strategy}: {result.calls:,.0f} calls, {result.seconds:.2f} s{rest}", lambda value: f"{value:g}"
        )
        parts += panel.bars(edges, count)
        if number == len(results) - 1:
            parts += panel.feet([0, longest / 2, longest], lambda value: f"{value:.1f} s")
    what = "; ".join(f"{one.strategy}: {one.calls:.0f} calls, done after {one.seconds:.2f} s" for one in results)
    subtitle = text(16, 42, f"calls in each {longest / _BINS * 1000:.0f} ms of one run; numbers: mean of all", "faint")
    height = 74 + len(results) * 92 + 10
    return picture(_WIDTH, height, "Clients that contend for one row", what, [subtitle, *parts])


def amplification(results: "Sequence[Amplified]") -> str:
    """How many calls a failing service gets for each request; ten times as many is a step longer."""
    left, longest = 230.0, 430.0
    scale = Scale(1.0, 10.0 * max(1.0, *(result.per_request for result in results)), is_log=True)
    parts = [text(left, 46, "each step is ten times as many; the shortest bar is one call for each request", "faint")]
    for number, result in enumerate(results):
        top = 60 + number * 28
        # A bar begins at a tenth, so that one call for a request is a bar, too.
        wide = longest * scale.place(10 * max(0.1, result.per_request))
        parts += [
            text(left - 8, top + 14, result.policy, "word", "end"),
            f'<rect class="bar" x="{left}" y="{top}" width="{wide:.1f}" height="19"/>',
            text(left + wide + 6, top + 14, f"{result.per_request:,.3f}, {result.success:.1%} answered"),
        ]
    what = "; ".join(f"{one.policy}: {one.per_request:.3f}, {one.success:.1%} answered" for one in results)
    return picture(_WIDTH, 70 + len(results) * 28, "Calls of the last service for each request", what, parts)


def metastability(options: "Stall", results: "Sequence[Stalled]") -> str:
    """What came through, and what waited, over time: two panels for each kind of caller."""
    seconds = len(results[0].history)
    busiest = max(one.offered for result in results for one in result.history)
    across, width = Scale(0, seconds), (_WIDTH - 160) / 2
    parts = [text(16, 42, "dotted: requests that came; line: those that were answered. Shaded: the stall", "faint")]
    for number, result in enumerate(results):
        top = 78 + number * 118
        told = "never" if result.recovery is None else f"after {result.recovery} s"
        goodput = Panel(left=60, top=top, width=width, height=80, across=across, upwards=Scale(0, busiest))
        longest = Scale(0, max(1.0, *(one.queue for one in result.history)))
        queue = Panel(left=_WIDTH - 20 - width, top=top, width=width, height=80, across=across, upwards=longest)
        moments = [second + 0.5 for second in range(seconds)]
        parts += goodput.frame(f"{result.callers}: recovers {told}", lambda value: f"{value:.0f}/s")
        parts.append(goodput.band(options.begins, options.ends))
        parts.append(
            goodput.line(zip(moments, (float(one.offered) for one in result.history), strict=True), kind="wanted")
        )
        parts.append(goodput.line(zip(moments, (float(one.answered) for one in result.history), strict=True)))
        parts += queue.frame("seconds that a call waits which comes now", lambda value: f"{value:.0f} s")
        parts.append(queue.band(options.begins, options.ends))
        parts.append(queue.line([(second + 1, one.queue) for second, one in enumerate(result.history)]))
        for panel in (goodput, queue) if number == len(results) - 1 else ():
            parts += panel.feet([0, seconds / 2, seconds], lambda value: f"{value:g} s")
    what = "; ".join(
        f"{one.callers}: {'no recovery' if one.recovery is None else f'{one.recovery} s to recover'}, "
        f"{one.answered:.0%} answered"
        for one in results
    )
    return picture(_WIDTH, 78 + len(results) * 118 + 8, "A server stalls, and its callers", what, parts)


def timeouts(options: "Shift", windows: "Sequence[Window]") -> str:
    """How many good answers each rule cut off, and how long its timeout was, window by window."""
    rules = list(windows[0].rules)
    edges = [float(number) for number in range(len(windows) + 1)]
    across, width = Scale(0, len(windows)), (_WIDTH - 180) / 2
    shares = Scale(options.policy.accepted / 10, 1.0, is_log=True)
    rights = [window.right for window in windows]
    shown = [seen.timeout for window in windows for seen in window.rules.values()] + rights
    times = Scale(min(shown) / 1.5, max(shown) * 1.5, is_log=True)
    parts = [text(16, 42, "dotted: what is right; line: what the rule did. Shaded: latencies are longer", "faint")]
    for number, rule in enumerate(rules):
        top = 78 + number * 118
        seen = [window.rules[rule] for window in windows]
        cut = Panel(left=70, top=top, width=width, height=80, across=across, upwards=shares)
        timeout = Panel(left=_WIDTH - 20 - width, top=top, width=width, height=80, across=across, upwards=times)
        parts += cut.frame(f"{rule}: good answers cut off", lambda value: f"{value * 100:g} %")
        parts.append(cut.band(options.changes, len(windows)))
        parts.append(cut.steps(edges, [options.policy.accepted] * len(windows), kind="wanted"))
        parts.append(cut.steps(edges, [one.false_timeouts for one in seen]))
        parts += timeout.frame("timeout at the end of each window", lambda value: f"{value:.2g} s")
        parts.append(timeout.band(options.changes, len(windows)))
        parts.append(timeout.steps(edges, rights, kind="wanted"))
        parts.append(timeout.steps(edges, [one.timeout for one in seen]))
        for panel in (cut, timeout) if number == len(rules) - 1 else ():
            parts += panel.feet([0, len(windows)], lambda value: f"{value * options.policy.window:,.0f} requests")
    last = windows[-1].rules
    what = "; ".join(f"{rule}: {last[rule].false_timeouts:.3%} cut off in the last window" for rule in rules)
    return picture(_WIDTH, 78 + len(rules) * 118 + 8, "Timeouts, when latencies grow", what, parts)


def latencies(found: "Advice", samples: Sequence[float]) -> str:
    """How latencies are spread, and where the timeout lies among them."""
    ended = sorted(sample for sample in samples if sample < math.inf)
    shortest = max(1e-6, ended[0])
    longest = 1.2 * max(found.timeout, shortest * 2, *ended[-1:])
    across = Scale(shortest / 1.2, longest, is_log=True)
    factor = (across.highest / across.lowest) ** (1 / _BINS)
    edges = [across.lowest * factor**number for number in range(_BINS + 1)]
    count = _counted(ended, edges)
    # The tail is what it is about: by equal steps nothing of it would be seen.
    upwards = Scale(0.5, max(2.0, *count), is_log=True)
    panel = Panel(left=70, top=116, width=_WIDTH - 90, height=200, across=across, upwards=upwards)
    marks = [(found.timeout, f"timeout {_time(found.timeout)}")]
    marks += [(found.percentiles[name], f"{name} {_time(found.percentiles[name])}") for name in ("p50", "p99", "p99.9")]
    parts = [text(16, 42, f"{found.count:,} latencies; upwards, equal steps are equal factors", "faint")]
    parts += panel.frame("", lambda value: f"{value:,.0f}")
    parts += panel.bars(edges, count)
    for row, (at, word) in enumerate(sorted(marks)):  # words stand at the left, so lines at the left stay low
        if at < math.inf:
            parts += panel.mark(at, word, row)
    ticks = [10.0**power for power in range(-6, 4) if across.lowest <= 10.0**power <= across.highest]
    parts += panel.feet(ticks, _time)
    what = f"{found.count:,} latencies; " + "; ".join(word for _, word in marks)
    return picture(_WIDTH, 346, "Latencies, and the timeout that fits them", what, parts)


def _counted(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    """How many values lie between each edge and the next; edges are spaced evenly, or by a factor."""
    counts = [0.0] * (len(edges) - 1)
    for value in values:
        place = bisect_right(edges, value) - 1
        if place < len(counts):
            counts[max(0, place)] += 1
    return counts


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
