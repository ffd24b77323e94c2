"""Panels of a picture: a frame with scales, in which lines, bars and marks are drawn.

SVG as text, light and dark, with a title and a description for those who do not see it. A picture may stand in a page
beside others: its style holds for it alone. Pure.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

# Blue and orange are told apart by all who see colours in the usual ways of not seeing all of them:
# https://jfly.uni-koeln.de/color/
_STYLE = """
  .hf-calls { font: 12px system-ui, sans-serif; background: #fff; max-width: 100%; height: auto; }
  .hf-calls text { fill: #1f2328; } .hf-calls .faint { fill: #59636e; } .hf-calls .head { font-weight: 600; }
  .hf-calls .lane { fill: #f2f4f7; } .hf-calls .bar { fill: #0a5fc2; }
  .hf-calls .line { fill: none; stroke: #0a5fc2; stroke-width: 1.5; stroke-linejoin: round; }
  .hf-calls .wanted { fill: none; stroke: #59636e; stroke-dasharray: 2 3; }
  .hf-calls .mark { stroke: #b34700; stroke-width: 1.5; stroke-dasharray: 5 3; }
  .hf-calls .band { fill: #b34700; opacity: .15; }
  @media (prefers-color-scheme: dark) {
    .hf-calls { background: #0d1117; } .hf-calls text { fill: #f0f6fc; } .hf-calls .faint { fill: #9198a1; }
    .hf-calls .lane { fill: #1c232c; } .hf-calls .bar { fill: #58a6ff; } .hf-calls .line { stroke: #58a6ff; }
    .hf-calls .wanted { stroke: #9198a1; } .hf-calls .mark { stroke: #ffa657; } .hf-calls .band { fill: #ffa657; }
  }
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places along a line; by equal steps, or by equal factors."""

    lowest: float
    highest: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1; what lies outside is put at the end."""
        low, high, at = self.lowest, self.highest, min(self.highest, max(self.lowest, value))
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A frame with scales."""

    left: float
    top: float
    width: float
    height: float
    across: Scale
    upwards: Scale

    def x(self, value: float) -> float:
        """Where a value lies, from the left of the picture."""
        return self.left + self.across.place(value) * self.width

    def y(self, value: float) -> float:
        """Where a value lies, from the top of the picture."""
        return self.top + (1 - self.upwards.place(value)) * self.height

    def frame(self, title: str, told: Callable[[float], str]) -> list[str]:
        """The frame itself, with a title above it and both ends of its upright scale beside it."""
        left = self.left - 6
        return [
            self._area("lane", self.left, self.left + self.width),
            *([text(self.left, self.top - 6, title)] if title else []),
            text(left, self.top + 10, told(self.upwards.highest), "faint", "end"),
            text(left, self.top + self.height, told(self.upwards.lowest), "faint", "end"),
        ]

    def feet(self, ticks: Iterable[float], told: Callable[[float], str]) -> list[str]:
        """Values of the scale across, below the frame."""
        below = self.top + self.height + 15
        return [text(self.x(value), below, told(value), "faint", self._anchor(value)) for value in ticks]

    def line(self, points: Iterable[Point], kind: str = "line") -> str:
        """A line through points."""
        drawn = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return f'<polyline class="{kind}" points="{drawn}"/>'

    def steps(self, edges: Sequence[float], values: Sequence[float], kind: str = "line") -> str:
        """A line that holds each value from one edge to the next."""
        pairs = zip(edges, edges[1:], values, strict=False)
        return self.line([point for begin, end, value in pairs for point in ((begin, value), (end, value))], kind)

    def bars(self, edges: Sequence[float], values: Sequence[float]) -> list[str]:
        """A bar from each edge to the next."""
        base = self.top + self.height
        return [
            f'<rect class="bar" x="{self.x(begin):.1f}" y="{self.y(value):.1f}" '
            f'width="{max(0.5, self.x(end) - self.x(begin) - 0.5):.1f}" height="{base - self.y(value):.1f}"/>'
            for begin, end, value in zip(edges, edges[1:], values, strict=False)
            if value > self.upwards.lowest
        ]

    def mark(self, at: float, word: str, row: int = 0) -> list[str]:
        """An upright line that rises above the frame to a word; in a higher row, where words would meet."""
        x, top = self.x(at), self.top - 6 - 15 * row
        return [
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{self.top + self.height:.1f}"/>',
            text(x - 5 if self._side(at) == "end" else x + 5, top, word, "word", self._side(at)),
        ]

    def band(self, begin: float, end: float) -> str:
        """A time in which something was different."""
        return self._area("band", self.x(begin), self.x(end))

    def _side(self, value: float) -> str:
        return "end" if self.across.place(value) > 0.2 else "start"

    def _anchor(self, value: float) -> str:
        """Words at an end of the scale stay within it."""
        return "middle" if 0.05 < self.across.place(value) < 0.95 else self._side(value)

    def _area(self, kind: str, left: float, right: float) -> str:
        box = f'x="{left:.1f}" y="{self.top:.1f}" width="{right - left:.1f}" height="{self.height:.1f}"'
        return f'<rect class="{kind}" {box}/>'


def text(x: float, y: float, words: str, kind: str = "word", anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def picture(width: float, height: float, title: str, what: str, parts: Iterable[str]) -> str:
    """A whole picture: its title stands at the top left, and what it shows is said for those who do not see it."""
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
