"""Plug-ins from another distribution: installed beside Holdfast, and used through settings, commands and the server."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Operation, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from tests.integration.server.process import STUCK, HoldfastServer, holdfast

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "holdfast-toy"
version = "1.0"

[project.entry-points."holdfast.detectors"]
toy = "holdfast_toy:ToyDetector"
[project.entry-points."holdfast.queue_backends"]
toy = "holdfast_toy:TOY_BACKENDS"
[project.entry-points."holdfast.status_stores"]
toy = "holdfast_toy:TOY_STORES"
[project.entry-points."holdfast.metrics_exporters"]
toy = "holdfast_toy:ToyExporter"
[project.entry-points."holdfast.alerts"]
toy = "holdfast_toy:ToyChannel"
[project.entry-points."holdfast.evacuation_actions"]
toy = "holdfast_toy:TOY_ACTIONS"
[project.entry-points."holdfast.evacuation_journals"]
toy = "holdfast_toy:TOY_JOURNALS"
"""

PACKAGE = '''
"""Plug-ins of every kind, which do nearly nothing themselves."""

from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from holdfast import NotFound, Verdict, VerdictKind, Zone
from holdfast.evacuate.action import ActionType, ChangeState, Discovery, PlannedChange, Reading, Resource
from holdfast.evacuate.journals import JournalType
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.metrics import Exporter
from holdfast.queue import open_backend
from holdfast.queue.backend import Capabilities
from holdfast.status import SqlStatusStore
from holdfast.status.stores import StatusStoreType


@dataclass(frozen=True)
class ToyOptions:
    accuse: str = ""
    patience: int = 1


class ToyDetector:
    """Accuses one zone as soon as it has had requests in enough windows."""

    options_type = ToyOptions
    state_type = int

    def __init__(self, options):
        self._options = options

    def step(self, state, window):
        zone = Zone(self._options.accuse)
        state += window.reading(zone).requests > 0
        kind = VerdictKind.ISOLATED if state >= self._options.patience else VerdictKind.HEALTHY
        verdict = Verdict(
            id=f"{window.workload}/toy", workload=window.workload, kind=kind, zone=zone, since=0.0, at=window.end,
            summary=f"the toy accuses {zone}",
        )
        return state, verdict


class ToyBackend:
    """Keeps messages in SQLite, and knows no groups."""

    capabilities = Capabilities(groups=False)

    def __init__(self, backend):
        self._backend = backend

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._backend.close()


class ToyBackends:
    def open(self, url, *, clock, timeout, max_connections):
        return ToyBackend(open_backend(f"sqlite:{self._path(url)}", clock=clock, timeout=timeout))

    def describe(self, url):
        return f"toy:{self._path(url)}"

    def require_queues(self, url, *, timeout):
        if not self._path(url).exists():
            raise NotFound(f"there is no toy at {url}")

    def _path(self, url):
        return Path(url.partition(":")[2])


TOY_BACKENDS = ToyBackends()
TOY_STORES = StatusStoreType("toy:NAME", "[a-z]+", lambda name, resources: SqlStatusStore(resources.database(name)))


class ToyExporter(Exporter):
    """Counts measurements into a file."""

    def __init__(self, path):
        self._path = Path(path)
        self._count = 0

    @classmethod
    def open(cls, argument, target):
        return cls(argument)

    def record(self, measurements):
        self._count += len(measurements)
        self._path.write_text(str(self._count))


class ToyChannelOptions(Struct):
    file: str


class ToyChannel:
    """Writes alerts to a file."""

    options_type = ToyChannelOptions

    def __init__(self, options, context):
        self._path = Path(options.file)

    def send(self, message, timeout):
        self._path.write_text(message.title)


class ToyActionOptions(Struct):
    file: str = "moved"


class ToyAction:
    """Moves one file: it has the zone and the run while the zone is evacuated."""

    evacuation_stage, restoration_stage = 1, 2
    parallel_calls = 4
    timeout = 10.0

    def __init__(self, options):
        self._path = Path(options.file)

    def discover(self, target):
        return Discovery(resources=[Resource(id=f"file:{self._path}", type="file", name=self._path.name)])

    def plan(self, resource, target):
        change = {"text": f"{target.zone} {target.run}"}
        return PlannedChange(resource=resource, description=f"move the file for {target.zone}", change=change)

    def read(self, entry):
        found = self._path.read_text() if self._path.exists() else None
        if found is None:
            return Reading(state=ChangeState.ABSENT)
        return Reading(state=ChangeState.APPLIED if found == entry.change["text"] else ChangeState.FOUND)

    def apply(self, entry):
        self._path.write_text(entry.change["text"])

    def restore(self, entry, reading):
        self._path.unlink()

    def renew(self, entry, reading):
        pass


TOY_ACTIONS = ActionType(
    open=lambda options, resources: ToyAction(options), options_type=ToyActionOptions, permissions=("toy:Move",)
)
TOY_JOURNALS = JournalType("toy:NAME", "[a-z]+", lambda name, resources: SqlJournal(resources.database(name)))
'''

SETTINGS = """
queue_backend = "toy:work.sqlite"
[server]
allow_anonymous = true
[telemetry]
bin_seconds = 0.5
[status]
store = "toy:zones"
[metrics]
export = ["toy:measured"]
[[queue]]
name = "mail"
[evacuation]
mode = "automatic"
detectors = ["toy"]
journal = "toy:runs"
[[evacuation.action]]
name = "status"
[[evacuation.action]]
name = "toy"
options = { file = "evacuated" }
[[alert]]
name = "paper"
channel = "toy"
options = { file = "told" }
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
[workload.detector]
name = "toy"
accuse = "use1-az2"
"""

JOBS = """
from holdfast.queue import Queue

mail = Queue("mail", "toy:work.sqlite")


@mail.handle()
def handle(delivery):
    print("handled", delivery.body.decode(), flush=True)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which an installer has put the other distribution."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "holdfast_toy.py").write_text(PACKAGE)
    install = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--no-build-isolation", "--target", str(target), str(source)], check=True, timeout=STUCK)
    return target


@pytest.fixture(scope="module")
def server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "jobs.py").write_text(JOBS)
    with HoldfastServer.start(folder, settings=SETTINGS, variables={"PYTHONPATH": str(installed)}) as server:
        yield server


@pytest.fixture
def command(server: HoldfastServer, installed: Path) -> Callable[..., str]:
    def run(*words: str) -> str:
        ran = holdfast(*words, directory=server.directory, PYTHONPATH=str(installed))
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def until(answer: Callable[[], Any]) -> Any:
    end = time.monotonic() + STUCK
    while not (found := answer()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def test_the_detector_of_the_settings_looks_at_telemetry_and_its_verdict_takes_the_zone_out(
    server: HoldfastServer, command: Callable[..., str]
) -> None:
    """The status goes to the toy's store, where commands find it, too."""

    def verdicts() -> Any:
        request = RequestRecord(
            namespace="shop/frontend",
            operation=Operation("Home", "Index"),
            region="us-east-1",
            zone=Zone("use1-az2"),
            instance="i-1",
            at=time.time(),
            status=200,
            seconds=0.01,
        )
        client.post("/v1/telemetry", content=encode_emf(request)).raise_for_status()
        return client.get("/v1/verdicts").json()

    with server.client() as client:
        [verdict] = until(verdicts)
        assert (verdict["kind"], verdict["zone"]) == ("isolated", "use1-az2")
        assert verdict["summary"] == "the toy accuses use1-az2"
        until(lambda: client.get("/status/use1-az2/shop").status_code == 500)
    [run] = json.loads(command("zone", "runs", "--json"))
    [status] = json.loads(command("zone", "status", "--json"))
    assert (status["zone"], status["state"], status["by"]) == ("use1-az2", "out", run["id"])
    until((server.directory / "evacuated").exists)
    assert (server.directory / "evacuated").read_text() == f"use1-az2 {run['id']}"
    assert (server.directory / "data" / "zones.sqlite").exists()
    until((server.directory / "told").exists)
    assert (server.directory / "told").read_text() == "shop: verdict isolated (use1-az2)"


def test_commands_evacuate_a_zone_with_the_action_and_the_journal_of_the_settings(
    installed: Path, tmp_path: Path
) -> None:
    """Without a server, and in a folder of their own."""
    (tmp_path / "holdfast.toml").write_text(SETTINGS)

    def run(*words: str) -> str:
        ran = holdfast("zone", *words, directory=tmp_path, PYTHONPATH=str(installed))
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    words = ("use1-az1", "--reason", "it fails", "--yes", "--override", "verdict", "--json")
    done = json.loads(run("evacuate", *words))["run"]["id"]
    assert (tmp_path / "evacuated").read_text() == f"use1-az1 {done}"
    assert [each["id"] for each in json.loads(run("runs", "--json"))] == [done]
    assert (tmp_path / "holdfast-data" / "runs.sqlite").exists()
    restored = run("restore", "use1-az1")
    assert "journal: toy:runs" in restored
    assert "  file: 1 restored\n" in restored
    assert not (tmp_path / "evacuated").exists()
    assert "toy:Move" in run("runbook", "shop")


def test_the_options_of_the_detector_are_shown_and_checked_like_other_settings(command: Callable[..., str]) -> None:
    shown = json.loads(command("check", "--json"))["settings"]
    assert shown["workload[0].detector.accuse"]["value"] == "use1-az2"
    assert shown["workload[0].detector.patience"] == {"value": 1, "from": "default"}
    assert shown["evacuation.action[1].options.file"]["value"] == "evacuated"


def test_a_message_is_sent_over_http_seen_by_a_command_and_handled_by_a_worker(
    server: HoldfastServer, command: Callable[..., str]
) -> None:
    with server.client() as client:
        sent = client.post("/v1/queues/mail/messages", params={"tenant": "tenant-a"}, content=b"hello")
        assert sent.status_code == 202, sent.text
        refused = client.post("/v1/queues/mail/messages", params={"tenant": "tenant-a", "group": "g"}, content=b"hello")
        assert refused.status_code == 400
        assert "group" in refused.json()["detail"]
    for words in ((), ("--backend", "toy:work.sqlite")):
        [queue] = json.loads(command("queue", "depth", "mail", "--json", *words))
        assert queue["ready"] == 1
    assert "handled hello" in command("worker", "jobs:mail", "--until-empty", "--export", "toy:measured-by-worker")
    assert int((server.directory / "measured-by-worker").read_text()) > 0
    [queue] = json.loads(command("queue", "depth", "mail", "--json"))
    assert queue["ready"] == 0


def test_the_exporter_of_the_settings_gets_what_the_server_measures(server: HoldfastServer) -> None:
    with server.client() as client:
        client.get("/v1/whoami")
    until((server.directory / "measured").exists)


def test_a_plug_in_that_is_not_installed_is_named_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(SETTINGS)
    ran = holdfast("check", directory=tmp_path)
    assert ran.returncode != 0
    assert "toy" in ran.stderr
    assert "expected" in ran.stderr
