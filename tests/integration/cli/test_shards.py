"""`holdfast shards` as processes of their own: pipes, terminals, bytes, PostgreSQL, and several at once."""

import json
import os
import pty
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.cli.test_process import imported_by, python
from tests.integration.server.process import COMMAND, STUCK, environment
from tests.support.preloaded import Preloaded, run_preloaded
from tests.table import sampled

SIZES = ["--size", "3", "--overlap", "1"]
MAX_TENANTS = 50_001


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three zones of 256 workers: 65,536 shards of three that share one at the most."""
    rows = [f"az{zone}-{number},az{zone}\n" for zone in range(1, 4) for number in range(256)]
    (tmp_path / "fleet.csv").write_text("worker,zone\n" + "".join(rows))
    return tmp_path


@pytest.fixture(params=sampled(["sqlite", "postgres"]))
def variables(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The settings of one engine and then of the other, through the environment."""
    if request.param == "sqlite":
        yield {}
        return
    url: str = request.getfixturevalue("postgres_url")
    schema = f"shards_cli_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        yield {"HOLDFAST_DATABASE__URL": f"{url}?options=-csearch_path%3D{schema}"}
        connection.execute(f"drop schema {schema} cascade".encode())


def shards(
    *words: str | bytes, folder: Path, piped: bytes = b"", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end, with this through a pipe."""
    return run_preloaded(
        [*COMMAND, "shards", *words], cwd=folder, env=environment(**(variables or {})), piped=piped, timeout=STUCK
    )


def result(finished: subprocess.CompletedProcess[bytes]) -> Any:
    assert (finished.returncode, finished.stderr) == (0, b"")
    return json.loads(finished.stdout)


def start(*words: str, folder: Path, variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return Preloaded(
        [*COMMAND, "shards", *words, "--json"],
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_fleet_comes_through_a_pipe(folder: Path) -> None:
    fleet = (folder / "fleet.csv").read_bytes()
    assert result(shards("plan", "-", *SIZES, "--json", folder=folder, piped=fleet))["shards"] == 65_536
    with_mark = b"\xef\xbb\xbf" + fleet.replace(b"\n", b"\r\n")
    assert result(shards("plan", *SIZES, "-", "--json", folder=folder, piped=with_mark))["workers"] == 768
    finished = shards("plan", "-", "--json", folder=folder, piped=b"\n\nworker,zone\na,az1\nb\n")
    assert finished.returncode == 2
    assert json.loads(finished.stderr)["detail"].startswith("standard input, line 5: ")
    assert [path.name for path in folder.iterdir()] == ["fleet.csv"]


def test_bytes_that_are_no_text_come_through_pipes_files_and_the_command_line(folder: Path) -> None:
    assert shards("plan", "fleet.csv", *SIZES, "--apply", folder=folder).returncode == 0
    names = [b"\xff\xfe\x80", b"gr\xc3\xbcn", b" a"]
    typed = result(shards("assign", *names, "--json", folder=folder))
    assert [entry["tenant"] for entry in typed] == ["\\xff\\xfe\\x80", "grün", " a"]
    lines = b"\r\n".join(names) + b"\r\n"
    (folder / "tenants").write_bytes(lines)
    assert result(shards("assign", "--file", "-", "--json", folder=folder, piped=lines)) == typed
    assert result(shards("assign", "--file", "tenants", "--existing", "--json", folder=folder)) == typed
    table = shards("assign", *names, folder=folder)
    assert b"\\xff\\xfe\\x80" in table.stdout
    finished = shards("assign", b"\xfe", "--existing", folder=folder)
    assert (finished.returncode, finished.stderr) == (1, b"holdfast: tenant \\xfe has no shard yet\n")
    finished = shards("blast-radius", "--tenant", b"\xfe", "--json", folder=folder)
    assert (finished.returncode, json.loads(finished.stderr)["error"]) == (1, "not-found")
    assert result(shards("blast-radius", "--tenant", b"\xff\xfe\x80", "--json", folder=folder))["attackers"] == 1


def test_a_reader_that_has_seen_enough_is_no_reason_for_a_traceback(folder: Path) -> None:
    """As in `holdfast shards assign ... | head -n 1`: what is printed is more than a pipe holds."""
    assert shards("plan", "fleet.csv", *SIZES, "--apply", folder=folder).returncode == 0
    (folder / "tenants").write_text("".join(f"tenant-{number}\n" for number in range(6000)))
    with (
        start("assign", "--file", "tenants", folder=folder, variables={}) as command,
        subprocess.Popen(["head", "-n", "1"], stdin=command.stdout, stdout=subprocess.PIPE) as head,
    ):
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert head.communicate(timeout=STUCK)[0] == b"[\n"
        assert command.stderr.read() == b""
        assert command.wait(STUCK) == 1
    assert result(shards("plan", "--json", folder=folder))["tenants"] == 6000, "they have their shards all the same"


def at_terminal(*words: str, folder: Path) -> tuple[int, bytes, bytes]:
    """Run a command whose standard error is a terminal; returns its exit code and what it printed there and here."""
    ours, theirs = pty.openpty()
    with Preloaded(
        [*COMMAND, "shards", *words], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        printed, _ = process.communicate(timeout=STUCK)
    seen = b""
    try:
        while more := os.read(ours, 65_536):
            seen += more
    except OSError:  # how a terminal ends that nobody else has open
        pass
    finally:
        os.close(ours)
    return process.returncode, seen, printed


def test_how_far_it_is_is_told_at_a_terminal(folder: Path) -> None:
    assert shards("plan", "fleet.csv", *SIZES, "--apply", folder=folder).returncode == 0
    (folder / "tenants").write_text("tenant\n" + "".join(f"tenant-{number}\n" for number in range(MAX_TENANTS)))
    code, seen, printed = at_terminal("assign", "--file", "tenants", "--json", folder=folder)
    assert (code, seen) == (0, b"\r50,000 tenants\r\n")
    assert len(json.loads(printed)) == MAX_TENANTS
    code, seen, printed = at_terminal("blast-radius", "--worker", "az1-1", "--json", folder=folder)
    assert (code, seen) == (0, b"\r50,000 tenants read\r\n")
    found = json.loads(printed)
    assert found["unaffected"] + found["partly_hit"] == MAX_TENANTS
    code, seen, printed = at_terminal("assign", "tenant-1", "--json", folder=folder)
    assert (code, seen, len(json.loads(printed))) == (0, b"", 1)


def test_the_whole_story_in_the_database_that_the_settings_name(folder: Path, variables: dict[str, str]) -> None:
    def run(*words: str, piped: bytes = b"") -> Any:
        return result(shards(*words, "--json", folder=folder, piped=piped, variables=variables))

    assert run("plan", "fleet.csv", *SIZES, "--apply")["version"] == 1
    names = "".join(f"tenant-{number}\n" for number in range(100)).encode()
    before = run("assign", "--file", "-", piped=names)
    spare = b"worker,zone\n" + b"".join(b"az%d-spare,az%d\n" % (zone, zone) for zone in (1, 2, 3))
    assert run("change", "--add", "-", "--apply", piped=spare)["version"] == 2
    assert run("suspects", *before[17]["workers"])[0]["tenant"] == "tenant-17"
    assert run("isolate", "tenant-17")["workers"] == ["az1-spare", "az2-spare", "az3-spare"]
    fleet = run("fleet")
    assert (fleet["version"], len(fleet["workers"])) == (3, 771)
    assert fleet["isolated"] == [{"tenant": "tenant-17", "workers": ["az1-spare", "az2-spare", "az3-spare"]}]
    after = run("assign", "--file", "-", "--existing", piped=names)
    assert [one for one, other in zip(before, after, strict=True) if one != other] == [before[17]]
    assert run("blast-radius", "--tenant", "tenant-17")["partly_hit"] == 0
    assert run("release", "tenant-17")["workers"] == before[17]["workers"]
    assert run("assign", "--file", "-", piped=names) == before
    assert run("report")["pairs_above_promise"] == 0
    assert run("remove", "tenant-3", "tenant-4") == {"removed": 2}
    assert run("plan") | {"tenants": 98, "version": 4} == run("plan")
    assert (folder / "holdfast-data" / "shards.sqlite").exists() == (not variables)


def test_two_processes_that_assign_at_once_never_give_a_shard_twice(folder: Path, variables: dict[str, str]) -> None:
    assert shards("plan", "fleet.csv", *SIZES, "--apply", folder=folder, variables=variables).returncode == 0
    for me in range(2):
        own = [f"own-{me}-{number}\nboth-{number}\n" for number in range(3000)]
        (folder / f"tenants-{me}").write_text("".join(own))
    started = [start("assign", "--file", f"tenants-{me}", folder=folder, variables=variables) for me in range(2)]
    found = []
    for process in started:
        printed, errors = process.communicate(timeout=STUCK)
        assert (process.returncode, errors) == (0, b"")
        found.append({entry["tenant"]: tuple(entry["workers"]) for entry in json.loads(printed)})
    assert all(found[0][f"both-{number}"] == found[1][f"both-{number}"] for number in range(3000))
    together = found[0] | found[1]
    assert len(together) == len({*together.values()}) == 9000


def test_of_several_who_change_the_fleet_at_once_nobody_undoes_what_another_did(
    folder: Path, variables: dict[str, str]
) -> None:
    """Whoever came too late is told so, and the workers of all others are there."""
    assert shards("plan", "fleet.csv", *SIZES, "--apply", folder=folder, variables=variables).returncode == 0
    for me in range(4):
        (folder / f"more-{me}.csv").write_text(f"worker,zone\nmore-{me},az1\n")
    started = [
        start("change", "--add", f"more-{me}.csv", "--apply", folder=folder, variables=variables) for me in range(4)
    ]
    # All have ended before one is repeated: else it could be too late again.
    ended = [process.communicate(timeout=STUCK) for process in started]
    versions = []
    for me, (process, (printed, errors)) in enumerate(zip(started, ended, strict=True)):
        if process.returncode:
            assert process.returncode == 1
            assert json.loads(errors)["error"] == "conflict"
            finished = shards(
                "change", "--add", f"more-{me}.csv", "--apply", "--json", folder=folder, variables=variables
            )
            versions.append(result(finished)["version"])
        else:
            versions.append(json.loads(printed)["version"])
    assert sorted(versions) == [2, 3, 4, 5]
    found = result(shards("plan", "--json", folder=folder, variables=variables))
    assert (found["workers"], found["spare"], found["version"]) == (772, 4, 5)


WITHOUT = "import sys; sys.modules['numpy'] = None\nfrom holdfast.cli import main\n"


def test_without_numpy_reports_say_what_to_install(tmp_path: Path) -> None:
    commands = [["report", "file.csv"], ["report"], ["blast-radius", "--tenant", "a"]]
    script = f"{WITHOUT}for words in {commands!r}:\n    assert main(['shards', *words, '--json']) == 1, words"
    finished = python(script, tmp_path)
    assert (finished.returncode, finished.stdout) == (0, ""), finished.stderr
    told = {
        "error": "missing-extra",
        "detail": "the report on shards (holdfast shards report, blast-radius) needs the extra 'shards': "
        "pip install 'holdfast-resilience[shards]'",
    }
    assert [json.loads(line) for line in finished.stderr.splitlines()] == [told] * len(commands)


def test_without_numpy_everything_else_works(folder: Path) -> None:
    script = WITHOUT + "\n".join(
        f"assert main(['shards', *{words!r}]) == 0"
        for words in (
            ["plan", "fleet.csv", *SIZES, "--apply"],
            ["assign", "a", "b"],
            ["change", "--drain", "az1-1", "--apply"],
            ["fleet"],
            ["suspects", "az1-1", "az2-1"],
            ["remove", "b"],
            ["--help"],
        )
    )
    finished = python(script, folder)
    assert finished.returncode == 0, finished.stderr


def test_looking_imports_neither_a_database_nor_numpy(tmp_path: Path) -> None:
    for words, modules in imported_by([["shards", "--help"], ["shards", "plan", "--workers", "64"]], tmp_path):
        assert "holdfast.cli.shards" in modules, words
        assert modules & {"apsw", "numpy", "psycopg", "boto3", "litestar"} == set(), words
