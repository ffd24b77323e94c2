"""Pictures of assignments: which tenant has which worker before and after a failure, and what tenants share. Pure.

They are SVG text, light and dark, with a title and a description for screen readers. Every colour comes with a shape or
a word of the same meaning. The style applies to the picture only, so that a page may have several.
"""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import InitVar, dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast._names import format_count
from holdfast.shards.fleet import Fleet
from holdfast.shards.report.blast_radius import find_failing_slots
from holdfast.shards.report.overlap import Overlaps
from holdfast.shards.report.table import AssignmentTable

ROWS, COLUMNS = 60, 64
"""Most tenants that are shown, and most workers of a fleet of which all are shown, even without a shown tenant."""
_LINE, _GAP, _NAMES, _WORDS, _LETTER = 18, 10, 170, 116, 7.5
_WIDEST, _NARROWEST, _PANEL = 18.0, 4.0, 620.0
"""Widths of the widest and the narrowest column, and of a panel unless columns would be narrower than that."""
_LEGIBLE = 11.0
"""Narrower columns have no name above them; a tooltip of each cell has it."""
_CROSSED = 8.0
"""Narrower columns have no room for a cross: a worker that is out is a broken bar there."""
_MAX_SHOWN = 24
"""Most letters of a name."""

# Blue and orange are distinguishable with all common kinds of colour blindness: https://jfly.uni-koeln.de/color/
_STYLE = """
  .hf-shards { font: 12px system-ui, sans-serif; background: #fff; max-width: 100%; height: auto; }
  .hf-shards text { fill: #1f2328; } .hf-shards .faint { fill: #59636e; } .hf-shards .head { font-weight: 600; }
  .hf-shards .row { fill: #eff2f5; } .hf-shards .has, .hf-shards .bar { fill: #0a5fc2; }
  .hf-shards .out { fill: none; stroke: #b34700; stroke-width: 1.5; } .hf-shards .down { fill: #9a3c00; }
  @media (prefers-color-scheme: dark) {
    .hf-shards { background: #0d1117; } .hf-shards text { fill: #f0f6fc; } .hf-shards .faint { fill: #9198a1; }
    .hf-shards .row { fill: #1c232c; } .hf-shards .has, .hf-shards .bar { fill: #58a6ff; }
    .hf-shards .out { stroke: #ffa657; } .hf-shards .down { fill: #ffa657; }
  }
"""
# Characters that no XML document may have, even escaped; and line ends and tabs, which would be read as blanks.
_FORBIDDEN = re.compile("[^\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def draw_matrix(
    fleet: Fleet,
    table: npt.ArrayLike | AssignmentTable,
    names: Sequence[str | bytes] | None = None,
    *,
    tenants: Collection[int] = (),
    workers: Collection[str] = (),
    zones: Collection[str] = (),
) -> str:
    """Draw which tenant has which worker, before and after the workers of these tenants, these workers and zones fail.

    Rows are at most sixty tenants: attackers first, then those hit worst. Columns are workers, by zone. In a large
    fleet, only workers of the shown tenants appear.
    """
    checked = AssignmentTable.check(table, len(fleet))
    if names is not None and len(names) != len(checked):
        given = f"{format_count(len(names), 'name')} for {format_count(len(checked), 'tenant')}"
        raise InvalidValue(f"{given}: expected one for each")
    out = find_failing_slots(fleet, checked, tenants, workers, zones)
    serving = np.array([not slot.is_drained for slot in fleet.slots], dtype=bool)
    shown = _choose_rows(checked, tenants, np.append(out | ~serving, False))
    listed = [f"tenant {row}" if names is None else names[row] for row in shown]
    rows = [
        _Row(_escape_name(name), checked.shard(row), row in tenants) for row, name in zip(shown, listed, strict=True)
    ]
    columns = _choose_columns(fleet, rows)
    sign = "⊠" if _column_width(columns) >= _CROSSED else "¦"
    head = _head_height(fleet, columns)
    before = _Panel(fleet, rows, columns, "before", np.zeros(len(fleet), dtype=bool), _NAMES, head)
    after = _Panel(fleet, rows, columns, "after", out, before.right + _GAP * 2, head)
    height = head + len(rows) * _LINE + 50
    down = [row.name for row in rows if not row.serving(fleet, out)]
    counted = f"{len(rows)} of {len(checked)} tenants, {len(columns)} of {len(fleet)} workers"
    description = f"{counted}. Workers out: {int(out.sum())}. Tenants down: {', '.join(down) or 'none'}."
    parts = [
        *_open_svg(after.right, height, "Which tenant has which worker, before and after a failure", description),
        f'<text class="faint" x="{_NAMES}" y="{height - 26}">■ has this worker; {sign} has it, and it is out</text>',
        f'<text class="faint" x="{_NAMES}" y="{height - 10}">{counted}</text>',
    ]
    for number, row in enumerate(rows):
        parts.append(
            f'<text class="name" x="{_NAMES - 8}" y="{head + number * _LINE + 13}" text-anchor="end">{row.name}</text>'
        )
    return "\n".join([*parts, *before.parts(), *after.parts(), "</svg>", ""])


def draw_histogram(overlaps: Overlaps) -> str:
    """Draw the numbers of pairs of tenants that share no worker, one, two and so on, as bars on a logarithmic scale."""
    longest, left = 420.0, 130
    scale = longest / max(1.0, _bar_length(max(overlaps.pairs_by_shared_workers)))
    height = 64 + len(overlaps.pairs_by_shared_workers) * 24 + 12
    description = "; ".join(
        f"{format_count(shared, 'worker')}: {format_count(pairs, 'pair')}"
        for shared, pairs in enumerate(overlaps.pairs_by_shared_workers)
    )
    parts = _open_svg(left + longest + 190, height, "Pairs of tenants by how many workers they share", description)
    parts.append(f'<text class="head" x="{left}" y="22">Pairs of tenants by how many workers they share</text>')
    parts.append(f'<text class="faint" x="{left}" y="40">each step is ten times as many</text>')
    for shared, pairs in enumerate(overlaps.pairs_by_shared_workers):
        top = 56 + shared * 24
        wide = _bar_length(pairs) * scale
        parts.append(f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{format_count(shared, "worker")}</text>')
        if pairs:
            parts.append(f'<rect class="bar" x="{left}" y="{top}" width="{wide:.1f}" height="18"/>')
        parts.append(f'<text x="{left + wide + 6:.1f}" y="{top + 14}">{pairs:,}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bar_length(pairs: int) -> float:
    """Return the length of a bar: 1 for a single pair, and 1 more for ten times as many."""
    return 1 + math.log10(pairs) if pairs else 0.0


def _open_svg(width: float, height: float, title: str, description: str) -> list[str]:
    box = f'width="{width:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hf-shards" role="img" {box}>',
        f"<title>{title}</title>",
        f"<desc>{description}</desc>",
        f"<style>{_STYLE}</style>",
    ]


def _escape_name(name: str | bytes) -> str:
    """Return any name as SVG text, cut if it is long."""
    text = name if isinstance(name, str) else name.decode("utf-8", "replace")
    text = _FORBIDDEN.sub("\ufffd", text)
    return escape(text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…")


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    slot_indexes: tuple[int, ...]
    is_attacker: bool

    def serving(self, fleet: Fleet, out: npt.NDArray[np.bool_]) -> int:
        """Return the number of workers that can serve the tenant."""
        return sum(not out[index] and not fleet.slots[index].is_drained for index in self.slot_indexes)


def _choose_rows(table: AssignmentTable, attackers: Collection[int], out: npt.NDArray[np.bool_]) -> list[int]:
    """Return the rows to show: attackers first, then tenants with the fewest workers left, then with most lost."""
    hits = out[table.slot_indexes].sum(axis=1, dtype=np.int64)
    attacks = np.zeros(len(table), dtype=bool)
    attacks[list(attackers)] = True
    left = np.where(hits > 0, table.sizes - hits, table.workers)
    chosen: list[int] = np.lexsort((-hits, left, ~attacks))[:ROWS].tolist()
    return chosen


def _choose_columns(fleet: Fleet, rows: Sequence[_Row]) -> list[int]:
    """Return the slots to show, by their most important group, such as their zone."""
    had = {index for row in rows for index in row.slot_indexes}
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, slot in enumerate(fleet.slots):
        groups.setdefault(slot.group[:1], []).append(index)
    listed = [index for indexes in groups.values() for index in indexes]
    return listed if len(listed) <= COLUMNS else [index for index in listed if index in had]


def _column_width(columns: Sequence[int]) -> float:
    return max(_NARROWEST, min(_WIDEST, _PANEL / max(1, len(columns))))


def _head_height(fleet: Fleet, columns: Sequence[int]) -> int:
    """Return the height above the first row, where the names of workers are, nearly upright."""
    names = [fleet.slots[index].worker for index in columns] if _column_width(columns) >= _LEGIBLE else []
    return 48 + math.ceil(_LETTER * min(_MAX_SHOWN, max((len(name) for name in names), default=0)))


@dataclass(eq=False)
class _Panel:
    """All cells before or after the failure, and a word for every tenant."""

    _fleet: Fleet
    _rows: Sequence[_Row]
    columns: InitVar[Sequence[int]]
    _title: str
    _out: npt.NDArray[np.bool_]
    _left: float
    _top: int

    def __post_init__(self, columns: Sequence[int]) -> None:
        self._width = _column_width(columns)
        self._x: dict[int, float] = {}
        """Left edge of each column, by slot index; there is a gap between zones."""
        self._zones: list[tuple[float, str]] = []
        x, zone, free = self._left, None, 0.0
        for index in columns:
            here = self._fleet.slots[index].group[:1]
            if zone is not None and here != zone:
                x += _GAP
            if here != zone and here and x >= free:  # a name that would overlap the previous one is left out
                self._zones.append((x, _escape_name(here[0])))
                free = x + _LETTER * min(_MAX_SHOWN, len(here[0]))
            self._x[index] = x
            x, zone = x + self._width, here
        self._end = x
        self.right = x + _WORDS

    def parts(self) -> Iterator[str]:
        """Yield the elements of the panel, from top to bottom."""
        yield f'<g class="{self._title}">'
        yield f'<text class="head" x="{self._left:.1f}" y="18">{self._title.capitalize()}</text>'
        for x, zone in self._zones:
            yield f'<text class="faint" x="{x:.1f}" y="36">{zone}</text>'
        if self._width >= _LEGIBLE:
            for index, left in self._x.items():
                x = left + self._width / 2 + 4
                name = _escape_name(self._fleet.slots[index].worker)
                yield f'<text class="worker" transform="translate({x:.1f} {self._top - 6}) rotate(-60)">{name}</text>'
        for number, row in enumerate(self._rows):
            yield from self._line(row, self._top + number * _LINE)
        yield "</g>"

    def _line(self, row: _Row, top: float) -> Iterator[str]:
        yield (
            f'<rect class="row" x="{self._left:.1f}" y="{top + 1}" width="{self._end - self._left:.1f}" '
            f'height="{_LINE - 2}"/>'
        )
        for index in row.slot_indexes:
            yield self._cell(row, index, top)
        if row.serving(self._fleet, self._out):
            yield f'<text class="word" x="{self._end + 6:.1f}" y="{top + 13}">served</text>'
        else:
            word = "down, attacker" if row.is_attacker else "down"
            yield f'<text class="word down" x="{self._end + 6:.1f}" y="{top + 13}">✕ {word}</text>'

    def _cell(self, row: _Row, index: int, top: float) -> str:
        x, y = self._x[index] + 1, top + 3
        wide, high = self._width - 2, _LINE - 6
        title = f"<title>{row.name}: {_escape_name(self._fleet.slots[index].worker)}"
        if not self._out[index] and not self._fleet.slots[index].is_drained:
            box = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high}"'
            return f'<rect class="cell has" {box}>{title}</title></rect>'
        why = "out" if self._out[index] else "drained"
        if self._width >= _CROSSED:
            drawn = f"h{wide:.1f}v{high}h-{wide:.1f}zl{wide:.1f} {high}m0 -{high}l-{wide:.1f} {high}"
        else:
            drawn = f"h{wide:.1f}v3h-{wide:.1f}zm0 {high - 3}h{wide:.1f}v3h-{wide:.1f}z"
        return f'<path class="cell out" d="M{x:.1f} {y:.1f}{drawn}">{title}, {why}</title></path>'
