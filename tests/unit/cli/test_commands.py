"""Exit codes, help, and how errors are told."""

import functools
import io
import re
import shlex
import shutil
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import main
from holdfast.cli.commands import app
from tests.services.start import free_port
from tests.table import every_row
from tests.unit.cli.conftest import Run

COMMANDS = [
    "agent",
    "alarms",
    "alarms explain",
    "alarms history",
    "alarms state",
    "alarms tree",
    "alerts",
    "alerts acknowledge",
    "alerts list",
    "alerts show",
    "alerts snooze",
    "alerts test",
    "aurora",
    "aurora clusters",
    "aurora deploy",
    "aurora history",
    "aurora package",
    "aurora remove",
    "aurora run",
    "aurora schedule",
    "aurora simulate",
    "aurora status",
    "aurora stop",
    "aurora template",
    "aurora unschedule",
    "backup",
    "calls",
    "calls advise",
    "calls simulate",
    "calls simulate amplification",
    "calls simulate jitter",
    "calls simulate metastability",
    "calls simulate timeout",
    "canary",
    "check",
    "completion",
    "credential",
    "credential create",
    "credential list",
    "credential revoke",
    "demo",
    "deploy",
    "deploy begin",
    "deploy end",
    "deploy list",
    "export",
    "export address-endpoint",
    "export route53",
    "export status-endpoint",
    "queue",
    "queue dead-letters",
    "queue depth",
    "queue discard",
    "queue limits",
    "queue list",
    "queue redrive",
    "queue resize",
    "queue send",
    "queue sweep",
    "queue top",
    "replay",
    "shards",
    "shards assign",
    "shards blast-radius",
    "shards change",
    "shards fleet",
    "shards forget",
    "shards isolate",
    "shards plan",
    "shards release",
    "shards remove",
    "shards report",
    "shards suspects",
    "simulate",
    "simulate zones",
    "telemetry",
    "telemetry send",
    "telemetry show",
    "up",
    "verdict",
    "verdict explain",
    "worker",
    "zone",
    "zone evacuate",
    "zone here",
    "zone history",
    "zone in",
    "zone out",
    "zone plan",
    "zone restore",
    "zone resume",
    "zone runbook",
    "zone runs",
    "zone status",
]


def plain(text: str) -> str:
    """Without the line ends that fit it to the terminal."""
    return " ".join(text.split())


GROUPS = [
    "alarms",
    "alerts",
    "aurora",
    "calls",
    "calls simulate",
    "credential",
    "deploy",
    "export",
    "queue",
    "shards",
    "simulate",
    "telemetry",
    "verdict",
    "zone",
]


def in_group(group: str) -> list[str]:
    """The names of its commands, without that of the group."""
    found = app
    for word in group.split():
        found = found[word]
    return [name for name in found if not name.startswith("-")]


def test_every_command_is_in_these_tests() -> None:
    found = in_group("") + [f"{group} {name}" for group in GROUPS for name in in_group(group)]
    assert sorted(found) == COMMANDS


def test_the_version_is_printed_and_nothing_else(run: Run) -> None:
    ran = run("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"{holdfast.__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_help_lists_every_command_with_what_it_does(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert (ran.code, ran.err) == (0, "")
    for name in (command for command in COMMANDS if " " not in command):
        assert re.search(rf"│ {name} +[A-Z]\w+", ran.out), name
    assert "Exit codes: 0 success, 1 failed" in plain(ran.out)


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_lists_its_commands_with_what_they_do(run: Run, group: str) -> None:
    for words in (group.split(), [*group.split(), "--help"]):
        ran = run(*words)
        assert (ran.code, ran.err) == (0, "")
        for name in in_group(group):
            assert re.search(rf"│ {name} +[A-Z]\w+", ran.out), name


def test_the_help_of_a_command_says_what_it_does_and_has_its_own_example_which_it_takes(run: Run) -> None:
    """The help begins with what the command does for the caller, and has no example of another command."""

    def check(command: str) -> None:
        ran = run(*command.split(), "--help")
        assert (ran.code, ran.err) == (0, "")
        usage, _, description = ran.out.partition("\n")
        assert usage.startswith(f"Usage: holdfast {command}")
        assert re.match(r"[A-Z].*\.", plain(description))
        assert plain(ran.out).count(f"Example: holdfast {command}") == 1
        assert "Examples:" not in ran.out
        assert plain(ran.out).count("Exit codes:") == 1
        (example,) = re.findall(r"Example: holdfast (.*)", ran.out)
        app.parse_args(shlex.split(example.partition(" >> ")[0]), exit_on_error=False, print_error=False)

    every_row(COMMANDS, check)


def test_the_examples_of_the_help_are_ones_that_their_commands_take(run: Run) -> None:
    examples = re.findall(r"^  holdfast (.*)$", run("--help").out, re.MULTILINE)
    assert len(examples) >= 4
    for example in examples:
        app.parse_args(shlex.split(example.partition(" >> ")[0]), exit_on_error=False, print_error=False)


WRONG: list[tuple[list[str], str]] = [
    (["nonsense"], 'Unknown command "nonsense"'),
    (["chek"], "check"),
    (["check", "--nonsense"], "Unknown option"),
    (["up", "--prot", "1"], "Did you mean --port?"),
    (["up", "--port", "http"], "--port"),
    (["credential", "create"], "--role"),
    (["credential", "create", "--role", "king"], "king"),
    (["credential", "revoke"], "ID"),
    (["completion", "tcsh"], "tcsh"),
    (["backup"], "TARGET"),
    (["calls", "simulate", "nonsense"], "nonsense"),
    (["calls", "simulate", "jitter", "--client", "3"], "Did you mean --clients?"),
    (["calls", "advise"], "FILE"),
    (["calls", "advise", "latencies.csv", "--unit", "min"], "min"),
    (["queue", "send", "mail"], "--tenant"),
    (["queue", "limits", "mail", "--spill-rate", "many"], "many"),
    (["queue", "resize", "mail"], "LANES"),
    (["queue", "sweep", "mail"], "--before"),
    (["queue", "top", "--interval", "0"], "--interval"),
    (["shards", "nonsense"], "nonsense"),
    (["shards", "plan", "fleet.csv", "--sise", "3"], "Did you mean --size?"),
    (["shards", "plan", "--size", "four"], "four"),
    (["shards", "isolate"], "TENANT"),
    (["shards", "isolate", "a", "b"], "unexpected argument 'b': see `holdfast shards isolate --help`"),
    (["check", "a", "b"], "unexpected argument 'b': see `holdfast check --help`"),
    (["worker", "jobs:mail", "--processes", "0"], "--processes"),
]


def test_wrong_arguments_exit_with_2_and_one_line_that_names_them(run: Run) -> None:
    def check(row: tuple[list[str], str]) -> None:
        words, told = row
        ran = run(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("holdfast: ")
        assert told in ran.err
        if words[0] in ("up", "check"):
            in_json = run(*words, "--json")
            assert in_json.code == 2
            assert in_json.error["error"] == "usage"
            assert told in in_json.error["detail"]

    every_row(WRONG, check)


def test_wrong_settings_exit_with_2(run: Run, here: Path) -> None:
    (here / "holdfast.toml").write_text("[server]\nprot = 1\n")
    for words in (["check"], ["up"], ["credential", "list"], ["backup", "copies"]):
        ran = run(*words)
        assert ran.code == 2
        assert ran.err == "holdfast: holdfast.toml, line 2: server.prot: there is no such setting; did you mean port?\n"
        assert run(*words, "--json").error["error"] == "settings"


def test_an_option_that_no_setting_takes_exits_with_2(run: Run) -> None:
    ran = run("up", "--port", "70000", "--json")
    assert ran.code == 2
    assert ran.error["detail"] == "command line: server.port: expected a whole number <= 65535, found 70000"


def test_a_settings_file_with_a_name_that_is_not_unicode_is_told_all_the_same(run: Run) -> None:
    assert run("check", "\udcff.toml", "--json").error["detail"].startswith(r"\udcff.toml does not exist")


def test_what_does_not_exist_exits_with_1(run: Run) -> None:
    ran = run("credential", "revoke", "000000000000", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")


def test_what_is_unavailable_exits_with_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE__URL", f"postgresql://user:hunter2@127.0.0.1:{free_port()}/name")
    monkeypatch.setenv("HOLDFAST_DATABASE__TIMEOUT", "0.01")
    ran = run("credential", "list", "--json")
    assert (ran.code, ran.error["error"]) == (3, "engine-unavailable")
    assert "hunter2" not in ran.err


def test_an_interrupt_exits_with_130_and_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.cli.server.load", interrupted)
    ran = run("check")
    assert (ran.code, ran.out, ran.err) == (130, "", "holdfast: interrupted\n")
    assert run("check", "--json").error == {"error": "interrupted", "detail": "interrupted"}


CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@functools.cache
def script_for(shell: str) -> str:
    """Return what the command prints for `shell`. To make it takes half a second."""
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as complaints:
        code = main(["completion", shell])
    assert (code, complaints.getvalue()) == (0, "")
    return printed.getvalue()


@pytest.mark.parametrize("shell", CHECKS)
def test_a_script_names_every_command(shell: str) -> None:
    script = script_for(shell)
    for word in ("holdfast", "backup", "check", "credential", "create", "revoke", "up", "role"):
        assert word in script


# bash is needed for the build anyway; the others are asked where somebody uses them.
@pytest.mark.parametrize("shell", [shell for shell in CHECKS if shell == "bash" or shutil.which(shell)])
def test_a_script_is_accepted_by_its_shell(here: Path, shell: str) -> None:
    script = here / "script"
    script.write_text(script_for(shell))
    finished = subprocess.run([*CHECKS[shell], script], capture_output=True, text=True, timeout=30, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")


def test_bash_completes_a_command(here: Path) -> None:
    script = here / "script"
    script.write_text(script_for("bash"))
    # What the shell itself does when the key is pressed after `holdfast cred`.
    key = "COMP_WORDS=(holdfast cred); COMP_CWORD=1; $(complete -p holdfast | cut -d ' ' -f 3)"
    finished = subprocess.run(
        ["bash", "-c", f"source {script}; {key}; echo ${{COMPREPLY[@]}}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert finished.stdout.split() == ["credential"], finished.stderr


def test_an_error_that_is_not_of_standard_output_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise ConnectionResetError

    monkeypatch.setattr(holdfast.cli, "_run", fail)
    with pytest.raises(ConnectionResetError):
        holdfast.cli.main(["check"])
    assert capsys.readouterr().out == ""
