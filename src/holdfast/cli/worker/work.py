"""The work of one process: a worker for each queue, until it is told to stop or nothing is left."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

import msgspec

from holdfast._errors import EngineUnavailable, HoldfastError, SettingsError
from holdfast._multi_sink import MultiSink
from holdfast._names import check_workload_name, parse_zone
from holdfast._types import Sink, Zone, ZoneView
from holdfast.cli.worker.targets import find_queues
from holdfast.compose import Databases, open_status_store, require_store
from holdfast.config import LoadedSettings, load
from holdfast.config.paths import SettingPath
from holdfast.metrics import ExportTarget, LogExporter, open_exporters
from holdfast.queue import Queue, Worker, WorkerOptions
from holdfast.queue.events import PollEvent, QueueEvent
from holdfast.queue.metrics import QueueMetrics

logger = logging.getLogger("holdfast.worker")

LOOK_SECONDS = 0.1
"""How often it is looked whether to stop."""
FIRST_SECONDS = 1.0
"""How long starting waits for the first word on zones, so that a restart takes no work in a zone that is out."""
STUCK_SECONDS = 30.0
"""How long all handlers of a queue may hang before the process ends. Those that wait for a service that is away mostly
have timeouts that are shorter, and return; what else the process does would be interrupted for nothing."""
MEMORY = "memory:"
LEAVE_SECONDS = 10.0
"""How long a process that cannot go on has to end by itself: threads that handlers have made may keep it from that."""
INTERRUPTED = 130
"""The exit code of whoever was told twice; that of every interrupted command, which is not imported here."""
FAILED = 1
"""The exit code of a process that cannot go on; that of every command that failed, which is not imported here."""


class WorkerTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to do; plain values, because it may travel to another process."""

    targets: tuple[str, ...]
    concurrency: int
    grace: float
    until_empty: bool = False
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

    def load(self) -> LoadedSettings:
        """The settings that hold for it."""
        options: dict[SettingPath, object] = {
            ("data_directory",): self.data_directory,
            ("agent", "zone"): self.zone,
            ("agent", "workload"): self.workload,
            ("agent", "endpoints"): list(self.endpoints) or None,
        }
        return load(None if self.settings is None else Path(self.settings), options=options)

    def for_process(self, number: int) -> "WorkerTask":
        """The same for one of several processes, from 0 on."""
        return msgspec.structs.replace(self, process=number)


class StopRequest:
    """Whether somebody has asked to stop. Not an event: what a signal interrupts may hold its lock."""

    __slots__ = ("is_requested",)

    def __init__(self) -> None:
        self.is_requested = False

    def request(self) -> None:
        """From any thread, and from a signal handler."""
        self.is_requested = True


class SignalHandlers:
    """Calls `stop` at the first SIGTERM or SIGINT, and `leave` at a second SIGINT, while it is open."""

    def __init__(self, stop: Callable[[], None], leave: Callable[[], None]) -> None:
        self._stop = stop
        self._leave = leave
        self._interrupts = 0
        self._kept: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._kept[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        while self._kept:
            signal.signal(*self._kept.popitem())

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self._leave()
        else:
            self._stop()


def run_workers(task: WorkerTask, stop: StopRequest, ready: Callable[[list[str]], None]) -> None:
    """Handle messages until `stop` is asked for or, if it is to be done once, until nothing waits.

    `ready` is called with the names of the queues when their stores are open, and metrics are served if they are to be,
    just before the first message is taken.
    Raises HoldfastError when that cannot begin, or cannot go on because the handlers of a queue hang. In that case the
    process ends within `LEAVE_SECONDS`, whatever else goes on in it: whoever has started it is to start another.
    """
    loaded = task.load()
    from holdfast.server.logs import configure_logging

    configure_logging(loaded.settings.log, with_pid=True)
    queues = find_queues(task.targets)
    agent = loaded.settings.agent
    zone = None if agent.zone is None else parse_zone(agent.zone)
    options = WorkerOptions(
        concurrency=task.concurrency,
        grace=task.grace,
        zone=zone,
        workload=None if agent.workload is None else check_workload_name(agent.workload),
    )
    with ExitStack() as stack:
        zones = None if zone is None else stack.enter_context(_open_zone_view(loaded, zone, options.workload))
        for queue in queues:
            stack.callback(queue.close)
            queue.backend.inspect(queue.name, top=0)  # opens it, or says why it cannot be
        names = [queue.name for queue in queues]
        sink = stack.enter_context(_open_sink(task, names, options.workload))
        addresses = sorted({queue.address for queue in queues})
        details = {"zone": zone, "concurrency": task.concurrency, "stores": addresses}
        logger.info("working on %s", ", ".join(names), extra=details)
        for queue in queues:
            if queue.address == MEMORY:
                logger.warning(
                    "queue %s is in the memory of this process, where nobody else can send to it: give it a file, such "
                    "as sqlite:work.sqlite, or a server",
                    queue.name,
                )
        ready(names)
        workers = [QueueWorker(queue, options, zones, sink) for queue in queues]
        stack.callback(_stop, workers)
        for one in workers:
            one.worker.start()
        lost: list[str] = []
        while not stop.is_requested:
            time.sleep(LOOK_SECONDS)
            if task.until_empty and all(one.is_drained() for one in workers):
                break
            lost = [one.worker.queue.name for one in workers if one.is_stuck_too_long(time.monotonic())]
            if lost:
                break
        logger.info("stopping", extra={"in_flight": sum(one.worker.in_flight for one in workers)})
    logger.info("stopped")
    if lost:
        _leave_later()
        raise HoldfastError(
            f"as many handlers of {', '.join(lost)} hang as there may be, {task.concurrency}, so that no message was "
            "taken: this process ends, for another to be started; give what handlers call timeouts"
        )


class QueueWorker:
    """A worker, whether it found nothing when it last asked, and since when its handlers hang."""

    def __init__(
        self, queue: Queue, options: WorkerOptions, zones: ZoneView | None, sink: Sink[QueueEvent] | None = None
    ) -> None:
        combined: Sink[QueueEvent] = self if sink is None else MultiSink(self, sink)
        self.worker = Worker(queue, options, zones=zones, sink=combined)
        self._was_empty = False
        self._stuck_since: float | None = None

    def emit(self, event: QueueEvent) -> None:
        """As the worker's sink."""
        if isinstance(event, PollEvent):
            self._was_empty = event.is_empty

    def is_drained(self) -> bool:
        """Whether nothing is left to do now: nothing waits, and nothing is held. What is delayed is for later."""
        if self.worker.is_out:
            return True
        if not self._is_idle():
            return False
        # Nothing was handed out; but tenants may have something waiting that they may not have handled yet.
        queue = self.worker.queue
        try:
            waiting = queue.backend.inspect(queue.name, top=0).totals.waiting
        except EngineUnavailable:
            return False  # as long as nobody knows
        return not waiting and self._is_idle()  # still: some may have been handed out since

    def _is_idle(self) -> bool:
        return self._was_empty and self.worker.is_idle

    def is_stuck_too_long(self, now: float) -> bool:
        """Whether it was stuck at every look for `STUCK_SECONDS`, up to `now`, which is a monotonic time."""
        if not self.worker.is_stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        return self._stuck_since is not None and now - self._stuck_since >= STUCK_SECONDS


def _leave_later() -> None:
    """End this process soon, also if something that handlers have left behind would keep it."""
    timer = threading.Timer(LEAVE_SECONDS, os._exit, (FAILED,))
    timer.daemon = True
    timer.start()


def _stop(workers: Sequence[QueueWorker]) -> None:
    """All at once: each takes as long as its handlers do."""
    threads = [threading.Thread(target=one.worker.stop, name="holdfast-stop") for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _open_sink(task: WorkerTask, queues: Sequence[str], workload: str | None) -> Iterator[Sink[QueueEvent]]:
    """Measure workers for the log and for the exporters of the task. At the end, what is left is written.

    Nobody looks at the queues themselves here: their depth is the same for all processes, and the server tells it.
    """
    target = ExportTarget(namespace=f"{workload or 'holdfast'}/worker", process=task.process, processes=task.processes)
    with open_exporters(task.exports, target) as exporters:
        yield QueueMetrics(LogExporter(), *exporters, queues=queues)


@contextmanager
def _open_zone_view(loaded: LoadedSettings, zone: Zone, workload: str | None) -> Iterator[ZoneView]:
    """Which zones are out: as servers say, if the settings name any, else as the store of the settings says."""
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
            logger.warning("no word on zones yet: none counts as out")
        yield tracker
