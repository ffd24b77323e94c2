"""Lines of embedded metric format, of Holdfast and of others, as bins."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Operation, Side, Zone
from holdfast.telemetry import Bin, BinKey, RequestRecord, encode_emf
from holdfast.telemetry.bins import MAX_REQUESTS
from holdfast.telemetry.source import SourceBatch, SourceWorkload
from holdfast.telemetry.sources import emf
from holdfast.telemetry.sources.emf import REASONS, EmfDecoder
from holdfast.telemetry.sources.emf_mapping import EmfMapping
from tests.support.emf import all_deltas
from tests.table import every_row

NOW = 1_767_323_050.0
AT = 1_767_323_045_500
"""A time in milliseconds, in the bin of ten seconds that begins at 1767323040."""
ZONES = frozenset({Zone("use1-az1"), Zone("use1-az2")})
SHOP = SourceWorkload("shop", ZONES)
BANK = SourceWorkload("bank", ZONES)
OWN_SETS = [["Controller", "Action", "Region", "AZ-ID", "InstanceId"], ["Controller", "Action", "Region", "AZ-ID"]]
OWN_METRICS = [{"Name": name, "Unit": "Count"} for name in ("2xx", "3xx", "4xx", "5xx")] + [
    {"Name": "SuccessLatency", "Unit": "Milliseconds"},
    {"Name": "FaultLatency", "Unit": "Milliseconds"},
]
LABELS = {"Controller": "Home", "Action": "Index", "Region": "us-east-1", "AZ-ID": "use1-az1", "InstanceId": "i-1"}
KEY = BinKey("shop", Operation("Home", "Index"), Zone("use1-az1"), "i-1", Side.SERVER)
MAPPING = EmfMapping(
    namespace="Other",
    workload="bank",
    service="svc",
    operation="op",
    zone="zone",
    instance="host",
    status="code",
    counts={"total": "Requests", "faults": "Errors"},
    latency={"all": "Latency"},
)


def directive(**changes: Any) -> dict[str, Any]:
    return {"Namespace": "shop/frontend", "Metrics": OWN_METRICS, "Dimensions": OWN_SETS} | changes


def document(*directives: dict[str, Any], at: Any = AT, **members: Any) -> dict[str, Any]:
    """A document with Holdfast's own labels, and one request unless `members` say something else."""
    metadata = {"Timestamp": at, "CloudWatchMetrics": list(directives) or [directive()]}
    return {"_aws": metadata, **LABELS, **({"2xx": 1} | members)}


def without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}


def lines(*documents: Mapping[str, Any] | bytes) -> bytes:
    return b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in documents)


def decode(*documents: Mapping[str, Any] | bytes, **more: Any) -> SourceBatch:
    return EmfDecoder([SHOP, BANK], [MAPPING]).decode(lines(*documents), NOW, **more)


def only(batch: SourceBatch) -> Bin:
    """The measurements of the one series of a batch in which nothing was refused."""
    assert batch.problem is None
    [delta] = all_deltas(batch)
    return delta.measured


def summed(batch: SourceBatch) -> SourceBatch:
    """The batch with its single requests as deltas."""
    return SourceBatch(all_deltas(batch), {}, batch.accepted, batch.refused, batch.problem, batch.oldest)


def counts(measured: Bin) -> tuple[int, int, int, int]:
    return measured.count_2xx, measured.count_3xx, measured.count_4xx, measured.count_5xx


def test_requests_are_summed_by_series_and_bin() -> None:
    batch = decode(
        document(SuccessLatency=20),
        document(at=AT + 1000, **{"2xx": 0, "5xx": 1}, FaultLatency=40),
        document(at=AT + 10_000, SuccessLatency=30),
        document(InstanceId="i-2"),
    )
    assert (batch.accepted, batch.refused, batch.oldest) == (4, {}, AT / 1000)
    assert [(delta.key.instance, delta.start, delta.seconds, delta.replaces) for delta in all_deltas(batch)] == [
        ("i-1", 1_767_323_040, 10, False),
        ("i-1", 1_767_323_050, 10, False),
        ("i-2", 1_767_323_040, 10, False),
    ]
    first = all_deltas(batch)[0]
    assert first.key == KEY
    assert counts(first.measured) == (1, 0, 0, 1)
    assert first.measured.faults == 1
    assert first.measured.by_second == {1_767_323_045: 1, 1_767_323_046: 1}
    assert (first.measured.success_seconds.sum, first.measured.fault_seconds.sum) == (0.02, 0.04)


def test_a_decoder_reads_the_second_line_of_a_series_as_it_reads_the_first() -> None:
    decoder = EmfDecoder([SHOP])
    line = lines(document(SuccessLatency=20, HttpStatusCode=200))
    first, second = decoder.decode(line, NOW), decoder.decode(line, NOW)
    assert all_deltas(first) == all_deltas(second)
    assert (first.accepted, first.oldest) == (second.accepted, second.oldest)
    assert all_deltas(decoder.decode(line + b"\n" + line, NOW))[0].measured.requests == 2


@pytest.mark.parametrize("status", [200, 304, 404, 503])
def test_a_known_series_counts_every_class_of_status(status: int) -> None:
    decoder, group = EmfDecoder([SHOP]), f"{status // 100}xx"
    latency = "FaultLatency" if status >= 500 else "SuccessLatency"
    line = lines(document(HttpStatusCode=status, **{"2xx": 0, group: 1, latency: 20}))
    first, second = (only(decoder.decode(line, NOW)) for _ in range(2))
    assert first == second
    assert (getattr(second, f"count_{group}"), second.faults) == (1, int(status >= 500))


def test_the_faults_are_those_that_the_workload_counts() -> None:
    def count_faults(count_4xx: int, count_5xx: int, status: int | None) -> int:
        return count_5xx + (count_4xx if status == 429 else 0)

    decoder = EmfDecoder([SourceWorkload("shop", ZONES, count_faults)])
    records = [
        document(HttpStatusCode=status, **{"2xx": 0, f"{status // 100}xx": 1}) for status in (429, 404, 429, 500, 200)
    ]
    records.append(document(**{"2xx": 0, "4xx": 1}))
    assert only(decoder.decode(lines(*records), NOW)).faults == 3


@given(
    changes=st.fixed_dictionaries(
        {},
        optional={
            "2xx": st.integers(0, 5),
            "4xx": st.integers(0, 5),
            "5xx": st.one_of(st.integers(-1, 5), st.none()),
            "SuccessLatency": st.one_of(st.floats(-1, 4e6), st.none(), st.integers(0, 9)),
            "FaultLatency": st.floats(0, 10),
            "HttpStatusCode": st.one_of(st.none(), st.integers(99, 600)),
            "Side": st.sampled_from(["server", "client", "canary", "moon"]),
            "AZ-ID": st.sampled_from(["use1-az1", "use1-az9", "us-east-1a", ""]),
            "InstanceId": st.one_of(st.text(max_size=5), st.integers()),
            "Region": st.one_of(st.text(max_size=3), st.none()),
            "Unread": st.text(),
        },
    ),
    ahead=st.sampled_from([0, 59_000, 120_000]),
    metrics=st.lists(st.sampled_from(OWN_METRICS), unique_by=lambda metric: metric["Name"]),
)
def test_a_record_means_the_same_whether_it_is_decoded_in_one_step_or_member_by_member(
    changes: dict[str, Any], ahead: int, metrics: list[dict[str, str]]
) -> None:
    decoder = EmfDecoder([SHOP])
    declared = directive(Metrics=metrics + OWN_METRICS[:4] if ahead else metrics)
    at = int(NOW * 1000) + ahead
    usual, unusual = (document(declared, at=each, **changes) for each in (at, float(at)))
    assert json.dumps(unusual) != json.dumps(usual), "a timestamp with a decimal point is unusual"
    expected = summed(decoder.decode(lines(unusual), NOW))
    assert summed(decoder.decode(lines(usual), NOW)) == expected
    assert summed(decoder.decode(lines(usual), NOW)) == expected, "now the caches are filled"


def test_every_line_is_a_record_whatever_is_around_it() -> None:
    line = json.dumps(document()).encode()
    prefixes = (
        b"2026-01-02T03:04:05.678Z\t7b0c2e0c-9d2e-4c5a-8f66-0d5f2a1b3c4d\t",
        b"2026-01-02T03:04:05.678Z 7b0c2e0c-9d2e-4c5a-8f66-0d5f2a1b3c4d INFO ",
    )
    batch = decode(b"", line + b"\r", b"  ", *(prefix + line for prefix in prefixes), line, b"\n\n")
    assert (batch.accepted, batch.refused) == (4, {})
    assert decode(b"log: " + line).refused == {"not_json": 1}
    spread = json.dumps(document(), indent=1).encode()
    assert decode(spread).refused == {"not_json": spread.count(b"\n") + 1}, "a record has one line"


def test_a_body_of_many_chunks_is_read_to_its_end() -> None:
    count = 300
    line = json.dumps(document(Path="/" + "x" * 1000)).encode()
    long_line = json.dumps(document(Path="/" + "x" * 200_000)).encode()
    body = [line] * count
    body[10] = body[-1] = long_line
    body[20] = b"{"
    assert (decode(*body).accepted, decode(*body).refused) == (count - 1, {"not_json": 1})
    too_long = json.dumps(document(Path="/" + "x" * emf.MAX_LINE_BYTES)).encode()
    batch = decode(line, too_long, line)
    assert (batch.accepted, batch.refused) == (2, {"invalid": 1})
    assert "1,048,576" in str(batch.problem)


def test_a_directive_with_a_namespace_alone_declares_holdfasts_own_names() -> None:
    lenient = {"Namespace": "shop/frontend"}
    labels = {"Controller": "Home", "Action": "Index", "AZ-ID": "use1-az1", "InstanceId": "i-1"}
    metadata = {"_aws": {"Timestamp": AT, "CloudWatchMetrics": [lenient]}}
    for _ in range(2):
        measured = only(
            decode(metadata | labels | {"2xx": 2, "SuccessLatency": 12.5, "5xx": 1, "FaultLatency": [1, 2]})
        )
        assert counts(measured) == (2, 0, 0, 1)
        assert (measured.success_seconds.sum, measured.fault_seconds.count) == (0.0125, 2)


def test_a_member_that_no_directive_declares_is_no_metric() -> None:
    declared = directive(Metrics=OWN_METRICS[:5])
    assert only(decode(document(declared, FaultLatency=5), document(declared, FaultLatency=5))).fault_seconds.count == 0
    some = directive(Metrics=[{"Name": "2xx"}])
    assert counts(only(decode(document(some, **{"5xx": 7})))) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("unit", "expected"), [("Seconds", 3.0), ("Milliseconds", 0.003), ("Microseconds", 0.000003), (None, 0.003)]
)
def test_a_latency_has_its_declared_unit(unit: str | None, expected: float) -> None:
    declared = directive(Metrics=[*OWN_METRICS[:4], {"Name": "SuccessLatency"} | ({"Unit": unit} if unit else {})])
    assert only(decode(document(declared, SuccessLatency=3))).success_seconds.sum == pytest.approx(expected)


def test_values_may_be_arrays() -> None:
    values = [10 * each for each in range(100)]
    measured = only(decode(document(**{"2xx": [1, 2.0, 3]}, SuccessLatency=values, FaultLatency=[])))
    assert counts(measured) == (6, 0, 0, 0)
    assert (measured.success_seconds.count, measured.fault_seconds.count) == (100, 0)
    assert measured.success_seconds.sum == pytest.approx(sum(values) / 1000)
    assert measured.by_second == {AT // 1000: 6}


def test_values_with_counts_add_up_over_the_records_into_which_an_exporter_splits_them() -> None:
    first = {"Values": [100.0, 50.0], "Counts": [2.0, 3.0], "Max": 110, "Min": 45, "Count": 5, "Sum": 400}
    second = {"Values": [20, 10, 5], "Counts": [1, 4, 0], "Max": 24, "Min": 9, "Count": 5, "Sum": 0}
    measured = only(decode(document(SuccessLatency=first), document(SuccessLatency=second)))
    latencies = measured.success_seconds
    assert (latencies.count, latencies.sum) == pytest.approx((10, 0.4))
    assert (latencies.min, latencies.max) == pytest.approx((0.009, 0.110))
    assert not measured.is_coarse
    assert measured.by_second == {}, "the requests of an interval have no second"


def test_a_summary_of_high_resolution_has_the_requests_of_one_second() -> None:
    metrics = [each | {"StorageResolution": 1} for each in OWN_METRICS]
    summary = {"Max": 3, "Min": 1, "Count": 3, "Sum": 6}
    measured = only(decode(document(directive(Metrics=metrics), **{"2xx": summary}, SuccessLatency=summary)))
    assert counts(measured) == (6, 0, 0, 0)
    assert measured.by_second == {AT // 1000: 6}


def test_of_a_summary_number_sum_and_extremes_are_kept_and_its_percentiles_are_coarse() -> None:
    def check(row: tuple[Any, ...]) -> None:
        given, expected, is_coarse = row
        measured = only(decode(document(SuccessLatency=given)))
        found = measured.success_seconds
        assert (found.count, found.sum, found.min, found.max) == pytest.approx(expected)
        assert measured.is_coarse is is_coarse

    every_row(
        [
            ({"Max": 500, "Min": 100, "Count": 5, "Sum": 1000}, (5, 1.0, 0.1, 0.5), True),
            ({"Max": 500, "Min": 100, "Count": 2, "Sum": 600}, (2, 0.6, 0.1, 0.5), True),
            ({"Max": 100, "Min": 100, "Count": 1, "Sum": 100}, (1, 0.1, 0.1, 0.1), False),
            ({"Max": 0, "Min": 0, "Count": 4, "Sum": 400}, (4, 0.4, 0.1, 0.1), True),  # extremes that are not set
            ({"Max": 500, "Min": 400, "Count": 4, "Sum": 400}, (4, 0.4, 0.1, 0.1), True),  # a contradiction
            ({"Count": 4, "Sum": 400}, (4, 0.4, 0.1, 0.1), True),
            ({"Values": [], "Counts": [], "Count": 4, "Sum": 400}, (4, 0.4, 0.1, 0.1), True),
            ({"Count": 0, "Sum": 0}, (0, 0, 0, 0), False),
            ({"Values": [100], "Counts": [2]}, (2, 0.2, 0.1, 0.1), False),
            ({"Values": [100], "Counts": [2], "Min": 0, "Max": 0}, (2, 0.2, 0.1, 0.1), False),
        ],
        check,
    )


def test_a_count_may_be_a_distribution() -> None:
    given = {"Values": [1, 2], "Counts": [3, 4]}
    assert counts(only(decode(document(**{"2xx": given})))) == (11, 0, 0, 0)
    assert counts(only(decode(document(**{"2xx": given | {"Sum": 11.0000001}})))) == (11, 0, 0, 0)


def test_a_request_counts_once_however_many_directives_and_dimension_sets_refer_to_it() -> None:
    rollup = directive(Dimensions=[["Controller", "AZ-ID"], [], ["AZ-ID"], ["Controller"], ["InstanceId"]])
    regional = directive(Dimensions=[["Controller", "Action", "Region"]])
    other_component = directive(Namespace="shop/backend")
    for records in ([rollup], [directive(), directive()], [directive(), rollup, regional, other_component]):
        assert counts(only(decode(document(*records, **{"5xx": 2})))) == (1, 0, 0, 2)


def test_directives_may_share_the_metrics_of_a_record() -> None:
    parts = [directive(Metrics=OWN_METRICS[:4]), directive(Metrics=OWN_METRICS[4:])]
    measured = only(decode(document(*parts, SuccessLatency=[10, 20])))
    assert (measured.count_2xx, measured.success_seconds.count) == (1, 2)


def test_a_record_may_have_the_requests_of_two_workloads() -> None:
    other = {
        "Namespace": "Other",
        "Metrics": [{"Name": "Requests", "Unit": "Count"}],
        "Dimensions": [["svc", "op", "zone", "host"]],
    }
    unknown = directive(Namespace="nobody/x")
    members = {"svc": "Teller", "op": "Pay", "zone": "use1-az2", "host": "h", "Requests": 5}
    batch = decode(document(directive(), other, unknown, **members))
    assert batch.problem is None
    assert batch.accepted == 1
    assert {delta.key.workload: delta.measured.requests for delta in all_deltas(batch)} == {"shop": 1, "bank": 5}


def other_document(metrics: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """A document of an emitter with other names."""
    declared = [{"Name": name, "Unit": "Milliseconds" if name == "Latency" else "Count"} for name in metrics]
    found = directive(Namespace="Other", Metrics=declared, Dimensions=[["svc", "op", "zone", "host"], []])
    labels = {"svc": "Teller", "op": "Pay", "zone": "use1-az2", "host": "h"}
    return {"_aws": {"Timestamp": AT, "CloudWatchMetrics": [found]}, **labels, **metrics, **members}


def test_a_mapping_names_the_members_of_another_emitter() -> None:
    batch = decode(other_document({"Requests": [3.0, 2.0], "Errors": 1, "Latency": [5, 6, 7]}, Side="client"))
    measured = only(batch)
    assert all_deltas(batch)[0].key == BinKey("bank", Operation("Teller", "Pay"), Zone("use1-az2"), "h", Side.SERVER)
    assert (counts(measured), measured.faults) == ((4, 0, 0, 1), 1)
    assert measured.success_seconds.sum == pytest.approx(0.018)


def test_a_status_says_of_which_class_the_requests_are() -> None:
    def check(row: tuple[Any, ...]) -> None:
        members, expected, latencies = row
        metrics = {name: members.pop(name) for name in list(members) if name != "code"}
        measured = only(decode(other_document(metrics, **members)))
        assert counts(measured) == expected
        assert (measured.success_seconds.count, measured.fault_seconds.count) == latencies

    every_row(
        [
            ({"Requests": 2, "code": "404"}, (0, 0, 2, 0), (0, 0)),
            ({"Requests": 2, "code": 302, "Latency": 1}, (0, 2, 0, 0), (1, 0)),
            ({"Requests": 2, "code": 503, "Latency": 1}, (0, 0, 0, 2), (0, 1)),
            ({"Requests": 2, "code": 101}, (2, 0, 0, 0), (0, 0)),
            ({"Requests": 2, "Errors": 2, "Latency": 1}, (0, 0, 0, 2), (0, 1)),
            ({"Requests": 2, "Errors": 0, "Latency": 1}, (2, 0, 0, 0), (1, 0)),
            ({"Latency": 1}, (0, 0, 0, 0), (1, 0)),  # of requests that another record counts
            ({"Requests": 0}, (0, 0, 0, 0), (0, 0)),
        ],
        check,
    )


def test_without_counts_the_number_of_latencies_is_the_number_of_requests() -> None:
    names = {"namespace": "Http", "workload": "shop", "operation": "http.route", "status": "code"}
    metrics = [{"Name": name, "Unit": "Seconds"} for name in ("took", "failed")]
    found = {"Namespace": "Http", "Metrics": metrics, "Dimensions": [["http.route", "AZ-ID"]]}
    base = {"_aws": {"Timestamp": AT, "CloudWatchMetrics": [found]}, "http.route": "/cart", "AZ-ID": "use1-az1"}

    def check(row: tuple[Any, ...]) -> None:
        latency, members, expected, latencies = row
        mapping = EmfMapping(**names, latency=latency)  # type: ignore[arg-type]
        batch = EmfDecoder([SHOP], [mapping]).decode(lines(base | members), NOW)
        measured = only(batch)
        assert all_deltas(batch)[0].key == BinKey("shop", Operation("shop", "/cart"), Zone("use1-az1"), "", Side.SERVER)
        assert counts(measured) == expected
        assert (measured.success_seconds.count, measured.fault_seconds.count) == latencies

    both = {"success": "took", "fault": "failed"}
    every_row(
        [
            ({"all": "took"}, {"took": [0.1, 0.2]}, (2, 0, 0, 0), (2, 0)),
            ({"all": "took"}, {"took": {"Count": 3, "Sum": 1}, "code": "500"}, (0, 0, 0, 3), (0, 3)),
            ({"all": "took"}, {"took": 1, "code": "429"}, (0, 0, 1, 0), (1, 0)),
            (both, {"took": [1, 2], "failed": 3}, (2, 0, 0, 1), (2, 1)),
            (both, {"failed": 3}, (0, 0, 0, 1), (0, 1)),
        ],
        check,
    )


def nested(depth: int) -> bytes:
    return b'{"_aws":{"Timestamp":1,"CloudWatchMetrics":' + b"[" * depth + b"]" * depth + b"}}"


REFUSALS: list[tuple[str, Mapping[str, Any] | bytes, str, str]] = [
    ("a text", b"hello", "not_json", "JSON"),
    ("a cut line", b'{"_aws": {"Timestamp"', "not_json", "JSON"),
    ("another value", b"[1, 2]", "not_json", "object"),
    ("a byte that is no text", lines(document()).replace(b"Index", b"\xff"), "not_json", "UTF-8"),
    ("such a byte in a member that nobody reads", lines(document(x="Q")).replace(b"Q", b"\xff"), "not_json", "UTF-8"),
    ("half a surrogate pair", lines(document()).replace(b"Index", rb"\ud800"), "not_json", "JSON"),
    ("deep nesting", nested(100_000), "not_json", "recursion"),
    ("NaN", lines(document()).replace(b'"2xx": 1', b'"2xx": NaN'), "not_json", "JSON"),
    ("another kind of line", {"message": "started"}, "not_emf", "`$._aws`"),
    ("metadata of another type", document() | {"_aws": 5}, "invalid", "`$._aws`"),
    ("no timestamp", {"_aws": {"CloudWatchMetrics": [directive()]}}, "invalid", "Timestamp"),
    ("a text as timestamp", document(at="now"), "invalid", "`$._aws.Timestamp`"),
    ("a negative timestamp", document(at=-1), "out_of_range", "Timestamp"),
    ("a timestamp in seconds", document(at=AT // 1000), "out_of_range", "expected milliseconds since the epoch"),
    ("a timestamp in nanoseconds", document(at=AT * 10**6), "out_of_range", "Timestamp"),
    ("a huge timestamp", document(at=10**300), "out_of_range", "Timestamp"),
    ("an hour ahead", document(at=AT + 3_600_000), "too_early", "ahead"),
    ("a minute and a bit ahead", document(at=int(NOW * 1000) + 60_001), "too_early", "60 s ahead"),
    ("no directive", document() | {"_aws": {"Timestamp": AT, "CloudWatchMetrics": []}}, "no_requests", "CloudWatch"),
    ("a directive of another type", document(5), "invalid", "`$._aws.CloudWatchMetrics[0]`"),  # type: ignore[arg-type]
    ("other directives", {"_aws": {"Timestamp": AT, "CloudWatchMetrics": {}}}, "invalid", "CloudWatchMetrics`"),
    ("no namespace", document(without(directive(), "Namespace")), "invalid", "Namespace"),
    ("an empty namespace", document(directive(Namespace="")), "invalid", "Metrics[0].Namespace`"),
    ("a long namespace", document(directive(Namespace="n" * 1025)), "invalid", "Namespace"),
    ("101 metrics", document(directive(Metrics=[{"Name": "2xx"}] * 101)), "invalid", "[0].Metrics`"),
    ("a metric without a name", document(directive(Metrics=[{"Unit": "Count"}])), "invalid", "Metrics[0].Metrics[0]`"),
    ("an empty name", document(directive(Metrics=[{"Name": ""}])), "invalid", "Metrics[0].Name`"),
    ("a long name", document(directive(Metrics=[{"Name": "n" * 1025}])), "invalid", "Metrics[0].Name`"),
    ("a resolution", document(directive(Metrics=[{"Name": "2xx", "StorageResolution": 5}])), "invalid", "Resolution`"),
    ("no dimension set", document(directive(Dimensions=[])), "invalid", "Dimensions`"),
    ("31 dimensions", document(directive(Dimensions=[[f"d{n}" for n in range(31)]])), "invalid", "Dimensions[0]`"),
    ("an empty dimension", document(directive(Dimensions=[[""]])), "invalid", "Dimensions[0][0]`"),
    ("a long dimension", document(directive(Dimensions=[["n" * 251]])), "invalid", "Dimensions[0][0]`"),
    ("a missing dimension", document(directive(Dimensions=[["AZ-ID", "Cluster"]])), "invalid", "`$.Cluster` is"),
    ("a missing region", without(document(), "Region"), "invalid", "`$.Region`"),
    ("an empty region", document(Region=""), "invalid", "`$.Region`"),
    ("a number as dimension", document(InstanceId=5), "invalid", "`$.InstanceId`"),
    ("a long value", document(InstanceId="i" * 1025), "invalid", "`$.InstanceId`"),
    ("a line break in a label", document(Action="a\nb"), "invalid", "`$.Action` contains a control character"),
    ("text from right to left", document(Controller="a\u202eb"), "invalid", "`$.Controller`"),
    ("no controller", without(document(), "Controller"), "invalid", "`$.Controller`"),
    ("no zone", without(document(), "AZ-ID"), "invalid", "`$.AZ-ID`"),
    ("no instance", without(document({"Namespace": "shop"}), "InstanceId"), "invalid", "`$.InstanceId`"),
    ("another side", document(Side="moon"), "invalid", "`$.Side`"),
    ("a number as side", document(Side=1), "invalid", "`$.Side`"),
    ("a text as status", document(HttpStatusCode="OK"), "invalid", "`$.HttpStatusCode`"),
    ("a status beyond 599", document(HttpStatusCode=600), "invalid", "`$.HttpStatusCode`"),
    ("bytes", document(directive(Metrics=[{"Name": "FaultLatency", "Unit": "Bytes"}])), "invalid", "Bytes"),
    ("a rate", document(directive(Metrics=[{"Name": "2xx", "Unit": "Count/Second"}])), "invalid", "Count/Second"),
    ("a text as metric", document(SuccessLatency="fast"), "invalid", "`$.SuccessLatency`"),
    ("null as metric", document(**{"2xx": None}), "invalid", "`$.2xx`"),
    ("true as metric", document(**{"2xx": True}), "invalid", "`$.2xx`"),
    ("a text in an array", document(SuccessLatency=[1, "x"]), "invalid", "`$.SuccessLatency[1]`"),
    ("101 values", document(SuccessLatency=[1] * 101), "invalid", "`$.SuccessLatency`"),
    ("101 values with counts", document(SuccessLatency={"Values": [1] * 101}), "invalid", "`$.SuccessLatency.Values`"),
    ("a value without count", document(SuccessLatency={"Values": [1, 2], "Counts": [1]}), "invalid", "2 Values"),
    ("another count", document(SuccessLatency={"Values": [1], "Counts": [1], "Count": 2}), "invalid", "Count` is 2"),
    ("an empty distribution", document(SuccessLatency={}), "invalid", "`$.SuccessLatency`"),
    ("half a request", document(**{"2xx": 0.5}), "invalid", "`$.2xx` is 0.5"),
    ("1e300 requests", document(**{"2xx": 1e300}), "out_of_range", "`$.2xx` is 1e+300"),
    ("a number beyond floats", lines(document()).replace(b": 1}", b": 1e999}"), "out_of_range", "`$.2xx`"),
    ("an integer beyond floats", document(**{"2xx": 10**400}), "out_of_range", "`$.2xx`"),
    ("10,000 digits", lines(document()).replace(b": 1}", b": " + b"9" * 10_000 + b"}"), "out_of_range", "`$.2xx`"),
    ("a negative count", document(**{"2xx": -1}), "out_of_range", "`$.2xx` is -1"),
    ("a negative count in an array", document(**{"2xx": [5, -1]}), "out_of_range", "`$.2xx` is -1"),
    ("too many together", document(**{"2xx": MAX_REQUESTS, "3xx": MAX_REQUESTS}), "out_of_range", "requests"),
    ("a negative latency", document(SuccessLatency=-0.1), "out_of_range", "`$.SuccessLatency` is -0.1"),
    ("more than an hour", document(SuccessLatency=3_600_001), "out_of_range", "hour"),
    ("an integer beyond floats as latency", document(SuccessLatency=[10**400]), "out_of_range", "hour"),
    ("a negative sum", document(SuccessLatency={"Count": 1, "Sum": -1}), "out_of_range", "`$.SuccessLatency.Sum`"),
    ("a huge sum", document(SuccessLatency={"Count": 2, "Sum": 1e9}), "out_of_range", "`$.SuccessLatency.Sum`"),
    ("a huge count", document(SuccessLatency={"Count": 1e18, "Sum": 1}), "out_of_range", "`$.SuccessLatency.Count`"),
    ("a negative minimum", document(SuccessLatency={"Count": 1, "Sum": 1, "Min": -1}), "out_of_range", "Min`"),
    ("huge products", document(**{"2xx": {"Values": [1e9] * 9, "Counts": [1e9] * 9}}), "out_of_range", "`$.2xx`"),
    ("the name of a zone", document(**{"AZ-ID": "us-east-1a"}), "zone_name", "use its AZ-ID"),
    ("another zone", document(**{"AZ-ID": "use1-az9"}), "unknown_zone", "use1-az1, use1-az2"),
    ("another workload", document(directive(Namespace="blog/x")), "unknown_workload", "'blog'"),
    ("sets without a zone", document(directive(Dimensions=[["Controller"], []])), "no_zone", "AZ-ID"),
    ("other metrics", document(directive(Metrics=[{"Name": "ColdStart"}])), "no_requests", "no metric"),
    ("no value", without(document(), "2xx"), "no_requests", "no value"),
    ("faults without a total", other_document({"Errors": 1}), "invalid", "without the total"),
    ("no total", without(other_document({"Errors": 1, "Requests": 1}), "Requests"), "invalid", "total"),
    ("more faults than requests", other_document({"Errors": 2, "Requests": 1}), "invalid", "2 faults in 1 requests"),
    ("a latency without a unit", document(
        {"Namespace": "Other", "Metrics": [{"Name": "Latency"}]}, Latency=1), "invalid", "unit None"),
]  # fmt: skip


def test_a_record_that_cannot_be_used_is_counted_with_its_reason_and_stops_no_other() -> None:
    good = document(InstanceId="good")

    def check(row: tuple[str, Mapping[str, Any] | bytes, str, str]) -> None:
        _, bad, reason, text = row
        decoder = EmfDecoder([SHOP, BANK], [MAPPING])
        for _ in range(2):
            batch = decoder.decode(lines(good, bad, good), NOW)
            assert batch.refused == {reason: 1}, batch.problem
            assert text in str(batch.problem)
            assert len(str(batch.problem)) < 500
            assert batch.accepted == 2
            assert only(SourceBatch(batch.deltas, batch.requests)).requests == 2

    every_row(REFUSALS, check, name=lambda row: row[0])


def test_every_reason_is_one_of_a_small_set_and_occurs() -> None:
    assert {reason for _, _, reason, _ in REFUSALS} | {"not_allowed"} == REASONS


def test_the_first_problem_of_a_body_is_reported() -> None:
    batch = decode(b"{", document(Side="moon"), b"{")
    assert batch.refused == {"not_json": 2, "invalid": 1}
    assert "JSON" in str(batch.problem)
    assert (batch.accepted, all_deltas(batch), batch.oldest) == (0, [], None)


def test_of_a_member_that_occurs_twice_the_last_counts() -> None:
    line = lines(document()).replace(b'"2xx": 1', b'"2xx": "x", "2xx": 3')
    decoder = EmfDecoder([SHOP])
    for _ in range(2):
        assert only(decoder.decode(line, NOW)).count_2xx == 3


def test_old_records_are_decoded_because_the_collector_counts_them() -> None:
    assert decode(document(at=10**11)).accepted == 1


def test_a_sender_reports_only_the_workloads_that_it_may() -> None:
    decoder = EmfDecoder([SHOP, BANK], [MAPPING])
    body = lines(document(), other_document({"Requests": 1}), document())
    assert decoder.decode(body, NOW).accepted == 3
    for _ in range(2):
        batch = decoder.decode(body, NOW, allowed=frozenset({"bank"}))
        assert (batch.accepted, batch.refused) == (1, {"not_allowed": 2})
        assert [delta.key.workload for delta in all_deltas(batch)] == ["bank"]
        assert "expected bank" in str(batch.problem)
    assert "no workload" in str(decoder.decode(body, NOW, allowed=frozenset()).problem)


def test_addresses_and_paths_of_requests_are_not_kept() -> None:
    request = RequestRecord(
        namespace="shop/frontend",
        operation=Operation("Home", "Index"),
        region="us-east-1",
        zone=Zone("use1-az1"),
        instance="i-1",
        at=AT / 1000,
        status=200,
        seconds=0.02,
        path="/secret-path",
        source_ip="192.0.2.77",
    )
    decoder = EmfDecoder([SHOP])
    line = encode_emf(request)
    assert b"192.0.2.77" in line
    batch = decoder.decode(line + b"\n" + line, NOW)
    assert batch.accepted == 2
    kept = repr((batch, decoder._plans, decoder._keys))
    assert "Home" in kept
    assert "192.0.2.77" not in kept
    assert "secret" not in kept


def test_the_caches_of_a_decoder_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emf, "_MAX_PLANS", 3)
    monkeypatch.setattr(emf, "_MAX_KEYS", 4)
    decoder = EmfDecoder([SHOP])
    for number in range(20):
        record = document(directive(Namespace=f"shop/{number}"), InstanceId=f"i-{number}")
        assert decoder.decode(lines(record), NOW).accepted == 1
        assert len(decoder._plans) <= 3
        assert len(decoder._keys) <= 4
    sets = [["AZ-ID"], *([f"{number:0200}"] for number in range(100))]
    dimensions = {f"{number:0200}": "x" for number in range(100)}
    assert decoder.decode(lines(document(directive(Dimensions=sets), **dimensions)), NOW).accepted == 1
    assert decoder.decode(lines(document(InstanceId="i" * 1000)), NOW).accepted == 1
    assert all(len(instance) < 1000 for _, _, _, _, instance, _ in decoder._keys)
    assert all(len(text) <= emf._MAX_PLAN_BYTES for text in decoder._plans)
