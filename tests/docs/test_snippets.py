"""Every fenced block of the documentation is true. What is done with which language is said in `snippets.py`."""

import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.docs import snippets
from tests.docs.pages import ROOT, parse, paths, read
from tests.docs.snippets import AWS, POSTGRES, Sandbox, SnippetFailed, matches, run_page
from tests.services.start import free_port
from tests.table import every_row, sampled


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    directory = tmp_path / "page"
    directory.mkdir()
    return Sandbox(directory, free_port(), free_port(), free_port())


@pytest.fixture
def sandbox_with_postgres(sandbox: Sandbox, postgres_url: str) -> Iterator[Sandbox]:
    import psycopg

    name = f"docs_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        yield replace(sandbox, postgres=postgres_url.rpartition("/")[0] + "/" + name)
        connection.execute(f"drop database {name} with (force)".encode())


# The page about the demo runs it, which keeps both cores busy for half a minute.
PAGES = sorted(paths(), key=lambda path: path.name == "demo.md")


@pytest.mark.parametrize("path", sampled(PAGES, len(PAGES) - 1), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_a_page_is_true(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    sandbox: Sandbox = request.getfixturevalue("sandbox_with_postgres" if POSTGRES in text else "sandbox")
    if AWS in text:
        sandbox = replace(sandbox, aws=request.getfixturevalue("moto_url"))
    run_page(read(path), sandbox)


def test_the_demonstration_is_run_once() -> None:
    """It takes a quarter of a minute, and its own tests are elsewhere."""
    runs = [command for path in paths() for command in read(path).commands if snippets.is_demo(command)]
    assert len(runs) == 1


def test_every_example_is_shown_and_so_run_by_a_page() -> None:
    blocks = [block for path in paths() for block in read(path).blocks]

    def check(example: Path) -> None:
        shown = [block.text for block in blocks if block.title == example.name]
        assert shown == [example.read_text(encoding="utf-8")]

    every_row(sorted((ROOT / "examples").glob("*.py")), check)


def page_of(text: str) -> str:
    """Blocks in a short spelling: a line `: language` begins one."""
    blocks = [block.partition("\n") for block in f"\n{text.strip()}".split("\n: ")[1:]]
    return "\n\n".join(f"```{info.strip()}\n{body.rstrip()}\n```" for info, _, body in blocks)


WAITING = "$ bash -c 'echo ready; exec sleep 60'"


@pytest.mark.parametrize(
    "text",
    [
        ": python\nassert 1 + 1 == 2",
        ": console\n$ echo one two three\none ... three",
        ": console\n$ echo one && echo two && echo three\none\n...",
        ": console\n$ echo nothing is compared",
        ": console\n$ number=4\n: console\n$ echo $number\n4",
        ": console\n$ cd ..; ls\n...page...",
        ": console\n$ echo first\n> echo second\nfirst\nsecond",
        ": console\n$ ls nowhere\n...No such file...\n$ echo $?\n2",
        ": console\n$ cat\n$ printf none",
        ": console\n$ make test\n$ make test ARGS=tests/unit\n$ .ci/run",
        ": console\n$ pip install holdfast-resilience 'holdfast-resilience[server,aws]'",
        ': python title="hello.py"\nprint("hello")\n: console\n$ python hello.py\nhello',
        f': console title="another terminal"\n{WAITING}\nready\n: console\n$ echo going on\ngoing on',
        f": console\n{WAITING}\nready\n^C",
        ": console\n$ echo http://127.0.0.1:8080\nhttp://127.0.0.1:8080",
        ": console\n$ echo http://127.0.0.1:8471\nhttp://127.0.0.1:8471",
        ': toml title="holdfast.toml"\n[server]\nport = 1\n: console\n$ holdfast check --json\n...holdfast.toml...',
        ": toml\n[log]\nlevel = 'debug'",
        ': toml title="other.toml"\nanything = 1',
        ': json\n{"a": 1}\n: yaml\na: [1]\n: ini\n[Unit]\nA=1\nA=2\n: text\nwhatever',
    ],
)
def test_what_is_true_passes(text: str, sandbox: Sandbox) -> None:
    run_page(parse("page.md", page_of(text)), sandbox)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (": python\nassert 1 + 1 == 3", "line 1: .*AssertionError"),
        (": python\nimport warnings\nwarnings.warn('old')", "UserWarning"),
        (": console\n$ echo one\ntwo", "printed\none\nand not\ntwo"),
        (": console\n$ echo one two\none", "printed"),
        (": console\n$ false", "ended with status 1"),
        (": console\n$ false\n$ echo $?\n0", "and not\n0"),
        (": console\n$ exit 3", "ended the shell"),
        (": console\necho one", "starts with a command"),
        (": console\n$ holdfast nothing", "Unknown command"),
        (": console\n$ make nothing", "No rule to make target"),
        (": console\n$ pip install holdfast-resilience[nothing]", "extras that do not exist: nothing"),
        (": console\n$ pip install something", "is not this project"),
        (": console\n$ pip install holdfast", "is not this project"),
        (": console\n$ holdfast up --port nothing\n...", "Invalid value"),
        (': console title="another terminal"\n$ echo one\ntwo', "printed\none\n\nand not\ntwo"),
        (f": console\n{WAITING}\nready\n^C\nsorry", "ended with status"),
        (": console\n$ bash -c 'trap \"exit 3\" INT; echo ready; while :; do sleep 0.1; done'\nready\n^C", "status 3"),
        (': python title="lost.py"\nprint()', r"no command of the page runs lost\.py"),
        (": toml\n[server]\nprot = 1", "there is no such setting; did you mean port"),
        (": toml\nserver", "not valid TOML"),
        (': toml title="other.toml"\nserver', "Expected '='"),
        (": json\n{", "line 1: Expecting"),
        (": yaml\na: [", "line 1: "),
        (": ini\na = 1", "no section headers"),
        (": ruby\nputs 1", "unknown language 'ruby'"),
        (": \nno language", "unknown language ''"),
        (": json\n1\n: json\n{", "line 5: "),
    ],
)
def test_what_is_not_true_fails_and_says_where(text: str, complaint: str, sandbox: Sandbox) -> None:
    with pytest.raises((SnippetFailed, ChildProcessError), match=f"(?s){complaint}"):
        run_page(parse("page.md", page_of(text)), sandbox)


SERVER = """
: console
$ holdfast up
...
Holdfast ... on http://127.0.0.1:8470
...
: console
$ curl -s http://127.0.0.1:8470/health
{"status":"ok"}
"""


def test_a_server_serves_the_blocks_that_follow_and_ends_with_the_page_even_if_that_fails(sandbox: Sandbox) -> None:
    with pytest.raises(SnippetFailed, match="`false` ended with status 1"):
        run_page(parse("page.md", page_of(SERVER + "\n: console\n$ false")), sandbox)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", sandbox.port)).close()


def test_a_server_can_be_interrupted_and_takes_the_place_of_the_one_before(sandbox: Sandbox) -> None:
    text = SERVER + "\n: console\n$ holdfast up\n...Holdfast...\n^C\n... stopped"
    run_page(parse("page.md", page_of(text)), sandbox)


def test_a_server_that_says_something_else_when_it_is_interrupted_fails(sandbox: Sandbox) -> None:
    text = ": console\n$ holdfast up\n...Holdfast...\n^C\nnot what it says"
    with pytest.raises(SnippetFailed, match="ended with status 0"):
        run_page(parse("page.md", page_of(text)), sandbox)


@pytest.mark.parametrize(
    ("command", "is_run"),
    [
        ("holdfast demo --fault latency", True),
        ("holdfast demo --keep-running", False),
        ("holdfast demo --help", False),
        ("make demo", False),
    ],
)
def test_a_run_of_the_whole_demonstration_is_recognised(command: str, *, is_run: bool) -> None:
    assert snippets.is_demo(command) is is_run


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("a", "a", True),
        ("a", "\na  \r\n\r\n", True),
        ("a ... d", "a b\nc d", True),
        ("...", "", True),
        ("a\n...", "a", True),
        ("a\n...", "a\nb", True),
        ("a\n...", "ab", False),
        ("a...", "ba", False),
        ("a.c", "abc", False),
        ("", "a", False),
    ],
)
def test_dots_stand_for_anything_and_nothing_else_does(expected: str, found: str, *, same: bool) -> None:
    assert matches(expected, found) is same


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.command} {self.path} {self.headers['x-word']} {body.decode()}".encode())

    do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the server looks for

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def curl(*words: str) -> tuple[str, int]:
    stand_in = Path(snippets.__file__).with_name("curl.py")
    run = subprocess.run([sys.executable, str(stand_in), *words], capture_output=True, text=True, check=False)
    return run.stdout, run.returncode


def test_the_stand_in_for_curl_asks_as_curl_does(echo: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    assert curl("-s", "--data-binary", f"@{tmp_path}/lines", f"{echo}/v1") == ("POST /v1 None one\ntwo\n", 0)
    assert curl("-s", "-d", f"@{tmp_path}/lines", f"{echo}/v1") == ("POST /v1 None onetwo", 0)
    assert curl("-s", "-H", "X-Word: holdfast", f"{echo}/ready") == ("GET /ready holdfast ", 0)
    assert curl("-s", "-d", "{}", f"{echo}/v1") == ("POST /v1 None {}", 0)
    assert curl("-s", "-X", "DELETE", f"{echo}/v1") == ("DELETE /v1 None ", 0)


def test_a_page_uses_the_stand_in_where_there_is_no_curl(
    echo: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    text = f": console\n$ curl -s {echo}/ready\nGET /ready None\n$ curl --version\n...\n$ echo $?\n2"
    run_page(parse("page.md", page_of(text)), sandbox)


def test_the_stand_in_for_curl_gives_up_as_curl_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert curl("-sN", "--max-time", "1", f"http://127.0.0.1:{silent.getsockname()[1]}/") == ("", 28)
