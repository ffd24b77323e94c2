"""`holdfast zone` beside a real server, and through one."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from tests.integration.server.process import STUCK, HoldfastServer
from tests.integration.server.process import holdfast as run
from tests.services.start import free_port

SETTINGS = """
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


def problem(**parts: str) -> bytes:
    """The answer of a server that met an error."""
    body = json.dumps(parts).encode()
    return b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("server"), settings=SETTINGS) as server:
        yield server


@pytest.fixture
def zone(
    server: HoldfastServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    """Runs a command in an empty folder; returns its exit code, and what it printed as JSON."""
    monkeypatch.chdir(tmp_path)

    def zone(*words: str, address: str = server.address, token: str | None = server.token) -> tuple[int, Any]:
        monkeypatch.setenv("HOLDFAST_TOKEN", token or "")
        code = main(["zone", *words, "--server", address, "--json"])
        assert list(tmp_path.iterdir()) == [], "a server that is elsewhere makes no store here"
        printed = capsys.readouterr()
        return code, json.loads(printed.out or printed.err)

    return zone


def test_what_is_written_to_the_store_is_known_to_the_server_that_runs(server: HoldfastServer) -> None:
    finished = run("zone", "out", "use1-az1", "--reason", "gray", directory=server.directory)
    assert finished.returncode == 0, finished.stderr
    with server.client() as client:
        end = time.monotonic() + STUCK
        while client.get("/status/use1-az1").status_code != 500:
            assert time.monotonic() < end
    finished = run("zone", "in", "use1-az1", "--reason", "mended", directory=server.directory)
    assert finished.returncode == 0, finished.stderr
    with server.client() as client:
        end = time.monotonic() + STUCK
        while client.get("/status/use1-az1").status_code != 200:
            assert time.monotonic() < end


def test_what_was_taken_out_while_the_server_was_down_is_known_to_it_from_its_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["zone", "out", "use1-az1", "--reason", "test", "--data-directory", "data"]
    assert main(words) == 1, "before the first start there is no store that anybody would read"
    HoldfastServer.start(tmp_path).stop()
    assert main(words) == 0
    with HoldfastServer.start(tmp_path) as server, server.client() as client:
        assert client.get("/status/use1-az1").status_code == 500


def test_a_server_is_asked_and_told_over_http(zone: Callable[..., tuple[int, Any]], server: HoldfastServer) -> None:
    code, written = zone("out", "use1-az2", "--reason", "grün", "--workload", "shop", "--for", "1h")
    assert (code, written["state"], written["reason"]) == (0, "out", "grün")
    assert server.token is not None
    assert written["by"] == f"credential {server.token.split('_')[1]}"
    assert written["expires"] - written["since"] == pytest.approx(3600, abs=1)
    code, statuses = zone("status", "use1-az2", token=None)
    assert (code, statuses) == (0, [written]), "reading needs no credential"

    code, error = zone("out", "use1-az1", "--reason", "x")
    assert (code, error["error"]) == (1, "conflict")
    assert "zone use1-az2 is out, and only one zone of a region may be out" in error["detail"]
    code, forced = zone("out", "use1-az1", "--reason", "x", "--force")
    assert (code, forced["workload"]) == (0, None)

    for words in (["use1-az1"], ["use1-az2", "--workload", "shop"]):
        code, back = zone("in", *words, "--reason", "mended")
        assert (code, back["state"]) == (0, "in")


def test_what_the_server_recorded_is_shown_over_http_as_it_is_directly(
    zone: Callable[..., tuple[int, Any]], server: HoldfastServer
) -> None:
    for command in ("out", "in"):
        assert zone(command, "use1-az1", "--reason", f"recorded {command}")[0] == 0
    code, changes = zone("history", "--limit", "2")
    assert (code, len(changes)) == (0, 2)
    assert changes[0]["status"]["reason"] == "recorded in"
    code, error = zone("history", token=None)
    assert (code, error["error"]) == (4, "credential-refused"), "who did what is not for everybody"
    finished = run("zone", "history", "--limit", "2", "--json", directory=server.directory)
    assert json.loads(finished.stdout) == changes, finished.stderr


def test_people_are_told_which_server_it_was_and_no_password_of_its_address(
    server: HoldfastServer, tmp_path: Path
) -> None:
    assert server.token is not None
    address = server.address.replace("://", "://me:hunter2@")
    for command, told in (("out", "out for all workloads until it is brought in"), ("in", "in for all workloads")):
        words = ["zone", command, "use1-az1", "--reason", "x", "--server", address]
        finished = run(*words, directory=tmp_path, HOLDFAST_TOKEN=f" {server.token}\n")
        assert (finished.stdout, finished.stderr) == (f"use1-az1 is {told} (server: {server.address})\n", "")


@pytest.mark.parametrize(
    ("words", "code", "slug", "told"),
    [
        (
            ["out", "use1-az9", "--reason", "x"],
            1,
            "not-found",
            "no zone use1-az9 is configured: expected one of use1-az1, use1-az2",
        ),
        (["in", "use1-az1", "--reason", "x", "--workload", "chop"], 1, "not-found", "no workload chop is configured"),
        (["out", "use1-az1", "--reason", " "], 2, "invalid-value", "reason"),
        (["out", "use1-az1", "--reason", "x" * 501], 2, "invalid-value", "; reason: Expected `str` of length <= 500"),
        (["out", "use1-az1", "--reason", "\udcff"], 2, "invalid-value", "reason: expected Unicode text"),
    ],
)
def test_what_the_server_refuses_is_told_in_its_words(
    zone: Callable[..., tuple[int, Any]], words: list[str], code: int, slug: str, told: str
) -> None:
    found, error = zone(*words)
    assert (found, error["error"]) == (code, slug)
    assert told in error["detail"]
    assert ("(trace " in error["detail"]) == ("Unicode" not in told), "which finds it in the server's log"


def test_a_url_that_is_more_than_the_base_is_told_as_that(
    zone: Callable[..., tuple[int, Any]], server: HoldfastServer
) -> None:
    code, error = zone("status", address=f"{server.address}/v1/status/")
    assert (code, error["error"]) == (1, "not-found")
    assert error["detail"].startswith(
        f"GET {server.address}/v1/status/v1/status answered 404: expected the base URL of a Holdfast server"
    )


def test_without_a_credential_that_may_the_server_is_not_moved(
    zone: Callable[..., tuple[int, Any]], server: HoldfastServer
) -> None:
    with server.operator() as operator:
        viewer = operator.post("/v1/credentials", json={"role": "viewer"}).json()["token"]
    for token, slug in ((None, "credential-refused"), ("hf_x", "credential-refused"), (viewer, "not-allowed")):
        code, error = zone("out", "use1-az1", "--reason", "x", token=token)
        assert (code, error["error"]) == (4, slug)
        assert ("set HOLDFAST_TOKEN" in error["detail"]) == (token is None)
    code, error = zone("out", "use1-az1", "--reason", "x", token="two\nlines")
    assert (code, error["error"]) == (4, "credential-refused")
    assert "HOLDFAST_TOKEN is not a valid token" in error["detail"]
    assert not any(each["state"] == "out" for each in zone("status", "use1-az1")[1])


@pytest.mark.parametrize("words", [["status"], ["out", "use1-az1", "--reason", "x"]])
def test_a_server_that_is_not_there_is_unavailable(zone: Callable[..., tuple[int, Any]], words: list[str]) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    code, error = zone(*words, address=address)
    assert (code, error["error"]) == (3, "engine-unavailable")
    assert error["detail"].startswith(f"server {address} cannot be reached: ")


@pytest.mark.parametrize(
    ("answer", "words", "code", "slug", "told"),
    [
        (b"", ["status"], 3, "engine-unavailable", "did not answer"),
        (b"nonsense\r\n\r\n", ["status"], 3, "engine-unavailable", "did not answer"),
        (b"", ["out", "use1-az1", "--reason", "x"], 1, "outcome-unknown", "may or may not have been made"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", ["status"], 1, "engine", "is not a Holdfast server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff", ["status"], 1, "engine", "is not a Holdfast server"),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nhtml",
            ["status"],
            1,
            "not-found",
            "/v1/status answered 404: expected the base URL of a Holdfast server, such as http://127.0.0.1:8470",
        ),
        (
            problem(type="urn:holdfast:problem:outcome-unknown", detail="the log says why", trace_id="0af7"),
            ["out", "use1-az1", "--reason", "x"],
            1,
            "outcome-unknown",
            "the log says why; the change may or may not have been made: check before you repeat it (trace 0af7)",
        ),
        (
            problem(type="urn:holdfast:problem:engine", detail="the log says why", trace_id="0af7"),
            ["out", "use1-az1", "--reason", "x"],
            1,
            "engine",
            "the log says why (trace 0af7)",
        ),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", ["status"], 1, "engine", "answered 302"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nhtml", ["status"], 1, "engine", "answered 502"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", ["status"], 3, "engine-unavailable", "answered 503"),
    ],
)
def test_what_is_no_server_is_told_as_what_it_is(
    zone: Callable[..., tuple[int, Any]],
    answering: Callable[[bytes], str],
    answer: bytes,
    words: list[str],
    code: int,
    slug: str,
    told: str,
) -> None:
    found, error = zone(*words, address=answering(answer))
    assert (found, error["error"]) == (code, slug)
    assert told in error["detail"]
