"""Pictures are SVG that stands alone, says what it shows, and has what the numbers have."""

import math
from collections.abc import Callable
from functools import cache
from xml.etree import ElementTree

import pytest

from holdfast.calls import Percentile
from holdfast.simulate import (
    Contention,
    LatencyShift,
    ServiceStack,
    Stall,
    advise,
    amplification,
    jitter,
    metastability,
    pictures,
    timeout,
)
from holdfast.simulate.pictures import Panel, Scale, build_svg, text

SVG = "{http://www.w3.org/2000/svg}"
SAMPLES = [0.001 * number for number in range(1, 2000)]


STALL = Stall(rate=70.0, seconds=60.0)
SHIFT = LatencyShift(percent=95.0, windows=4)
contended = cache(lambda: tuple(jitter.compare(Contention(clients=10, runs=2))))
amplified = cache(lambda: tuple(amplification.compare(ServiceStack(layers=2, requests=50))))
stalled = cache(lambda: tuple(metastability.compare(STALL)))
shifted = cache(lambda: tuple(timeout.compare(SHIFT)))


def contention() -> str:
    return pictures.draw_contention(list(contended()))


def stack() -> str:
    return pictures.draw_amplification(list(amplified()))


def stall() -> str:
    return pictures.draw_metastability(STALL, list(stalled()))


def shift() -> str:
    return pictures.draw_timeouts(SHIFT, list(shifted()))


def measured() -> str:
    return pictures.draw_latencies(advise(SAMPLES, Percentile()), SAMPLES)


DRAWN = pytest.mark.parametrize("draw", [contention, stack, stall, shift, measured])


@DRAWN
def test_a_picture_is_one_svg_with_a_title_and_a_description(draw: Callable[[], str]) -> None:
    drawn = draw()
    root = ElementTree.fromstring(drawn)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title, what = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text
    assert what is not None
    assert what.text
    assert drawn.endswith("</svg>\n")
    assert "nan" not in drawn
    assert "inf" not in drawn.replace("infinity", "")


@DRAWN
def test_everything_lies_within_the_picture(draw: Callable[[], str]) -> None:
    root = ElementTree.fromstring(draw())
    width, height = (float(word) for word in root.get("viewBox", "").split()[2:])
    for place in root.iter():
        for name, largest in (("x", width), ("y", height)):
            value = place.get(name)
            assert value is None or 0 <= float(value) <= largest
        if place.tag == f"{SVG}rect":
            assert float(place.get("x", 0)) + float(place.get("width", 0)) <= width
            assert float(place.get("height", 0)) >= 0


@DRAWN
def test_the_same_results_give_the_same_picture(draw: Callable[[], str]) -> None:
    assert draw() == draw()


def words(drawn: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


def test_the_way_without_jitter_does_not_squeeze_the_others() -> None:
    results = list(jitter.compare(Contention(clients=60, runs=1)))
    said = words(pictures.draw_contention(results))
    assert [word for word in said if word.startswith("no jitter") and "not shown" in word]
    assert pictures.draw_contention(results[:1])


def test_who_never_recovers_is_told() -> None:
    said = words(stall())
    assert "retries, no budget: never recovers" in said
    assert "no retries: recovers after 25 s" in said


def test_the_timeout_is_marked_among_the_latencies() -> None:
    said = words(measured())
    assert any(word.startswith("timeout ") for word in said)
    assert {"p50 1 s", "10 ms", "100 ms"} <= {*said}


def test_latencies_that_are_all_alike_or_nothing_can_be_drawn() -> None:
    for samples in ([0.0] * 10, [0.1] * 10, [0.1] * 9999 + [math.inf], [3e-6] * 10):
        assert words(pictures.draw_latencies(advise(samples, Percentile()), samples))


def test_a_percentile_that_was_cut_off_has_no_mark() -> None:
    samples = [0.1] * 90 + [math.inf] * 10
    said = words(pictures.draw_latencies(advise(samples, Percentile(75.0)), samples))
    assert any(word.startswith("p50 ") for word in said)
    assert not any(word.startswith("p99 ") for word in said)


def test_what_lies_outside_of_a_scale_is_put_at_its_end() -> None:
    scale = Scale(1.0, 100.0, is_log=True)
    assert [scale.position(value) for value in (0.0, 1.0, 10.0, 100.0, 1e9)] == pytest.approx([0, 0, 0.5, 1, 1])
    assert Scale(0.0, 4.0).position(1.0) == 0.25


def test_words_are_escaped() -> None:
    assert "&lt;b&gt;" in text(0, 0, "<b>")
    assert "<b>" not in build_svg(10, 10, "<b>", "<b>", [])


def test_words_at_the_ends_of_a_panel_stay_in_it() -> None:
    panel = Panel(left=0, top=50, width=100, height=10, x_scale=Scale(0, 10), y_scale=Scale(0, 1))
    anchors = [ElementTree.fromstring(foot).get("text-anchor") for foot in panel.label_x_axis([0, 5, 10], str)]
    assert anchors == ["start", "middle", "end"]
    assert 'text-anchor="start"' in panel.mark(0, "left")[1]
    assert 'text-anchor="end"' in panel.mark(10, "right")[1]
