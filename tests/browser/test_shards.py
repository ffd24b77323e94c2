"""The pictures of `holdfast shards`, opened as files in a real browser."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from holdfast.cli import main
from tests.browser.test_page import contrast, luminance

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Where every part lies, in units of the view box, and the box itself: a title that is pointed at is no part.
PARTS = """() => {
  const svg = document.documentElement, ground = svg.getBoundingClientRect();
  const scale = svg.viewBox.baseVal.width / ground.width;
  return [...svg.querySelectorAll("text, rect, path")].map(part => {
    const box = part.getBoundingClientRect();
    return {
      kind: part.getAttribute("class") || "", words: part.tagName === "text" ? part.textContent : "",
      left: (box.left - ground.left) * scale, right: (box.right - ground.left) * scale,
      top: (box.top - ground.top) * scale, bottom: (box.bottom - ground.top) * scale,
      colour: getComputedStyle(part)[part.classList.contains("out") ? "stroke" : "fill"],
    };
  });
}"""
BOX = "() => [document.documentElement.viewBox.baseVal.width, document.documentElement.viewBox.baseVal.height]"
GROUND = "() => getComputedStyle(document.documentElement).backgroundColor"

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The article's three tenants, and a fleet of three zones with names that are not short."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "article.csv").write_text("tenant,one,other\nrainbow,1,4\nrose,1,8\nsunflower,4,6\n")
    (tmp_path / "eight.csv").write_text("worker\n" + "".join(f"{number}\n" for number in range(1, 9)))
    workers = [f"{zone}-worker-{number}" for zone in ("use1-az1", "use1-az2", "use1-az4") for number in range(1, 6)]
    (tmp_path / "zones.csv").write_text("worker,zone\n" + "".join(f"{name},{name[:8]}\n" for name in workers))
    (tmp_path / "tenants.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "tenant": f"a tenant with quite a long name, <number> {number}",
                    "workers": [workers[number % 5], workers[5 + number // 5 % 5], workers[10 + number * 2 % 5]],
                }
            )
            + "\n"
            for number in range(25)
        )
    )
    return tmp_path


def show(page: "Page", path: Path, scheme: Scheme) -> tuple[list[dict[str, object]], str]:
    """Open a picture; everything in it lies within its box. Returns the parts, and the colour of the ground."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(path.as_uri())
    width, height = page.evaluate(BOX)
    parts: list[dict[str, float]] = page.evaluate(PARTS)
    for part in parts:
        assert part["left"] >= -0.5, part
        assert part["top"] >= -0.5, part
        assert part["right"] <= width + 0.5, part
        assert part["bottom"] <= height + 0.5, part
        assert part["right"] - part["left"] > 0, part
    return [dict(part) for part in parts], str(page.evaluate(GROUND))


def of(parts: list[dict[str, object]], kind: str) -> list[dict[str, object]]:
    return [part for part in parts if kind in str(part["kind"]).split()]


def expect_legible(parts: list[dict[str, object]], ground: str, scheme: Scheme) -> None:
    """By the Web Content Accessibility Guidelines: 4.5 for words, 3 for what is drawn."""
    assert (luminance(ground) > 0.5) == (scheme == "light")
    for part in parts:
        if part["words"]:
            assert contrast(str(part["colour"]), ground) >= 4.5, part
        elif "row" not in str(part["kind"]):
            assert contrast(str(part["colour"]), ground) >= 3, part


def test_the_picture_of_the_article(folder: Path, browser_page: "Page") -> None:
    words = [
        "shards",
        "blast-radius",
        "article.csv",
        "--fleet",
        "eight.csv",
        "--tenant",
        "rainbow",
        "--svg",
        "blast.svg",
    ]
    assert main(words) == 0
    for scheme in SCHEMES:
        parts, ground = show(browser_page, folder / "blast.svg", scheme)
        assert browser_page.title() == "Which tenant has which worker, before and after a failure"
        assert len(of(parts, "cell")) == 12, "two workers for each of three tenants, before and after"
        assert (len(of(parts, "has")), len(of(parts, "out"))) == (8, 4)
        assert [part["words"] for part in of(parts, "name")] == ["rainbow", "rose", "sunflower"]
        said = [part["words"] for part in of(parts, "word")]
        assert said == ["served"] * 3 + ["✕ down, attacker", "served", "served"]
        expect_legible(parts, ground, scheme)


def test_a_zone_that_fails(folder: Path, browser_page: "Page") -> None:
    words = [
        "shards",
        "blast-radius",
        "tenants.jsonl",
        "--fleet",
        "zones.csv",
        "--zone",
        "use1-az2",
        "--svg",
        "zone.svg",
    ]
    assert main(words) == 0
    for scheme in SCHEMES:
        parts, ground = show(browser_page, folder / "zone.svg", scheme)
        assert len(of(parts, "cell")) == 25 * 3 * 2
        assert len(of(parts, "out")) == 25
        assert len(of(parts, "name")) == 25
        assert len(of(parts, "worker")) == 15 * 2
        zones = [part["words"] for part in of(parts, "faint") if str(part["words"]).startswith("use1-")]
        assert zones[0] == "use1-az1"
        assert {*zones} <= {"use1-az1", "use1-az2", "use1-az4"}
        expect_legible(parts, ground, scheme)


def test_how_many_pairs_share_how_much(folder: Path, browser_page: "Page") -> None:
    assert main(["shards", "report", "tenants.jsonl", "--svg", "overlaps.svg"]) == 0
    for scheme in SCHEMES:
        parts, ground = show(browser_page, folder / "overlaps.svg", scheme)
        assert browser_page.title() == "Pairs of tenants by how many workers they share"
        description = browser_page.locator("desc").text_content() or ""
        counts = [int(said.split(": ")[1].split()[0]) for said in description.split("; ")]
        assert sum(counts) == 25 * 24 // 2
        bars = of(parts, "bar")
        assert len(bars) == sum(count > 0 for count in counts)
        lengths = [float(str(bar["right"])) - float(str(bar["left"])) for bar in bars]
        ranked = sorted(range(len(bars)), key=lambda number: [count for count in counts if count][number])
        assert [lengths[number] for number in ranked] == sorted(lengths), "more pairs, a longer bar"
        expect_legible(parts, ground, scheme)
