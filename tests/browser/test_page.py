"""The page, in a real browser, over the real loop."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.server.process import HoldfastServer
from tests.support.proxy import LossyProxy

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.services.page import PageWatch

WAIT = 40_000
"""Milliseconds until the page is taken to be wrong: the zone is left some 20 s after the start."""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server in front of which one zone begins to fail."""
    directory = tmp_path_factory.mktemp("demo")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast.cli",
            "demo",
            "--keep-running",
            "--bin-seconds",
            "2",
            "--directory",
            str(directory),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()
        process.stdout.close()


def test_the_page_shows_the_verdict_and_the_zone_as_it_is_left(loop: str, browser_page: "Page") -> None:
    page = browser_page
    page.goto(loop)
    page.get_by_text("live", exact=True).wait_for(timeout=WAIT)
    assert page.get_by_role("heading", name="shop in us-east-1").is_visible()
    page.get_by_text("Verdict: isolated impact in use1-az2").wait_for(timeout=WAIT)
    left = page.locator("article.zone.out")
    left.wait_for(timeout=WAIT)
    assert left.get_by_role("heading").inner_text() == "use1-az2"
    assert left.locator(".badge").inner_text() == "out"
    assert page.locator("article.zone:not(.out) .badge").all_inner_texts() == ["in", "in"]
    assert left.locator("path.failures").get_attribute("d"), "the failures before it was left are drawn"
    told = page.locator("#story li").all_inner_texts()
    assert len([line for line in told if "Verdict" in line]) == 1
    # The zone is written out for half a minute first, and then for good: on a slow machine both are told.
    assert len(told) in {2, 3}
    assert all("use1-az2" in line for line in told)


def test_a_page_that_is_opened_later_shows_the_same(loop: str, browser_page: "Page") -> None:
    browser_page.goto(loop)
    browser_page.locator("article.zone.out").wait_for(timeout=WAIT)
    assert browser_page.get_by_text("Verdict: isolated impact in use1-az2").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_can_be_read(loop: str, browser_page: "Page", scheme: str, tmp_path: Path) -> None:
    page = browser_page
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
    page.goto(loop)
    page.locator("article.zone").first.wait_for(timeout=WAIT)
    ground, text = page.evaluate(
        "() => { const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]; }"
    )
    assert contrast(ground, text) > 7, "enhanced contrast, by the Web Content Accessibility Guidelines"
    assert (luminance(ground) > 0.5) == (scheme == "light")


def test_a_server_with_credentials_asks_for_one_and_says_when_it_is_wrong(
    tmp_path: Path, browser_page: "Page", page_watch: "PageWatch"
) -> None:
    page_watch.allow("401|ERR_CONNECTION_REFUSED")  # the latter when the server stops, at the end
    with HoldfastServer.start(tmp_path) as server:
        assert server.token is not None
        browser_page.goto(server.address)
        field = browser_page.get_by_label("This server requires a credential")
        field.fill("nonsense")
        browser_page.get_by_role("button").click()
        browser_page.get_by_text("unknown credential").wait_for(timeout=WAIT)
        field.fill(server.token)
        browser_page.get_by_role("button").click()
        browser_page.get_by_text("live", exact=True).wait_for(timeout=WAIT)
        assert not field.is_visible()


def test_the_page_names_a_part_that_does_not_work(tmp_path: Path, browser_page: "Page") -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "queue.sqlite").write_bytes(b"not a database" * 1000)
    settings = "[server]\nallow_anonymous = true\n[[queue]]\nname = 'mail'\n"
    with HoldfastServer.start(tmp_path, settings=settings) as server:
        browser_page.goto(server.address)
        browser_page.get_by_text("queues unavailable: DatabaseCorrupt").wait_for(timeout=WAIT)


def test_a_server_that_comes_back_is_found_again(tmp_path: Path, browser_page: "Page", page_watch: "PageWatch") -> None:
    page_watch.allow("ERR_")
    with (
        HoldfastServer.start(tmp_path, settings="[server]\nallow_anonymous = true\n") as server,
        LossyProxy("127.0.0.1", int(server.address.rpartition(":")[2])) as proxy,
    ):
        browser_page.goto(f"http://127.0.0.1:{proxy.port}")
        browser_page.get_by_text("live", exact=True).wait_for(timeout=WAIT)
        proxy.refuse()
        proxy.cut()
        browser_page.get_by_text("no connection to the server").wait_for(timeout=WAIT)
        proxy.admit()
        browser_page.get_by_text("live", exact=True).wait_for(timeout=WAIT)


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)`: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
