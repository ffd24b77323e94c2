"""Alarms on the page, in a real browser: those of the store, and changes while the page is open."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Operation, Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.telemetry.history import TelemetryHistory
from holdfast.telemetry.series import SeriesTable
from holdfast.watch.alarm_store import AlarmStore
from holdfast.watch.alarms import AlarmWatch
from tests.integration.server.process import HoldfastServer, holdfast
from tests.unit.alarms.world import ZONES, bins

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.services.page import PageWatch

WAIT = 40_000
"""Milliseconds until the page is taken to be wrong."""
STEP = 10
"""Seconds between two evaluations."""
SETTINGS = """
[server]
allow_anonymous = true
[telemetry]
bin_seconds = 1
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
detector = { name = "threshold", consecutive_windows = 100 }
alarms = { period = 10, min_availability = 90 }
[[workload]]
name = "quiet"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
"""
"""Bins of a second: the server makes up for a missed evaluation when its first bin is complete."""


def store_alarms(data: Path, now: float) -> None:
    """Store two minutes in which all requests of one zone failed, and the alarms that they led to.

    The last evaluation is missing. The server makes up for it two seconds after its start.
    """
    options = AlarmOptions(period=STEP, min_availability=90)
    declaration = AlarmDeclaration(workload="shop", zones=ZONES, region="us-east-1", options=options)
    first = int(now // STEP - 12) * STEP
    with SqliteDatabase(data / "telemetry.sqlite") as telemetry, SqliteDatabase(data / "watch.sqlite") as watch:
        table = SeriesTable()
        history = TelemetryHistory(telemetry, table, 1.0, ["shop"], now)
        alarms = AlarmWatch(declaration, history.store, table, AlarmStore(watch))
        content = bins(ZONES[1:], requests=6) | bins(ZONES[:1], requests=6, faults=6)
        for start in range(first, first + 12 * STEP, STEP):
            history.add(
                [(second, content if second == start else {}) for second in range(start, start + STEP)], {}, {}, now
            )
            if start < first + 11 * STEP:
                alarms.evaluate(start + STEP)
        history.save(now)
        alarms.save()


def encode_line(zone: str, at: float, status: int, instance: int) -> bytes:
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    directory = tmp_path_factory.mktemp("alarms")
    (directory / "holdfast.toml").write_text("data_directory = 'data'\n")
    # A server does not start if the store of its credentials is missing, and others are not.
    created = holdfast("credential", "create", "--role", "operator", directory=directory)
    assert created.returncode == 0, created.stderr
    store_alarms(directory / "data", time.time())
    with HoldfastServer.start(directory, settings=SETTINGS) as started:
        yield started


def test_alarms_of_the_store_and_their_changes_are_shown(
    server: HoldfastServer, browser_page: "Page", page_watch: "PageWatch"
) -> None:
    """Takes up to three seconds, and ten more if the page comes after the first evaluation of the server."""
    page_watch.allow("ERR_")  # the server stops before the page is closed
    page = browser_page
    page.goto(server.address)
    alarms = page.get_by_role("list", name="Alarms of shop").get_by_role("listitem")
    alarms.first.wait_for(timeout=WAIT)
    first = alarms.first.inner_text()
    now = time.time()
    lines = [encode_line(ZONES[0], now - age, 200, age % 3) for age in range(55) for _ in range(8)]
    lines += [encode_line(ZONES[1], now - age, 500, age % 3) for age in range(55) for _ in range(2)]
    with server.client() as client:
        assert client.post("/v1/telemetry", content=b"\n".join(lines)).json()["refused"] == 0
    assert re.match(r"use1-az1-isolated-impact since .*20\d\d.*\. Only use1-az1 is affected", first)
    for _ in range(2):
        alarms.get_by_text("use1-az2-isolated-impact").wait_for(timeout=WAIT)
        alarms.get_by_text("use1-az1-isolated-impact").wait_for(timeout=WAIT, state="detached")
        names = alarms.locator("strong").all_inner_texts()
        assert names[0] == "use1-az2-isolated-impact"
        assert {"az2-availability", "use1-az2-aggregate-alarm"} <= set(names)
        assert not [name for name in names if "/" in name], "none about a single operation"
        page.reload()


def test_a_workload_without_alarms_says_so_and_a_page_that_cannot_read_them_says_why(
    server: HoldfastServer, browser_page: "Page", page_watch: "PageWatch"
) -> None:
    page_watch.allow("ERR_|503")
    page = browser_page
    page.goto(server.address)
    page.get_by_text("Alarms: none is in ALARM.").wait_for(timeout=WAIT)
    page.route("**/v1/alarms", lambda route: route.fulfill(status=503, json={"detail": "the store is away"}))
    page.reload()
    page.get_by_text("Alarms: unknown, because the store is away").first.wait_for(timeout=WAIT)
    assert page.locator("article.zone").count() == 6
