"""Sources that the detection process polls."""

import time
from pathlib import Path
from threading import Event

import pytest

from holdfast.config.settings import TelemetrySourceSettings
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.detection import sources
from holdfast.server.detection.messages import IngestResult
from holdfast.server.detection.sources import SourcePoller
from holdfast.telemetry.source import SourceContext, SourceWorkload
from holdfast.telemetry.sources.emf import EmfDecoder
from holdfast.watch import WatchStore, WorkloadWatcher
from tests.integration.server.process import STUCK


def test_servers_on_two_hosts_that_share_a_database_remember_positions_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "POLL_SECONDS", 0.01)
    log = tmp_path / "shop.log"
    log.write_text("a line\n")
    settings = TelemetrySourceSettings(kind="emf_file", options={"paths": [str(log)]})
    workloads = [SourceWorkload("shop", frozenset())]
    context = SourceContext(workloads=workloads, bin_seconds=10.0, emf=EmfDecoder(workloads))
    with SqliteDatabase(tmp_path / "shared.sqlite") as database:
        store = WatchStore(database)
        watcher = WorkloadWatcher([], store)
        for host in ("one", "two"):
            monkeypatch.setattr(sources, "host_name", lambda host=host: host)
            refused: list[IngestResult] = []
            has_read = Event()

            def report(result: IngestResult, refused: list[IngestResult] = refused, read: Event = has_read) -> None:
                refused.append(result)
                read.set()

            with SourcePoller([settings], lambda: context, watcher, store, report):
                end = time.monotonic() + STUCK
                while not store.load_position(f"{host}/0/emf_file"):
                    assert time.monotonic() < end
                with log.open("a") as file:
                    file.write("another line\n")
                assert has_read.wait(STUCK)
            assert [each.refused for each in refused] == [1], "only the line that was added"
