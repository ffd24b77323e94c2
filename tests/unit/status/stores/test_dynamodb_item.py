"""A status as an item: the two attributes that everybody reads, and ours beside them."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast import InvalidValue, Zone, ZoneState, ZoneStatus
from holdfast.status.stores.dynamodb_item import build_key, decode_item, encode_item

ZONE = Zone("use1-az1")
STATUS = ZoneStatus(
    zone=ZONE,
    workload="shop",
    state=ZoneState.OUT,
    since=100.25,
    by="operator",
    reason="slow",
    expires=200.5,
    version=7,
)


def test_a_status_becomes_an_item_that_others_understand() -> None:
    assert encode_item(STATUS, "w1") == {
        "AZ-ID": {"S": "use1-az1/shop"},
        "Healthy": {"BOOL": False},
        "State": {"S": "out"},
        "Since": {"N": "100.25"},
        "By": {"S": "operator"},
        "Reason": {"S": "slow"},
        "Expires": {"N": "200.5"},
        "ExpiresAt": {"N": "201"},
        "Version": {"N": "7"},
        "Write": {"S": "w1"},
    }


def test_what_was_made_from_a_status_is_read_as_the_same_status() -> None:
    assert decode_item(encode_item(STATUS, "w1")) == STATUS


def test_every_state_is_kept_and_a_returning_zone_is_healthy() -> None:
    draining = replace(STATUS, state=ZoneState.DRAINING)
    returning = replace(STATUS, state=ZoneState.RETURNING, share=0.25)
    assert [decode_item(encode_item(each, "w1")) for each in (draining, returning)] == [draining, returning]
    assert [encode_item(each, "w1")["Healthy"]["BOOL"] for each in (draining, returning)] == [False, True]
    assert encode_item(returning, "w1")["Share"] == {"N": "0.25"}


@pytest.mark.parametrize(
    ("state", "is_healthy", "read"),
    [
        ("out", True, ZoneState.IN),
        ("draining", True, ZoneState.IN),
        ("in", False, ZoneState.OUT),
        ("returning", False, ZoneState.OUT),
        ("asleep", False, ZoneState.OUT),
        ("asleep", True, ZoneState.IN),
    ],
)
def test_a_tool_that_changes_healthy_alone_is_obeyed(state: str, is_healthy: bool, read: ZoneState) -> None:
    item = {**encode_item(STATUS, "w1"), "State": {"S": state}, "Share": {"N": "0.5"}, "Healthy": {"BOOL": is_healthy}}
    assert (decode_item(item).state, decode_item(item).share) == (read, None)


@pytest.mark.parametrize("share", [None, {"N": "0"}, {"N": "2"}])
def test_a_returning_zone_without_a_share_that_makes_sense_is_in(share: dict[str, str] | None) -> None:
    item = {**encode_item(STATUS, "w1"), "State": {"S": "returning"}, "Healthy": {"BOOL": True}}
    item |= {} if share is None else {"Share": share}
    assert (decode_item(item).state, decode_item(item).share) == (ZoneState.IN, None)


def test_what_is_in_or_has_no_end_is_not_removed_by_its_time_to_live() -> None:
    back = ZoneStatus(
        zone=ZONE, state=ZoneState.IN, since=1.0, by="operator", reason="well again", expires=200.0, version=8
    )
    assert "ExpiresAt" not in encode_item(back, "w2")
    assert encode_item(back, "w2")["Healthy"] == {"BOOL": True}
    for_ever = ZoneStatus(zone=ZONE, state=ZoneState.OUT, since=1.0, by="operator", reason="slow", version=9)
    assert not {"Expires", "ExpiresAt"} & encode_item(for_ever, "w3").keys()


def test_the_key_names_the_zone_first() -> None:
    assert build_key(ZONE, None) == "use1-az1"
    assert build_key(ZONE, "shop/basket") == "use1-az1/shop/basket"
    assert decode_item({"AZ-ID": {"S": "use1-az1/shop/basket"}, "Healthy": {"BOOL": True}}).workload == "shop/basket"


@pytest.mark.parametrize("healthy", [True, False])
def test_an_item_written_by_hand_is_a_status_of_version_0(healthy: bool) -> None:
    status = decode_item({"AZ-ID": {"S": "use1-az1"}, "Healthy": {"BOOL": healthy}})
    assert (status.zone, status.workload, status.state.is_out) == (ZONE, None, not healthy)
    assert (status.since, status.by, status.expires, status.version) == (0.0, "unknown", None, 0)
    assert "by hand" in status.reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"Healthy": None},
        {"Healthy": {"S": "false"}},
        {"Healthy": {"NULL": True}},
        {"AZ-ID": {"S": "us-east-1a"}},
        {"AZ-ID": {"S": "use1-az1/"}},
        {"AZ-ID": {"S": "/shop"}},
        {"Reason": {"N": "1"}},
        {"Since": {"S": "yesterday"}},
        {"Expires": {"BOOL": True}},
        {"Version": {"S": "1"}},
        {"Version": {"N": "0"}},
        {"Version": {"N": "1.5"}},
    ],
    ids=str,
)
def test_an_item_that_makes_no_sense_is_told_apart(wrong: dict[str, Any]) -> None:
    item = {**encode_item(STATUS, "w1"), **wrong}
    with pytest.raises(InvalidValue):
        decode_item({name: value for name, value in item.items() if value is not None})
