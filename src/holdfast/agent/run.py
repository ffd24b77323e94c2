"""Run the agent: track zones, publish changes, answer requests, stop."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import holdfast
from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError, SettingsError
from holdfast._listen import get_base_url, listen
from holdfast._names import check_workload_name, parse_zone
from holdfast._types import Zone, ZoneStatus
from holdfast.agent.delivery import StateDelivery
from holdfast.agent.hook import Hook
from holdfast.agent.http_server import BACKLOG, HttpServer, Request
from holdfast.agent.responses import AgentSnapshot, Response, build_response, parse_path
from holdfast.agent.state import AgentState, StateFile
from holdfast.agent.subscription import SnsSubscription
from holdfast.config import Settings
from holdfast.status import PushedSource, StatusSource, ZoneTracker
from holdfast.status.sources import build_source

logger = logging.getLogger("holdfast.agent")

FIRST_ANSWER_SECONDS = 1.0
"""How long the start waits for a majority of sources, so that a restart does not report an evacuated zone as in."""
POLL_SECONDS = 0.1
"""How often, after that, the agent checks whether a majority has answered."""
STOP_SECONDS = 1.5
"""Seconds for ending a hook and a subscription: the agent stops within 2 s, before orchestrators kill it."""
POST_BYTES = 256 * 1024
"""The largest message that SNS accepts: https://docs.aws.amazon.com/general/latest/gr/sns.html"""

_HOOK = "hook"


def run(settings: Settings, announce: Callable[[str], None], token: str | None = None) -> None:
    """Run until SIGTERM or SIGINT, then stop within 2 s. Raise HoldfastError if the agent cannot start.

    `announce` is called with the address when the agent accepts requests. `token` is for servers that require one.
    """

    async def until_signal() -> None:
        agent = Agent(settings, token=token)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        await agent.serve(announce)

    asyncio.run(until_signal())


class Agent:
    """The agent of one host: tracks zones, and publishes them on it. `fetch` downloads the certificates of SNS."""

    def __init__(
        self,
        settings: Settings,
        *,
        token: str | None = None,
        clock: Clock | None = None,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        options = settings.agent
        if options.zone is None:
            raise SettingsError(
                "agent.zone is not set: name the AZ-ID of this host, such as use1-az1, or find it with "
                "holdfast.engines.aws.find_zone()"
            )
        zone, workload = (
            parse_zone(options.zone),
            None if options.workload is None else check_workload_name(options.workload),
        )
        for address in options.endpoints:
            if workload is None and "{workload}" in address:
                raise SettingsError(
                    f"agent.endpoints: {address} needs a workload, but agent.workload is not set: set it, or remove "
                    "{workload} from the address"
                )
        self._options = options
        self._clock = clock or SystemClock()
        self._state = AgentState(zone=zone, workload=workload, changed_at=self._clock.wall())
        self._file = None if options.file is None else StateFile(options.file)
        self._hook = None if options.hook is None else Hook(options.hook, options.hook_timeout)
        self._deliveries = {
            name: StateDelivery(receiver, name)
            for receiver, name in ((self._file, "file"), (self._hook, _HOOK))
            if receiver is not None
        }
        self._initial_state = self._state
        """The state before any answer: no zone is out. Receivers count as having it, so it is not delivered, unless
        `_run_hook` asks for that."""
        pushed = PushedSource("sns", self._clock)
        sources: list[StatusSource] = [
            build_source(address, zones=(zone,), workload=workload, token=token, poll_interval=options.poll_interval)
            for address in options.endpoints
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._failure: HoldfastError | None = None
        self._tracker = ZoneTracker(
            *(sources or [pushed]),
            zone=zone,
            when_silent=options.when_silent,
            stale_after=options.stale_after,
            on_change=self._on_change,
            clock=self._clock,
        )
        self._subscription: SnsSubscription | None = None
        if options.sns_topic is not None:
            # A message may be late or lost. If there are endpoints, it only triggers a poll.
            report: Callable[[ZoneStatus], None] = (lambda _: self._tracker.refresh()) if sources else pushed.push
            self._subscription = SnsSubscription(settings, report, fetch)
        self._http_server = HttpServer(
            self._respond, lambda *request: POST_BYTES if self._find_subscription(*request) is not None else 0
        )

    def stop(self) -> None:
        """Make `serve` return soon. Call it in the event loop's thread; may be repeated."""
        self._stopped.set()

    async def serve(self, announce: Callable[[str], None]) -> None:
        """Track zones, and publish them on this host until `stop` is called. Call it only once.

        `announce` is called with the agent's address when it accepts requests. Raise HoldfastError if it cannot start.
        """
        self._loop = asyncio.get_running_loop()
        with listen(self._options.host, self._options.port, section="agent", backlog=BACKLOG) as listener:
            address = get_base_url(listener)
            whose = {"zone": self._state.zone, "workload": self._state.workload}
            logger.info("starting", extra={"address": address, **whose, "version": holdfast.__version__})
            waiting: asyncio.Task[None] | None = None
            try:
                self._tracker.start()
                has_majority = await asyncio.to_thread(self._tracker.wait, FIRST_ANSWER_SECONDS)
                self._start_deliveries()
                if has_majority:
                    self._run_hook()
                else:
                    self._warn()
                    waiting = asyncio.create_task(self._run_hook_after_majority())
                await self._http_server.start(listener)
                if self._subscription is not None:
                    self._subscription.start(self._fail)
                announce(address)
                await self._stopped.wait()
            finally:
                if waiting is not None:
                    waiting.cancel()
                await self._close()
        if self._failure is not None:
            raise self._failure
        logger.info("stopped")

    def _start_deliveries(self) -> None:
        """Write the file once in this thread, so that an invalid path fails the start; then start the deliveries."""
        if self._file is not None:
            self._file.remove_temporary_files()
            try:
                self._file.write(self._state)
            except OSError as error:
                raise SettingsError(f"agent.file {self._options.file} cannot be written: {error.strerror}") from error
        for delivery in self._deliveries.values():
            delivery.start(arrived=self._initial_state)

    def _run_hook(self) -> None:
        """Run the hook once at every start, whatever the state: effects of a previous agent's hook may persist."""
        if _HOOK in self._deliveries:
            self._deliveries[_HOOK].deliver_once()

    async def _run_hook_after_majority(self) -> None:
        while not self._tracker.wait(0):  # noqa: ASYNC110 - set by a thread, and the loop must stay free to stop
            await asyncio.sleep(POLL_SECONDS)
        logger.info("a majority of sources has answered")
        self._run_hook()

    def _warn(self) -> None:
        sources = self._tracker.sources()
        count = sum(source.age is not None for source in sources)
        logger.warning("all zones count as in for now: only %d of %d sources have answered", count, len(sources))

    async def _close(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        await self._http_server.close()
        self._tracker.close()
        for delivery in self._deliveries.values():
            delivery.stop()
        if self._subscription is not None:
            self._subscription.close(STOP_SECONDS / 2)
        for delivery in self._deliveries.values():
            delivery.join(max(0.0, deadline - time.monotonic()))

    def _on_change(self, by_workload: Mapping[str | None, frozenset[Zone]]) -> None:
        """Update the state. Called in the tracker's thread whenever a zone changes for any workload."""
        out = by_workload.get(self._state.workload, by_workload[None])
        if out == self._state.zones_out:
            return
        self._state = replace(self._state, zones_out=out, changed_at=self._clock.wall())
        logger.info("zones out: %s", ", ".join(sorted(out)) or "none", extra={"out": self._state.is_out})
        for delivery in self._deliveries.values():
            delivery.submit(self._state)

    def _fail(self, error: HoldfastError) -> None:
        def stop() -> None:
            self._failure = error
            self.stop()

        assert self._loop is not None  # the subscription starts after it
        with suppress(RuntimeError):  # the event loop has ended meanwhile
            self._loop.call_soon_threadsafe(stop)

    def _find_subscription(self, method: str, target: str) -> SnsSubscription | None:
        """Return the subscription if the request is a message for it."""
        return self._subscription if method == "POST" and parse_path(target) == "/sns" else None

    async def _respond(self, request: Request) -> Response:
        subscription = self._find_subscription(request.method, request.target)
        if subscription is not None:
            return await subscription.receive(request.body)
        snapshot = AgentSnapshot(
            state=self._state,
            age=self._tracker.age,
            sources=self._tracker.sources(),
            poll_interval=self._options.poll_interval,
        )
        return build_response(request.method, request.target, snapshot)
