"""Alarms on the page, in a real browser: those of the store, and changes while the page is open."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Operation, Zone
from holdfast.alarms.declaration import AlarmDeclaration, AlarmOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.telemetry.history import TelemetryHistory
from holdfast.telemetry.series import SeriesTable
from holdfast.watch.alarm_store import AlarmStore
from holdfast.watch.alarms import AlarmWatch
from tests.integration.server.process import HoldfastServer
from tests.unit.alarms.world import ZONES, bins

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.services.page import PageWatch

WAIT = 40_000
"""Milliseconds until the page is taken to be wrong."""
SETTINGS = """
[server]
allow_anonymous = true
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
detector = { consecutive_windows = 100 }
alarms = { period = 10, min_availability = 90 }
"""


def store_alarms(data: Path, now: float) -> None:
    """Store some minutes in which all requests of one zone failed, and the alarms that they led to."""
    options = AlarmOptions(period=10, min_availability=90)
    declaration = AlarmDeclaration(workload="shop", zones=ZONES, region="us-east-1", options=options)
    last = int(now // 10)
    with SqliteDatabase(data / "telemetry.sqlite") as telemetry, SqliteDatabase(data / "watch.sqlite") as watch:
        table = SeriesTable()
        history = TelemetryHistory(telemetry, table, 10.0, ["shop"], now)
        alarms = AlarmWatch(declaration, history.store, table, AlarmStore(watch))
        for number in range(last - 12, last):
            content = bins(ZONES[1:], requests=6) | bins(ZONES[:1], requests=6, faults=6)
            history.add([(number, content)], {}, {}, now)
            alarms.evaluate((number + 1) * 10.0)
        history.save(now)
        alarms.save()


def line(zone: str, at: float, status: int, instance: int) -> bytes:
    record = RequestRecord(
        namespace="shop/frontend",
        operation=Operation("Home", "Index"),
        region="us-east-1",
        zone=Zone(zone),
        instance=f"i-{instance}",
        at=at,
        status=status,
        seconds=0.02,
    )
    return encode_emf(record)


def test_alarms_of_the_store_and_their_changes_are_shown(
    tmp_path: Path, browser_page: "Page", page_watch: "PageWatch"
) -> None:
    """Takes up to twelve seconds: the server evaluates alarms when a period of ten seconds is complete."""
    page_watch.allow("ERR_")  # the server stops before the page is closed
    page = browser_page
    HoldfastServer.start(tmp_path, settings=SETTINGS).stop()
    store_alarms(tmp_path / "data", time.time())
    with HoldfastServer.start(tmp_path, settings=SETTINGS) as server:
        page.goto(server.address)
        alarms = page.get_by_role("list", name="Alarms of shop").get_by_role("listitem")
        alarms.first.wait_for(timeout=WAIT)
        assert re.match(
            r"use1-az1-isolated-impact since .*20\d\d.*\. Only use1-az1 is affected", alarms.first.inner_text()
        )
        names = alarms.locator("strong").all_inner_texts()
        assert {"az1-availability", "use1-az1-aggregate-alarm"} <= set(names)
        assert not [name for name in names if "/" in name], "none about a single operation"

        now = time.time()
        late = [line(ZONES[0], now - age, 200, number % 3) for age in range(0, 55, 5) for number in range(40)]
        late += [line(ZONES[1], now - age, 500, number % 3) for age in range(0, 55, 5) for number in range(6)]
        with server.client() as client:
            assert client.post("/v1/telemetry", content=b"\n".join(late)).json()["refused"] == 0
        for _ in range(2):
            alarms.get_by_text("use1-az2-isolated-impact").wait_for(timeout=WAIT)
            alarms.get_by_text("use1-az1-isolated-impact").wait_for(timeout=WAIT, state="detached")
            assert alarms.locator("strong").first.inner_text() == "use1-az2-isolated-impact"
            page.reload()


def test_a_page_without_alarms_says_so_and_one_that_cannot_read_them_says_why(
    tmp_path: Path, browser_page: "Page", page_watch: "PageWatch"
) -> None:
    page_watch.allow("ERR_|503")
    page = browser_page
    with HoldfastServer.start(tmp_path, settings=SETTINGS) as server:
        page.goto(server.address)
        page.get_by_text("Alarms: none is in ALARM.").wait_for(timeout=WAIT)
        page.route("**/v1/alarms", lambda route: route.fulfill(status=503, json={"detail": "the store is away"}))
        page.reload()
        page.get_by_text("Alarms: unknown, because the store is away").wait_for(timeout=WAIT)
        assert page.locator("article.zone").count() == 3
