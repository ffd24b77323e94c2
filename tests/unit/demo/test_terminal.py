"""The display of a run on terminals of different widths."""

import io

import pytest
from rich.console import Console

from holdfast.demo.run import ZONES, DemoState
from holdfast.demo.shop import WORKLOAD
from holdfast.demo.terminal import render


def sample(faults: int) -> dict[str, object]:
    reading = {"requests": 10, "faults": faults, "latency": 0.01 if faults == 0 else 1.0}
    return {"workloads": {WORKLOAD: dict.fromkeys(ZONES, reading)}}


@pytest.mark.parametrize(("width", "seconds"), [(60, 21), (80, 31), (100, 40), (200, 40)])
def test_a_terminal_of_any_width_shows_the_latest_seconds(width: int, seconds: int) -> None:
    state = DemoState()
    state.traffic.extend([sample(faults=0)] * 60 + [sample(faults=10)] * 2)
    shown = io.StringIO()
    Console(file=shown, width=width).print(render(state, width))
    head, *rows = shown.getvalue().splitlines()[1 : 2 + len(ZONES)]
    assert f"failures, {seconds} s" in head
    quiet = "▁" * (seconds - 2)
    assert [row.split() for row in rows] == [[zone, f"{quiet}██", f"{quiet}██", "in"] for zone in ZONES]
