"""Run the detection process, restart it if it ends, and pass on questions and answers."""

import asyncio
import logging
import pickle
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count

import msgspec

from holdfast._background import FAILURE_BACKOFF
from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineUnavailable, NotFound
from holdfast._names import format_count
from holdfast._types import Verdict, Zone
from holdfast.config import Settings
from holdfast.server.detection.lease import DetectionLease, LeasedHandler
from holdfast.server.detection.messages import (
    LENGTH,
    POLLED,
    Answer,
    Evacuate,
    Event,
    FromChild,
    Ingest,
    IngestResult,
    Query,
    ReadStates,
    Ready,
    Start,
    ToChild,
    build_error_answer,
    decode_from_child,
    encode_message,
    get_content,
)
from holdfast.telemetry.collector import GRACE_SECONDS
from holdfast.telemetry.query import SeriesQuery
from holdfast.watch import CurrentVerdict, TrafficSample, VerdictHandler
from holdfast.watch.watch import KEPT_TRAFFIC_SAMPLES, STALE_BINS
from holdfast.watch.workload import NO_WHOLE_BIN, build_unknown_verdict

logger = logging.getLogger("holdfast.detection")

START_SECONDS = 15.0
"""How long the server waits for the child when it starts: it loads a day of measurements."""
LOAD_SECONDS = 600.0
"""How long the child may take to start before it is killed: 60,000 series take ten seconds, and it must not be killed
again and again."""
STOP_SECONDS = 1.0
"""How long the child may take to finish its window before it is killed: less than the server's own timeout."""
ANSWER_SECONDS = 10.0
"""How long a question waits for its answer. Senders give up after five seconds, and send the batch again."""
SILENT_SECONDS = 20.0
"""A child that sends nothing for this long hangs, and is killed: it sends a sample of traffic every second. Three times
`database.timeout` is added, because it may wait for its database as often in a row."""
MAX_BATCHES = 32
"""Batches of telemetry that may wait for the child, for about a second. Further ones are refused: memory is bounded."""
MAX_QUERIES = 16
"""Queries that may wait. They have a limit of their own, so that slow ones never keep telemetry out."""
STABLE_SECONDS = 30.0
"""A child that ran this long was well: after its end, the next one starts at once."""
STANDBY = "another server on the same database evaluates"
RESTARTING = "the detection process is not running: it is being restarted"
OUTDATED = "the detection process has not judged a window for too long"
COMMAND = (sys.executable, "-P", "-m", "holdfast.server.detection.child")
"""Starts the child. With -P, it imports nothing from the working directory, like the server itself."""


class DetectionProcess:
    """The child process that keeps measurements and reaches verdicts. For use in one event loop.

    With a `lease`, the child runs only while this server holds it. Otherwise the server stands by: `ingest` raises
    EngineUnavailable, and `answer` uses `answer_stored`, which reads what the evaluating server has saved.

    `publish` gets the name and JSON of every event. While the child is not running, questions raise EngineUnavailable
    and the current verdict of every workload is UNKNOWN.
    """

    def __init__(
        self,
        settings: Settings,
        handler: VerdictHandler,
        publish: Callable[[str, bytes], None],
        clock: Clock | None = None,
        *,
        lease: DetectionLease | None = None,
        answer_stored: Callable[[SeriesQuery], bytes] | None = None,
    ) -> None:
        self._settings = settings
        self._handler = handler if lease is None else LeasedHandler(handler, lease)
        self._lease = lease
        self._lease_held = asyncio.Event()
        self._child_lease: int | None = None
        self._last_lease: int | None = None
        self._answer_stored = answer_stored
        self._publish = publish
        self._clock = clock or SystemClock()
        self._child: Process | None = None
        self._is_ready = False
        self._batches: dict[int, asyncio.Future[Answer]] = {}
        self._queries: dict[int, asyncio.Future[Answer]] = {}
        """The questions that wait for an answer, by number."""
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervisor: asyncio.Task[None] | None = None
        self._first_start = asyncio.Event()
        self._verdicts: dict[str, tuple[Verdict, float]] = {}
        """The verdict of the latest window of each workload, and the monotonic time at which it arrived."""
        self._traffic: deque[TrafficSample] = deque(maxlen=KEPT_TRAFFIC_SAMPLES)
        self.restarts = 0
        """Number of times that the child ended unexpectedly."""
        self.on_polled: Callable[[IngestResult], None] = lambda _: None
        """Called with what polled sources have read."""
        self.on_takeover: Callable[[], None] = lambda: None
        """Called when this server has taken the lease."""

    @property
    def is_running(self) -> bool:
        """Whether the child answers questions, on standby that of another server.

        True without workloads: then there is no child, and nothing to watch.
        """
        return self._is_ready or not self._settings.workload or self.other_address is not None

    @property
    def is_standby(self) -> bool:
        """Whether another server on the same database has the lease, or none has it yet."""
        return bool(self._settings.workload) and self._lease is not None and self._lease.number is None

    @property
    def other_address(self) -> str | None:
        """The address of the server that evaluates, on standby; None if it is this one, or unknown."""
        return None if self._lease is None else self._lease.other_address

    @property
    def pid(self) -> int | None:
        """The process id of the child, or None while there is none."""
        return None if self._child is None else self._child.pid

    @property
    def bin_seconds(self) -> float:
        return self._settings.telemetry.bin_seconds

    def recent_traffic(self) -> Sequence[TrafficSample]:
        """Return the traffic samples of the last two minutes, oldest first."""
        return list(self._traffic)

    def current_verdicts(self) -> Mapping[str, Verdict]:
        """Return the verdict of the latest window of each workload: UNKNOWN while the child is not running."""
        return {workload.name: self._get_current_verdict(workload.name) for workload in self._settings.workload}

    def _get_current_verdict(self, workload: str) -> Verdict:
        verdict, received_at = self._verdicts.get(workload, (None, 0.0))
        reason = NO_WHOLE_BIN if self._is_ready else STANDBY if self.is_standby else RESTARTING
        if verdict is not None:
            # The child sends one after each bin. It skips a window that it cannot evaluate for STALE_BINS.
            longest_pause = STALE_BINS * self.bin_seconds + GRACE_SECONDS + self._settings.database.timeout
            if self._clock.monotonic() - received_at <= longest_pause:
                return verdict
            reason = OUTDATED
        return build_unknown_verdict(workload, self._clock.wall(), reason)

    async def start(self) -> None:
        """Start the child, and wait until it is ready, has failed for the first time, or START_SECONDS have passed."""
        if self._settings.workload and self._supervisor is None:
            if self._lease is not None:
                loop = asyncio.get_running_loop()

                def apply() -> None:
                    loop.call_soon_threadsafe(self._apply_lease)

                self._lease.on_change = apply
                await asyncio.to_thread(self._lease.start)
            self._apply_lease()
            if not self._lease_held.is_set():
                self._first_start.set()
            self._supervisor = asyncio.create_task(self._supervise())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._first_start.wait(), START_SECONDS)

    async def close(self) -> None:
        """Stop the child, and kill it if it takes too long. May be repeated."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await supervisor
            if self._lease is not None:
                await asyncio.to_thread(self._lease.close)

    def _apply_lease(self) -> None:
        """Let the child run while this server has the lease, and kill it at once when the lease is lost."""
        number = None if self._lease is None else self._lease.number
        if number is not None and number != self._last_lease:
            self._last_lease = number
            self.on_takeover()
        if self._lease is None or number is not None:
            self._lease_held.set()
        else:
            self._lease_held.clear()
        if self._child is not None and number != self._child_lease:
            with suppress(ProcessLookupError):
                self._child.kill()

    async def ingest(
        self, body: bytes, *, is_gzip: bool, sender: str, allowed: Sequence[str] | None, batch: str | None
    ) -> IngestResult:
        """Pass telemetry to the child, and return the result. Raise EngineUnavailable while there is no child."""
        if not self._settings.workload:
            lines = sum(1 for line in body.splitlines() if line.strip())
            return IngestResult(0, lines, "no workload is configured: add a [[workload]] to the settings")
        if self._lease is not None and not self._lease.is_valid and self._lease.has_standby:
            raise EngineUnavailable("this server cannot renew its lease: another one may evaluate now")
        question = Ingest(0, body, is_gzip, sender, None if allowed is None else list(allowed), batch)
        return msgspec.msgpack.decode(await self._ask(question), type=IngestResult)

    async def answer(self, query: SeriesQuery) -> bytes:
        """Return a SeriesAnswer as JSON. Raise EngineUnavailable while the child is not running."""
        if self.is_standby and self._answer_stored is not None:
            return await asyncio.to_thread(self._answer_stored, query)
        return await self._ask(Query(0, query))

    def require_watched(self, workload: str) -> None:
        """Raise NotFound if the workload is not configured."""
        known = [each.name for each in self._settings.workload]
        if workload not in known:
            expected = f"expected one of {', '.join(known)}" if known else "no workload is configured"
            raise NotFound(f"workload {workload} is not watched: {expected}")

    async def _ask(self, question: Ingest | Query) -> bytes:
        child = self._child
        if not self._is_ready or child is None:
            raise EngineUnavailable(RESTARTING)
        waiting, limit = (self._queries, MAX_QUERIES) if isinstance(question, Query) else (self._batches, MAX_BATCHES)
        if len(waiting) >= limit:
            raise EngineUnavailable(
                f"{format_count(limit, 'request')} are waiting for the detection process: try again later"
            )
        question.number = next(self._numbers)
        answered = waiting[question.number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._send(child, question)
                return get_content(await answered)
        except TimeoutError as error:
            raise EngineUnavailable(f"the detection process did not answer within {ANSWER_SECONDS:g} s") from error
        finally:
            waiting.pop(question.number, None)

    async def _send(self, child: Process, message: ToChild) -> None:
        if child is not self._child or child.stdin is None:  # the next child must not get what was meant for this one
            raise EngineUnavailable(RESTARTING)
        try:
            child.stdin.write(encode_message(message))
            await child.stdin.drain()
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError if the child has just ended
            raise EngineUnavailable(RESTARTING) from error

    async def _supervise(self) -> None:
        """Run the child again and again, with growing pauses while it fails."""
        failures, pause = 0, 0.0
        while True:
            await self._lease_held.wait()
            began = self._clock.monotonic()
            self._child_lease = None if self._lease is None else self._lease.number
            if self._lease is not None and self._child_lease is None:  # lost, and `_apply_lease` runs next
                await asyncio.sleep(0)
                continue
            try:
                await self._run_child()
            except OSError as error:
                logger.warning("cannot start the detection process: %s", error)
            except Exception:
                logger.exception("the detection process sent a message that cannot be handled")
            if self._lease is not None and self._lease.number != self._child_lease:
                continue  # it was killed because another server evaluates
            self.restarts += 1
            failures = 0 if self._clock.monotonic() - began >= STABLE_SECONDS else failures + 1
            pause = FAILURE_BACKOFF.delay(failures, pause, random.random) if failures else 0.0
            when = f"in {pause:.1f} s" if pause else "now"
            logger.warning("the detection process has ended; the server starts it again %s", when)
            self._first_start.set()
            await asyncio.sleep(pause)

    async def _run_child(self) -> None:
        """Run the child until it ends. If this task is cancelled, stop the child."""
        self._child = child = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,  # so that Ctrl-C reaches only the server, which then stops the child
        )
        assert child.stdout is not None
        try:
            await self._send(child, Start(pickle.dumps(self._settings), self._child_lease))
            self._apply_lease()  # it may have been lost meanwhile
            await self._read(child, child.stdout)
        except EngineUnavailable:  # it ended before it had read its settings
            pass
        finally:
            self._is_ready = False
            self._child = None
            self._verdicts.clear()
            for verdict in self.current_verdicts().values():
                self._publish("current", msgspec.json.encode(CurrentVerdict(verdict)))
            for waiting in (*self._batches.values(), *self._queries.values()):
                if not waiting.done():
                    waiting.set_exception(EngineUnavailable(RESTARTING))
            await _stop(child)

    async def _read(self, child: Process, source: asyncio.StreamReader) -> None:
        """Handle the messages of the child until it closes the connection, or hangs."""
        silent_seconds = SILENT_SECONDS + 3 * self._settings.database.timeout
        while True:
            try:
                # It loads its state before its first message, which may take longer.
                async with asyncio.timeout(silent_seconds if self._is_ready else LOAD_SECONDS):
                    length = await source.readexactly(LENGTH.size)
                    message = decode_from_child(await source.readexactly(LENGTH.unpack(length)[0]))
            except asyncio.IncompleteReadError:
                return
            except TimeoutError:
                logger.warning("the detection process hangs: it is killed")
                child.kill()
                return
            self._handle(child, message)

    def _handle(self, child: Process, message: FromChild) -> None:
        match message:
            case Answer():
                answered = self._batches.get(message.number) or self._queries.get(message.number)
                if answered is not None and not answered.done():  # otherwise the client has disconnected
                    answered.set_result(message)
            case Event():
                self._handle_event(message)
            case Ready():
                self._is_ready = True
                self._first_start.set()
            case ReadStates() | Evacuate():
                task = asyncio.create_task(self._serve(child, message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _handle_event(self, event: Event) -> None:
        if event.name == POLLED:
            self.on_polled(msgspec.json.decode(event.content, type=IngestResult))
            return
        if event.name == "current":
            verdict = msgspec.json.decode(event.content, type=CurrentVerdict).verdict
            known, _ = self._verdicts.get(verdict.workload, (None, 0.0))
            self._verdicts[verdict.workload] = verdict, self._clock.monotonic()
            if known is not None and known.id == verdict.id:
                return
        elif event.name == "traffic":
            self._traffic.append(msgspec.json.decode(event.content, type=TrafficSample))
        self._publish(event.name, event.content)

    async def _serve(self, child: Process, question: ReadStates | Evacuate) -> None:
        """Answer a question of the child. It needs a store, so it runs in a thread."""
        try:
            if isinstance(question, ReadStates):
                states = await asyncio.to_thread(self._handler.read_states, question.workload)
                answer = Answer(question.number, msgspec.msgpack.encode(states))
            else:
                zones: frozenset[Zone] = frozenset(question.zones)
                await asyncio.to_thread(self._handler.evacuate, question.verdict, zones)
                answer = Answer(question.number)
        except Exception as error:  # noqa: BLE001 - the child reports it
            answer = build_error_answer(question.number, error)
        with suppress(EngineUnavailable):
            await self._send(child, answer)


async def _stop(child: Process) -> None:
    """Close the connection, which ends the child after its current window, and kill it if it takes too long."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await _wait(child)
    except TimeoutError:
        with suppress(ProcessLookupError):
            child.kill()
        await _wait(child)


async def _wait(child: Process) -> None:
    """Wait for the end of the child. Read its output: a child that cannot write would not end, nor asyncio notice."""
    assert child.stdout is not None
    while await child.stdout.read(65_536):
        pass
    await child.wait()
