"""The detection process: decodes telemetry, keeps measurements, and reaches verdicts. Started by `process.py`.

It reads messages from standard input and writes them to standard output. It ends when its standard input is closed,
which happens at the latest when the server ends, even if that is killed.
"""

import logging
import os
import pickle
import signal
import sys
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from typing import IO

import msgspec

from holdfast._clock import SystemClock
from holdfast._errors import EngineUnavailable, HoldfastError, InvalidValue
from holdfast._secret import check_url
from holdfast._types import Verdict, Zone, ZoneState
from holdfast.compose import Databases
from holdfast.config import Settings
from holdfast.server.detection.messages import (
    LENGTH,
    MAX_BODY_BYTES,
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
    States,
    ToChild,
    build_error_answer,
    build_result,
    decode_to_child,
    encode_message,
    get_content,
)
from holdfast.server.detection.sources import SourcePoller
from holdfast.server.logs import configure_logging
from holdfast.telemetry.collector import GRACE_SECONDS
from holdfast.telemetry.faults import FaultStatuses
from holdfast.telemetry.history import SUBSYSTEM as TELEMETRY
from holdfast.telemetry.source import Decoder, SourceContext, SourceWorkload
from holdfast.telemetry.sources.emf import EmfDecoder
from holdfast.watch import AlarmChanges, CurrentVerdict, TrafficSample, WatchEvent, WatchStore, WorkloadWatcher
from holdfast.watch.lease import fence_by_lease, fence_by_number
from holdfast.watch.store import SUBSYSTEM as WATCH
from holdfast.watch.watch import STALE_BINS

logger = logging.getLogger("holdfast.detection")

ANSWER_SECONDS = 1.0
"""How long the child waits for an answer of the server, in addition to the time that the server waits for its
database."""
NICENESS = 5
"""On a busy machine the server gets three times as much of a core as this process, so that its API stays quick."""
MAX_MEMBERS = 1_000
"""Maximum members of a gzip body, such as of files that were appended to each other. Each costs a copy of the rest."""
MAX_BATCHES = 10_000
"""Batches whose ids are remembered, to recognize a repeated one: 40 senders for a minute."""


_STOPPED = "the server has closed the connection"


class Channel:
    """The connection with the server. Thread-safe."""

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source = source
        self._target = target
        self._writing = threading.Lock()
        self._numbers = count(1)
        self._asking = threading.Lock()
        self._questions: dict[int, Future[Answer]] | None = {}
        """The questions that wait for an answer; None after the end of the connection."""

    def read(self) -> ToChild | None:
        """Return the next message, or None if the server has closed the connection. Pass on answers."""
        while True:
            length = self._source.read(LENGTH.size)
            size = LENGTH.unpack(length)[0] if len(length) == LENGTH.size else 0
            content = self._source.read(size)
            if not size or len(content) < size:  # the server may be killed in the middle of a message
                self._refuse_questions()
                return None
            message = decode_to_child(content)
            if not isinstance(message, Answer):
                return message
            question = self._pop_question(message.number)
            if question is not None:
                question.set_result(message)

    def send(self, message: FromChild) -> None:
        with self._writing:
            self._target.write(encode_message(message))
            self._target.flush()

    def ask(self, question: ReadStates | Evacuate, seconds: float) -> bytes:
        """Ask the server, and return the content of its answer. Raise EngineUnavailable without one in `seconds`."""
        question.number = next(self._numbers)
        answered: Future[Answer] = Future()
        with self._asking:
            if self._questions is None:
                raise EngineUnavailable(_STOPPED)
            self._questions[question.number] = answered
        self.send(question)
        try:
            return get_content(answered.result(seconds))
        except TimeoutError as error:
            self._pop_question(question.number)
            raise EngineUnavailable(f"the server did not answer within {seconds:g} s") from error

    def _pop_question(self, number: int) -> "Future[Answer] | None":
        with self._asking:
            return None if self._questions is None else self._questions.pop(number, None)

    def _refuse_questions(self) -> None:
        """Raise an error in all threads that wait for an answer, so that the process can end at once."""
        with self._asking:
            questions, self._questions = self._questions or {}, None
        for question in questions.values():
            question.set_exception(EngineUnavailable(_STOPPED))


class ServerHandler:
    """A VerdictHandler that asks the server, which has the zone states and evacuates."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        self._channel = channel
        self._seconds = seconds

    def read_states(self, workload: str) -> Mapping[Zone, ZoneState]:
        return msgspec.msgpack.decode(self._channel.ask(ReadStates(0, workload), self._seconds), type=States)

    def evacuate(self, verdict: Verdict, zones: frozenset[Zone]) -> None:
        self._channel.ask(Evacuate(0, verdict, sorted(zones)), self._seconds)


class EventSender:
    """A sink that sends the events of the detection loop to the server."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def emit(self, event: WatchEvent) -> None:
        match event:
            case TrafficSample():
                name = "traffic"
            case CurrentVerdict():
                name = "current"
            case AlarmChanges():
                name = "alarms"
            case _:
                name = "verdict"
        self._send(name, event)

    def report_polled(self, result: IngestResult) -> None:
        """Tell the server what a polled source has read, for its metrics."""
        self._send(POLLED, result)

    def _send(self, name: str, content: WatchEvent | IngestResult) -> None:
        with suppress(OSError):  # the server has ended, and so will this process
            self._channel.send(Event(name, msgspec.json.encode(content)))


def build_source_context(settings: Settings) -> SourceContext:
    """Return what decoders and polled sources need to know of the settings."""
    workloads = [
        SourceWorkload(
            workload.name,
            frozenset(map(Zone, workload.zones)),
            FaultStatuses.parse(workload.fault_statuses).count_faults,
        )
        for workload in settings.workload
    ]
    seconds = settings.telemetry.bin_seconds
    return SourceContext(
        workloads=workloads, bin_seconds=seconds, emf=EmfDecoder(workloads, settings.telemetry.emf, seconds)
    )


class Ingestor:
    """Turns the telemetry of senders into measurements. Not thread-safe."""

    def __init__(self, decoder: Decoder, watcher: WorkloadWatcher) -> None:
        self._decoder = decoder
        self._watcher = watcher
        self._batches: OrderedDict[tuple[str, str], IngestResult] = OrderedDict()

    def ingest(self, message: Ingest) -> IngestResult:
        """Add the measurements of a request. Raise InvalidValue if its body cannot be decompressed.

        A batch that arrived before is not added again: its sender repeats it because our first answer was lost.
        """
        key = None if message.batch is None else (message.sender, message.batch)
        if key is not None and (known := self._batches.get(key)) is not None:
            return msgspec.structs.replace(known, is_duplicate=True)
        now = SystemClock().wall()
        body = decompress(message.body) if message.is_gzip else message.body
        allowed = None if message.allowed is None else frozenset(message.allowed)
        batch = self._decoder.decode(body, now, allowed=allowed)
        result = build_result(batch, self._watcher.ingest(batch.deltas, requests=batch.requests), now)
        if key is not None:
            self._batches[key] = result
            if len(self._batches) > MAX_BATCHES:
                self._batches.popitem(last=False)
        return result


def decompress(body: bytes) -> bytes:
    """Return the content of a gzip body. Raise InvalidValue if it is damaged, or longer than MAX_BODY_BYTES."""
    found = bytearray()
    try:
        for _ in range(MAX_MEMBERS):
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            found += member.decompress(body, MAX_BODY_BYTES + 1 - len(found))
            if len(found) > MAX_BODY_BYTES:
                raise InvalidValue(
                    f"the decompressed body has more than {MAX_BODY_BYTES >> 20} MiB: send smaller batches"
                )
            if not member.eof:
                raise InvalidValue("the body is not complete gzip data: it ends too early")
            body = member.unused_data
            if not body:
                return bytes(found)
    except zlib.error as error:
        raise InvalidValue(f"the body is not gzip data: {error}") from error
    raise InvalidValue(f"the body has more than {MAX_MEMBERS:,} members of gzip: compress all lines together")


def run(channel: Channel, settings: Settings, lease: int | None) -> None:
    """Detect until the server closes the connection. With a lease, write only while no other server has taken it."""
    events = EventSender(channel)
    with Databases(settings) as databases, ExitStack() as stack:
        watch, telemetry = databases.database(WATCH), databases.database(TELEMETRY)
        if lease is not None:
            watch, telemetry = fence_by_lease(watch, lease), fence_by_number(telemetry, lease)
        store = WatchStore(watch)
        watcher = WorkloadWatcher(
            [workload.to_watched_workload(settings.evacuation) for workload in settings.workload],
            store,
            evacuator=ServerHandler(channel, settings.database.timeout + ANSWER_SECONDS),
            events=events,
            history=telemetry,
            bin_seconds=settings.telemetry.bin_seconds,
            limits=settings.telemetry.limits,
        )
        ingestor = Ingestor(build_source_context(settings).emf, watcher)
        stack.enter_context(watcher)
        # Sources have a decoder of their own, because each is read in its own thread.
        sources = settings.telemetry.source
        stack.enter_context(
            SourcePoller(sources, lambda: build_source_context(settings), watcher, store, events.report_polled)
        )
        _start_heartbeat(settings, watcher, stack)
        queries = ThreadPoolExecutor(1, thread_name_prefix="holdfast-queries")
        stack.callback(queries.shutdown, wait=False, cancel_futures=True)  # the last bins are saved meanwhile
        channel.send(Ready())
        while (message := channel.read()) is not None:
            match message:
                case Ingest():
                    _answer(channel, message.number, lambda: msgspec.msgpack.encode(ingestor.ingest(message)))
                case Query():
                    queries.submit(_answer, channel, message.number, _query(watcher, message))


def _start_heartbeat(settings: Settings, watcher: WorkloadWatcher, stack: ExitStack) -> None:
    """Send heartbeats from this process, which evaluates: they end with it, and with its windows."""
    if settings.heartbeat.url is not None:
        from holdfast.alerts import Heartbeat

        max_age = (STALE_BINS + 1) * watcher.bin_seconds + GRACE_SECONDS + settings.database.timeout
        url, interval = check_url(settings.heartbeat.url.reveal()), settings.heartbeat.interval
        stack.enter_context(Heartbeat(url, watcher.evaluated_until, interval=interval, max_age=max_age))


def _query(watcher: WorkloadWatcher, message: Query) -> Callable[[], bytes]:
    return lambda: msgspec.json.encode(watcher.answer(message.query))


def _answer(channel: Channel, number: int, work: Callable[[], bytes]) -> None:
    """Send the result of `work`, or its error, as the answer to a question."""
    try:
        answer = Answer(number, work())
    except HoldfastError as error:
        answer = build_error_answer(number, error)
    except Exception as error:
        logger.exception("cannot answer a question of the server")
        answer = build_error_answer(number, error)
    with suppress(OSError):
        channel.send(answer)


def main() -> None:
    """Run the process. Signals are ignored: the server decides when it ends, by closing the connection."""
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that a stray print ends up in the log
    channel = Channel(source, target)
    first = channel.read()
    if not isinstance(first, Start):
        sys.exit("holdfast.server.detection.child is started by the server, not by hand")
    settings: Settings = pickle.loads(first.settings)  # noqa: S301 - written by the process that started this one
    configure_logging(settings.log)
    try:
        run(channel, settings, first.lease)
    except HoldfastError as error:
        logger.error("detection cannot run: %s", error)  # noqa: TRY400 - the message says enough
        sys.exit(1)


if __name__ == "__main__":
    main()
