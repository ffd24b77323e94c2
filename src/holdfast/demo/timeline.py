"""An SVG picture of a run, light and dark: failures and latency by zone over time, and the main events. Pure."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.demo.records import SentRequest

WIDTH, ROW, GAP, LEFT, RIGHT, TOP = 860, 64, 18, 110, 20, 64
_TITLE = "Failures and latency by zone over time"
_MAX_LATENCY = 2.0
"""Seconds at the top of a row: the client's timeout."""

_STYLE = """
  svg { font: 12px system-ui, sans-serif; background: #fff; }
  text { fill: #1f2328; } .faint { fill: #59636e; } .row { fill: #f6f8fa; }
  .failed { fill: #cf222e; opacity: .75; } .latency { fill: none; stroke: #0969da; stroke-width: 1.5; }
  .mark { stroke: #9a6700; stroke-dasharray: 4 3; } .out { fill: #9a6700; opacity: .12; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; } text { fill: #f0f6fc; } .faint { fill: #9198a1; } .row { fill: #151b23; }
    .failed { fill: #f85149; } .latency { stroke: #4493f8; } .mark { stroke: #d29922; } .out { fill: #d29922; }
  }
"""


def draw_timeline(
    sent: "Sequence[SentRequest]", zones: Sequence[str], marks: Mapping[str, float], out: Mapping[str, float]
) -> str:
    """Return the run as SVG. `marks` are named moments; `out` has the time since when each zone was out."""
    start = min(request.at for request in sent)
    seconds = max(1, math.ceil(max(request.at for request in sent) - start))
    scale = (WIDTH - LEFT - RIGHT) / seconds
    height = TOP + len(zones) * (ROW + GAP) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_TITLE}">',
        f"<style>{_STYLE}</style>",
        f'<text x="{LEFT}" y="18" font-weight="600">One zone fails; the others keep serving</text>',
        f'<text x="{LEFT}" y="36" class="faint">bars: share of failed requests; line: median latency, 0 to 2 s</text>',
    ]
    for index, zone in enumerate(zones):
        top = TOP + index * (ROW + GAP)
        parts.append(f'<rect class="row" x="{LEFT}" y="{top}" width="{seconds * scale:.1f}" height="{ROW}"/>')
        parts.append(f'<text x="{LEFT - 10}" y="{top + ROW / 2 + 4}" text-anchor="end">{escape(zone)}</text>')
        if zone in out:
            left = LEFT + (out[zone] - start) * scale
            parts.append(
                f'<rect class="out" x="{left:.1f}" y="{top}" width="{LEFT + seconds * scale - left:.1f}" '
                f'height="{ROW}"/><text x="{left + 6:.1f}" y="{top + 16}">out</text>'
            )
        parts.extend(_draw_row([request for request in sent if request.zone == zone], start, seconds, scale, top))
    bottom = TOP + len(zones) * (ROW + GAP)
    for number, (name, at) in enumerate(sorted(marks.items(), key=lambda mark: mark[1])):
        x = LEFT + (at - start) * scale
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{TOP - 10 if number % 2 == 0 else bottom + 2}" text-anchor="middle">'
            f"{escape(name)} {at - start:.1f} s</text>"
        )
    parts.append(f'<text class="faint" x="{LEFT}" y="{height - 8}">0 s</text>')
    parts.append(
        f'<text class="faint" x="{LEFT + seconds * scale:.1f}" y="{height - 8}" text-anchor="end">{seconds} s</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _draw_row(sent: "Sequence[SentRequest]", start: float, seconds: int, scale: float, top: float) -> list[str]:
    by_second: list[list[SentRequest]] = [[] for _ in range(seconds)]
    for request in sent:
        by_second[min(int(request.at - start), seconds - 1)].append(request)
    parts, points = [], []
    for second, requests in enumerate(by_second):
        if not requests:
            continue
        share = sum(request.failed for request in requests) / len(requests)
        if share:
            high = share * ROW
            parts.append(
                f'<rect class="failed" x="{LEFT + second * scale:.1f}" y="{top + ROW - high:.1f}" '
                f'width="{max(scale - 1, 0.5):.1f}" height="{high:.1f}"/>'
            )
        median = sorted(request.seconds for request in requests)[len(requests) // 2]
        level = top + ROW - min(median / _MAX_LATENCY, 1.0) * ROW
        points.append(f"{LEFT + (second + 0.5) * scale:.1f},{level:.1f}")
    if points:
        parts.append(f'<polyline class="latency" points="{" ".join(points)}"/>')
    return parts
