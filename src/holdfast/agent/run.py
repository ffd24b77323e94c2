"""Running the agent: follow, tell, answer, stop."""

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
"""How long starting waits for the first word on zones, so that a restart does not call a zone in that is out."""
LOOK_SECONDS = 0.1
"""How often it is looked, after that, whether enough was heard at last."""
STOP_SECONDS = 1.5
"""For ending a hook and a subscription; orchestrators wait longer before they kill, and 2 s are promised."""
POST_BYTES = 256 * 1024
"""What SNS takes in one message: https://docs.aws.amazon.com/general/latest/gr/sns.html"""

_HOOK = "holdfast-hook"


def run(settings: Settings, announce: Callable[[str], None], token: str | None = None) -> None:
    """Run until SIGTERM or SIGINT, then stop within 2 s. Raises HoldfastError when the agent cannot start.

    `announce` is called with the address when requests are taken. The token is for servers that want one.
    """

    async def until_signal() -> None:
        agent = Agent(settings, token=token)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        await agent.serve(announce)

    asyncio.run(until_signal())


class Agent:
    """Follows the endpoints of the settings for one host, and tells it; `fetch` gets the certificates of SNS."""

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
                "agent.zone is not set: name the AZ-ID of this host, such as use1-az1, with --zone, "
                "HOLDFAST_AGENT__ZONE or agent.zone of the settings file"
            )
        zone, workload = (
            parse_zone(options.zone),
            None if options.workload is None else check_workload_name(options.workload),
        )
        for address in options.endpoints:
            if workload is None and "{workload}" in address:
                raise SettingsError(
                    f"agent.endpoints: {address} asks about a workload, and agent.workload is not set: name it, or "
                    "leave {workload} out of the address"
                )
        self._options = options
        self._clock = clock or SystemClock()
        self._state = AgentState(zone=zone, workload=workload, changed_at=self._clock.wall())
        self._file = None if options.file is None else StateFile(options.file)
        self._hook = None if options.hook is None else Hook(options.hook, options.hook_timeout)
        self._deliveries = {
            name: StateDelivery(receiver, name)
            for receiver, name in ((self._file, "holdfast-file"), (self._hook, _HOOK))
            if receiver is not None
        }
        self._first = self._state
        """Before the agent knew anything: nothing is out."""
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
            # A message may be old, or lost before the next: where there is somebody to ask, it only says when to.
            report: Callable[[ZoneStatus], None] = (lambda _: self._tracker.refresh()) if sources else pushed.push
            self._subscription = SnsSubscription(settings, report, fetch)
        self._http_server = HttpServer(
            self._respond, lambda *request: POST_BYTES if self._find_subscription(*request) is not None else 0
        )

    def stop(self) -> None:
        """Have `serve` return, soon. From the loop's own thread; may be repeated."""
        self._stopped.set()

    async def serve(self, announce: Callable[[str], None]) -> None:
        """Follow and tell until `stop`. Once; raises HoldfastError when that cannot begin."""
        self._loop = asyncio.get_running_loop()
        with listen(self._options.host, self._options.port, section="agent", backlog=BACKLOG) as listener:
            address = get_base_url(listener)
            whose = {"zone": self._state.zone, "workload": self._state.workload}
            logger.info("starting", extra={"address": address, **whose, "version": holdfast.__version__})
            waiting: asyncio.Task[None] | None = None
            try:
                self._tracker.start()
                is_heard = await asyncio.to_thread(self._tracker.wait, FIRST_ANSWER_SECONDS)
                self._deliver_first()
                if is_heard:
                    self._run_hook()
                else:
                    self._warn()
                    waiting = asyncio.create_task(self._run_hook_when_heard())
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

    def _deliver_first(self) -> None:
        if self._file is not None:
            self._file.clear()
            try:
                self._file.write(self._state)
            except OSError as error:
                raise SettingsError(f"agent.file {self._options.file} cannot be written: {error.strerror}") from error
        for delivery in self._deliveries.values():
            delivery.start(self._first)

    def _run_hook(self) -> None:
        """Once at every start, whatever the state: what the last agent's hook has done may hold still."""
        if _HOOK in self._deliveries:
            self._deliveries[_HOOK].deliver_once()

    async def _run_hook_when_heard(self) -> None:
        while not self._tracker.wait(0):  # noqa: ASYNC110 - a thread says so, and the loop must be free to stop
            await asyncio.sleep(LOOK_SECONDS)
        logger.info("enough sources are heard now")
        self._run_hook()

    def _warn(self) -> None:
        sources = self._tracker.sources()
        logger.warning(
            "no word on zones yet, none counts as out: %d of %d sources heard, and a majority is needed",
            sum(source.age is not None for source in sources),
            len(sources),
        )

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
        """In the tracker's thread, whenever anything changed for anybody."""
        out = by_workload.get(self._state.workload, by_workload[None])
        if out == self._state.zones_out:
            return
        self._state = replace(self._state, zones_out=out, changed_at=self._clock.wall())
        logger.info("zones that are out: %s", ", ".join(sorted(out)) or "none", extra={"out": self._state.is_out})
        for delivery in self._deliveries.values():
            delivery.submit(self._state)

    def _fail(self, error: HoldfastError) -> None:
        def stop() -> None:
            self._failure = error
            self.stop()

        assert self._loop is not None  # the subscription starts after it
        with suppress(RuntimeError):  # it has ended meanwhile
            self._loop.call_soon_threadsafe(stop)

    def _find_subscription(self, method: str, target: str) -> SnsSubscription | None:
        """The subscription, if this is a message for it."""
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
