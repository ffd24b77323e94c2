"""The documentation as a site: it builds, and a reader's browser asks no other host for anything."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal

import pytest

from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What a browser loads by itself. A link (`a`) is followed by people only.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Resources(HTMLParser):
    """Collects what a page has a browser load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        address = dict(attributes).get(LOADED.get(tag, ""))
        if address:
            self.found.append(address)


def elsewhere(text: str) -> list[str]:
    """What a page, or a style sheet, loads from other hosts."""
    styled = re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", text)
    return [address for address in (*Resources(text).found, *styled) if re.match(r"(?:https?:)?//", address)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", project)
    shutil.copytree(ROOT / "docs", project / "docs")
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--strict"]
    run = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return project / "site"


def test_every_page_is_built(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert written <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > 10
    assert [address for file in files for address in elsewhere(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://example.com/a.js"></script>', ["https://example.com/a.js"]),
        ('<link rel="stylesheet" href="//example.com/a.css">', ["//example.com/a.css"]),
        ('<style>@import "https://example.com/a.css";</style>', ["https://example.com/a.css"]),
        ("@font-face { src: url(https://example.com/a.woff2) }", ["https://example.com/a.woff2"]),
        ('<a href="https://example.com/">read on</a> <img src="a.png"> <link href="./a.css">', []),
    ],
)
def test_what_is_loaded_from_another_host_is_found(text: str, found: list[str]) -> None:
    assert elsewhere(text) == found


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_reader_can_search_by_day_and_by_night(address: str, browser_page: "Page") -> None:
    """The page would complain about an error in its scripts, and about every request to another host."""
    schemes: list[tuple[Literal["light", "dark"], str]] = [("light", "default"), ("dark", "slate")]
    for scheme, brightness in schemes:
        browser_page.emulate_media(color_scheme=scheme)
        browser_page.goto(f"{address}/reference/settings.html")
        assert browser_page.locator("body").get_attribute("data-md-color-scheme") == brightness
    browser_page.get_by_role("button", name="Search").click()
    browser_page.keyboard.type("group commit")
    browser_page.get_by_text(re.compile(r"^\d+ results?$")).wait_for()
