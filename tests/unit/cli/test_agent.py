"""`holdfast agent` says what is missing or wrong before it serves anybody."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.metadata import MetadataServer, reply
from tests.unit.cli.conftest import Run

TOPIC = "arn:aws:sns:us-east-1:123456789012:zones"


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn")
    before = root.handlers[:], root.level, uvicorn.level
    yield
    root.handlers[:], level, uvicorn_level = before
    root.setLevel(level)
    uvicorn.setLevel(uvicorn_level)


@pytest.fixture(autouse=True)
def _any_port(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_AGENT__PORT", "0")


def complaint(run: Run, *words: str, code: int = 2) -> str:
    """What a command that cannot start says, after what it may have logged."""
    ran = run("agent", *words)
    assert (ran.code, ran.out) == (code, "")
    last = ran.err.splitlines()[-1]
    assert last.startswith("holdfast: ")
    return last.removeprefix("holdfast: ")


def test_a_zone_that_is_neither_set_nor_found_is_told_with_the_ways_to_set_it(run: Run) -> None:
    told = complaint(run, code=1)
    assert told.startswith("the AZ-ID of this process cannot be found (Lambda metadata: ")
    assert told.endswith(
        "Set HOLDFAST_AGENT__ZONE to it, such as use1-az1; commands also read agent.zone in the settings"
    )
    assert run("agent", "--json").error["error"] == "not-found"


def test_a_zone_that_is_not_set_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start fails later, at a port that is in use, after the zone was found."""
    with MetadataServer() as metadata, socket.create_server(("127.0.0.1", 0)) as taken:
        metadata.on_instance(reply("use1-az4"))
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
        ran = run("agent", "--endpoint", "http://127.0.0.1:1", "--port", str(taken.getsockname()[1]))
    assert ran.code == 3
    assert "this process runs in use1-az4 (EC2 instance metadata)" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--zone", "us-east-1a"], "us-east-1a is the name of a zone"),
        (["--zone", ""], "zone '': expected an AZ-ID"),
        (["--workload", "a b"], "workload 'a b': expected 1 to 128 letters"),
        (["--endpoint", "127.0.0.1:8470"], "address '127.0.0.1:8470': expected one such as http://127.0.0.1:8470"),
        (["--endpoint", "http://127.0.0.1:1", "--endpoint", "x"], "address 'x': expected one such as"),
        (
            ["--endpoint", "http://127.0.0.1:1", "--endpoint", "http://127.0.0.1:1/"],
            "sources http://127.0.0.1:1, http://127.0.0.1:1: expected each only once",
        ),
        (
            ["--endpoint", "https://a.example.com/{workload}/{zone}"],
            "/{workload}/{zone} needs a workload, but agent.workload is not set: set it, or remove {workload}",
        ),
        (["--hook", "no-such-program"], "agent.hook: this user cannot run a program 'no-such-program'"),
        (["--hook", "'"], 'agent.hook "\'" is not a valid command: No closing quotation'),
        (["--file", "/"], "agent.file / is a folder"),
        (["--file", ""], "agent.file . is a folder"),
        (["--host", "a b"], "command line: agent.host: expected text matching"),
        (["--port", "70000"], "command line: agent.port: expected a whole number <= 65535, found 70000"),
    ],
)
def test_what_cannot_be_right_is_told_at_the_start(
    run: Run, words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_AGENT__ZONE", "use1-az1")
    assert told in complaint(run, *words)


def test_a_file_that_cannot_be_written_is_an_error_at_the_start(run: Run, here: Path) -> None:
    words = ["--zone", "use1-az1", "--endpoint", "http://127.0.0.1:1"]
    told = complaint(run, *words, "--file", "no/folder/zones.json")
    assert told == "agent.file no/folder/zones.json cannot be written: No such file or directory"
    assert list(here.iterdir()) == []


def test_a_port_that_is_taken_is_told_with_what_to_set(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("agent", "--zone", "use1-az1", "--port", str(port), "--json")
    assert (ran.code, ran.error["error"]) == (3, "engine-unavailable")
    assert f"cannot listen on '127.0.0.1' port {port}: Address already in use; set another" in ran.error["detail"]


def test_options_come_before_variables_and_the_file(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "holdfast.toml").write_text("[agent]\nzone = 'us-east-1a'\nhook = 'from-the-file'\n")
    assert "us-east-1a is the name of a zone" in complaint(run)
    monkeypatch.setenv("HOLDFAST_AGENT__ZONE", "us-east-1b")
    assert "us-east-1b is the name of a zone" in complaint(run)
    assert "'from-the-file'" in complaint(run, "--zone", "use1-az1")
    assert "'from-the-option'" in complaint(run, "--zone", "use1-az1", "--hook", "from-the-option")


def test_a_topic_of_another_region_is_told_at_the_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HOLDFAST_AGENT__SNS_TOPIC": TOPIC,
        "HOLDFAST_AGENT__SNS_ENDPOINT": "http://127.0.0.1:8471/sns",
        "HOLDFAST_AWS__REGION": "eu-west-1",
        "HOLDFAST_AWS__ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():
        monkeypatch.setenv(name, value)
    assert "is in us-east-1, but AWS is called in eu-west-1" in complaint(run, "--zone", "use1-az1")
