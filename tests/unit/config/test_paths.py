"""Where a setting stands in a file, however TOML allows it to be written."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.paths import SettingPath, find_line, format_path, look_up_value, parse_path

FILE = """\
# [nothing] = here, and \"\"\" opens nothing
data_directory = "here"

[server]
host = '''
port = 1
[log]
'''
port = 2  # the second
matrix = [
    ["a", "b"],
    ["log"]
]
"quoted.key" = { inner = 1, other = { deep = 2 } }
dotted . "key" = 3

[[workload]]
name = "first"
zones = [
    "use1-az1",
    "use1-az2",
]

    [workload.limits]
    calls = 1

    [[workload.canary]]
    path = "/a"
    [[workload.canary]]
    path = "/b"

[[workload]]
name = "second"
[[workload.canary]]
path = "/c"

[far.away]
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("data_directory",), 2),
        (("server",), 4),
        (("server", "host"), 5),
        (("server", "port"), 9),
        (("server", "matrix"), 10),
        (("server", "matrix", 1, 0), 10),
        (("server", "quoted.key"), 14),
        (("server", "quoted.key", "other", "deep"), 14),
        (("server", "dotted"), 15),
        (("server", "dotted", "key"), 15),
        (("workload",), 17),
        (("workload", 0), 17),
        (("workload", 0, "name"), 18),
        (("workload", 0, "zones", 1), 19),
        (("workload", 0, "limits", "calls"), 25),
        (("workload", 0, "canary", 0, "path"), 28),
        (("workload", 0, "canary", 1, "path"), 30),
        (("workload", 1), 32),
        (("workload", 1, "name"), 33),
        (("workload", 1, "canary", 0, "path"), 35),
        (("far",), 37),
    ],
    ids=lambda value: format_path(value) if isinstance(value, tuple) else str(value),
)
def test_a_setting_is_found_on_the_line_where_its_statement_begins(path: SettingPath, line: int) -> None:
    assert find_line(FILE, path) == line


def test_the_closest_thing_around_stands_for_what_is_not_written() -> None:
    assert find_line(FILE, ("server", "shutdown_timeout")) == 4
    assert find_line(FILE, ("workload", 1, "zones")) == 32
    assert find_line(FILE, ("far", "away", "from", "here")) == 37


def test_what_has_nothing_around_it_has_no_line() -> None:
    assert find_line(FILE, ("database", "url")) is None
    assert find_line("", ("server",)) is None
    assert find_line(FILE, ()) is None


def test_lines_end_where_toml_says_so_and_nowhere_else() -> None:
    assert find_line('a = "one\u2028line"\r\nb = "\x85"\r\nc = 1\r\n', ("c",)) == 3


def test_a_file_without_a_line_end_at_its_end_is_read_to_the_end() -> None:
    assert find_line("a = 1\nb = 2", ("b",)) == 2


@dataclass
class Written:
    """TOML that is being written, and the line of everything in it."""

    lines: list[str] = field(default_factory=list)
    expected: dict[SettingPath, int] = field(default_factory=dict)

    def add(self, statement: str, path: SettingPath) -> None:
        for depth in range(1, len(path) + 1):
            self.expected.setdefault(path[:depth], len(self.lines) + 1)
        self.lines += statement.split("\n")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


NAMES = st.text("ab", min_size=1, max_size=2) | st.sampled_from(["x.y", "[x]", "# x", "x = 1", '"', "'", "ä", "", "0"])
COMMENTS = st.sampled_from(["", "  # no [header] = here", "  # '''", '  # """'])
VALUES = st.sampled_from(
    [
        "1",
        "'one'",
        '"[two]"',
        '\'"""\'',
        "[]",
        "[\n  ['a'],\n  ['b']\n]",
        "[\n  # c = 1\n  { d = 1 },\n]",
        "'''\n[a]\nb = 1\n'''",
        '"""\\"""\na = 1\n"""',
        "1979-05-27T07:32:00Z",
        '"\u2028"',
    ]
)


def spelled(names: Sequence[str]) -> str:
    return ".".join(name if name.isascii() and name.isalnum() else json.dumps(name) for name in names)


@st.composite
def documents(draw: st.DrawFn) -> Written:
    """Tables and lists of tables in each other, with values of all kinds, comments and empty lines between them."""
    written = Written()

    def fill(path: SettingPath) -> None:
        keys = draw(st.lists(NAMES, max_size=3, unique=True))
        for key in keys:
            written.lines += draw(st.lists(st.sampled_from(["", "# a = 1", "\t", "# [a]"]), max_size=2))
            value, comment = draw(VALUES), draw(COMMENTS)
            written.add(f"{spelled([key])} = {value}{comment}", (*path, key))

    def tables(names: tuple[str, ...], path: SettingPath, depth: int) -> None:
        # A prefix keeps the names of tables apart from the names of values.
        children = draw(st.lists(NAMES, max_size=2, unique=True))
        for child in (f"t{name}" for name in children):
            header = (*names, child)
            count = draw(st.integers(0, 2))
            if count == 0:
                written.add(f"  [{spelled(header)}]{draw(COMMENTS)}", (*path, child))
                fill((*path, child))
                if depth:
                    tables(header, (*path, child), depth - 1)
            for number in range(count):
                written.add(f"[[ {spelled(header)} ]]{draw(COMMENTS)}", (*path, child, number))
                fill((*path, child, number))
                if depth:
                    tables(header, (*path, child, number), depth - 1)

    fill(())
    tables((), (), 2)
    return written


@pytest.mark.no_cover
@settings(max_examples=60, deadline=None)
@given(documents())
def test_every_setting_of_any_file_is_found_on_its_line(written: Written) -> None:
    data = tomllib.loads(written.text)
    for path, line in written.expected.items():
        assert look_up_value(data, path) is not None
        assert find_line(written.text, path) == line


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("server",), "server"),
        (("server", "port"), "server.port"),
        (("workload", 0, "zones", 1), "workload[0].zones[1]"),
        (("matrix", 0, 1), "matrix[0][1]"),
    ],
)
def test_a_place_is_written_as_people_write_it_and_read_as_msgspec_writes_it(path: SettingPath, text: str) -> None:
    assert format_path(path) == text
    assert parse_path(f"$.{text}" if text else "") == path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), {"server": {"zones": ["a", "b"]}, "port": 1}),
        (("server", "zones", 1), "b"),
        (("port",), 1),
        (("server", "zones", 2), None),
        (("server", "host"), None),
        (("port", "deeper"), None),
        (("server", 0), None),
        (("server", "zones", "a"), None),
    ],
)
def test_a_value_is_looked_up_by_its_place_and_is_nothing_where_the_way_ends(path: SettingPath, value: object) -> None:
    assert look_up_value({"server": {"zones": ["a", "b"]}, "port": 1}, path) == value
