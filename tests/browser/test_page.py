"""The page, in a real browser, over the real loop."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from holdfast import Operation, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from tests.integration.server.process import HoldfastServer
from tests.support.proxy import LossyProxy

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from tests.services.page import PageWatch

WAIT = 40_000
"""Milliseconds until the page is taken to be wrong: the zone is left some 20 s after the start."""
TIME = re.compile(r"[A-Z][a-z]+ \d+, 20\d\d, \d+:\d\d:\d\d\s[AP]M [A-Z]+[+\d:]*")
"""A date and a time with its zone, in the language of the browser."""


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
    page.locator("#story").get_by_text("Verdict: isolated impact in use1-az2. Why: ").wait_for(timeout=WAIT)
    left = page.locator("article.zone.out")
    left.wait_for(timeout=WAIT)
    assert left.get_by_role("heading").inner_text() == "use1-az2"
    assert left.locator(".badge").inner_text() == "out"
    assert page.locator("article.zone:not(.out)").count() == 2
    assert left.locator("path.failures").get_attribute("d"), "the failures before it was left are drawn"
    told = page.locator("#story li").all_inner_texts()
    others = [line for line in told if "use1-az2" not in line]
    assert all("unknown" in line for line in others), "until the detector has learned from the history"
    told = [line for line in told if line not in others]
    assert len([line for line in told if "Verdict" in line]) == 1
    # The zone is written out for half a minute first, and then for good: on a slow machine both are told.
    assert len(told) in {2, 3}
    assert all(TIME.match(line) for line in told)
    panel = page.locator("#verdicts")
    assert panel.get_by_role("heading").inner_text() == "shop: isolated impact in use1-az2"
    assert re.search(r"Why: use1-az2 (fails|has|takes) \d.*; since \d\d:\d\d:\d\d UTC", panel.inner_text())
    panel.get_by_text("What to do: use1-az2 is out. When it is healthy again, bring it back:").wait_for(timeout=WAIT)
    command = f"holdfast zone restore use1-az2 --workload shop --server {loop}"
    assert panel.locator("code").inner_text() == command
    assert panel.get_by_role("button").inner_text() == "Bring use1-az2 in"


def test_a_page_that_is_opened_later_shows_the_same(loop: str, browser_page: "Page") -> None:
    browser_page.goto(loop)
    browser_page.locator("article.zone.out").wait_for(timeout=WAIT)
    assert browser_page.get_by_text("Verdict: isolated impact in use1-az2. Why: ").is_visible()
    assert browser_page.get_by_text("What to do: use1-az2 is out.").is_visible()


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
        assert browser_page.get_by_role("heading", name="No workload is configured").is_visible()
        assert "[[workload]]" in browser_page.locator("pre").inner_text()


WATCHED = """
[telemetry]
bin_seconds = 600
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
detector = { name = "threshold", consecutive_windows = 100 }
"""


def send(operator: httpx.Client, zone: str, status: int, seconds: float, count: int) -> None:
    record = RequestRecord(
        namespace="shop/frontend",
        operation=Operation("Home", "Index"),
        region="us-east-1",
        zone=Zone(zone),
        instance="i-1",
        at=time.time(),
        status=status,
        seconds=seconds,
    )
    sent = operator.post("/v1/telemetry", content=b"\n".join([encode_emf(record)] * count))
    assert sent.json()["accepted"] == count


def send_all(operator: httpx.Client) -> None:
    """Let one zone be healthy and one above its thresholds; the third has no data. The page looks back a minute."""
    send(operator, "use1-az1", 200, 0.02, 50)
    send(operator, "use1-az2", 200, 0.867, 30)
    send(operator, "use1-az2", 500, 0.02, 20)


def open_as(page: "Page", server: HoldfastServer, token: str) -> None:
    page.goto(server.address)
    page.evaluate("token => sessionStorage.setItem('credential', token)", token)
    page.goto(server.address)
    page.get_by_text("live", exact=True).wait_for(timeout=WAIT)


def wait_for_state(page: "Page", zone: str, word: str, cause: str) -> None:
    card = page.locator("article", has=page.get_by_role("heading", name=zone))
    card.get_by_text(word, exact=True).wait_for(timeout=WAIT)
    card.get_by_text(re.compile(cause)).wait_for(timeout=WAIT)


def show_verdict(overview: Any, verdict: Any) -> None:
    """Let the page show this verdict of a detector without thresholds. Events of the server do not change it again."""
    overview["workloads"][0].update(name="cart", detector={})
    overview["current_verdicts"] = {"cart": verdict}
    for sample in overview["traffic"]:
        sample["workloads"] = {"cart": sample["workloads"]["shop"]}


def change_overview(page: "Page", change: Callable[[Any], object]) -> None:
    """Load the page again, with another overview than that of the server."""

    def answer(route: "Route") -> None:
        response = route.fetch()
        overview = response.json()
        change(overview)
        route.fulfill(response=response, json=overview)

    page.unroute("**/v1/overview")
    page.route("**/v1/overview", answer)
    page.reload()
    page.get_by_text("live", exact=True).wait_for(timeout=WAIT)


def test_every_state_of_a_zone_is_told_in_words_and_an_operator_can_change_it(
    tmp_path: Path, browser_page: "Page", page_watch: "PageWatch"
) -> None:
    page_watch.allow("401|409")
    page = browser_page
    above = r"40\.0 % of requests fail \(threshold 5\.0 %\), latency 8\d\d ms \(threshold 500 ms\); not judged yet"
    with HoldfastServer.start(tmp_path, settings=WATCHED) as server, server.operator() as operator:
        viewer = operator.post("/v1/credentials", json={"role": "viewer"}).json()["token"]
        send_all(operator)
        open_as(page, server, viewer)
        wait_for_state(page, "use1-az1", "healthy", "below its thresholds")
        wait_for_state(page, "use1-az2", "above its threshold", above)
        wait_for_state(page, "use1-az3", "no data", "no requests in the last 60 s; 2 are needed to judge the zone")
        assert page.get_by_role("button").count() == 0, "a viewer changes nothing"
        assert server.token is not None
        send_all(operator)
        open_as(page, server, server.token)
        page.get_by_role("button", name="Take use1-az2 out").click()
        dialog = page.get_by_role("dialog")
        assert "Take use1-az2 out for shop? It gets no new traffic" in dialog.inner_text()
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="hidden")
        assert operator.get("/v1/status").json()["statuses"] == []
        page.get_by_role("button", name="Take use1-az2 out").click()
        dialog.get_by_label("Reason").fill("slow")
        dialog.get_by_role("button", name="Take use1-az2 out").click()
        wait_for_state(page, "use1-az2", "out", rf"since {TIME.pattern}, by credential \w+: slow")
        page.get_by_role("button", name="Take use1-az3 out").click()
        dialog.get_by_label("Reason").fill("too many")
        dialog.get_by_role("button", name="Take use1-az3 out").click()
        dialog.get_by_text("only one zone of a region may be out").wait_for(timeout=WAIT)
        dialog.get_by_role("button", name="Cancel").click()
        send_all(operator)
        page.get_by_role("button", name="Bring use1-az2 in").click()
        dialog.get_by_label("Reason").fill("fixed")
        dialog.get_by_role("button", name="Bring use1-az2 in").click()
        wait_for_state(page, "use1-az2", "above its threshold", above)
        assert operator.get("/v1/status").json()["statuses"][0]["reason"] == "fixed"
        send(operator, "use1-az3", 200, 0.02, 3)  # a tenth of the bin, so a tenth of the 20 requests is enough
        wait_for_state(page, "use1-az3", "healthy", "below its thresholds")
        change_overview(page, lambda overview: overview.update(bin_seconds=1))
        wait_for_state(page, "use1-az1", "no data", "in the last 5 s; 100 are needed to judge the zone")
        shared = "orders, which the zones share, fails; no zone is to blame"
        for kind, zone, word, cause, style in (
            ("isolated", "use1-az1", "isolated", "40 % fail", "above"),
            ("unknown", None, "not judged", "40 % fail", "unknown"),
            ("shared", "use1-az1", "shared", shared, "unknown"),
            ("shared", "use1-az2", "shared", shared, "unknown"),
            ("regional", None, "regional", "several zones are worse than usual; the verdict names them", "above"),
        ):
            verdict = {"workload": "shop", "kind": kind, "zone": zone, "summary": "40 % fail", "resource": "orders"}
            change_overview(page, partial(show_verdict, verdict=verdict))
            wait_for_state(page, "use1-az1", word, cause)
            assert page.locator("article.zone").first.get_attribute("class") == f"zone {style}"
        page.goto("about:blank")


def test_the_page_names_a_part_that_does_not_work(
    tmp_path: Path, browser_page: "Page", page_watch: "PageWatch"
) -> None:
    page_watch.allow("ERR_")  # the server stops before the page is closed
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
