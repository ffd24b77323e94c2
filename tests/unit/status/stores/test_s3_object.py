"""A status as an object: that it is there says the most, and what it says is for people."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast import InvalidValue, Zone, ZoneState, ZoneStatus
from holdfast.status.stores.s3_object import (
    MAX_CONTENT_BYTES,
    build_key,
    build_status,
    encode_content,
    parse_content,
    parse_key,
)
from tests.table import rows

ZONE = Zone("use1-az1")
MODIFIED = datetime(2026, 1, 2, tzinfo=UTC)
STATUS = ZoneStatus(
    zone=ZONE,
    workload="shop",
    state=ZoneState.OUT,
    since=100.25,
    by="opérateur",
    reason="slow",
    expires=200.5,
    version=7,
)


def test_the_content_is_json_that_people_can_read() -> None:
    content = encode_content(STATUS, "w1")
    assert json.loads(content) == {
        "state": "out",
        "since": 100.25,
        "by": "opérateur",
        "reason": "slow",
        "expires": 200.5,
        "version": 7,
        "write": "w1",
    }
    assert "opérateur" in content.decode()
    assert len(content.splitlines()) == 9


def test_what_was_made_from_a_status_is_read_as_the_same_status() -> None:
    content = parse_content(encode_content(STATUS, "w1"))
    assert content is not None
    assert content.write == "w1"
    assert build_status(ZONE, "shop", content, MODIFIED) == STATUS
    draining = replace(STATUS, state=ZoneState.DRAINING)
    assert build_status(ZONE, "shop", parse_content(encode_content(draining, "w1")), MODIFIED) == draining


@pytest.mark.parametrize(
    "content",
    [b"", b"out", b"\xff\xfe", b"{}", b"[1]", b'{"version": 1}', encode_content(STATUS, "w").replace(b"7", b"0")],
)
def test_any_other_content_is_out_too(content: bytes) -> None:
    assert parse_content(content) is None
    status = build_status(ZONE, None, None, MODIFIED)
    assert status.is_out(1e10)
    assert (status.since, status.by, status.version) == (MODIFIED.timestamp(), "unknown", 0)
    assert "by hand" in status.reason


@rows("prefix", ["", "zones/", "zones-"])
@rows("workload", [None, "shop", "a/b", "/", "shop/"])
def test_a_key_leads_back_to_its_place(prefix: str, workload: str | None) -> None:
    assert parse_key(prefix, build_key(prefix, ZONE, workload)) == (ZONE, workload)


def test_keys_are_where_a_health_check_looks_for_them() -> None:
    assert build_key("zones/", ZONE, None) == "zones/use1-az1.txt"
    assert build_key("zones/", ZONE, "shop") == "zones/shop/use1-az1.txt"


@pytest.mark.parametrize("key", ["read me.txt", "us-east-1a.txt", ".txt", "shop/.txt", "/use1-az1.txt"])
def test_a_key_that_names_no_zone_is_told_apart(key: str) -> None:
    with pytest.raises(InvalidValue):
        parse_key("", key)


def test_a_status_that_would_not_be_read_again_is_not_written() -> None:
    with pytest.raises(InvalidValue, match="use1-az1"):
        encode_content(
            ZoneStatus(zone=ZONE, state=ZoneState.OUT, since=1.0, by="", reason="x" * MAX_CONTENT_BYTES, version=1),
            "w1",
        )
