"""CSV of bins is read whatever the order of its columns, and a bad row is named by its line."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Side, Zone
from holdfast.replay import csv_bins
from holdfast.replay.fields import find_fields
from holdfast.replay.rows import LabelTable, Rows
from holdfast.telemetry.bins import BinKey
from tests.table import rows
from tests.unit.replay.recorded import read

SHORT = "time,operation,zone,requests,faults\n"
ROW = "1767225600,cart/add,use1-az1,10,1\n"


def test_a_row_has_its_labels_counts_times_and_latencies() -> None:
    header = "faults,requests,zone,operation,time,workload,instance,side,arrived,p50_ms,p90_ms,p99_ms\n"
    reader, rows, labels = read(f"{header}1,10,use1-az1,cart/add/x,1767225600,shop,i-1,client,1767225611,40,80,120\n")
    assert labels.keys == [BinKey("shop", Operation("cart", "add/x"), Zone("use1-az1"), "i-1", Side.CLIENT)]
    assert (rows.starts[0], rows.arrived[0], rows.requests[0], rows.faults[0]) == (1767225600, 1767225611, 10, 1)
    latencies = rows.latencies.row(0)
    assert latencies.count == 9
    assert latencies.quantile(0.5) == pytest.approx(0.040, rel=0.1)
    assert latencies.quantile(0.9) == pytest.approx(0.080, rel=0.25)
    assert (reader.ignored, reader.bad_rows) == ([], 0)


@rows(
    ("text", "starts"),
    [
        (SHORT + ROW, [1767225600]),
        ("\ufeff" + SHORT + ROW, [1767225600]),
        ((SHORT + ROW).replace("\n", "\r\n"), [1767225600]),
        ((SHORT + ROW).replace("\n", "\r"), [1767225600]),
        (SHORT + ROW.rstrip("\n"), [1767225600]),
        ("\n\n" + SHORT + "\n" + ROW + "\n\n" + ROW + "\n", [1767225600] * 2),
        (SHORT + "# a remark, with a comma\n" + ROW, [1767225600]),
        (SHORT + ",,,,\n" + ROW, [1767225600]),
        (SHORT + ROW.replace("1767225600", "2026-01-01T00:00:00Z"), [1767225600]),
        (SHORT + ROW.replace("1767225600", "2026-01-01 01:00:00+01:00"), [1767225600]),
        (SHORT + ROW.replace("1767225600", "2026-01-01T00:00:00"), [1767225600]),
        (SHORT + ROW.replace("1767225600", "1767225600.5"), [1767225600.5]),
        (SHORT + ROW.replace("1767225600", "1.7672256e9"), [1767225600]),
        (SHORT + ROW.replace("1767225600", "1767225600.0000000000000001"), [1767225600]),
        (SHORT + '1767225600,"cart/add, or ""more""",use1-az1,10,1\n' + ROW, [1767225600] * 2),
        ("remark," + SHORT + '"of two\nlines",' + ROW, [1767225600]),
        (SHORT.upper() + ROW, [1767225600]),
        (SHORT + ROW.replace("10,1", "10.0,0.6"), [1767225600]),
    ],
)
def test_many_forms_of_a_file_are_accepted(text: str, starts: list[float]) -> None:
    _, rows, _ = read(text)
    assert rows.starts.tolist() == starts
    assert (rows.requests.tolist(), rows.faults.tolist()) == ([10] * len(starts), [1] * len(starts))
    assert np.all(np.isnan(rows.arrived))
    assert rows.latencies.offsets[-1] == 0


def test_unknown_columns_are_ignored_and_named() -> None:
    reader, rows, _ = read("colour," + SHORT + "red," + ROW)
    assert reader.ignored == ["colour"]
    assert len(rows) == 1


@rows(
    ("text", "complaint"),
    [
        ("", "bins.csv: it is empty: expected a header with time, operation, zone, requests, faults"),
        ("\n \n", "bins.csv: it is empty"),
        ("# growth=1.2\n", "bins.csv: it is empty"),
        ("time,zone\n", "line 1: the header has no column operation, requests, faults; it has time, zone"),
        ("time," + SHORT, "line 1: the column time is there twice"),
        (SHORT + ROW + "1,2\n", "line 3: expected 5 fields, found 2"),
        (SHORT + "1,a/b,z,1,\n1,a/b,z,1,0,0\n".replace("1,\n", "1\n"), "line 2: expected 5 fields, found 4"),
        (SHORT + "\n" + ROW.replace("10", "-1"), "line 3: requests: expected 0 to 1000000000"),
        (SHORT + ROW.replace("10,", ","), "line 2: requests: expected 0 to"),
        (SHORT + ROW + ROW.replace("10", "ten"), "line 3: requests: could not convert"),
        (SHORT + ROW.replace("10,", ".,"), "line 2: requests: could not convert"),
        (SHORT + ROW.replace(",1\n", ",11\n"), "line 2: faults: expected 0 to the number of requests"),
        (SHORT + ROW.replace("1767225600", "1767225600000"), "line 2: time: '1767225600000' is no time"),
        (SHORT + ROW.replace("1767225600", ""), "line 2: time: '' is no time: expected UTC seconds or"),
        (SHORT + ROW.replace("1767225600", "noon"), "line 2: time: 'noon' is no time"),
        (SHORT + ROW.replace("1767225600", "-5"), "line 2: time: '-5' is no time"),
        (SHORT + ROW.replace("cart/add", "cart"), "line 2: operation 'cart': expected service/name"),
        (SHORT + ROW.replace("cart/add", "c/" + "x" * 600), "expected at most 512 printable characters"),
        (SHORT + ROW.replace("use1-az1", ""), "line 2: zone '': expected 1 to 64 printable characters"),
        ("side," + SHORT + "left," + ROW, "line 2: side 'left': expected server, client, canary"),
        ("workload," + SHORT + "a b," + ROW, "line 2: workload 'a b'"),
        ("arrived," + SHORT + "soon," + ROW, "line 2: arrived: 'soon' is no time"),
        ("p50_ms,p90_ms," + SHORT + "9,3," + ROW, "line 2: percentiles: expected p50_ms <= p90_ms <= p99_ms"),
        ("p50_ms," + SHORT + "-9," + ROW, "line 2: percentiles: expected milliseconds, 0 or more"),
        ("histogram," + SHORT + "30:x," + ROW, "line 2: histogram: could not convert"),
        ("histogram," + SHORT + "30," + ROW, "line 2: histogram: expected bucket:count pairs"),
        ("histogram," + SHORT + "1.5:2," + ROW, "line 2: histogram: expected whole numbers as buckets"),
        ("histogram," + SHORT + "1:-2," + ROW, "line 2: histogram: expected counts of 0 or more"),
        ("growth,histogram," + SHORT + "1,1:2," + ROW, "line 2: growth of a histogram: expected more than 1"),
        (SHORT + '"' + "x" * 140_000 + '\n",' + ROW, "field larger than field limit"),
        ('"' + "x" * 140_000 + '",' + SHORT, "line 1: field larger than field limit"),
    ],
)
def test_a_bad_row_is_named_by_its_line(text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        read(text)
    assert complaint in str(raised.value)
    assert str(raised.value).startswith("bins.csv")


def test_bad_rows_are_skipped_and_counted() -> None:
    rows_text = [ROW] * 50
    rows_text[7] = "oops\n"
    rows_text[30] = ROW.replace("10,", "x,")
    reader, rows, _ = read(SHORT + "".join(rows_text), skips_bad=True)
    assert (len(rows), reader.bad_rows) == (48, 2)
    assert reader.first_problem == "bins.csv, line 9: expected 5 fields, found 1"


def test_a_file_with_only_bad_rows_has_no_rows() -> None:
    for text in (SHORT + "oops\n", SHORT + 'oops,"x"\n', SHORT + ROW.replace("10,", "x,")):
        reader = csv_bins.CsvReader("bins.csv", iter_bytes(text), LabelTable(), skips_bad=True)
        assert list(reader.read()) == []
        assert reader.bad_rows == 1


def iter_bytes(text: str) -> Callable[[int], bytes]:
    parts = iter([text.encode(), b""])
    return lambda _: next(parts)


@pytest.mark.parametrize(
    ("header", "fields", "growth"),
    [
        ("histogram", "30:5 31:4", 1.1),
        ("histogram_1.2", "30:5;31:4", 1.2),
        ("histogram_ms", "30:5|31:4", 1.1),
        ("growth,histogram", "1.2,30:5 31:4", 1.2),
        ("growth,histogram", ",30:5 31:4", 1.1),
    ],
)
def test_the_growth_of_a_histogram_is_stated_in_several_ways(header: str, fields: str, growth: float) -> None:
    _, rows, _ = read(f"{header},{SHORT}{fields},{ROW}")
    found = rows.latencies.row(0)
    assert found.count == 9
    assert found.quantile(0.5) == pytest.approx(growth**30.5 / 1000, rel=0.15)


def test_a_remark_above_the_header_may_state_the_growth() -> None:
    _, rows, _ = read(f"# growth=1.5 in milliseconds\n# by hand\nhistogram,{SHORT}4:9,{ROW}")
    assert rows.latencies.row(0).quantile(0.5) == pytest.approx(1.5**4.5 / 1000, rel=0.1)


def test_percentiles_are_used_where_the_histogram_is_blank() -> None:
    text = f"histogram,p50_ms,p90_ms,p99_ms,{SHORT}30:9,,,,{ROW},40,80,120,{ROW},,,,{ROW}"
    _, rows, _ = read(text)
    assert [rows.latencies.row(index).count for index in range(3)] == [9, 9, 0]
    assert rows.latencies.row(1).quantile(0.5) == pytest.approx(0.040, rel=0.1)


def test_blocks_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_bins, "BLOCK_BYTES", 16)
    monkeypatch.setattr(csv_bins, "CHUNK_ROWS", 2)
    plain, quoted = SHORT + ROW * 5, SHORT + ROW * 2 + ROW.replace("cart/add", '"cart/""add"""') * 3
    for text in (plain, quoted):
        assert len(read(text)[1]) == 5


def test_a_number_is_read_as_python_reads_it() -> None:
    texts = ["0", "12", "12.75", ".5", "7.", "0012", "+3", " 4 ", "1e2", "123456789.125", "99999999999999999999999999"]
    for group in (texts[:6], texts):
        _, rows, _ = read("p99_ms," + SHORT + "".join(f"{text},{ROW}" for text in group))
        assert len(rows) == len(group)
    fields = find_fields("\n".join(texts[:6]).encode(), 1, ord(","), ord("\n"))
    assert fields is not None
    assert fields.numbers(0, "n").tolist() == [float(text) for text in texts[:6]]


@given(st.text(alphabet=',\n\r"#.:- 0123456789eabt/\x00\x1e\x1fé', max_size=80), st.booleans())
def test_any_text_gives_rows_or_an_error_with_a_line(text: str, skips_bad: bool) -> None:
    reader = csv_bins.CsvReader("bins.csv", iter_bytes("histogram," + SHORT + text), LabelTable(), skips_bad=skips_bad)
    found: list[Rows] = []
    problem = ""
    try:
        found = list(reader.read())
    except InvalidValue as error:
        problem = str(error)
    assert not problem or problem.startswith("bins.csv, line ")
    assert not problem or not skips_bad or "field larger" in problem
    assert all(len(rows) and np.all(np.isfinite(rows.starts)) for rows in found)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_give_rows_or_an_error(data: bytes, has_header: bool) -> None:
    problem = ""
    try:
        read((SHORT + ROW).encode() * has_header + data)
    except InvalidValue as error:
        problem = str(error)
    assert has_header or problem
    assert not problem or problem.startswith("bins.csv, line " if has_header else "bins.csv")


def test_a_time_is_a_number_or_iso() -> None:
    assert csv_bins.parse_time(" 5 ") == 5
    for text in ("", "nan", "inf", "-1", "0001-01-01T00:00:00+23:00"):
        with pytest.raises(InvalidValue, match="is no time"):
            csv_bins.parse_time(text)
    with pytest.raises(InvalidValue, match="milliseconds"):
        csv_bins.parse_time("1767225600000")
    assert math.isfinite(csv_bins.parse_time("2026-01-31T06:05:10.5Z"))
