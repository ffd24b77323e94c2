"""Every fenced block of the documentation is true. What is done with which language is said in `snippets.py`."""

import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.docs import snippets
from tests.docs.pages import ROOT, parse, paths, read
from tests.docs.snippets import POSTGRES, Place, SnippetFailed, matches, run_page
from tests.services.start import free_port


@pytest.fixture
def place(tmp_path: Path) -> Place:
    directory = tmp_path / "page"
    directory.mkdir()
    return Place(directory, free_port())


@pytest.fixture
def place_with_postgres(place: Place, postgres_url: str) -> Iterator[Place]:
    import psycopg

    name = f"docs_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        yield Place(place.directory, place.port, postgres_url.rpartition("/")[0] + "/" + name)
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.mark.parametrize("path", paths(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_a_page_is_true(path: Path, request: pytest.FixtureRequest) -> None:
    needs_postgres = POSTGRES in path.read_text(encoding="utf-8")
    run_page(read(path), request.getfixturevalue("place_with_postgres" if needs_postgres else "place"))


def page_of(text: str) -> str:
    """Blocks in a short spelling: a line `: language` begins one."""
    blocks = [block.partition("\n") for block in f"\n{text.strip()}".split("\n: ")[1:]]
    return "\n\n".join(f"```{info.strip()}\n{body.rstrip()}\n```" for info, _, body in blocks)


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
        ": console\n$ pip install holdfast 'holdfast[server,aws]'",
        ': python title="hello.py"\nprint("hello")\n: console\n$ python hello.py\nhello',
        ': toml title="holdfast.toml"\n[server]\nport = 1\n: console\n$ holdfast check --json\n...holdfast.toml...',
        ": toml\n[log]\nlevel = 'debug'",
        ': toml title="other.toml"\nanything = 1',
        ': json\n{"a": 1}\n: yaml\na: [1]\n: ini\n[Unit]\nA=1\nA=2\n: text\nwhatever',
    ],
)
def test_what_is_true_passes(text: str, place: Place) -> None:
    run_page(parse("page.md", page_of(text)), place)


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
        (": console\n$ pip install holdfast[nothing]", "extras that do not exist: nothing"),
        (": console\n$ pip install something", "is not this project"),
        (": console\n$ holdfast up --port nothing\n...", "Invalid value"),
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
def test_what_is_not_true_fails_and_says_where(text: str, complaint: str, place: Place) -> None:
    with pytest.raises((SnippetFailed, ChildProcessError), match=f"(?s){complaint}"):
        run_page(parse("page.md", page_of(text)), place)


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


def test_a_server_serves_the_blocks_that_follow_and_ends_with_the_page_even_if_that_fails(place: Place) -> None:
    with pytest.raises(SnippetFailed, match="`false` ended with status 1"):
        run_page(parse("page.md", page_of(SERVER + "\n: console\n$ false")), place)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", place.port)).close()


def test_a_server_can_be_interrupted_and_takes_the_place_of_the_one_before(place: Place) -> None:
    text = SERVER + "\n: console\n$ holdfast up\n...Holdfast...\n^C\n... stopped"
    run_page(parse("page.md", page_of(text)), place)


def test_a_server_that_says_something_else_when_it_is_interrupted_fails(place: Place) -> None:
    text = ": console\n$ holdfast up\n...Holdfast...\n^C\nnot what it says"
    with pytest.raises(SnippetFailed, match="ended with status 0"):
        run_page(parse("page.md", page_of(text)), place)


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("a", "a", True),
        ("a", "\na  \r\n\r\n", True),
        ("a ... d", "a b\nc d", True),
        ("...", "", True),
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


def test_the_stand_in_for_curl_asks_as_curl_does(echo: str) -> None:
    assert curl("-s", "-H", "X-Word: holdfast", f"{echo}/ready") == ("GET /ready holdfast ", 0)
    assert curl("-s", "-d", "{}", f"{echo}/v1") == ("POST /v1 None {}", 0)
    assert curl("-s", "-X", "DELETE", f"{echo}/v1") == ("DELETE /v1 None ", 0)


def test_a_page_uses_the_stand_in_where_there_is_no_curl(
    echo: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    text = f": console\n$ curl -s {echo}/ready\nGET /ready None\n$ curl --version\n...\n$ echo $?\n2"
    run_page(parse("page.md", page_of(text)), place)


def test_the_stand_in_for_curl_gives_up_as_curl_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert curl("-sN", "--max-time", "1", f"http://127.0.0.1:{silent.getsockname()[1]}/") == ("", 28)
