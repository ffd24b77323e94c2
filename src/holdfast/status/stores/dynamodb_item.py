"""A zone status as an item of DynamoDB. Pure.

`AZ-ID` and `Healthy` are all that other readers need to know, such as an API Gateway that maps GetItem to 200 or 500;
an item that is absent is healthy. The other attributes are ours.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone, ZoneState, ZoneStatus

KEY = "AZ-ID"
VERSION = "Version"
WRITE = "Write"
"""Tells one write from all others, so that whoever lost the reply can see whether it was done."""
TIME_TO_LIVE = "ExpiresAt"
"""What DynamoDB removes an item by: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html"""

Item: TypeAlias = Mapping[str, Mapping[str, Any]]


def build_key(zone: Zone, workload: str | None) -> str:
    """The key value: `use1-az1` for all workloads, `use1-az1/shop` for one."""
    return zone if workload is None else f"{zone}/{workload}"


def encode_item(status: ZoneStatus, write: str) -> Item:
    """The status as it is stored by the write of that name."""
    item: dict[str, Mapping[str, Any]] = {
        KEY: {"S": build_key(status.zone, status.workload)},
        "Healthy": {"BOOL": not status.out},
        "State": {"S": status.state},
        "Since": {"N": repr(float(status.since))},
        "By": {"S": status.by},
        "Reason": {"S": status.reason},
        VERSION: {"N": str(status.version)},
        WRITE: {"S": write},
    }
    if status.expires is not None:
        item["Expires"] = {"N": repr(float(status.expires))}
        if status.state is not ZoneState.IN:  # one that is in may stay: it does no harm, and keeps its version
            item[TIME_TO_LIVE] = {"N": str(math.ceil(status.expires))}
    if status.share is not None:
        item["Share"] = {"N": repr(status.share)}
    return item


def decode_item(item: Item) -> ZoneStatus:
    """The status that an item stands for, also one written by hand. Raises InvalidValue if it makes no sense."""
    zone, slash, workload = str(_value(item, KEY, "S", "")).partition("/")
    if slash and not workload:
        raise InvalidValue(f"{KEY} ends with a slash: expected a workload after it")
    version = _number(item, VERSION)
    if version is not None and (version < 1 or version != int(version)):
        raise InvalidValue(f"{VERSION} is {version}: expected a whole number, 1 or more")
    state, share = _state(item)
    return ZoneStatus(
        zone=parse_zone(zone),
        workload=workload or None,
        state=state,
        share=share,
        since=_number(item, "Since") or 0.0,
        by=_value(item, "By", "S", "unknown"),
        reason=_value(item, "Reason", "S", "none was given: the item was written by hand"),
        expires=_number(item, "Expires"),
        version=int(version or 0),
    )


def _state(item: Item) -> tuple[ZoneState, float | None]:
    """Return the state and share that were written, unless `Healthy`, which other tools change alone, says otherwise.

    A state that makes no sense, or of a later release, counts for nothing beside `Healthy`.
    """
    is_healthy = _value(item, "Healthy", "BOOL")
    written = _value(item, "State", "S", "")
    if not is_healthy:
        return (ZoneState.DRAINING if written == ZoneState.DRAINING else ZoneState.OUT), None
    share = _number(item, "Share")
    if written == ZoneState.RETURNING and share is not None and 0 < share < 1:
        return ZoneState.RETURNING, share
    return ZoneState.IN, None


def _value(item: Item, name: str, kind: str, default: str | None = None) -> Any:
    attribute = item.get(name)
    if attribute is None and default is not None:
        return default
    if attribute is None or kind not in attribute:
        raise InvalidValue(f"{name} is {attribute}: expected one of type {kind}")
    return attribute[kind]


def _number(item: Item, name: str) -> float | None:
    return float(_value(item, name, "N")) if name in item else None
