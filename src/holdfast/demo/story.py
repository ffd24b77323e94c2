"""The run itself: start everything, let one zone fail, watch, stop everything, add it up."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import ZoneStatus
from holdfast.demo.process import Child
from holdfast.demo.records import Fault, Sent, read
from holdfast.demo.shop import WORKLOAD
from holdfast.demo.summary import Summary, summarise
from holdfast.demo.timeline import timeline
from holdfast.detect.detectors.threshold import ThresholdOptions
from holdfast.status.sources.web import connect, events
from holdfast.status.wire import Snapshot
from holdfast.telemetry import BIN_SECONDS
from holdfast.watch import RecordedVerdict, VerdictChange

QUIET_PULSES = 3
"""Seconds in a row that count as recovered."""
REGION = "us-east-1"
ZONES = ("use1-az1", "use1-az2", "use1-az3")
INSTANCES = 2
HIGHEST_RATE = 200
"""Requests a second that eight processes on two cores still answer in time."""
FAULTS = {"errors": (0.4, 0.0), "latency": (0.0, 0.8), "both": (0.4, 0.8)}
"""Share of requests that fail, and seconds that all of them take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the run goes. Durations are seconds."""

    directory: Path
    """Where the processes keep their records, and where summary and picture are written."""
    zone: str = ZONES[1]
    fault: Literal["errors", "latency", "both"] = "both"
    rate: float = 60.0
    """Requests a second, over all zones: 200 in each zone and bin of ten seconds."""
    bin_seconds: float = BIN_SECONDS
    keep: bool = False
    """Leave everything running until it is interrupted."""

    @property
    def before(self) -> float:
        """How long all is well: a whole bin at least."""
        return 1.2 * self.bin_seconds

    @property
    def after(self) -> float:
        """How long the recovery is watched."""
        return self.bin_seconds + QUIET_PULSES + 2

    @property
    def patience(self) -> float:
        """How long to wait for the zone to be left, before the run ends without it: twice what it should take."""
        return 4 * self.bin_seconds + 5

    def __post_init__(self) -> None:
        if self.zone not in ZONES:
            raise InvalidValue(f"zone is {self.zone!r}: expected one of {', '.join(ZONES)}")
        if not 0.5 <= self.bin_seconds <= 60:
            raise InvalidValue(f"bin_seconds is {self.bin_seconds:g}: expected 0.5 to 60")
        # What the detector asks for in each zone and bin, and half as much again, because load is not quite even.
        least = 1.5 * ThresholdOptions().minimum_requests * len(ZONES) / self.bin_seconds
        if not least <= self.rate <= HIGHEST_RATE:
            raise InvalidValue(
                f"rate is {self.rate:g}: expected {least:g} to {HIGHEST_RATE} requests a second with bins of "
                f"{self.bin_seconds:g} s"
            )


@dataclass(slots=True)
class Scene:
    """What the run looks like now, for whoever shows it."""

    address: str = ""
    lines: list[tuple[float, str]] = field(default_factory=list)
    """What happened, with when."""
    pulses: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=120))
    out: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.time)


Show = Callable[[Scene], None]


class Story:
    """One run. `play` returns its summary; however it ends, no process is left."""

    def __init__(self, options: Options, show: Show) -> None:
        self._options = options
        self._show = show
        self._scene = Scene()
        self._left = threading.Event()
        """Set when the zone was left."""
        self._children: list[tuple[str, Child]] = []
        self._quiet = 0

    def play(self) -> Summary:
        """Run it from beginning to end. Raises EngineUnavailable when a process does not start, or ends early."""
        options = self._options
        options.directory.mkdir(parents=True, exist_ok=True)
        if any(options.directory.iterdir()):
            raise InvalidValue(f"{options.directory} is not empty: the records of another run would be counted in")
        with ExitStack() as stack:
            server = self._start(stack, "server", "--settings", str(self._write_settings()))
            self._scene.address = server
            self._say(f"server on {server}")
            endpoints = self._start_shop(stack, server)
            listener = threading.Thread(target=self._listen, args=(server,), daemon=True)
            listener.start()
            self._start(
                stack,
                "client",
                *("--server", server, "--rate", str(options.rate)),
                *("--endpoints", msgspec.json.encode(endpoints).decode()),
                *("--record", str(options.directory / "client.jsonl")),
            )
            self._say(f"client sends {options.rate:g} requests a second to {len(ZONES)} zones")
            self._pause(options.before)
            self._begin_fault(endpoints[options.zone])
            self._pause(options.patience, until=self._left)
            self._pause(options.after)
            if options.keep:
                self._say("everything keeps running: press Ctrl-C to end it")
                with suppress(KeyboardInterrupt):
                    self._pause(math.inf)
            verdicts = self._ask(server, "verdicts", list[RecordedVerdict])
            snapshot = self._ask(server, "status", Snapshot)
        return self._add_up(verdicts, snapshot.statuses)

    def _start(self, stack: ExitStack, module: str, *arguments: str, name: str | None = None) -> str:
        name = name or module
        log = self._options.directory / f"{name}.log"
        child = stack.enter_context(Child(f"holdfast.demo.{module}", arguments, log))
        self._children.append((name, child))
        return str(child.announced().get("address", ""))

    def _start_shop(self, stack: ExitStack, server: str) -> dict[str, list[str]]:
        endpoints: dict[str, list[str]] = {}
        for zone in ZONES:
            for number in range(1, INSTANCES + 1):
                instance = f"i-{zone}-{number}"
                address = self._start(
                    stack,
                    "shop",
                    *("--server", server, "--region", REGION, "--zone", zone, "--instance", instance),
                    *("--record", str(self._options.directory / f"{instance}.jsonl")),
                    name=instance,
                )
                endpoints.setdefault(zone, []).append(address)
        self._say(f"shop in {len(ZONES)} zones, {INSTANCES} instances each")
        return endpoints

    def _write_settings(self) -> Path:
        directory = self._options.directory
        file = directory / "holdfast.toml"
        zones = ", ".join(f'"{zone}"' for zone in ZONES)
        file.write_text(
            f"data_directory = {msgspec.json.encode(str(directory / 'data')).decode()}\n"
            "[server]\nport = 0\nopen = true\n"
            "[log]\nformat = 'json'\nlevel = 'warning'\n"
            f"[telemetry]\nbin_seconds = {self._options.bin_seconds}\n"
            f'[[workload]]\nname = "{WORKLOAD}"\nregion = "{REGION}"\nzones = [{zones}]\n',
            encoding="utf-8",
        )
        return file

    def _begin_fault(self, addresses: Sequence[str]) -> None:
        errors, delay = FAULTS[self._options.fault]
        body = msgspec.json.encode({"errors": errors, "delay": delay})
        for address in addresses:
            _ask(address, "POST", "/fault", body)
        health = {_ask(address, "GET", "/health")[0] for address in addresses}
        words = [f"{errors:.0%} of requests fail"] * bool(errors) + [f"all take {delay:g} s longer"] * bool(delay)
        green = "still answers 200" if health == {200} else f"answers {health}"
        self._say(f"FAULT in {self._options.zone}: {', '.join(words)}; its own health check {green}")

    def _pause(self, seconds: float, until: threading.Event | None = None) -> None:
        """Let time pass while everything runs. Raises EngineUnavailable when a process has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (until and until.is_set()):
            ended = [name for name, child in self._children if child.ended()]
            if ended:
                raise EngineUnavailable(
                    f"{', '.join(ended)} ended before the run did: see {self._options.directory}/{ended[0]}.log"
                )
            self._show(self._scene)
            time.sleep(0.1)

    def _listen(self, server: str) -> None:
        """Follow the server's events, as any page or board does."""
        try:
            for _, name, data in events(f"{server}/v1/events", {}):
                if name == "pulse":
                    self._take_pulse(msgspec.json.decode(data))
                elif name == "verdict":
                    told = msgspec.json.decode(data, type=VerdictChange)
                    state = "closed" if told.closed else f"{told.verdict.kind} {told.verdict.zone or ''}"
                    self._say(f"VERDICT {told.verdict.id}: {state}")
                elif name == "status":
                    self._take_status(msgspec.json.decode(data, type=ZoneStatus))
        except (OSError, HTTPException):
            return  # the server has stopped

    def _take_pulse(self, pulse: dict[str, Any]) -> None:
        """Show it, and say so when the service has recovered: no failure anywhere, and nothing sent into the zone."""
        self._scene.pulses.append(pulse)
        zones = pulse["workloads"][WORKLOAD]
        quiet = not zones[self._options.zone]["requests"] and not any(reading["faults"] for reading in zones.values())
        self._quiet = self._quiet + 1 if quiet and self._left.is_set() else 0
        if self._quiet == QUIET_PULSES:
            slowest = max(reading["latency"] or 0.0 for reading in zones.values())
            self._say(
                f"RECOVERED: for {QUIET_PULSES} s no request failed and none reached {self._options.zone}; "
                f"p90 latency {slowest * 1000:.0f} ms"
            )

    def _take_status(self, status: ZoneStatus) -> None:
        if status.out:
            self._scene.out.add(status.zone)
            self._say(f"OUT {status.zone}")
            if status.zone == self._options.zone:
                self._left.set()
        else:
            self._scene.out.discard(status.zone)
            self._say(f"IN {status.zone}")

    def _ask(self, server: str, what: str, kind: Any) -> Any:
        _, body = _ask(server, "GET", f"/v1/{what}")
        return msgspec.json.decode(body, type=kind)

    def _add_up(self, verdicts: Sequence[RecordedVerdict], statuses: Sequence[ZoneStatus]) -> Summary:
        """From the records of the processes, which have ended and can add nothing more."""
        options = self._options
        faults = [fault for file in options.directory.glob("i-*.jsonl") for fault in read(file, Fault)]
        sent = sorted(read(options.directory / "client.jsonl", Sent), key=lambda request: request.at)
        summary = summarise(options.zone, faults, sent, verdicts, statuses)
        marks = {"fault": summary.fault_at, "verdict": summary.verdict_at, "last request": summary.last_request_at}
        picture = timeline(
            sent,
            ZONES,
            {name: at for name, at in marks.items() if at is not None},
            {status.zone: status.since for status in statuses if status.out},
        )
        (options.directory / "timeline.svg").write_text(picture, encoding="utf-8")
        (options.directory / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
        return summary

    def _say(self, line: str) -> None:
        self._scene.lines.append((time.time() - self._scene.started, line))
        self._show(self._scene)


def _ask(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = connect(address, timeout=5.0)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
