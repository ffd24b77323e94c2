"""An SVG picture of a simulated run: each instance over time, and the path through the state machine. Pure."""

from collections import Counter
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.aurora.machine import Function, Resources, build_machine
from holdfast.aurora.rules import Step
from holdfast.simulate.pictures import Panel, Scale, build_svg, text

if TYPE_CHECKING:
    from holdfast.simulate.aurora import InstanceSpan, SimulatedRun

_WIDTH, _LEFT, _TOP, _ROW = 1180.0, 170.0, 60.0, 36.0
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 178.0, 15.0, 7.0
_MAX_NAME = 24
"""The length of the longest id that fits beside its bars."""
_CHARACTER = 6.3
"""The width of a character, for labels that must fit."""
_STYLE = """<style>
  .hf-run rect { stroke: #59636e; fill: #dbe9f9; } .hf-run .old { fill: #f2f4f7; }
  .hf-run .busy { fill: url(#hf-busy); } .hf-stripe { stroke: #b34700; stroke-width: 2; opacity: .45; }
  .hf-run .writer { stroke: #0a5fc2; stroke-width: 3; } .hf-run .unseen { fill: none; stroke-dasharray: 2 3; }
  .hf-run .edge { fill: none; stroke: #0a5fc2; } .hf-run .state { font-size: 8px; }
  @media (prefers-color-scheme: dark) {
    .hf-run rect { stroke: #9198a1; fill: #1b3a5c; } .hf-run .old { fill: #1c232c; }
    .hf-run .writer, .hf-run .edge { stroke: #58a6ff; } .hf-stripe { stroke: #ffa657; }
  }
</style>
<defs><pattern id="hf-busy" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
  <line x1="0" y1="0" x2="0" y2="7" class="hf-stripe"/></pattern></defs>"""
_START, _END = "start", "verification and end"


def draw_run(result: "SimulatedRun") -> str:
    """Draw the instances of a simulated run over time, and the states that it has visited."""
    timelines = result.build_timelines()
    old_class = next(iter(timelines.values()))[0].instance_class
    height = _ROW * (len(timelines) + 1)
    panel = Panel(
        left=_LEFT,
        top=_TOP,
        width=_WIDTH - _LEFT - 20,
        height=height,
        x_scale=Scale(0, max(1.0, result.seconds)),
        y_scale=Scale(0, 1),
    )
    legend = (
        "thick outline: the writer; striped: not available; grey: the old class; blue: the new class. "
        "Open the file in a browser, and point at a bar, to see its times"
    )
    parts = [_STYLE, '<g class="hf-run">', text(16, 46, legend, "faint")]
    for row, (name, spans) in enumerate(timelines.items()):
        parts += _draw_instance(panel, _TOP + row * _ROW, name, spans, old_class)
    parts += _draw_steps(panel, _TOP + len(timelines) * _ROW, result)
    ticks = [result.seconds * number / 4 for number in range(5 if result.seconds else 1)]
    parts += panel.label_x_axis(ticks, lambda seconds: f"{seconds / 60:.0f} min")
    diagram, bottom = _draw_diagram(_TOP + height + 56, result)
    ends = "; ".join(each.subject for each in result.notifications)
    title = f"{result.status} after {result.seconds / 60:.0f} minutes: {ends or 'no notification'}"
    what = "; ".join(
        f"{name}: " + ", ".join(f"{each.begin:.0f} s {each.instance_class} {each.role} {each.status}" for each in spans)
        for name, spans in timelines.items()
    )
    return build_svg(_WIDTH, bottom + 10, title, what, [*parts, *diagram, "</g>"])


def _draw_instance(panel: Panel, top: float, name: str, spans: "list[InstanceSpan]", old_class: str) -> list[str]:
    parts = [text(_LEFT - 8, top + 20, _shorten(name), "word", "end")]
    for span in spans:
        is_available = span.status == "available"
        kinds = [*(["writer"] if span.role == "writer" else []), *(["old"] if span.instance_class == old_class else [])]
        label = f"{span.instance_class} {span.role}" if is_available else span.status
        parts += _draw_bar(panel, top, (span.begin, span.end), " ".join(kinds if is_available else ["busy"]), label)
    return parts


def _shorten(name: str) -> str:
    """Return a name that fits. Ids of Auto Scaling differ after their prefix, other ids perhaps at their end."""
    name = name.removeprefix("application-")
    return name if len(name) <= _MAX_NAME else f"{name[:20]}..{name[-2:]}"


def _draw_bar(panel: Panel, top: float, span: tuple[float, float], kind: str, label: str) -> list[str]:
    begin, end = span
    left, width = panel.x(begin), panel.x(end) - panel.x(begin)
    box = f'x="{left:.1f}" y="{top + 4:.1f}" width="{max(1.0, width):.1f}" height="{_ROW - 10:.1f}"'
    hint = f"<title>{escape(label)}, {begin / 60:.1f} to {end / 60:.1f} min</title>"
    bar = f'<rect class="{kind}" {box}>{hint}</rect>'
    return [bar, text(left + 4, top + 21, label)] if width > _CHARACTER * len(label) else [bar]


def _draw_steps(panel: Panel, top: float, result: "SimulatedRun") -> list[str]:
    """Return a bar for each part of the run."""
    parts = [text(_LEFT - 8, top + 20, "step of the run", "word", "end")]
    groups = _group_states()
    visits = [(visit.at, groups[visit.name]) for visit in result.path]
    changes = [visits[0], *(later for earlier, later in pairwise(visits) if later[1] != earlier[1])]
    for (at, group), (end, _) in pairwise([*changes, (result.seconds, "")]):
        if end > at:
            parts += _draw_bar(panel, top, (at, end), "old", group)
    return parts


def _group_states() -> dict[str, str]:
    """Return all states, each with the step that it belongs to."""
    states = build_machine(Resources(functions={each: each.value for each in Function}, lock_table=""))["States"]
    steps = [Step.FAILOVER, Step.DEDICATED_READER, Step.OLD_WRITER, Step.AUTOSCALING_READER]
    groups: dict[str, str] = {}
    for name, state in states.items():
        default = _END if Step.OLD_WRITER in groups.values() else _START
        for each in (name, *state.get("ItemProcessor", {}).get("States", ())):
            groups[each] = next((step.value for step in steps if step in each), default)
    groups["RememberOldWriter"] = Step.DEDICATED_READER  # the last state of that step
    return groups


def _draw_diagram(top: float, result: "SimulatedRun") -> tuple[list[str], float]:
    """Return the boxes of all states with the path between them, and the bottom of the lowest box."""
    groups = _group_states()
    columns = [_START, Step.DEDICATED_READER, Step.FAILOVER, Step.OLD_WRITER, Step.AUTOSCALING_READER, _END]
    counts = Counter(visit.name for visit in result.path)
    order = {name: number for number, name in enumerate(counts, 1)}
    corners: dict[str, tuple[float, float]] = {}
    parts = []
    for number, column in enumerate(columns):
        left = 16 + number * (_BOX_WIDTH + 16)
        parts.append(text(left, top - 8, column, "head"))
        for row, name in enumerate(name for name, group in groups.items() if group == column):
            corners[name] = left, top + row * (_BOX_HEIGHT + _GAP)
    for name, (left, above) in corners.items():
        count = counts[name]
        label = f"{order[name]}. {name}" + (f" x{count}" if count > 1 else "") if count else name
        box = f'x="{left:.1f}" y="{above:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}"'
        parts.append(f'<rect class="{"seen" if count else "unseen old"}" {box}/>')
        parts.append(text(left + 3, above + 11, label, "state" if count else "state faint"))
    names = [visit.name for visit in result.path]
    parts += [_draw_edge(corners[source], corners[target]) for source, target in dict.fromkeys(pairwise(names))]
    return parts, max(above for _, above in corners.values()) + _BOX_HEIGHT


def _draw_edge(source: tuple[float, float], target: tuple[float, float]) -> str:
    """Return the line from one box to another: down to the next one, around the others, or across to another column."""
    (left, above), (to_left, to_above) = source, target
    middle = _BOX_HEIGHT / 2
    if left == to_left and 0 < to_above - above <= _BOX_HEIGHT + _GAP:
        return f'<path class="edge" d="M{left + 8:.1f} {above + _BOX_HEIGHT:.1f}V{to_above:.1f}"/>'
    y, to_y = above + middle, to_above + middle
    if left == to_left:
        curve = f"C{left - 14:.1f} {y:.1f} {left - 14:.1f} {to_y:.1f} {left:.1f} {to_y:.1f}"
        return f'<path class="edge" d="M{left:.1f} {y:.1f}{curve}"/>'
    begin, end = (left + _BOX_WIDTH, to_left) if to_left > left else (left, to_left + _BOX_WIDTH)
    return f'<path class="edge" d="M{begin:.1f} {y:.1f}L{end:.1f} {to_y:.1f}"/>'
