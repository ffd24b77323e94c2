"""Files of workers, tenants and assignments: what is read of them, and what is wrong with them, by line."""

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.cli.shards.inputs import parse_name, read_assignments, read_fleet, read_tenants
from holdfast.shards import Fleet, Slot

HERE = Path("file")
BOM = b"\xef\xbb\xbf"


def fleet(text: str | bytes) -> Fleet:
    HERE.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_fleet("file")


def tenants(text: str | bytes) -> list[bytes]:
    HERE.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(read_tenants("file"))


def assignments(text: str | bytes) -> dict[bytes, list[str]]:
    HERE.write_bytes(text.encode() if isinstance(text, str) else text)
    return {name: list(workers) for name, workers in read_assignments("file")}


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.BytesIO]:
    """What is written here is standard input, from its beginning."""
    content = io.BytesIO()
    with io.TextIOWrapper(content, encoding="ascii") as file:
        monkeypatch.setattr(sys, "stdin", file)
        yield content


WANTED = Fleet(
    slots=(
        Slot(worker="a", group=("az1",), weight=2.0, host="h1"),
        Slot(worker="b", group=("az2",), host="h2"),
    )
)


@pytest.mark.parametrize(
    "text",
    [
        "worker,zone,weight,host\na,az1,2,h1\nb,az2,,h2\n",
        "worker,zone,weight,host\r\na,az1,2,h1\r\nb,az2,,h2\r\n",
        "worker,zone,weight,host\ra,az1,2,h1\rb,az2,,h2",
        "\n\r\n  \nworker,zone,weight,host\n\na,az1,2,h1\n , ,,\nb,az2,,h2\n\n",
        ' worker , zone,"weight",host\n"a", az1 ,"2.0",h1\nb,"az2",1e0,"h2"\n',
        "host,weight,zone,worker\nh1,2,az1,a\nh2,1,az2,b\n",
        BOM + b"worker,zone,weight,host\na,az1,2,h1\nb,az2,1,h2\n",
        "worker,zone,weight,host,\na,az1,2,h1,\nb,az2,1,h2\n",
        '{"worker": "a", "zone": "az1", "weight": 2, "host": "h1"}\n{"worker": "b", "zone": "az2", "host": "h2"}\n',
        ' \n\n {"worker":"a","zone":"az1","weight":2.0,"host":"h1"}\r\n \r\n{"host":"h2","zone":"az2","worker":"b"}',
        '{"worker":"a","zone":"az1","weight":"2","host":"h1"}\n{"worker":"b","zone":"az2","host":"h2","weight":null}',
        BOM + b'{"worker":"a","zone":"az1","weight":2,"host":"h1"}\n{"worker":"b","zone":"az2","host":"h2"}',
    ],
)
def test_a_fleet_is_csv_with_a_header_or_json_lines(text: str | bytes) -> None:
    assert fleet(text) == WANTED


def test_whatever_else_is_said_of_a_worker_is_where_it_is() -> None:
    assert fleet("worker\na\nb\n") == Fleet.from_workers("ab")
    wanted = [("az1", "one"), ("az2", "two")]
    found = fleet("zone,worker,version\naz1,a,one\naz2,b,two\n")
    assert [slot.group for slot in found.slots] == wanted
    found = fleet('{"zone":"az1","worker":"a","version":"one"}\n{"version":"two","worker":"b","zone":"az2"}\n')
    assert [slot.group for slot in found.slots] == wanted, "by name, in the order of the first line"


def test_names_of_workers_are_any_text_on_one_line() -> None:
    found = fleet('worker,zone\n"a, ""b""",grün\ntwo words,grün\n')
    assert [slot.worker for slot in found.slots] == ['a, "b"', "two words"]
    assert {slot.group for slot in found.slots} == {("grün",)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "file: no worker in it; expected a line for each"),
        (" \n\r\n", "file: no worker in it; expected a line for each"),
        (BOM, "file: no worker in it; expected a line for each"),
        ("worker,zone\n", "file: no worker in it; expected a line for each"),
        ("name,zone\na,az1\n", "file: expected JSON lines, or CSV whose first line has a column `worker`"),
        ("worker;zone\na;az1\n", "file: expected JSON lines, or CSV whose first line has a column `worker`"),
        ("[1]\n", "file: expected JSON lines, or CSV whose first line has a column `worker`"),
        ("worker,zone,zone\na,b,c\n", "file: columns worker, zone, zone; expected each column once"),
        ("worker,zone\na,az1\nb,az2,c\n", "file, line 3: 3 fields, and the first line has 2"),
        ("\n\n\nworker,zone\n\na,az1,c\n", "file, line 6: 3 fields, and the first line has 2"),
        ("\n\nworker,zone\na,az1,c\n", "file, line 4: 3 fields, and the first line has 2"),
        (
            'worker,zone\n"a\n\nb",az1\nc,az2\n',
            "file, line 2: a worker named 'a\\n\\nb': expected printable text",
        ),
        ('worker,zone\na,"az1\n\n"\nc,az2,d\n', "file, line 5: 3 fields"),
        (
            "worker,zone\na,az1\nb\x1b[31m,az1\n",
            "file, line 3: a worker named 'b\\x1b[31m': expected printable text",
        ),
        ("worker,zone\na,a\tz\n", "file, line 2: worker a has the group or host 'a\\tz': expected printable text"),
        (
            '{"worker":"a","host":"h\\u0000"}',
            "file, line 1: worker a has the group or host 'h\\x00': expected printable text",
        ),
        ('worker,zone\n"a\nb",az1,c\n', "file, line 2: 3 fields, and the first line has 2"),
        ('worker,"zo\nne"\na,b,c\n', "file, line 3: 3 fields, and the first line has 2"),
        ('worker,zone\na,az1\nb,"az2\nc,az1\n', "file, line 3: this is not CSV: unexpected end of data"),
        ('\n\nworker,zone\na,az1\nb,"az2"x\n', "file, line 5: this is not CSV: ',' expected after '\"'"),
        ('worker,"zone"x\na,az1\n', "file, line 1: this is not CSV"),
        (f"worker,zone\na,{'z' * 131_073}\n", "file, line 2: this is not CSV: field larger than field limit (131072)"),
        (f"worker,{'z' * 131_073}\n", "file: expected JSON lines, or CSV whose first line has a column `worker`"),
        ("worker,zone\na,az1\n,az2\n", "file, line 3: a worker named '': expected printable text"),
        (
            "worker,zone\na,az1\nb,az2\na,az2\n",
            "file, line 4: worker a is already in file, line 2; expected it once",
        ),
        (
            '\n\n{"worker":"a"}\n\n{"worker":"a"}\n',
            "file, line 5: worker a is already in file, line 3; expected it once",
        ),
        (
            '[{"worker": "a"}, {"worker": "b"}, {"worker": "b"}]',
            "file, entry 3: worker b is already in file, entry 2; expected it once",
        ),
        ("worker,host\na,h\nb,h\n", "file: workers a and b are both on h"),
        ("worker,zone\na,az1\nb,\n", "file, line 3: this worker has no group and the first one zone: expected the"),
        ("worker,zone\na,\nb,az1\n", "file, line 3: this worker has zone and the first one no group: expected the"),
        ("worker,zone,cell\na,az1,\nb,,c\n", "file, line 3: this worker has cell and the first one zone"),
        ("worker,weight\na,one\n", "file, line 2: weight 'one': expected a number above 0"),
        ("worker,weight\na,1\nb,0\n", "file, line 3: weight 0.0 of worker b: expected a number above 0"),
        ("worker,weight\na,-1\n", "file, line 2: weight -1.0 of worker a: expected a number above 0"),
        ("worker,weight\na,nan\n", "file, line 2: weight nan of worker a: expected a number above 0"),
        ("worker,weight\na,inf\n", "file, line 2: weight inf of worker a: expected a number above 0"),
        (b"worker\n\xff\n", "file, line 2: a worker named '\\udcff': expected printable text"),
        ('{"worker":"a"}\n{"worker":', "file, line 2: this is not JSON: Expecting value"),
        ('\n\n{"worker":"a"}\n\nworker\n', "file, line 5: this is not JSON"),
        ('{"worker":"a"}\n["b"]\n', "file, line 2: expected a JSON object"),
        ('{"worker":"a","x":' + "[" * 100_000, "file, line 1: this is not JSON: maximum recursion depth"),
        ('{"zone":"az1"}', "file, line 1: a worker named '': expected printable text"),
        ('{"worker":null}', "file, line 1: a worker named '': expected printable text"),
        ('{"worker":1}', "file, line 1: 1: expected text as worker"),
        ('{"worker":"a","zone":["az1"]}', "file, line 1: ['az1']: expected text as zone"),
        ('{"worker":"a","host":""}', "file, line 1: worker a has the group or host '': expected printable text"),
        (
            '{"worker":"a","zone":"az1"}\n{"worker":"b"}',
            "file, line 2: this worker has no group and the first one zone",
        ),
        (
            '{"worker":"a","zone":"az1"}\n\n{"worker":"b","cell":"c"}',
            "file, line 3: this worker has cell and the first",
        ),
        ('{"worker":"a","weight":"x"}', "file, line 1: weight 'x': expected a number above 0"),
        ('{"worker":"a","weight":[1]}', "file, line 1: weight [1]: expected a number above 0"),
        ('{"worker":"a","weight":NaN}', "file, line 1: weight nan of worker a: expected a number above 0"),
        ('{"worker":"a","weight":1' + "0" * 400 + "}", "file, line 1: weight 1000"),
    ],
)
def test_what_is_wrong_with_a_fleet_is_told_with_its_line(text: str | bytes, told: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        fleet(text)
    assert str(raised.value).startswith(told)


def test_shared_machines_are_let_through_if_they_may_be() -> None:
    HERE.write_text("worker,host\na,h\nb,h\n")
    assert len(read_fleet("file", shared_host_policy="allow")) == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a\nb\n", [b"a", b"b"]),
        ("a\r\nb", [b"a", b"b"]),
        ("\n \na b \n\n\t\n c\n", [b"a b ", b" c"]),
        ("", []),
        ("\n\r\n", []),
        (BOM + b"a\n", [b"a"]),
        (b"\xff\xfe\n\x00\n", [b"\xff\xfe", b"\x00"]),
        ('a,b\n"c"\n', [b"a,b", b'"c"']),
        ("x" * 200_000, [b"x" * 200_000]),
        ("tenant\na\n\n b \n", [b"a", b" b "]),
        ('plan,tenant\nfree,"a, b"\n', [b"a, b"]),
        (b"tenant\r\n\xff\r\n", [b"\xff"]),
        (BOM + b"tenant\na\n", [b"a"]),
        ('{"tenant": "a", "plan": 1}\n\n{"tenant": ""}\n', [b"a", b""]),
        (b'{"tenant": "\xff\\u0000"}', [b"\xff\x00"]),
        ('{"tenant": "\\ud800"}', [b"\xed\xa0\x80"]),
        (json.dumps({"tenant": "x" * 200_000}), [b"x" * 200_000]),
        ('[{"tenant": "a"}, {"tenant": " b "}]', [b"a", b" b "]),
        (json.dumps([{"tenant": "a", "workers": ["w"]}], indent=2), [b"a"]),
        ("[a]\n[b\n", [b"[a]", b"[b"]),
    ],
)
def test_tenants_are_csv_or_json_lines_or_a_name_each_line(text: str | bytes, names: list[bytes]) -> None:
    assert tenants(text) == names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plan,tenant\nfree\n", "file, line 2: None: expected the name of a tenant"),
        ('\n{"tenant": "a"}\n{"plan": "a"}', "file, line 3: None: expected the name of a tenant"),
        ('{"tenant": 17}', "file, line 1: 17: expected the name of a tenant"),
        ('{"tenant": "a"}\nb\n', "file, line 2: this is not JSON"),
        ("tenant\na,b\n", "file, line 2: 2 fields, and the first line has 1"),
        ('[{"tenant": "a"}', "file: this is not JSON"),
        ('[\n  {"tenant": "a"},\n  3\n]', "file, entry 2: expected a JSON object"),
    ],
)
def test_what_is_wrong_with_tenants_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        tenants(text)
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize("end", ["csv", "CSV", "json", "jsonl", "ndjson", "JsonL"])
def test_a_file_whose_name_says_what_is_in_it_is_that(end: str) -> None:
    path = Path(f"file.{end}")
    path.write_text("a\nb\n")
    with pytest.raises(InvalidValue, match=f"{path}: expected JSON lines, or CSV whose first line has a column"):
        list(read_tenants(str(path)))
    for text in ("tenant\na\n", '{"tenant": "a"}\n', '[{"tenant": "a"}]'):
        path.write_text(text)
        assert list(read_tenants(str(path))) == [b"a"]
    path.write_text("\n")
    assert list(read_tenants(str(path))) == [], "and nobody is nobody"


@pytest.mark.parametrize("name", ["csv", ".csv", "file.csv.txt", "file.list", "folder.csv/file"])
def test_a_file_whose_name_does_not_end_so_may_hold_names_alone(name: str) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("a\nb\n")
    assert list(read_tenants(name)) == [b"a", b"b"]


@pytest.mark.parametrize(
    "text",
    [
        "tenant,first,second\na,1,4\nb,2,\n",
        "tenant,workers\na,1 4\nb,2\n",
        "plan,tenant,workers\nfree,a,1 4\npaid,b,2\n",
        "tenant,first,second\r\na,1,4\r\n\r\nb,2\r\n",
        '{"tenant": "a", "workers": ["1", "4"]}\n{"tenant": "b", "workers": ["2"], "plan": 3}\n',
        '{"tenant": "a", "workers": "1 4"}\n{"tenant": "b", "first": "2"}\n',
    ],
)
def test_assignments_have_a_tenant_and_its_workers(text: str) -> None:
    assert assignments(text) == {b"a": ["1", "4"], b"b": ["2"]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\nb\n", "file: expected JSON lines, or CSV whose first line has a column `tenant`"),
        ("tenant,first\na,1\nb\n", "file, line 3: expected the workers of tenant b"),
        ("tenant,first\na,1\n,2\n", "file, line 3: None: expected the name of a tenant"),
        ('{"tenant": "a", "workers": []}', "file, line 1: expected the workers of tenant a"),
        ('{"tenant": "a", "workers": 1}', "file, line 1: expected the workers of tenant a"),
        ('{"tenant": "a", "workers": " "}', "file, line 1: expected the workers of tenant a"),
        ('{"tenant": "a"}', "file, line 1: expected the workers of tenant a"),
        ('{"tenant": "a", "workers": ["1", 2]}', "file, line 1: 2: expected a worker"),
    ],
)
def test_what_is_wrong_with_assignments_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        assignments(text)
    assert str(raised.value).startswith(told)


@given(st.lists(st.binary(min_size=1).filter(lambda name: not {*b"\r\n"} & {*name}), min_size=1))
def test_names_of_any_bytes_come_through_lines_as_they_are(names: list[bytes]) -> None:
    kept = [name for name in names if name.decode("utf-8", "surrogateescape").strip()]
    first = kept[0] if kept else b""
    if first.startswith(BOM) or first.lstrip().startswith(b"{") or b"tenant" in first:
        return
    assert tenants(b"\n".join(names)) == kept


@given(st.lists(st.binary(), min_size=1))
def test_names_of_any_bytes_come_through_json_as_they_are(names: list[bytes]) -> None:
    lines = [json.dumps({"tenant": name.decode("utf-8", "surrogateescape")}) for name in names]
    assert tenants("\n".join(lines)) == names


def test_names_of_the_command_line_are_the_bytes_that_were_typed() -> None:
    for name in (b"a", b"\xff", "grün".encode(), b"\xed\xa0\x80"):
        assert parse_name(os.fsdecode(name)) == name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (BOM + b"a\r\nb\r\n", [b"a", b"b"]),
        (b'tenant\r\n"a\r\nb"\r\n', [b"a\r\nb"]),
        (b"\xff\n", [b"\xff"]),
        (b"", []),
    ],
)
def test_standard_input_is_read_as_a_file_is(piped: io.BytesIO, text: bytes, names: list[bytes]) -> None:
    piped.write(text)
    piped.seek(0)
    assert list(read_tenants("-")) == tenants(text) == names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "standard input: no worker in it"),
        (b"worker\na\n\nb,c\n", "standard input, line 4: 2 fields"),
        (
            b"worker\na\na\n",
            "standard input, line 3: worker a is already in standard input, line 2; expected it once",
        ),
    ],
)
def test_what_is_wrong_with_standard_input_is_told_of_it(piped: io.BytesIO, text: bytes, told: str) -> None:
    piped.write(text)
    piped.seek(0)
    with pytest.raises(InvalidValue, match=told):
        read_fleet("-")


def test_standard_input_that_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InvalidValue, match="standard input is closed"):
        read_fleet("-")


def test_a_standard_input_that_somebody_replaced_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\nb\n"))
    assert list(read_tenants("-")) == [b"a", b"b"]


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidValue, match="nowhere cannot be read: No such file or directory"):
        read_fleet("nowhere")
    Path("folder").mkdir()
    with pytest.raises(InvalidValue, match="folder cannot be read: Is a directory"):
        list(read_tenants("folder"))


def test_an_option_is_no_file_but_a_file_may_be_named_so() -> None:
    with pytest.raises(
        InvalidValue, match=r"--jsn: expected a file, and not an option; a file of this name is \./--jsn"
    ):
        read_fleet("--jsn")
    Path("--jsn").write_text("worker\na\n")
    assert read_fleet("./--jsn") == Fleet.from_workers("a")
