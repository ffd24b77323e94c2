"""Part `picture`: how long the victims of ten noisy tenants wait, with each protection alone and with all of them.

The noise is that of `_queue_noise.py`, on SQLite; nothing is held to anything here. Each protection is what Holdfast
has by default, in a queue that has nothing else: lanes are 128 with a hand of 4, a tenant spills above 1,000 waiting
messages, which is half of what each has sent. Fresh first needs a backlog that is old: there, messages count as old
after one second instead of a minute.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks._queue_noise import FIFO, TEN, Heard, Noise, listen, tell
from benchmarks._queue_roles import CONCURRENCY
from benchmarks._queue_servers import Servers
from benchmarks._report import Report, milliseconds
from holdfast.simulate.pictures import Scale, build_svg, text

LEFT, RIGHT, TOP, ROW, WIDTH = 190.0, 175.0, 64.0, 44.0, 860.0
TICKS = (0.001, 0.01, 0.1, 1.0, 10.0)


def settings(spill_above: int) -> Mapping[str, Mapping[str, Any]]:
    return {
        "no protection: one lane, FIFO": FIFO,
        "spill alone": {**FIFO, "spill_above": spill_above, "spill_share": 0.1},
        "fresh first alone": {**FIFO, "fresh_for": 1.0, "backlog_share": 0.1},
        "lanes per tenant alone": {**FIFO, "lanes": 128, "lanes_per_tenant": 4},
        "all of them": {"spill_above": spill_above},
    }


def measure(servers: Servers, report: Report, *, quick: bool) -> None:
    count, waves = (5_000, 1) if quick else (20_000, 3)
    heard: dict[str, Heard] = {}
    for name, policy in settings(count // (2 * len(TEN))).items():
        with servers.store("sqlite") as url:
            options = {"url": url, "policy": policy, "concurrency": CONCURRENCY}
            heard[name] = listen("_queue_holdfast", options, Noise(TEN, count, waves, is_drained=False))
        tell(report, name, heard[name])
    if report.picture is not None:
        report.picture.write_text(drawn(heard, count))
        report.say(f"drawn: {report.picture}")


def drawn(heard: Mapping[str, Heard], count: int) -> str:
    """A row of dots for each setting, one for each victim, by how long it waited."""
    waited = [latency for one in heard.values() for latency in one.latencies]
    across = Scale(min(TICKS[0], *waited), max(TICKS[-1] * 2, *waited), is_log=True)
    what = "; ".join(f"{name}: p50 {milliseconds(one.p50)}, p99 {milliseconds(one.p99)}" for name, one in heard.items())
    height = TOP + len(heard) * ROW + 28
    title = "How long other tenants wait while ten noisy ones have a backlog"
    subtitle = (
        f"a dot is a message, the line the 99th percentile; {count:,} jobs of 5 ms were sent before, 8 run at a time"
    )
    return build_svg(WIDTH, height, title, what, [text(16, 42, subtitle, "faint"), *_rows(heard, across)])


def _rows(heard: Mapping[str, Heard], across: Scale) -> Iterator[str]:
    bottom = TOP + len(heard) * ROW
    for row, (name, one) in enumerate(heard.items()):
        top = TOP + row * ROW
        yield f'<rect class="panel" x="{LEFT}" y="{top + 3:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{ROW - 6}"/>'
        yield text(LEFT - 8, top + ROW / 2 + 4, name, "word", "end")
        yield from _dots(one.latencies, across, top + ROW / 2)
        yield from _mark(_x(across, one.p99), top)
        told = f"p50 {milliseconds(one.p50)}, p99 {milliseconds(one.p99)}"
        yield text(WIDTH - RIGHT + 8, top + ROW / 2 + 4, told, "faint")
    for tick in TICKS:
        yield text(_x(across, tick), bottom + 16, milliseconds(tick), "faint", "middle")


def _dots(latencies: Sequence[float], across: Scale, middle: float) -> Iterator[str]:
    for number, latency in enumerate(latencies):
        y = middle + (number * 7 % 11 - 5) * 2.4  # beside each other: on one line they would cover each other
        yield f'<circle class="bar" cx="{_x(across, latency):.1f}" cy="{y:.1f}" r="2" opacity=".55"/>'


def _mark(x: float, top: float) -> Iterator[str]:
    """A line at the 99th percentile."""
    yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 3:.1f}" y2="{top + ROW - 3:.1f}"/>'


def _x(across: Scale, value: float) -> float:
    return LEFT + across.position(value) * (WIDTH - LEFT - RIGHT)
