"""The real services that other tests stand on: they answer, they stay on loopback, they end with the run."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import psycopg
import pytest
import redis

from tests.services.page import PageWatch
from tests.services.postgres import RestartablePostgres
from tests.services.run import Run
from tests.services.start import Order, ServiceFailed, alive, start, stop
from tests.services.valkey import valkey

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
BOUND = 20.0


def eventually(happened: Callable[[], object]) -> bool:
    deadline = time.monotonic() + BOUND
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.02)
    return False


def listens(url: str) -> bool:
    address = urlsplit(url)
    assert address.hostname
    assert address.port
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


def test_postgres_answers_with_its_version(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("select version(), current_setting('is_superuser')").fetchone()
    assert row is not None
    assert row[0].startswith("PostgreSQL 1")
    assert row[1] == "on"


def test_every_worker_has_a_database_of_its_own(postgres_url: str, worker_id: str) -> None:
    assert postgres_url.endswith(f"/holdfast_{worker_id}")


def test_valkey_answers_ping(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        assert client.ping()


@pytest.mark.parametrize("emulator", ["moto_url", "ministack_url"])
def test_an_emulator_of_aws_answers_boto3(emulator: str, request: pytest.FixtureRequest) -> None:
    client = boto3.client(
        "sts",
        endpoint_url=request.getfixturevalue(emulator),
        region_name="eu-west-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    assert client.get_caller_identity()["Account"].isdigit()
    client.close()


def test_chromium_shows_a_page_and_photographs_it(browser_page: "Page") -> None:
    browser_page.goto("data:text/html,<h1>holdfast</h1>")
    assert browser_page.inner_text("h1") == "holdfast"
    assert browser_page.screenshot().startswith(b"\x89PNG")


def test_a_page_that_misbehaves_is_complained_about(browser_page: "Page", page_watch: PageWatch) -> None:
    page_watch.allow("")
    # 192.0.2.0/24 is reserved for documentation, so even a browser that tried would reach nobody.
    with browser_page.expect_event("websocket"), browser_page.expect_event("requestfailed"):
        browser_page.goto(
            "data:text/html,<img src='http://192.0.2.1/'>"
            "<script>console.error('oops'); new WebSocket('ws://other.example/'); throw Error('thrown')</script>"
        )
    found = "\n".join(page_watch.complaints)
    for complaint in ("beyond loopback: http://192.0.2.1/", "beyond loopback: ws://other.example/", "oops", "thrown"):
        assert complaint in found


def test_a_complaint_is_held_against_the_page_unless_it_was_allowed() -> None:
    watch = PageWatch()
    watch.complaints += ["console error: 401", "console error: 500"]
    watch.allow("401")
    assert watch.verdict() == ["console error: 500"]


@pytest.mark.parametrize("name", ["postgres_url", "valkey_url", "moto_url", "ministack_url", "chromium_endpoint"])
def test_services_are_on_loopback(name: str, request: pytest.FixtureRequest) -> None:
    assert urlsplit(request.getfixturevalue(name)).hostname == "127.0.0.1"


def test_a_private_postgres_keeps_port_and_data_over_a_restart(restartable_postgres: RestartablePostgres) -> None:
    with psycopg.connect(restartable_postgres.url) as before:
        before.execute("create table kept (number int)")
        before.commit()
        restartable_postgres.stop()
        with pytest.raises(psycopg.OperationalError):
            before.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(restartable_postgres.url)
    restartable_postgres.start()
    with psycopg.connect(restartable_postgres.url) as after:
        assert after.execute("select count(*) from kept").fetchone() == (0,)


def test_a_service_whose_port_was_taken_gets_another(services: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports: list[int] = []

        def unlucky(directory: Path, port: int) -> Order:
            ports.append(port if ports else taken.getsockname()[1])
            return valkey(directory, ports[-1])

        directory = services.private("unlucky")
        url = start(unlucky, directory, services.controller)
        assert len(ports) == 2
        assert listens(url)
        stop([directory])
        assert not listens(url)


@pytest.mark.parametrize(
    ("script", "seconds", "complaint"),
    [
        ("echo no room left >&2; exit 3", 30.0, "(?s)ended instead of answering.*no room left"),
        ("sleep 60", 0.5, "gave no answer"),
    ],
    ids=["it ends", "it hangs"],
)
def test_a_service_that_does_not_start_fails_with_the_end_of_its_log(
    script: str, seconds: float, complaint: str, services: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.services.start.START_TIMEOUT", seconds)

    def broken(directory: Path, port: int) -> Order:
        command = ["/bin/sh", "-c", script]
        return Order(url=f"tcp://127.0.0.1:{port}", command=command, listening="ready", answers=lambda: None)

    directory = services.private("broken")
    with pytest.raises(ServiceFailed, match=complaint):
        start(broken, directory, services.controller)
    assert not alive(directory)


@pytest.mark.parametrize("workers", [0, 1])
def test_killing_the_test_run_leaves_no_service_behind(workers: int, tmp_path: Path) -> None:
    note = tmp_path / "note"
    command = [sys.executable, "-m", "pytest", "--workers", str(workers), "tests/services/hold.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV"))}
    inner = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**environment, "HOLDFAST_HOLD_NOTE": str(note)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert eventually(lambda: note.exists() or inner.poll() is not None)
        url, directory = note.read_text().splitlines()
        assert listens(url)
        os.kill(inner.pid, signal.SIGKILL)
        inner.wait(BOUND)
        assert eventually(lambda: not listens(url)), "the service is still there"
        assert eventually(lambda: not Path(directory).exists()), "its files are still there"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(inner.pid, signal.SIGKILL)
        inner.wait(BOUND)
