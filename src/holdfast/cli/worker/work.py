"""The work of one process: run a worker for each queue, until it is stopped or the queues are empty."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Self

import msgspec

from holdfast._errors import EngineUnavailable, HoldfastError, NotFound, SettingsError
from holdfast._multi_sink import MultiSink
from holdfast._names import check_workload_name, format_count
from holdfast._types import Sink, Zone, ZoneView
from holdfast.cli.worker.targets import find_queues
from holdfast.compose import Databases, find_zone, open_status_store, require_store
from holdfast.config import LoadedSettings, load
from holdfast.config.paths import SettingPath
from holdfast.metrics import ExportContext, LogExporter, open_exporters
from holdfast.queue import Queue, Worker, WorkerOptions
from holdfast.queue.backend import QueueSnapshot
from holdfast.queue.events import PollEvent, QueueEvent
from holdfast.queue.metrics import QueueMetrics

logger = logging.getLogger("holdfast.worker")

CHECK_INTERVAL_SECONDS = 0.1
"""Seconds between checks for a stop request."""
FIRST_SECONDS = 1.0
"""Seconds that a start waits for the status of zones, so that a restart leases nothing in a zone that is out."""
STUCK_SECONDS = 30.0
"""Seconds that all handlers of a queue may hang before the process ends. Handlers that wait for an unavailable service
mostly have shorter timeouts and return; ending the process earlier would interrupt other work for nothing."""
MEMORY = "memory:"
LEAVE_SECONDS = 10.0
"""Seconds that a process has to end by itself before it is forced to: threads left by handlers may prevent it."""
INTERRUPTED = 130
"""The exit code after a second interrupt. The same as in `holdfast.cli`, which is not imported here."""
FAILED = 1
"""The exit code of a process that cannot continue. The same as in `holdfast.cli`, which is not imported here."""


class WorkerTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a process, in plain values, because it may be sent to another process."""

    targets: tuple[str, ...]
    concurrency: int
    shutdown_timeout: float
    until_empty: bool = False
    until_settled: bool = False
    """Like `until_empty`, but also wait for the messages that other workers have leased."""
    zone: str | None = None
    workload: str | None = None
    endpoints: tuple[str, ...] = ()
    settings: str | None = None
    data_directory: str | None = None
    exports: tuple[str, ...] = ()
    """Exporters of metrics, as NAME or NAME:ARGUMENT."""
    process: int = 0
    """The number of this process among `processes`."""
    processes: int = 1

    @property
    def ends_by_itself(self) -> bool:
        """Whether the process exits when it finds no more messages."""
        return self.until_empty or self.until_settled

    def load(self) -> LoadedSettings:
        """Load the settings that apply to the task."""
        options: dict[SettingPath, object] = {
            ("data_directory",): self.data_directory,
            ("agent", "zone"): self.zone,
            ("agent", "workload"): self.workload,
            ("agent", "endpoints"): list(self.endpoints) or None,
        }
        return load(None if self.settings is None else Path(self.settings), options=options)

    def for_process(self, number: int) -> "WorkerTask":
        """Return the task for one of several processes, numbered from 0."""
        return msgspec.structs.replace(self, process=number)


class StopRequest:
    """A request to stop. Not an event: a signal may interrupt the code that holds the event's lock."""

    __slots__ = ("is_requested",)

    def __init__(self) -> None:
        self.is_requested = False

    def request(self) -> None:
        """Request the stop. May be called in any thread and in a signal handler."""
        self.is_requested = True


class SignalHandlers:
    """Calls `stop` at the first SIGTERM or SIGINT, and `leave` at a second SIGINT, while it is entered."""

    def __init__(self, stop: Callable[[], None], leave: Callable[[], None]) -> None:
        self._stop = stop
        self._leave = leave
        self._interrupts = 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self._leave()
        else:
            self._stop()


def run_workers(task: WorkerTask, stop: StopRequest, ready: Callable[[list[str]], None]) -> None:
    """Handle messages until `stop` is requested or, with `until_empty` or `until_settled`, until none is left.

    `ready` is called with the names of the queues just before the first lease, when their stores are open and metrics
    are served. Raise HoldfastError if the work cannot begin, or cannot continue because the handlers of a queue hang.
    In the latter case the process ends within `LEAVE_SECONDS`, whatever else runs in it: its parent should restart it.
    """
    loaded = task.load()
    from holdfast.server.logs import configure_logging

    configure_logging(loaded.settings.log, with_pid=True)
    queues = find_queues(task.targets)
    agent = loaded.settings.agent
    zone = _find_own_zone(loaded)
    options = WorkerOptions(
        concurrency=task.concurrency,
        shutdown_timeout=task.shutdown_timeout,
        zone=zone,
        workload=None if agent.workload is None else check_workload_name(agent.workload),
    )
    with ExitStack() as stack:
        zones = None if zone is None else stack.enter_context(_open_zone_view(loaded, zone, options.workload))
        for queue in queues:
            stack.callback(queue.close)
            queue.backend.inspect(queue.name, top=0)  # opens it, or raises why that fails
        names = [queue.name for queue in queues]
        sink = stack.enter_context(_open_sink(task, names, options.workload))
        addresses = sorted({queue.address for queue in queues})
        details = {"zone": zone, "concurrency": task.concurrency, "stores": addresses}
        logger.info("working on %s", ", ".join(names), extra=details)
        for queue in queues:
            if queue.address == MEMORY:
                logger.warning(
                    "queue %s is in the memory of this process, where no other process can send to it: use a file, "
                    "such as sqlite:work.sqlite, or a server",
                    queue.name,
                )
        ready(names)
        workers = [QueueWorker(queue, options, zones, sink) for queue in queues]
        stack.callback(_stop, workers)
        for one in workers:
            one.worker.start()
        stuck: list[str] = []
        while not stop.is_requested:
            time.sleep(CHECK_INTERVAL_SECONDS)
            if task.ends_by_itself and all(one.is_drained(leased=task.until_settled) for one in workers):
                for one in workers:
                    one.warn_of_leased_messages()
                break
            stuck = [one.worker.queue.name for one in workers if one.is_stuck_too_long(time.monotonic())]
            if stuck:
                break
        logger.info("stopping", extra={"in_flight": sum(one.worker.in_flight for one in workers)})
    logger.info("stopped")
    if stuck:
        _leave_later()
        raise HoldfastError(
            f"all handlers of {', '.join(stuck)} hang ({task.concurrency} per queue), and no messages are leased: this "
            "process exits so that a supervisor can restart it; set timeouts on the calls that handlers make"
        )


class QueueWorker:
    """A worker with its last poll, and the time since which its handlers hang."""

    def __init__(
        self, queue: Queue, options: WorkerOptions, zones: ZoneView | None, sink: Sink[QueueEvent] | None = None
    ) -> None:
        combined: Sink[QueueEvent] = self if sink is None else MultiSink(self, sink)
        self.worker = Worker(queue, options, zones=zones, sink=combined)
        self._was_empty = False
        self._snapshot: QueueSnapshot | None = None
        """The queue when it was last checked for messages that are left."""
        self._stuck_since: float | None = None

    def emit(self, event: QueueEvent) -> None:
        """Receive an event, as the sink of the worker."""
        if isinstance(event, PollEvent):
            self._was_empty = event.is_empty

    def is_drained(self, *, leased: bool = False) -> bool:
        """Return whether no message waits or is leased by this worker; with `leased`, also by no other worker.

        Delayed messages do not count. True while the zone is out.
        """
        if self.worker.is_zone_out:
            return True
        if not self._is_idle():
            return False
        # Nothing could be leased, but messages may wait because of their tenants' limits.
        queue = self.worker.queue
        try:
            self._snapshot = queue.backend.inspect(queue.name, top=0)
        except EngineUnavailable:
            return False  # unknown, so try again
        totals = self._snapshot.totals
        if totals.waiting or (leased and totals.leased):
            return False
        return self._is_idle()  # again, because messages may have been leased meanwhile

    def warn_of_leased_messages(self) -> None:
        """Warn of messages that other workers had leased at the last check: a dead worker never settles them."""
        found = self._snapshot
        if found is not None and found.totals.leased:
            end = datetime.fromtimestamp(found.at + found.policy.lease, UTC)
            logger.warning(
                "queue %s: other workers have leased %s; the leases of workers that died expire within %g s, by %s: "
                "run this again then, or wait for them with --until-settled",
                found.queue,
                format_count(found.totals.leased, "message"),
                found.policy.lease,
                f"{end:%Y-%m-%d %H:%M:%SZ}",
            )

    def _is_idle(self) -> bool:
        return self._was_empty and self.worker.is_idle

    def is_stuck_too_long(self, now: float) -> bool:
        """Return whether the worker was stuck at every check for `STUCK_SECONDS`, up to the monotonic time `now`."""
        if not self.worker.is_stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        return self._stuck_since is not None and now - self._stuck_since >= STUCK_SECONDS


def _leave_later() -> None:
    """End this process soon, even if threads that handlers have left behind prevent it from ending by itself."""
    timer = threading.Timer(LEAVE_SECONDS, os._exit, (FAILED,))
    timer.daemon = True
    timer.start()


def _stop(workers: Sequence[QueueWorker]) -> None:
    """Stop all workers concurrently: each takes as long as its handlers."""
    threads = [threading.Thread(target=one.worker.stop, name="holdfast-stop") for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _open_sink(task: WorkerTask, queues: Sequence[str], workload: str | None) -> Iterator[Sink[QueueEvent]]:
    """Measure workers for the log and for the exporters of the task. Flush the exporters at the end.

    Depths of queues are not measured here: they are the same for all processes, and the server reports them.
    """
    context = ExportContext(
        namespace=f"{workload or 'holdfast'}/worker", process=task.process, processes=task.processes
    )
    with open_exporters(task.exports, context) as exporters:
        yield QueueMetrics(LogExporter(), *exporters, queues=queues)


def _find_own_zone(loaded: LoadedSettings) -> Zone | None:
    """Return the zone of this process, or None if it follows no zone statuses.

    A worker follows them if its settings name its zone or servers. If they only name a store, it follows them if its
    zone can be found: the same settings may be used on a developer's machine.
    """
    settings = loaded.settings
    if settings.agent.zone is not None or ("agent", "endpoints") in loaded.origins:
        return find_zone(settings).zone
    if settings.status.store == "database":
        return None
    try:
        return find_zone(settings).zone
    except NotFound as error:
        logger.warning("this worker does not follow zone statuses: %s", error)
        return None


@contextmanager
def _open_zone_view(loaded: LoadedSettings, zone: Zone, workload: str | None) -> Iterator[ZoneView]:
    """Track which zones are out: from the servers in the settings or, without any, from the status store."""
    from holdfast.cli.remote import read_token
    from holdfast.status import StatusSource, StoreSource, ZoneTracker
    from holdfast.status.sources import build_source
    from holdfast.status.stores.database import SUBSYSTEM

    values = loaded.settings
    agent = values.agent
    with ExitStack() as stack:
        sources: list[StatusSource]
        if ("agent", "endpoints") in loaded.origins:
            for address in agent.endpoints:
                if workload is None and "{workload}" in address:
                    raise SettingsError(f"agent.endpoints: {address} asks about a workload: name it with --workload")
            token = read_token()
            sources = [
                build_source(address, zones=(zone,), workload=workload, token=token, poll_interval=agent.poll_interval)
                for address in agent.endpoints
            ]
        else:
            if values.status.store == "database":
                others = "a server that knows which zones are out, with --endpoint or agent.endpoints"
                require_store(values, SUBSYSTEM, hint=f", or {others}")
            store = open_status_store(values, stack.enter_context(Databases(values)))
            sources = [StoreSource(store, poll_interval=agent.poll_interval)]
        tracker = ZoneTracker(*sources, zone=zone, when_silent=agent.when_silent, stale_after=agent.stale_after)
        stack.enter_context(tracker)
        if not tracker.wait(FIRST_SECONDS):
            logger.warning("zone statuses are not available yet; assuming that all zones are in")
        yield tracker
