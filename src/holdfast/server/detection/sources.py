"""Poll the telemetry sources of the settings, such as files, and save the position in each."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

from holdfast._background import BackgroundLoop
from holdfast._clock import SystemClock
from holdfast.calls.periodic import host_name
from holdfast.config.settings import TelemetrySourceSettings
from holdfast.server.detection.messages import IngestResult, build_result
from holdfast.telemetry.source import PolledSource, SourceContext, open_source
from holdfast.watch import WatchStore, WorkloadWatcher

logger = logging.getLogger("holdfast.telemetry")

POLL_SECONDS = 0.5
"""How often a source is polled: a bin waits 1.5 s for its last measurements."""


class SourcePoller:
    """Polls each source in its own thread, so that one that hangs delays no other. A context manager.

    The position of a source is saved after each poll that read something. A restart continues there: it loses only
    what was in the bin in progress, like telemetry that was sent.
    """

    def __init__(
        self,
        settings: Sequence[TelemetrySourceSettings],
        build_context: Callable[[], SourceContext],
        watcher: WorkloadWatcher,
        store: WatchStore,
        report: Callable[[IngestResult], None],
    ) -> None:
        self._settings = settings
        self._build_context = build_context
        self._watcher = watcher
        self._store = store
        self._report = report
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for number, each in enumerate(self._settings):
            title = f"telemetry.source[{number}] ({each.kind})"
            # The database may be that of servers on other hosts, with other files.
            key = f"{host_name()}/{number}/{each.kind}"
            source = open_source(each.kind, each.options, self._build_context(), self._store.load_position(key))
            self._stack.callback(source.close)
            loop = BackgroundLoop(
                f"holdfast-source-{number}",
                self._build_step(key, title, source),
                action=f"read telemetry of {title}",
                logger=logger,
            )
            loop.start()
            self._stack.callback(loop.stop, timeout=1.0)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _build_step(self, key: str, title: str, source: PolledSource) -> Callable[[], float]:
        saved, problem = source.state, None

        def step() -> float:
            nonlocal saved, problem
            now = SystemClock().wall()
            batch = source.poll(now)
            if batch.problem is not None and batch.problem != problem:
                logger.warning("%s: %s", title, batch.problem)
            problem = batch.problem
            if batch.accepted or batch.refused:
                arrivals = self._watcher.ingest(batch.deltas, source.lateness, requests=batch.requests)
                self._report(build_result(batch, arrivals, now))
            if source.state != saved:
                self._store.save_position(key, source.state)
                saved = source.state
            return POLL_SECONDS

        return step
