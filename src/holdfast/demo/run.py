"""Run the demonstration: start all processes, let one zone fail, watch, stop the processes, and summarize."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import VerdictKind, ZoneStatus
from holdfast.demo.history import MINUTES, generate_history, send_history
from holdfast.demo.process import Child
from holdfast.demo.records import InjectedFault, SentRequest, read_records
from holdfast.demo.shop import WORKLOAD, FaultRequest
from holdfast.demo.summary import Summary, summarize
from holdfast.demo.timeline import draw_timeline
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.service import EvacuationDetails, EvacuationList
from holdfast.status.sources.web import connect, stream_events
from holdfast.status.wire import StatusSnapshot
from holdfast.telemetry import BIN_SECONDS
from holdfast.watch import RecordedVerdict, VerdictChange

RECOVERY_SAMPLES = 3
"""Consecutive traffic samples, one per second, without a failure after which the service counts as recovered."""
REGION = "us-east-1"
ZONES = ("use1-az1", "use1-az2", "use1-az3")
INSTANCES = 2
BALANCERS = ("shop-web", "shop-api")
MIN_REQUESTS = 30
"""Requests in each zone and bin from which on a failure shows in two bins."""
MAX_RATE = 200
"""Maximum requests per second: eight processes on two cores still answer them in time."""
FAULTS = {"errors": FaultRequest(0.4, 0.0), "latency": FaultRequest(0.0, 0.8), "both": FaultRequest(0.4, 0.8)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of a run. Durations are seconds."""

    directory: Path
    """The folder for the records of the processes, the summary and the picture."""
    zone: str = ZONES[1]
    fault: Literal["errors", "latency", "both"] = "both"
    rate: float = 60.0
    """Requests per second over all zones. 60 are 200 in each zone and bin of ten seconds."""
    bin_seconds: float = BIN_SECONDS
    keep_running: bool = False
    """Keep all processes running until Ctrl-C."""

    @property
    def healthy_seconds(self) -> float:
        """Time before the fault: at least a whole bin."""
        return 1.2 * self.bin_seconds

    @property
    def recovery_seconds(self) -> float:
        """Time after the evacuation in which the recovery is watched."""
        return self.bin_seconds + RECOVERY_SAMPLES + 2

    @property
    def timeout(self) -> float:
        """Maximum wait for the evacuation of the zone: twice the time that learning and detection should take."""
        return 4 * self.bin_seconds + 15

    def __post_init__(self) -> None:
        if self.zone not in ZONES:
            raise InvalidValue(f"zone is {self.zone!r}: expected one of {', '.join(ZONES)}")
        if not 1 <= self.bin_seconds <= 60:
            raise InvalidValue(f"bin_seconds is {self.bin_seconds:g}: expected 1 to 60")
        min_rate = MIN_REQUESTS * len(ZONES) / self.bin_seconds
        if not min_rate <= self.rate <= MAX_RATE:
            raise InvalidValue(
                f"rate is {self.rate:g}: expected {min_rate:g} to {MAX_RATE} requests per second with bins of "
                f"{self.bin_seconds:g} s"
            )


class StoryLine(NamedTuple):
    """One line about the run, `at` seconds after its start."""

    at: float
    text: str


@dataclass(slots=True)
class DemoState:
    """The current state of the run, for the display."""

    address: str = ""
    lines: list[StoryLine] = field(default_factory=list)
    traffic: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=120))
    out: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.time)

    def add_line(self, text: str) -> None:
        """Add a line about the run. Called in any thread; the main thread displays it within 0.1 s."""
        self.lines.append(StoryLine(time.time() - self.started, text))


Display = Callable[[DemoState], None]


class DemoRun:
    """One run of the demonstration. All processes have ended when `run` returns or raises."""

    def __init__(self, options: DemoOptions, display: Display) -> None:
        self._options = options
        self._display = display
        self._state = DemoState()
        self._zone_left = threading.Event()
        """Set when the failing zone is out."""
        self._children: list[tuple[str, Child]] = []
        self._recovered_samples = 0

    def run(self) -> Summary:
        """Run the demonstration, and return its summary.

        Raise InvalidValue if the folder cannot be used, and EngineUnavailable if a process ends early.
        """
        options = self._options
        self._prepare_folder()
        with ExitStack() as stack:
            cloud = self._start_cloud(stack)
            settings = self._write_settings(cloud["address"])
            server = self._start(stack, "server", "--settings", str(settings), "--access-key", cloud["access_key"])
            self._state.address = server
            self._report(f"server on {server}")
            self._report(f"simulated AWS on {cloud['address']}: {', '.join(BALANCERS)} in {len(ZONES)} zones")
            endpoints = self._start_shop(stack, server)
            self._send_history(server)
            listener = threading.Thread(target=self._listen, args=(server,), daemon=True)
            listener.start()
            self._start(
                stack,
                "client",
                *("--server", server, "--rate", str(options.rate)),
                *("--endpoints", msgspec.json.encode(endpoints).decode()),
                *("--record", str(options.directory / "client.jsonl")),
            )
            self._report(f"client sends {options.rate:g} requests per second to {len(ZONES)} zones")
            self._pause(options.healthy_seconds)
            self._begin_fault(endpoints[options.zone])
            self._pause(options.timeout, until=self._zone_left)
            self._pause(options.recovery_seconds)
            moved = self._report_evacuation(server)
            if options.keep_running:
                self._report("all processes keep running: press Ctrl-C to stop them")
                with suppress(KeyboardInterrupt):
                    self._pause(math.inf)
            verdicts = self._request(server, "verdicts", list[RecordedVerdict])
            snapshot = self._request(server, "status", StatusSnapshot)
        self._display(self._state)  # with the lines of the listener that came last
        return self._summarize(verdicts, snapshot.statuses, moved)

    def _start(self, stack: ExitStack, module: str, *arguments: str, name: str | None = None) -> str:
        facts = self._start_module(stack, f"holdfast.demo.{module}", name or module, *arguments)
        return str(facts.get("address", ""))

    def _start_module(self, stack: ExitStack, module: str, name: str, *arguments: str) -> dict[str, Any]:
        child = stack.enter_context(Child(module, arguments, self._options.directory / f"{name}.log"))
        self._children.append((name, child))
        return child.wait_until_ready()

    def _start_cloud(self, stack: ExitStack) -> dict[str, Any]:
        """Start the simulated AWS whose balancers are shifted away from the zone."""
        adds = [part for name in BALANCERS for part in ("--add", f"application:{name}")]
        zones = ("--zones", ",".join(ZONES), "--region", REGION)
        return self._start_module(stack, "holdfast.simulate.aws.control_plane", "aws", *zones, *adds)

    def _report_evacuation(self, server: str) -> Sequence[str]:
        """Report and return the balancers that were shifted away from the zone."""
        moved: list[str] = []
        for run in self._request(server, "evacuations", EvacuationList).runs:
            details = self._request(server, f"evacuations/{run.id}", EvacuationDetails)
            entries = [each for each in details.entries if each.action == "zonal-shift"]
            moved += [each.name for each in entries if each.state is EntryState.APPLIED]
            self._report(f"EVACUATED {run.zone}: traffic of {', '.join(moved)} was shifted; run {run.id}")
        return moved

    def _start_shop(self, stack: ExitStack, server: str) -> dict[str, list[str]]:
        endpoints: dict[str, list[str]] = {}
        for zone in ZONES:
            for number in range(1, INSTANCES + 1):
                instance = _name_instance(zone, number)
                address = self._start(
                    stack,
                    "shop",
                    *("--server", server, "--region", REGION, "--zone", zone, "--instance", instance),
                    *("--record", str(self._options.directory / f"{instance}.jsonl")),
                    name=instance,
                )
                endpoints.setdefault(zone, []).append(address)
        self._report(f"shop in {len(ZONES)} zones, {INSTANCES} instances each")
        return endpoints

    def _send_history(self, server: str) -> None:
        """Send a generated past to the server, just before the first real requests, so that there is no gap."""
        options = self._options
        instances = {zone: [_name_instance(zone, number) for number in range(1, INSTANCES + 1)] for zone in ZONES}
        lines = generate_history(instances, REGION, options.rate, options.bin_seconds, time.time())
        send_history(server, lines)
        self._report(f"history of {MINUTES} minutes, generated and sent: the detector learns from it what is usual")

    def _prepare_folder(self) -> None:
        """Create the folder of the run."""
        directory = self._options.directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise InvalidValue(f"{directory} is not empty: name an empty folder, so that no old records count")
        except OSError as error:
            raise InvalidValue(f"{directory} cannot be written: {error.strerror}; name another folder") from error

    def _write_settings(self, cloud: str) -> Path:
        """Write the settings of the server, and return their file."""
        directory = self._options.directory
        file = directory / "holdfast.toml"
        zones = ", ".join(f'"{zone}"' for zone in ZONES)
        file.write_text(
            f"data_directory = {msgspec.json.encode(str(directory / 'data')).decode()}\n"
            "[server]\nport = 0\nallow_anonymous = true\n"
            "[log]\nformat = 'json'\nlevel = 'warning'\n"
            f"[aws]\nendpoint_url = '{cloud}'\n"
            "[evacuation]\nmode = 'automatic'\n"
            "[[evacuation.action]]\nname = 'status'\n[[evacuation.action]]\nname = 'zonal-shift'\n"
            f"[telemetry]\nbin_seconds = {self._options.bin_seconds}\n"
            f'[[workload]]\nname = "{WORKLOAD}"\nregion = "{REGION}"\nzones = [{zones}]\n',
            encoding="utf-8",
        )
        return file

    def _begin_fault(self, addresses: Sequence[str]) -> None:
        fault = FAULTS[self._options.fault]
        body = msgspec.json.encode(fault)
        for address in addresses:
            _request(address, "POST", "/fault", body)
        health = {status for status, _ in (_request(address, "GET", "/health") for address in addresses)}
        effects = [f"{fault.errors:.0%} of requests fail"] if fault.errors else []
        effects += [f"all take {fault.delay:g} s longer"] if fault.delay else []
        answer = "still answers 200" if health == {200} else f"answers {health}"
        self._report(f"FAULT in {self._options.zone}: {', '.join(effects)}; its own health check {answer}")

    def _pause(self, seconds: float, until: threading.Event | None = None) -> None:
        """Wait `seconds`, or until the event `until`. Raise EngineUnavailable if a process has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (until and until.is_set()):
            ended = [name for name, child in self._children if child.has_ended()]
            if ended:
                raise EngineUnavailable(
                    f"{', '.join(ended)} ended before the run did: see {self._options.directory}/{ended[0]}.log"
                )
            self._display(self._state)
            time.sleep(0.1)

    def _listen(self, server: str) -> None:
        """Follow the server's events, as the page does."""
        try:
            for _, name, data in stream_events(f"{server}/v1/events", {}):
                if name == "traffic":
                    self._take_traffic(msgspec.json.decode(data))
                elif name == "verdict":
                    self._handle_verdict(msgspec.json.decode(data, type=VerdictChange))
                elif name == "status":
                    self._handle_status(msgspec.json.decode(data, type=ZoneStatus))
        except (OSError, HTTPException):
            return  # the server has stopped

    def _take_traffic(self, sample: dict[str, Any]) -> None:
        """Show the sample, and report a recovery: no failures, and no requests to the zone that is out."""
        self._state.traffic.append(sample)
        zones = sample["workloads"][WORKLOAD]
        is_good = not zones[self._options.zone]["requests"] and not any(zone["faults"] for zone in zones.values())
        self._recovered_samples = self._recovered_samples + 1 if is_good and self._zone_left.is_set() else 0
        if self._recovered_samples == RECOVERY_SAMPLES:
            slowest = max(zone["latency"] or 0.0 for zone in zones.values())
            self._state.add_line(
                f"RECOVERED: for {RECOVERY_SAMPLES} s no request failed and none reached {self._options.zone}; "
                f"p90 latency {slowest * 1000:.0f} ms"
            )

    def _handle_verdict(self, change: VerdictChange) -> None:
        """Show a verdict, unless it is `unknown`."""
        verdict = change.verdict
        if verdict.kind is not VerdictKind.UNKNOWN:
            self._state.add_line(
                f"VERDICT {verdict.kind}{' has closed' if change.is_closed else f': {verdict.summary}'}"
            )

    def _handle_status(self, status: ZoneStatus) -> None:
        if status.state.is_out:
            self._state.out.add(status.zone)
            self._state.add_line(f"OUT {status.zone}")
            if status.zone == self._options.zone:
                self._zone_left.set()
        else:
            self._state.out.discard(status.zone)
            self._state.add_line(f"IN {status.zone}")

    def _request(self, server: str, what: str, kind: Any) -> Any:
        _, body = _request(server, "GET", f"/v1/{what}")
        return msgspec.json.decode(body, type=kind)

    def _summarize(
        self, verdicts: Sequence[RecordedVerdict], statuses: Sequence[ZoneStatus], moved: Sequence[str]
    ) -> Summary:
        """Write the picture and the summary from the records of the processes, which have ended. Return the summary."""
        options = self._options
        faults = [fault for file in options.directory.glob("i-*.jsonl") for fault in read_records(file, InjectedFault)]
        sent = sorted(read_records(options.directory / "client.jsonl", SentRequest), key=lambda request: request.at)
        summary = summarize(options.zone, faults, sent, verdicts, statuses, shifted=moved)
        marks = {"fault": summary.fault_at, "verdict": summary.verdict_at, "last request": summary.last_request_at}
        picture = draw_timeline(
            sent,
            ZONES,
            {name: at for name, at in marks.items() if at is not None},
            {status.zone: status.since for status in statuses if status.state.is_out},
        )
        (options.directory / "timeline.svg").write_text(picture, encoding="utf-8")
        (options.directory / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
        return summary

    def _report(self, text: str) -> None:
        self._state.add_line(text)
        self._display(self._state)


def _name_instance(zone: str, number: int) -> str:
    return f"i-{zone}-{number}"


def _request(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = connect(address, timeout=5.0)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
