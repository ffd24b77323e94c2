"""Encode a zone status as a DynamoDB item, and decode it. Pure.

Other readers need only `AZ-ID` and `Healthy`, such as an API Gateway that maps GetItem to 200 or 500; a zone without an
item is healthy. The other attributes are Holdfast's own.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone, ZoneState, ZoneStatus
from holdfast.status.stores.rules import ABSENT_VERSION

KEY = "AZ-ID"
VERSION = "Version"
WRITE = "Write"
"""Id of the last write, so that a writer whose reply was lost can see whether its write took effect."""
TIME_TO_LIVE = "ExpiresAt"
"""When DynamoDB deletes the item: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html"""

Item: TypeAlias = Mapping[str, Mapping[str, Any]]


def build_key(zone: Zone, workload: str | None) -> str:
    """Return the key: `use1-az1` for all workloads, `use1-az1/shop` for one."""
    return zone if workload is None else f"{zone}/{workload}"


def encode_item(status: ZoneStatus, write_id: str) -> Item:
    """Return the item for `status`, tagged with `write_id`."""
    item: dict[str, Mapping[str, Any]] = {
        KEY: {"S": build_key(status.zone, status.workload)},
        "Healthy": {"BOOL": not status.state.is_out},
        "State": {"S": status.state},
        "Since": {"N": repr(float(status.since))},
        "By": {"S": status.by},
        "Reason": {"S": status.reason},
        VERSION: {"N": str(status.version)},
        WRITE: {"S": write_id},
    }
    if status.expires is not None:
        item["Expires"] = {"N": repr(float(status.expires))}
        if status.state is not ZoneState.IN:  # one that is in may stay: it does no harm, and keeps its version
            item[TIME_TO_LIVE] = {"N": str(math.ceil(status.expires))}
    if status.share is not None:
        item["Share"] = {"N": repr(status.share)}
    return item


def decode_item(item: Item) -> ZoneStatus:
    """Return the status in `item`, which may have been written by hand. Raise InvalidValue, naming the attribute."""
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
        reason=_value(item, "Reason", "S", "no reason given: the item was written by hand"),
        expires=_number(item, "Expires"),
        version=int(version or ABSENT_VERSION),
    )


def _state(item: Item) -> tuple[ZoneState, float | None]:
    """Return the stored state and share, unless `Healthy`, which other tools change alone, contradicts them.

    If the state is invalid, or of a later release, only `Healthy` counts.
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
