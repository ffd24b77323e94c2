"""The agent as a process, against real servers: it follows them, tells its host, and outlives them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.agent.process import HoldfastAgent, until
from tests.integration.server.process import STUCK, HoldfastServer, environment
from tests.integration.server.process import holdfast as run
from tests.services.start import free_port
from tests.support.metadata import MetadataServer, reply

OPEN = "[server]\nallow_anonymous = true\n[status]\nrefresh_interval = 0.1\n"
QUICK = {"HOLDFAST_AGENT__POLL_INTERVAL": "0.5", "HOLDFAST_AGENT__STALE_AFTER": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("server"), settings=OPEN) as server:
        yield server


def change(server: HoldfastServer, zone: str, *, out: bool, workload: str | None = None) -> None:
    with server.client() as client:
        path = f"/v1/zones/{zone}" + (f"/{workload}" if workload else "")
        response = client.put(path, json={"state": "out" if out else "in", "reason": "test"})
        assert response.status_code == 200, response.text


@pytest.fixture(autouse=True)
def _all_zones_are_in(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        server: HoldfastServer = request.getfixturevalue("server")
        with server.client() as client:
            for status in client.get("/v1/status").json()["statuses"]:
                if status["state"] != "in":
                    change(server, status["zone"], out=False, workload=status["workload"])


def hook_into(path: Path) -> str:
    return f"""sh -c 'echo "$HOLDFAST_ZONE/$HOLDFAST_WORKLOAD $HOLDFAST_STATE ($HOLDFAST_ZONES_OUT)" >> {path}'"""


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def content(path: Path) -> Any:
    return json.loads(path.read_text())


def test_an_operator_takes_the_zone_out_and_the_host_is_told_in_every_way(
    server: HoldfastServer, tmp_path: Path
) -> None:
    file, told = tmp_path / "zones.json", tmp_path / "told"
    words = ["--endpoint", server.address, "--file", str(file), "--hook", hook_into(told), "--workload", "shop"]
    with HoldfastAgent.start(tmp_path, *words) as agent:
        assert agent.get("/health").status_code == 200
        assert content(file)["out"] is False
        until(lambda: lines(told) == ["use1-az1/shop in ()"])
        finished = run("zone", "out", "use1-az1", "--reason", "gray", directory=server.directory)
        assert finished.returncode == 0, finished.stderr

        until(lambda: agent.get("/health").status_code == 503)
        assert agent.get("/health").headers["Retry-After"] == "5"
        assert httpx.head(f"{agent.address}/health", timeout=STUCK, trust_env=False).status_code == 503
        assert [agent.get(f"/status/use1-az{number}").status_code for number in (1, 2)] == [500, 200]
        known = agent.known()
        assert 0 <= known.pop("age") < STUCK
        assert [source.pop("age") >= 0 for source in known["sources"]] == [True]
        assert known == {
            "zone": "use1-az1",
            "workload": "shop",
            "zones_out": ["use1-az1"],
            "out": True,
            "sources": [{"name": server.address}],
        }
        until(lambda: content(file)["out"] is True)
        until(lambda: lines(told)[1:] == ["use1-az1/shop out (use1-az1)"])

        change(server, "use1-az1", out=False)
        until(lambda: agent.get("/health").status_code == 200)
        until(lambda: content(file)["zones_out"] == [])
        until(lambda: lines(told)[2:] == ["use1-az1/shop in ()"])
        code, seconds = agent.stop()
    assert code == 0
    assert seconds < 10
    assert "Traceback" not in agent.log.read_text()
    assert agent.announced == {"address": agent.address, "zone": "use1-az1", "workload": "shop"}
    starting = json.loads(lines(agent.log)[0])
    assert (starting["message"], starting["zone"], starting["workload"]) == ("starting", "use1-az1", "shop")


def test_an_agent_that_is_told_no_zone_finds_it(tmp_path: Path) -> None:
    with MetadataServer() as metadata:
        metadata.on_instance(reply("use1-az4")).on("GET /status/use1-az4", reply("{}", 500))
        variables = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url}
        words = ["--endpoint", f"{metadata.url}/status/{{zone}}"]
        with HoldfastAgent.start(tmp_path, *words, zone=None, variables=variables) as agent:
            assert agent.announced["zone"] == "use1-az4"
            until(lambda: agent.get("/health").status_code == 503)
            assert agent.get("/health").json()["zone"] == "use1-az4"


def test_after_a_restart_the_hook_is_told_that_the_zone_is_in_again(server: HoldfastServer, tmp_path: Path) -> None:
    told = tmp_path / "told"
    words = ["--endpoint", server.address, "--hook", hook_into(told)]
    change(server, "use1-az1", out=True)
    with HoldfastAgent.start(tmp_path, *words) as agent:
        until(lambda: lines(told) == ["use1-az1/ out (use1-az1)"])
        agent.stop()
    change(server, "use1-az1", out=False)
    with HoldfastAgent.start(tmp_path, *words):
        until(lambda: lines(told)[1:] == ["use1-az1/ in ()"])


def test_the_hook_is_told_nothing_before_enough_is_heard_and_then_also_that_the_zone_is_in(tmp_path: Path) -> None:
    told, port = tmp_path / "told", free_port()
    others = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with HoldfastServer.start(tmp_path / "one", settings=OPEN) as one:
        words = [
            word for address in (one.address, f"http://127.0.0.1:{port}", others[0]) for word in ("--endpoint", address)
        ]
        with HoldfastAgent.start(tmp_path, *words, "--hook", hook_into(told), variables=QUICK) as agent:
            until(lambda: "only 1 of 3 sources have answered" in agent.log.read_text())
            assert lines(told) == []
            with HoldfastServer.start(tmp_path / "two", settings=OPEN, port=port):
                until(lambda: lines(told) == ["use1-az1/ in ()"])
            code, seconds = agent.stop()
    assert (code, seconds < 10) == (0, True)
    assert lines(told) == ["use1-az1/ in ()"]


def test_a_zone_that_is_left_because_nobody_is_heard_is_told_to_the_hook_at_once(tmp_path: Path) -> None:
    told = tmp_path / "told"
    variables = {**QUICK, "HOLDFAST_AGENT__WHEN_SILENT": "own_zone_out"}
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen, and no other server can have its port
        words = ["--endpoint", f"http://127.0.0.1:{silent.getsockname()[1]}", "--hook", hook_into(told)]
        with HoldfastAgent.start(tmp_path, *words, variables=variables) as agent:
            until(lambda: lines(told) == ["use1-az1/ out (use1-az1)"])
            code, seconds = agent.stop()
    assert (code, seconds < 10) == (0, True), "also while it still waits for the first word"


def test_what_is_out_for_other_workloads_is_no_matter(server: HoldfastServer, tmp_path: Path) -> None:
    told = tmp_path / "told"
    words = ["--endpoint", server.address, "--workload", "shop", "--hook", hook_into(told)]
    with HoldfastAgent.start(tmp_path, *words) as agent:
        change(server, "use1-az1", out=True, workload="cart")
        change(server, "use1-az2", out=True, workload="shop")
        until(lambda: agent.known()["zones_out"] == ["use1-az2"])
        assert agent.get("/health").status_code == 200, "another zone is out, not its own"
        until(lambda: lines(told)[-1:] == ["use1-az1/shop in (use1-az2)"])
        assert set(lines(told)) <= {"use1-az1/shop in ()", "use1-az1/shop in (use1-az2)"}


def test_an_agent_that_starts_while_its_zone_is_out_never_says_otherwise(
    server: HoldfastServer, tmp_path: Path
) -> None:
    change(server, "use1-az1", out=True)
    file, told = tmp_path / "zones.json", tmp_path / "told"
    with HoldfastAgent.start(
        tmp_path, "--endpoint", server.address, "--file", str(file), "--hook", hook_into(told)
    ) as agent:
        assert content(file)["out"] is True
        assert agent.get("/health").status_code == 503
        until(lambda: lines(told) == ["use1-az1/ out (use1-az1)"])


def test_what_was_known_stays_when_the_server_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "zones.json"
    with HoldfastServer.start(tmp_path / "server", settings=OPEN) as first:
        change(first, "use1-az1", out=True)
        with HoldfastAgent.start(tmp_path, "--endpoint", first.address, "--file", str(file), variables=QUICK) as agent:
            assert agent.get("/health").status_code == 503
            first.kill()
            until(lambda: agent.known()["age"] > 1.2)
            assert agent.get("/health").status_code == 503, "last known good"
            assert content(file)["out"] is True
            code, seconds = agent.stop(signal.SIGINT)
    assert code == 0
    assert seconds < 10


def test_one_of_three_servers_that_lies_moves_nobody(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    with ThreadPoolExecutor() as pool:
        one, two, liar = pool.map(lambda folder: HoldfastServer.start(folder, settings=OPEN), folders)
    words = [word for server in (one, two, liar) for word in ("--endpoint", server.address)]
    with one, two, liar, HoldfastAgent.start(tmp_path, *words, variables=QUICK) as agent:
        change(liar, "use1-az1", out=True)
        with liar.client() as client:
            heard = client.get("/status/use1-az1").status_code
        assert heard == 500
        begun = time.monotonic()

        def all_were_heard_since() -> bool:
            seconds = time.monotonic() - begun  # before the question, so that every age is of a later moment
            return all(source["age"] is not None and source["age"] < seconds for source in agent.known()["sources"])

        until(all_were_heard_since)
        assert agent.get("/health").status_code == 200
        change(two, "use1-az1", out=True)
        until(lambda: agent.get("/health").status_code == 503)
        change(liar, "use1-az1", out=False)
        until(lambda: agent.get("/health").status_code == 200)


def test_a_hook_that_fails_is_run_again_until_it_succeeds(server: HoldfastServer, tmp_path: Path) -> None:
    script = 'n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count; echo try $n; [ "$n" -ge 1 ]'
    change(server, "use1-az1", out=True)
    with HoldfastAgent.start(tmp_path, "--endpoint", server.address, "--hook", f"sh -c '{script}'") as agent:
        until(lambda: lines(tmp_path / "count") == ["2"])
        failures = [json.loads(line) for line in lines(agent.log) if "agent.hook failed" in line]
        assert [(entry["exit_code"], entry["output"]) for entry in failures] == [(1, "try 0")]
        assert agent.stop()[0] == 0
    assert lines(tmp_path / "count") == ["2"]


def test_a_hook_that_hangs_holds_up_neither_the_answers_nor_the_end(server: HoldfastServer, tmp_path: Path) -> None:
    hook = "sh -c 'trap \"\" TERM; echo $$ > pid.new; mv pid.new pid; sleep 600'"
    with HoldfastAgent.start(tmp_path, "--endpoint", server.address, "--hook", hook) as agent:
        change(server, "use1-az1", out=True)
        until((tmp_path / "pid").exists)
        change(server, "use1-az1", out=False)
        until(lambda: agent.get("/health").status_code == 200)
        code, seconds = agent.stop()
    assert (code, seconds < 10) == (0, True)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_file_that_can_no_longer_be_written_is_written_when_it_can_be_again(
    server: HoldfastServer, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    file = folder / "zones.json"
    with HoldfastAgent.start(tmp_path, "--endpoint", server.address, "--file", str(file)) as agent:
        folder.rename(tmp_path / "away")
        change(server, "use1-az1", out=True)
        until(lambda: "cannot write agent.file" in agent.log.read_text())
        assert agent.get("/health").status_code == 503
        (tmp_path / "away").rename(folder)
        until(lambda: content(file)["out"] is True)


def test_clients_that_say_nothing_or_take_for_ever_hold_up_nobody(server: HoldfastServer, tmp_path: Path) -> None:
    with HoldfastAgent.start(tmp_path, "--endpoint", server.address) as agent:
        port = int(agent.address.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port), timeout=STUCK) for _ in range(300)]
        for connection in idle[::2]:
            with suppress(OSError):  # sent away already
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        answer = agent.get("/health")
        assert answer.status_code == 200
        assert answer.elapsed.total_seconds() < 10
        code, seconds = agent.stop()
        for connection in idle:
            connection.close()
    assert (code, seconds < 10) == (0, True)


def test_an_agent_that_was_killed_leaves_a_whole_file_and_the_next_one_goes_on(
    server: HoldfastServer, tmp_path: Path
) -> None:
    file = tmp_path / "zones.json"
    change(server, "use1-az1", out=True)
    with HoldfastAgent.start(tmp_path, "--endpoint", server.address, "--file", str(file)) as agent:
        agent.stop(signal.SIGKILL)
    assert content(file)["out"] is True
    (tmp_path / ".zones.json.00000000.tmp").write_text('{"zone"')
    change(server, "use1-az1", out=False)
    with HoldfastAgent.start(tmp_path, "--endpoint", server.address, "--file", str(file)):
        assert content(file)["out"] is False
        assert sorted(path.name for path in tmp_path.iterdir() if "zones" in path.name) == ["zones.json"]


def test_a_server_that_asks_for_credentials_gets_the_token_of_the_environment(tmp_path: Path) -> None:
    with HoldfastServer.start(tmp_path / "server", settings="[status]\nallow_anonymous_reads = false\n") as server:
        assert server.token is not None
        with server.operator() as operator:
            created = operator.post("/v1/credentials", json={"role": "tracker"}).json()
            operator.put("/v1/zones/use1-az1", json={"state": "out", "reason": "test"}).raise_for_status()
        variables = {"HOLDFAST_TOKEN": created["token"]}
        with HoldfastAgent.start(tmp_path, "--endpoint", server.address, variables=variables) as agent:
            assert agent.get("/health").status_code == 503
        assert created["token"] not in agent.log.read_text()


def test_without_any_server_the_zone_is_in_and_without_extras_the_agent_runs(tmp_path: Path) -> None:
    """Nothing but the core install, and nobody to follow."""
    missing = ("litestar", "uvicorn", "boto3", "botocore", "cryptography", "psycopg")
    script = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\nfrom holdfast.cli import main\n"
    words = ["agent", "--zone", "use1-az1", "--workload", "shop", "--port", "0", "--endpoint", "http://127.0.0.1:1"]
    with subprocess.Popen(
        [sys.executable, "-c", f"{script}sys.exit(main({words!r}))"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert " agent for shop in use1-az1 on http://127.0.0.1:" in line
            address = line.split()[-1]
            answer = httpx.get(f"{address}/health", timeout=STUCK, trust_env=False)
            assert (answer.status_code, "Age" in answer.headers) == (200, False)
            process.terminate()
            _, errors = process.communicate(timeout=STUCK)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "all zones count as in for now: only 0 of 1 sources have answered" in errors
    assert "Traceback" not in errors


def test_a_workload_that_the_server_does_not_have_is_told(tmp_path: Path) -> None:
    workload = '[[workload]]\nname = "shop"\nregion = "us-east-1"\nzones = ["use1-az1", "use1-az2"]\n'
    with HoldfastServer.start(tmp_path / "server", settings=OPEN + workload) as server:
        told = f"server {server.address} has no workload chop: only zones that are out for all workloads count here"
        with HoldfastAgent.start(tmp_path, "--workload", "chop", "--endpoint", server.address) as agent:
            until(lambda: told in agent.log.read_text())
        with server.client() as client:
            assert client.get("/v1/status?workload=chop").headers["holdfast-workload"] == "unknown"
            assert "holdfast-workload" not in client.get("/v1/status?workload=shop").headers
