"""Evacuations by a running server: over HTTP, by a command, by a verdict; and what happens when the server is killed.

AWS is simulated in the process of the tests, so that they see its state, and can hold a call back. Every server needs
half a second to start, and a verdict needs a few bins.
"""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import SystemClock
from holdfast.simulate.aws.arc import Shift
from holdfast.simulate.aws.control_plane import serve
from holdfast.simulate.aws.region import SimulatedRegion
from tests.integration.server.process import STUCK, HoldfastServer, holdfast
from tests.integration.server.test_detection import SETTINGS as WATCHED
from tests.integration.server.test_detection import ZONES, Load, until

AWS = """
[aws]
endpoint_url = "{url}"
[[evacuation.action]]
name = "status"
[[evacuation.action]]
name = "zonal-shift"
"""
ONE, TWO, _ = ZONES
OVERRIDDEN = {"reason": "checkout fails", "overrides": ["verdict", "pause"]}


class Cloud:
    """A simulated account with three resources, and servers that use it."""

    def __init__(self, url: str, region: SimulatedRegion) -> None:
        self.url, self.region = url, region
        for kind, name in (("application", "gate"), ("group", "workers"), ("cluster", "kube")):
            region.add(kind, name)

    def start(self, directory: Path, mode: str, *, token: str | None = None) -> HoldfastServer:
        """Start a server with this account. A later one in the same directory does not print its token again."""
        settings = WATCHED.replace('mode = "automatic"', f'mode = "{mode}"') + AWS.format(url=self.url)
        server = HoldfastServer.start(directory, settings=settings, variables=self.variables)
        server.token = server.token or token
        return server

    @property
    def variables(self) -> Mapping[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.region.access_key, "AWS_SECRET_ACCESS_KEY": "any"}

    @property
    def active(self) -> list[Shift]:
        return [each for each in self.region.arc.shifts if each.status == "ACTIVE"]


@contextmanager
def open_cloud() -> Iterator[Cloud]:
    region = SimulatedRegion(SystemClock())
    with serve([region]) as url:
        yield Cloud(url, region)


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with open_cloud() as opened:
        yield opened


@pytest.fixture(scope="module")
def server(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    """A server that evacuates when a person approves."""
    with cloud.start(tmp_path_factory.mktemp("confirm"), "confirm") as started:
        yield started


def ask(client: httpx.Client, zone: str = ONE, **more: Any) -> httpx.Response:
    return client.post("/v1/evacuations", json={"zone": zone, **OVERRIDDEN, **more})


def list_runs(client: httpx.Client) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = client.get("/v1/evacuations").json()["runs"]
    return runs


def wait_for(client: httpx.Client, run: str, state: str) -> dict[str, Any]:
    """Wait until a run has a state and no process works on it, and return its details."""

    def read() -> dict[str, Any]:
        found: dict[str, Any] = client.get(f"/v1/evacuations/{run}").json()
        return found

    until(lambda: (read()["run"]["state"], read()["run"]["holder"]) == (state, ""))
    return read()


def test_a_server_that_only_advises_names_the_command(cloud: Cloud, tmp_path: Path) -> None:
    with cloud.start(tmp_path, "advise") as server, server.operator() as operator:
        refused = ask(operator, workload="shop")
        assert refused.status_code == 409
        assert f"`holdfast zone evacuate {ONE} --workload shop --reason" in refused.json()["detail"]
        assert operator.post("/v1/evacuations/plan", json={"zone": ONE}).status_code == 200
        assert operator.get("/v1/evacuations").json() == {"mode": "advise", "runs": []}
        assert cloud.active == []


def test_an_operator_evacuates_a_zone_over_http_and_brings_it_back(cloud: Cloud, server: HoldfastServer) -> None:
    with server.operator() as operator:
        plan = operator.post("/v1/evacuations/plan", json={"zone": ONE, "workload": "shop"}).json()
        assert {name: len(changes) for name, changes in plan["plan"]["changes"].items()} == {
            "status": 1,
            "zonal-shift": 3,
        }
        unseen = operator.post("/v1/evacuations", json={"zone": ONE, "reason": "checkout fails"})
        assert (unseen.status_code, "verdict: " in unseen.json()["detail"]) == (409, True)
        begun = ask(operator)
        assert begun.status_code == 200, begun.text
        run = begun.json()
        assert (run["zone"], run["by_server"], run["overrides"]["verdict"]) == (ONE, True, "checkout fails")
        assert run["by"].startswith("credential ")
        details = wait_for(operator, run["id"], "evacuated")
        assert sorted((each["action"], each["state"]) for each in details["entries"]) == [
            ("status", "applied"),
            *[("zonal-shift", "applied")] * 3,
        ]
        assert {(each.zone, each.comment) for each in cloud.active} == {(ONE, f"{run['id']} holdfast checkout fails")}
        until(lambda: operator.get(f"/status/{ONE}").status_code == 500)
        second = ask(operator, TWO)
        assert (second.status_code, run["id"] in second.json()["detail"]) == (409, True)
        put = operator.put(f"/v1/zones/{ONE}", json={"state": "in", "reason": "it is well"})
        assert (put.status_code, "zone restore" in put.json()["detail"]) == (409, True)
        partly = operator.post(f"/v1/evacuations/{run['id']}/restore", json={"types": ["eks-cluster"]})
        assert partly.status_code == 200
        until(lambda: len(cloud.active) == 2)
        wait_for(operator, run["id"], "evacuated")
        assert operator.post(f"/v1/evacuations/{run['id']}/restore", json={}).status_code == 200
        details = wait_for(operator, run["id"], "restored")
        assert {each["state"] for each in details["entries"]} == {"restored"}
        assert (cloud.active, operator.get(f"/status/{ONE}").status_code) == ([], 200)
        again = operator.post(f"/v1/evacuations/{run['id']}/restore", json={})
        assert again.status_code == 409
        assert run["id"] in [each["id"] for each in list_runs(operator)]


def test_only_operators_evacuate_and_only_what_is_known(cloud: Cloud, server: HoldfastServer) -> None:
    with server.operator() as operator, server.client() as stranger:
        token = operator.post("/v1/credentials", json={"role": "viewer"}).json()["token"]
        known = list_runs(operator)
        with server.client(token) as viewer:
            assert viewer.get("/v1/evacuations").json()["runs"] == known
            for path in ("", "/plan", "/hf-1/restore", "/hf-1/resume"):
                for client, status in ((viewer, 403), (stranger, 401)):
                    assert client.post(f"/v1/evacuations{path}", json={}).status_code == status
        assert stranger.get("/v1/evacuations").status_code == 401
        for body, status in (
            ({"zone": "us-east-1a", "reason": "x"}, 400),
            ({"zone": ONE, "reason": ""}, 400),
            ({"zone": ONE, "reason": "x", "force": True}, 400),
            ({"zone": ONE, "reason": "x", "overrides": ["luck"]}, 400),
            ({"zone": "use1-az9", "reason": "x"}, 404),
            ({"zone": ONE, "reason": "x", "workload": "cart"}, 404),
        ):
            assert operator.post("/v1/evacuations", json=body).status_code == status, body
        for method, path in (("GET", ""), ("POST", "/restore"), ("POST", "/resume")):
            assert operator.request(method, f"/v1/evacuations/hf-1{path}", json={}).status_code == 404
        assert list_runs(operator) == known
        assert cloud.active == []


def test_commands_let_the_server_evacuate_and_follow_it_to_the_end(
    cloud: Cloud, server: HoldfastServer, tmp_path: Path
) -> None:
    """The folder of the commands has neither settings nor a store."""

    def command(*words: str, token: str | None = server.token) -> "subprocess.CompletedProcess[str]":
        return holdfast("zone", *words, "--server", server.address, directory=tmp_path, HOLDFAST_TOKEN=str(token))

    planned = command("plan", TWO, "--json")
    assert (planned.returncode, planned.stderr) == (0, "")
    assert json.loads(planned.stdout)["plan"]["target"]["zone"] == TWO
    words = ("evacuate", TWO, "--reason", "checkout fails", "--yes", "--override", "pause")
    refused = command(*words)
    assert (refused.returncode, "--override verdict" in refused.stderr) == (1, True)
    done = command(*words, "--override", "verdict")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{TWO} is evacuated for all workloads: run hf-" in done.stdout
    assert f"server: {server.address}" in done.stdout
    assert {each.zone for each in cloud.active} == {TWO}
    assert len(cloud.active) == 3
    ended = cloud.active[0]
    ended.status = "EXPIRED"
    resumed = command("resume", TWO)
    assert (resumed.returncode, len(cloud.active)) == (0, 3)
    assert command("runs").stdout.splitlines()[1].split()[1:4] == [TWO, "(all)", "evacuated"]
    restored = command("restore", TWO, "--json")
    assert json.loads(restored.stdout)["run"]["state"] == "restored"
    assert cloud.active == []
    nothing = command("restore", TWO)
    assert (nothing.returncode, server.address in nothing.stderr) == (1, True)
    assert command("restore", "--all", token="hf_x").returncode == 4
    assert list(tmp_path.iterdir()) == []


def test_a_resource_that_fails_at_the_server_is_told_by_the_command(
    cloud: Cloud, server: HoldfastServer, tmp_path: Path
) -> None:
    gone = cloud.region.add("cluster", "gone")
    removed = threading.Event()

    def remove(operation: str) -> None:
        if operation == "GetManagedResource" and not removed.is_set():
            removed.set()
            del cloud.region.arc.resources[gone]

    cloud.region.faults = remove
    words = ["evacuate", ONE, "--reason", "checkout fails", "--yes", "--override", "pause", "--override", "verdict"]
    ran = holdfast("zone", *words, "--server", server.address, directory=tmp_path, HOLDFAST_TOKEN=str(server.token))
    cloud.region.faults = lambda _: None
    cloud.region.remove(gone)
    assert ran.returncode == 1
    assert "eks-cluster gone" in ran.stdout
    assert f"holdfast zone resume {ONE}" in ran.stderr
    with server.operator() as operator:
        (run,) = (each for each in list_runs(operator) if each["state"] == "evacuated")
        operator.post(f"/v1/evacuations/{run['id']}/restore", json={})
        wait_for(operator, run["id"], "restored")


def test_a_verdict_evacuates_a_zone_although_the_server_is_killed_in_the_middle(tmp_path: Path) -> None:
    """The next server on the same data sees that the process has ended, and continues the run at once."""
    reached, released = threading.Event(), threading.Event()

    def hold(operation: str) -> None:
        if operation == "StartZonalShift" and not released.is_set():
            reached.set()
            assert released.wait(STUCK)

    with open_cloud() as cloud:
        cloud.region.faults = hold
        with cloud.start(tmp_path, "automatic") as first, Load(first) as load, first.operator() as operator:
            load.failing = TWO
            assert reached.wait(STUCK)
            (begun,) = list_runs(operator)
            assert (begun["state"], begun["zone"], begun["workload"]) == ("evacuating", TWO, "shop")
            assert begun["by"].startswith("server ")
            busy = operator.post(f"/v1/evacuations/{begun['id']}/restore", json={})
            assert (busy.status_code, "wait until it has ended" in busy.json()["detail"]) == (409, True)
            load.stop()
            first.signal(signal.SIGKILL)
        assert cloud.active == []
        released.set()
        with cloud.start(tmp_path, "automatic", token=first.token) as second, second.operator() as operator:
            details = wait_for(operator, begun["id"], "evacuated")
            assert {each["state"] for each in details["entries"]} == {"applied"}
            assert [each["id"] for each in list_runs(operator)] == [begun["id"]]
            assert {each.comment.split()[0] for each in cloud.active} == {begun["id"]}
            assert len(cloud.active) == 3, "also those whose start the first server did not see"
            (status,) = operator.get("/v1/status").json()["statuses"]
            assert (status["zone"], status["workload"], status["by"]) == (TWO, "shop", begun["id"])
            second.entry(level="warning", logger="holdfast.evacuate")
            assert operator.post(f"/v1/evacuations/{begun['id']}/restore", json={}).status_code == 200
            wait_for(operator, begun["id"], "restored")
        assert cloud.active == []
