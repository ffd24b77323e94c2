r"""Runs the fenced blocks of a page, each by its language, all in one directory and in the order of the page.

`python` runs in an interpreter of its own, warnings are errors. `toml` is decoded as settings, `json`, `yaml` and `ini`
are parsed, `text` is left alone, and any other language is an error. A block with `title="name"` is written to that
file first; a titled `python` block is run only by the later command that names it, and settings are a titled
`holdfast.toml` or untitled, while other TOML files are parsed.

`console` has commands, `$ command` (continued by `> `), in one bash for the whole page, so that variables stay. Output
that follows is compared, with `...` for anything at all; a command without it must only succeed, or be followed by
`$ echo $?`. A `holdfast up` at the end of a block is a server in a terminal of its own: the page goes on when it has
said what the block shows, and answers. It is ended by `^C` in its output, by the next server of the page, or with the
page. The last command of a block with a title, such as `console title="another terminal"`, runs in a terminal of its
own beside the server, which knows no variables of the page; so does one with `^C` in its output, which is then pressed.

`make` is only asked what it would do, and `pip install` is only read. A `holdfast demo` that ends by itself is run for
real with bins of two seconds, which takes a quarter of a minute: the pages show one between them.

Five addresses stand for those of the test: port 8470, Holdfast's, port 8471, its agent's, and port 8080, a service's,
for free ones, `POSTGRES` for a real server, and `AWS` for an emulator, for which credentials are in the environment. In
`CLONE`, which is about a clone, Python also finds what is in one.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast import HoldfastError
from holdfast.config import load
from tests.docs.pages import ROOT, Block, Page, steps
from tests.docs.terminal import Background, Terminal, environment
from tests.support.preloaded import install_shims, run_preloaded

PORT = "8470"
AGENT_PORT = "8471"
SERVICE_PORT = "8080"
POSTGRES = "postgresql://holdfast@127.0.0.1:5432/holdfast"
AWS = "http://127.0.0.1:5000"
AWS_VARIABLES = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
"""Any will do: an emulator believes everybody."""
CLONE = "CONTRIBUTING.md"
UP_SECONDS = 30.0
"""Longest that a server may take to say what the page shows; one second on an idle machine."""
CURL_TIMED_OUT = 28
DEMO = "holdfast demo"
QUICKLY = " --bin-seconds 2"
"""A run of the demonstration takes four to five bins."""
INTERRUPTED = {0, 130, -signal.SIGINT}
"""How a program may end after Ctrl-C."""


class SnippetFailed(AssertionError):
    """A block is not true; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where a page is run, and what its five addresses stand for."""

    directory: Path
    """Empty, for the page's own files; its neighbours are for ours."""
    port: int
    service_port: int
    agent_port: int
    postgres: str = POSTGRES
    aws: str = AWS

    def command(self, text: str) -> str:
        return self._real(text, "")

    def output(self, text: str) -> str:
        return self._real(text, "127.0.0.1:")

    def _real(self, text: str, host: str) -> str:
        ports = {PORT: self.port, AGENT_PORT: self.agent_port, SERVICE_PORT: self.service_port}
        # All in one go: a free port may look like another's.
        pattern = f"(?<={re.escape(host)})({'|'.join(ports)})"
        text = re.sub(pattern, lambda found: str(ports[found[0]]), text)
        return text.replace(POSTGRES, self.postgres).replace(AWS, self.aws)


def run_page(page: Page, sandbox: Sandbox) -> None:
    """Run all blocks of the page. Raises SnippetFailed at the first that is not true."""
    _require_use(page)
    home = sandbox.directory.with_name(sandbox.directory.name + "-home")
    home.mkdir()
    variables = environment(home, _tools(home))
    if page.name == CLONE:
        variables["PYTHONPATH"] = str(ROOT)
    if sandbox.aws != AWS:
        variables |= AWS_VARIABLES
    with Terminal(sandbox.directory, variables) as terminal:
        for block in page.blocks:
            try:
                _run_block(block, terminal, sandbox, variables)
            except (SnippetFailed, ValueError, HoldfastError, configparser.Error, msgspec.DecodeError) as error:
                raise SnippetFailed(f"{page.name}, line {block.line}: {error}") from error


def _require_use(page: Page) -> None:
    for block in page.blocks:
        if block.language != "python" or not block.title:
            continue
        module = block.title.removesuffix(".py")
        target, setting = f" {module}:", f'"{module}:'  # as a worker names a module, and as settings do
        if not any(block.title in command or target in command for command in page.commands) and not any(
            each.language == "toml" and setting in each.text for each in page.blocks
        ):
            raise SnippetFailed(f"{page.name}, line {block.line}: no command of the page runs {block.title}")


def _tools(home: Path) -> Path:
    """A folder with commands that start quickly, and with what a machine may lack."""
    folder = home / "bin"
    folder.mkdir()
    install_shims(folder)
    if shutil.which("curl") is None:
        script = folder / "curl"
        stand_in = Path(__file__).with_name("curl.py")
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(stand_in))} "$@"\n')
        script.chmod(0o755)
    return folder


def _run_block(block: Block, terminal: Terminal, sandbox: Sandbox, variables: dict[str, str]) -> None:
    text = sandbox.output(block.text)
    if block.title and block.language != "console":
        file = sandbox.directory / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    match block.language:
        case "console":
            _run_console(block, terminal, sandbox)
        case "python":
            if not block.title:
                _run_python(text, sandbox.directory, variables)
        case "toml":
            if block.title in (None, "holdfast.toml"):
                _load_settings(text, sandbox.directory.with_name("settings.toml"))
            else:
                tomllib.loads(text)
        case "json":
            json.loads(text)
        case "yaml":
            msgspec.yaml.decode(text)
        case "ini":
            configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
        case "text":
            pass
        case _:
            raise SnippetFailed(f"unknown language {block.language!r}: see tests/docs/snippets.py")


def _load_settings(text: str, file: Path) -> None:
    file.write_text(text, encoding="utf-8")
    load(file, environment={})


def _run_python(text: str, directory: Path, variables: dict[str, str]) -> None:
    command = [sys.executable, "-W", "error", "-c", text]
    run = run_preloaded(command, cwd=directory, env=variables, text=True, timeout=60)
    if run.returncode:
        raise SnippetFailed(f"the program ended with status {run.returncode}: {run.stderr}")


def _run_console(block: Block, terminal: Terminal, sandbox: Sandbox) -> None:
    todo = steps(block.text)
    for number, (command, output) in enumerate(todo):
        is_last = number == len(todo) - 1
        if command.startswith("make "):
            _require_target(command)
        elif command.startswith("pip install "):
            _require_extras(command)
        elif command == ".ci/run":
            _require_program(ROOT / command)
        elif is_last and is_server(command):
            _serve(command, output, terminal, sandbox)
        elif is_last and (block.title or "^C" in output):
            _run_beside(command, output, terminal, sandbox)
        else:
            may_fail = not is_last and todo[number + 1][0] == "echo $?"
            _run_command(command, output, terminal, sandbox, may_fail=may_fail)


def _run_command(command: str, output: str, terminal: Terminal, sandbox: Sandbox, *, may_fail: bool) -> None:
    listens = f"HOLDFAST_SERVER__PORT={sandbox.port} " * is_server(command)  # also while it refuses to start
    found, status = terminal.run(listens + sandbox.command(command) + QUICKLY * is_demo(command))
    if output and not matches(sandbox.output(output), found):
        raise SnippetFailed(f"`{command}` printed\n{found}\nand not\n{output}")
    timed_out = "--max-time" in command and status == CURL_TIMED_OUT
    if status and not may_fail and not timed_out:
        raise SnippetFailed(f"`{command}` ended with status {status}: {found}")


def is_server(command: str) -> bool:
    """Return whether the command starts a server, which by default listens on port 8470."""
    return command.split()[:2] == ["holdfast", "up"]


def is_demo(command: str) -> bool:
    """Whether the command is a run of the whole demonstration."""
    words = command.split()
    return command.startswith(DEMO) and not {"--keep-running", "--help"} & {*words}


def _serve(command: str, output: str, terminal: Terminal, sandbox: Sandbox) -> None:
    terminal.end_background()
    log = sandbox.directory.with_name("server.log")
    server = terminal.start(
        sandbox.command(command), log, HOLDFAST_LOG__FORMAT="text", HOLDFAST_SERVER__PORT=str(sandbox.port)
    )
    _follow(command, sandbox.output(output), server, lambda: _answers(sandbox.port), {0})


def _run_beside(command: str, output: str, terminal: Terminal, sandbox: Sandbox) -> None:
    log = sandbox.directory.with_name(f"beside-{uuid.uuid4().hex}.log")
    running = terminal.start(
        sandbox.command(command), log, HOLDFAST_LOG__FORMAT="text", HOLDFAST_AGENT__PORT=str(sandbox.agent_port)
    )
    _follow(command, sandbox.output(output), running, lambda: True, INTERRUPTED)


def _follow(command: str, output: str, running: Background, is_ready: Callable[[], bool], ends: set[int]) -> None:
    """Wait until it has said what stands before `^C`, if that is there, and then press it."""
    expected, interrupted, farewell = output.partition("^C")
    deadline = time.monotonic() + UP_SECONDS
    while not (matches(expected, found := running.output()) and is_ready()):
        if not running.running or time.monotonic() > deadline:
            raise SnippetFailed(f"`{command}` printed\n{running.output()}\nand not\n{expected}")
        time.sleep(0.02)
    if interrupted:
        status = running.end(signal.SIGINT)
        if status not in ends or not matches(farewell.strip("\n") or "...", running.output()[len(found) :]):
            raise SnippetFailed(f"`{command}` ended with status {status}: {running.output()}")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def _require_target(command: str) -> None:
    words = shlex.split(command)
    run = subprocess.run(
        [words[0], "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    if run.returncode:
        raise SnippetFailed(f"`{command}` is not possible: {run.stderr}")


def _require_extras(command: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in shlex.split(command)[2:]:
        wanted = re.fullmatch(r"(?P<name>[\w-]+|\.)(\[(?P<extras>[\w,]+)\])?", word)
        if not wanted or wanted["name"] not in {".", project["name"]}:  # a dot: the clone itself
            raise SnippetFailed(f"`{command}` installs {word!r}, which is not this project")
        unknown = set((wanted["extras"] or "").split(",")) - {"", *project["optional-dependencies"]}
        if unknown:
            raise SnippetFailed(f"`{command}` names extras that do not exist: {', '.join(sorted(unknown))}")


def _require_program(path: Path) -> None:
    if not os.access(path, os.X_OK):
        raise SnippetFailed(f"{path} is no program")


def matches(expected: str, found: str) -> bool:
    """Return whether the output is what the page shows.

    `...` stands for anything or nothing, also as the last line. Space at the ends of lines does not count.
    """
    expected, found = _trimmed(expected), _trimmed(found)
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, found + "\n" * expected.endswith("\n..."), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
