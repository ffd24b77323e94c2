"""The picture of a replay shows each zone, verdicts and labels."""

from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast._types import VerdictKind, Zone
from holdfast.replay.judges import ReplayedVerdict
from holdfast.replay.picture import ZoneHistory, draw_replay
from holdfast.replay.tables import Label
from holdfast.telemetry.window import Window
from tests.unit.replay import recorded
from tests.unit.replay.recorded import START, write_lines
from tests.unit.replay.test_judges import build_windows

ZONES = tuple(map(Zone, recorded.ZONES))


def build_history(windows: list[Window]) -> ZoneHistory:
    history = ZoneHistory(ZONES, 10.0)
    for window in windows:
        history.add(window)
    return history


def test_rates_and_latencies_are_those_of_the_windows() -> None:
    history = build_history(build_windows(list(write_lines(6, failing=range(3, 6)))))
    times, rates = history.find_fault_rates()
    assert (times - START).tolist() == [5, 15, 25, 35, 45, 55]
    assert rates[1, 3:].tolist() == [0.4] * 3
    assert rates[0, 0] == 0
    assert np.allclose(history.find_latencies(), 0.08, rtol=0.1)


def test_steps_get_longer_as_time_goes_on() -> None:
    (window,) = build_windows(list(write_lines(1)))
    cells = window.cells
    history = build_history(
        [
            Window(workload="shop", start=START + 10.0 * n, seconds=10.0, zones=ZONES, operations=window.operations,
                   instances=window.instances, cells=cells)
            for n in range(1000)
        ]
    )  # fmt: skip
    assert history.step == 20
    assert len(history.find_fault_rates()[0]) == 500


@pytest.mark.parametrize("length", [120, 200_000])
def test_a_picture_has_bands_for_verdicts_and_labels(length: int) -> None:
    lines = [line for line in write_lines(12, failing=range(4, 9)) if "az3" not in line or int(line[:10]) > START + 20]
    windows = build_windows([*lines, f"{START + 200},shop,a/b,use1-az1,,5,5,,,"])
    del windows[15:20]
    verdicts = [
        ReplayedVerdict(judge=judge, workload=workload, kind=VerdictKind(kind), since=START, opened=START + 50,
                        closed=closed, zone=zone, summary="a <b> sentence")
        for judge, workload, kind, closed, zone in (
            ("calibrated", "shop", "isolated", START + 90, ZONES[1]),
            ("alarms", "shop", "isolated", None, ZONES[1]),
            ("calibrated", "shop", "regional", START + 90, None),
            ("hidden", "shop", "isolated", START + 90, ZONES[1]),
            ("calibrated", "other", "isolated", START + 90, ZONES[1]),
        )
    ]  # fmt: skip
    labels = [
        Label(start=START + 40, end=START + 90, kind="isolated", zone=ZONES[1]),
        Label(start=START + 40, end=float("inf"), kind="regional"),
        Label(start=START - 40, end=START - 30, kind="regional"),
    ]
    drawn = draw_replay(
        "shop",
        build_history(windows),
        (START, START + length),
        verdicts,
        labels=labels,
        judges=("calibrated", "alarms"),
    )
    root = ElementTree.fromstring(drawn)
    rects = [each.get("class") for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert rects.count("isolated") == 1 + 2  # one is in the legend
    assert rects.count("regional") == 1 + 3
    assert rects.count("band") == 1 + 3
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {*ZONES, "calibrated", "alarms", "00:00:00" if length == 120 else "01 Jan 00:00"} <= {*texts}


def test_a_picture_without_data_is_empty_panels() -> None:
    window = Window(workload="shop", start=START, seconds=10.0, zones=ZONES)
    history = build_history([window, *build_windows(list(write_lines(1)))])
    drawn = draw_replay("shop", history, (START, START + 10), [])
    assert "no isolation" in drawn
    assert "no judge" in drawn
