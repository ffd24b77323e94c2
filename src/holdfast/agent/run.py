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
from holdfast._listen import address_of, listen
from holdfast._names import workload_of, zone_of
from holdfast._types import Zone, ZoneStatus
from holdfast.agent.answers import Answer, Known, answer, path_of
from holdfast.agent.channel import Channel
from holdfast.agent.courier import Courier
from holdfast.agent.hook import Hook
from holdfast.agent.state import State, StateFile
from holdfast.agent.web import BACKLOG, Request, Web
from holdfast.config import Settings
from holdfast.status import Board, PushedSource, Source
from holdfast.status.sources import source_of

logger = logging.getLogger("holdfast.agent")

FIRST_SECONDS = 1.0
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
        zone, workload = zone_of(options.zone), None if options.workload is None else workload_of(options.workload)
        for address in options.endpoints:
            if workload is None and "{workload}" in address:
                raise SettingsError(
                    f"agent.endpoints: {address} asks about a workload, and agent.workload is not set: name it, or "
                    "leave {workload} out of the address"
                )
        self._options = options
        self._clock = clock or SystemClock()
        self._state = State(zone=zone, workload=workload, changed_at=self._clock.wall())
        self._file = None if options.file is None else StateFile(options.file)
        self._hook = None if options.hook is None else Hook(options.hook, options.hook_within)
        self._couriers = {
            name: Courier(receiver, name)
            for receiver, name in ((self._file, "holdfast-file"), (self._hook, _HOOK))
            if receiver is not None
        }
        self._first = self._state
        """Before the agent knew anything: nothing is out."""
        pushed = PushedSource("sns", self._clock)
        sources: list[Source] = [
            source_of(address, zones=(zone,), workload=workload, token=token, period=options.period)
            for address in options.endpoints
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._failure: HoldfastError | None = None
        self._board = Board(
            *(sources or [pushed]),
            zone=zone,
            when_silent=options.when_silent,
            stale_after=options.stale_after,
            on_change=self._changed,
            clock=self._clock,
        )
        self._channel: Channel | None = None
        if options.sns_topic is not None:
            # A message may be old, or lost before the next: where there is somebody to ask, it only says when to.
            report: Callable[[ZoneStatus], None] = (lambda _: self._board.poke()) if sources else pushed.tell
            self._channel = Channel(settings, report, fetch)
        self._web = Web(self._respond, lambda *request: POST_BYTES if self._channel_of(*request) is not None else 0)

    def stop(self) -> None:
        """Have `serve` return, soon. From the loop's own thread; may be repeated."""
        self._stopped.set()

    async def serve(self, announce: Callable[[str], None]) -> None:
        """Follow and tell until `stop`. Once; raises HoldfastError when that cannot begin."""
        self._loop = asyncio.get_running_loop()
        with listen(self._options.host, self._options.port, section="agent", backlog=BACKLOG) as listener:
            address = address_of(listener)
            whose = {"zone": self._state.zone, "workload": self._state.workload}
            logger.info("starting", extra={"address": address, **whose, "version": holdfast.__version__})
            waiting: asyncio.Task[None] | None = None
            try:
                self._board.start()
                is_heard = await asyncio.to_thread(self._board.wait, FIRST_SECONDS)
                self._tell_first()
                if is_heard:
                    self._run_hook()
                else:
                    self._warn()
                    waiting = asyncio.create_task(self._run_hook_when_heard())
                await self._web.start(listener)
                if self._channel is not None:
                    self._channel.start(self._fail)
                announce(address)
                await self._stopped.wait()
            finally:
                if waiting is not None:
                    waiting.cancel()
                await self._finish()
        if self._failure is not None:
            raise self._failure
        logger.info("stopped")

    def _tell_first(self) -> None:
        if self._file is not None:
            self._file.clear()
            try:
                self._file.write(self._state)
            except OSError as error:
                raise SettingsError(f"agent.file {self._options.file} cannot be written: {error.strerror}") from error
        for courier in self._couriers.values():
            courier.start(self._first)

    def _run_hook(self) -> None:
        """Once at every start, whatever the state: what the last agent's hook has done may hold still."""
        if _HOOK in self._couriers:
            self._couriers[_HOOK].bring_once()

    async def _run_hook_when_heard(self) -> None:
        while not self._board.wait(0):  # noqa: ASYNC110 - a thread says so, and the loop must be free to stop
            await asyncio.sleep(LOOK_SECONDS)
        logger.info("enough sources are heard now")
        self._run_hook()

    def _warn(self) -> None:
        sources = self._board.sources()
        logger.warning(
            "no word on zones yet, none counts as out: %d of %d sources heard, and a majority is needed",
            sum(source.age is not None for source in sources),
            len(sources),
        )

    async def _finish(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        await self._web.close()
        self._board.close()
        for courier in self._couriers.values():
            courier.stop()
        if self._channel is not None:
            self._channel.close(STOP_SECONDS / 2)
        for courier in self._couriers.values():
            courier.join(max(0.0, deadline - time.monotonic()))

    def _changed(self, by_workload: Mapping[str | None, frozenset[Zone]]) -> None:
        """In the board's thread, whenever anything changed for anybody."""
        out = by_workload.get(self._state.workload, by_workload[None])
        if out == self._state.out:
            return
        self._state = replace(self._state, out=out, changed_at=self._clock.wall())
        logger.info("zones that are out: %s", ", ".join(sorted(out)) or "none", extra={"is_out": self._state.is_out})
        for courier in self._couriers.values():
            courier.submit(self._state)

    def _fail(self, error: HoldfastError) -> None:
        def stop() -> None:
            self._failure = error
            self.stop()

        assert self._loop is not None  # the channel starts after it
        with suppress(RuntimeError):  # it has ended meanwhile
            self._loop.call_soon_threadsafe(stop)

    def _channel_of(self, method: str, target: str) -> Channel | None:
        """The channel, if this is a message for it."""
        return self._channel if method == "POST" and path_of(target) == "/sns" else None

    async def _respond(self, request: Request) -> Answer:
        channel = self._channel_of(request.method, request.target)
        if channel is not None:
            return await channel.receive(request.body)
        known = Known(
            state=self._state, age=self._board.age, sources=self._board.sources(), period=self._options.period
        )
        return answer(request.method, request.target, known)
