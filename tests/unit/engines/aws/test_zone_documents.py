"""Answers of metadata services: what is an AZ-ID, what is only a name, and what is neither."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import InvalidValue, Zone
from holdfast.engines.aws.zone_documents import (
    CallerAddress,
    ZoneReport,
    get_region,
    is_zone_id,
    parse_address,
    parse_lambda,
    parse_max_age,
    parse_node,
    parse_report,
    parse_task,
    parse_task_file,
    parse_zone_id,
    parse_zone_ids,
    select_zone_ids,
)
from tests.table import every_row, rows

IDS = {
    "us-east-1a": "use1-az6",
    "cn-north-1a": "cnn1-az1",
    "cn-northwest-1c": "cnnw1-az3",
    "us-gov-west-1b": "usgw1-az2",
    "us-iso-east-1a": "usie1-az1",
    "ap-southeast-7c": "apse7-az3",
    "us-west-2-lax-1a": "usw2-lax1-az1",
    "us-east-1-wl1-bos-wlz-1": "use1-wl1-bos-wlz1",
}
REGIONS = ["us-east-1", "cn-north-1", "cn-northwest-1", "us-gov-west-1", "us-iso-east-1", "ap-southeast-7"]


def body(**document: Any) -> bytes:
    return json.dumps(document).encode()


def test_ids_and_names_are_told_apart_in_every_partition_and_kind_of_zone() -> None:
    def check(pair: tuple[str, str]) -> None:
        name, zone = pair
        assert is_zone_id(zone)
        assert not is_zone_id(name)
        assert parse_report(zone) == ZoneReport(zone=Zone(zone))
        assert parse_report(name, account="1") == ZoneReport(name=name, account="1")

    every_row(IDS.items(), check)
    assert [get_region(name) for name in IDS] == [*REGIONS, "us-west-2", "us-east-1"]


@pytest.mark.parametrize(
    "text", ["", "europe-west1-b", "use1-az", "<html>", "USE1-AZ1", "use1-az1\n", "a" * 70 + "-az1"]
)
def test_other_text_is_neither_an_id_nor_a_name(text: str) -> None:
    assert not is_zone_id(text)
    with pytest.raises(InvalidValue, match="no zone of AWS"):
        parse_report(text)
    with pytest.raises(InvalidValue, match="expected an AZ-ID"):
        parse_zone_id(text)


names = st.builds(
    "{}{}".format,
    st.sampled_from([*REGIONS, "us-west-2", "eusc-de-east-1", "mx-central-1"]),
    st.sampled_from([*"abcdef", "-lax-1a", "-bos-2c", "-wl1-nyc-wlz-1", "-cmn-wlz-1a", "-az-1a"]),
)
READERS: list[Callable[[str], ZoneReport | None]] = [
    parse_zone_id,
    parse_report,
    lambda text: parse_lambda(body(AvailabilityZoneID=text), None),
    lambda text: parse_task(body(AvailabilityZone=text)),
    lambda text: parse_task_file(body(AvailabilityZone=text, MetadataFileStatus="READY")),
    lambda text: parse_node(body(metadata={"labels": {"topology.k8s.aws/zone-id": text}})),
    lambda text: parse_node(body(metadata={"labels": {"topology.kubernetes.io/zone": text}})),
]


@given(st.one_of(names, st.text(max_size=30)), st.sampled_from(READERS))
@example("us-east-1-az1", parse_report)
@example("us-east-1a", READERS[5])
def test_no_answer_makes_a_name_an_id(text: str, read: Callable[[str], ZoneReport | None]) -> None:
    try:
        report = read(text)
    except InvalidValue:
        return
    assert report is not None
    if report.zone is not None:
        assert report.zone == text
        assert is_zone_id(report.zone)
        with pytest.raises(InvalidValue):
            get_region(report.zone)


@given(names)
def test_a_name_is_never_read_as_an_id(name: str) -> None:
    assert not is_zone_id(name)
    with pytest.raises(InvalidValue):
        parse_zone_id(name)


@rows(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("no-store", 0.0),
        ("max-age=60, no-store", 0.0),
        ("private, max-age=43200, immutable", 43_200.0),
        ('Max-Age="7"', 7.0),
        ("s-max-age=9", 0.0),
        ("max-age=soon", 0.0),
    ],
)
def test_an_answer_of_lambda_is_valid_for_as_long_as_its_header_says(header: str | None, seconds: float) -> None:
    assert parse_max_age(header) == seconds
    report = parse_lambda(body(AvailabilityZoneID="use1-az1"), header)
    assert report == ZoneReport(zone=Zone("use1-az1"), max_age=seconds)


TASK = "arn:aws-cn:ecs:cn-north-1:123456789012:task/shop/0123"


@pytest.mark.parametrize(
    ("document", "report"),
    [
        ({"AvailabilityZone": "cn-north-1a", "TaskARN": TASK}, ZoneReport(name="cn-north-1a", account="123456789012")),
        ({"AvailabilityZone": "us-east-1a", "TaskARN": "?"}, ZoneReport(name="us-east-1a")),
        ({"AvailabilityZone": "us-east-1a"}, ZoneReport(name="us-east-1a")),
    ],
)
def test_a_task_names_its_zone_and_account(document: dict[str, str], report: ZoneReport) -> None:
    assert parse_task(body(**document)) == report
    assert parse_task_file(body(MetadataFileStatus="READY", **document)) == report
    assert parse_task_file(body(**document)) is None


def test_a_task_without_a_zone_needs_a_newer_platform() -> None:
    with pytest.raises(InvalidValue, match=r"platform version 1\.4"):
        parse_task(body(Cluster="shop"))


def test_a_file_that_is_only_half_written_is_waited_for() -> None:
    assert parse_task_file(b'{"Cluster": "sh') is None


LABELS = ("topology.k8s.aws/zone-id", "topology.kubernetes.io/zone")


@pytest.mark.parametrize(
    ("values", "report"),
    [
        (("use1-az1", "us-east-1a"), ZoneReport(zone=Zone("use1-az1"), name="us-east-1a")),
        (("use1-az1", None), ZoneReport(zone=Zone("use1-az1"))),
        ((None, "us-east-1a"), ZoneReport(name="us-east-1a")),
        (("?", "us-east-1a"), ZoneReport(name="us-east-1a")),
        ((None, "use1-az1"), ZoneReport(zone=Zone("use1-az1"))),
    ],
)
def test_the_label_with_the_id_comes_before_that_with_the_name(
    values: tuple[str | None, str | None], report: ZoneReport
) -> None:
    labels = {label: value for label, value in zip(LABELS, values, strict=True) if value is not None}
    assert parse_node(body(metadata={"labels": labels})) == report


@pytest.mark.parametrize("metadata", [{}, {"labels": {}}, {"labels": {LABELS[0]: "?"}}])
def test_a_node_without_labels_has_no_zone(metadata: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="neither the label"):
        parse_node(body(metadata=metadata))


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"metadata": 1}', b"\xff\xfe", b'{"a": "\xff"}'])
def test_an_answer_that_is_no_such_document_is_shown(answer: bytes) -> None:
    for read in (parse_node, lambda text: parse_lambda(text, None)):
        with pytest.raises(InvalidValue, match="cannot be read"):
            read(answer)


@pytest.mark.parametrize(
    ("answer", "caller", "filter_name"),
    [
        (b"10.0.1.5\n", CallerAddress("10.0.1.5"), "addresses.private-ip-address"),
        (b' {"address": "10.0.1.5"}', CallerAddress("10.0.1.5"), "addresses.private-ip-address"),
        (
            b'{"address": "10.0.1.5", "vpc": "vpc-0a1"}',
            CallerAddress("10.0.1.5", "vpc-0a1"),
            "addresses.private-ip-address",
        ),
        (b'{"address": "10.0.1.5", "vpc": ""}', CallerAddress("10.0.1.5"), "addresses.private-ip-address"),
        (b'{"address": "10.0.1.5", "vpc": "*"}', CallerAddress("10.0.1.5"), "addresses.private-ip-address"),
        (b"2001:DB8::1", CallerAddress("2001:db8::1"), "ipv6-addresses.ipv6-address"),
    ],
)
def test_an_address_comes_as_text_or_with_its_vpc(answer: bytes, caller: CallerAddress, filter_name: str) -> None:
    assert parse_address(answer) == caller
    assert caller.filter_name == filter_name


@pytest.mark.parametrize("answer", [b"", b"*", b"<html>10.0.0.1</html>", b'{"address": "*"}', b"\xff"])
def test_anything_else_is_no_address(answer: bytes) -> None:
    with pytest.raises(InvalidValue, match="expected an address"):
        parse_address(answer)


def test_only_ids_of_the_region_are_kept() -> None:
    kept = {"us-east-1a": "use1-az6", "us-east-1-bos-1a": "use1-bos1-az1"}
    mixed = {**kept, "us-east-1b": "us-east-1b", "us-east-2a": "use2-az1", "?": "use1-az1"}
    assert select_zone_ids(mixed, "us-east-1") == kept
    assert parse_zone_ids(json.dumps(mixed).encode(), "us-east-1") == kept
    with pytest.raises(InvalidValue, match="cannot be read"):
        parse_zone_ids(b"not JSON", "us-east-1")
