"""Encode a zone status as an S3 object, and decode it. Pure.

An object that exists means that its zone is out. So any tool can take a zone out, and any reader that can tell 200
from 404 can check it. The content is for people and for Holdfast.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone, ZoneState, ZoneStatus

SUFFIX = ".txt"
MAX_CONTENT_BYTES = 65_536
"""The longest reason fits many times over. Larger objects are not Holdfast's, and are not read."""


class ObjectContent(Struct, frozen=True, kw_only=True):
    """Details in an object written by Holdfast; that the zone is out follows from the object itself."""

    state: Literal["out", "draining"] = "out"
    since: float
    by: str
    reason: str
    expires: float | None
    version: Annotated[int, Meta(ge=1)]
    write: str
    """Id of the write, so that a writer whose reply was lost can see whether its write took effect."""


_PLAIN = ("since", "by", "reason", "expires", "version")
"""The fields that a status and the content of its object have in common."""


def build_key(prefix: str, zone: Zone, workload: str | None) -> str:
    """Return the object key: `use1-az1.txt` for all workloads, `shop/use1-az1.txt` for one."""
    return f"{prefix}{zone}{SUFFIX}" if workload is None else f"{prefix}{workload}/{zone}{SUFFIX}"


def parse_key(prefix: str, key: str) -> tuple[Zone, str | None]:
    """Return the zone and the workload of `key`. Raise InvalidValue if it is not the key of a status."""
    workload, slash, zone = key.removeprefix(prefix).removesuffix(SUFFIX).rpartition("/")
    if slash and not workload:
        raise InvalidValue("nothing before the slash: expected a workload")
    return parse_zone(zone), workload or None


def encode_content(status: ZoneStatus, write_id: str) -> bytes:
    """Return the object's content, tagged with `write_id`. Raise InvalidValue above MAX_CONTENT_BYTES."""
    state: Literal["out", "draining"] = "draining" if status.state is ZoneState.DRAINING else "out"
    content = ObjectContent(state=state, write=write_id, **{name: getattr(status, name) for name in _PLAIN})
    encoded = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    if len(encoded) > MAX_CONTENT_BYTES:
        raise InvalidValue(
            f"the status of zone {status.zone} takes {len(encoded)} bytes: expected at most {MAX_CONTENT_BYTES}"
        )
    return encoded


def parse_content(content: bytes) -> ObjectContent | None:
    """Decode the content of an object; return None if another tool wrote it."""
    try:
        return msgspec.json.decode(content, type=ObjectContent)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def build_status(zone: Zone, workload: str | None, content: ObjectContent | None, modified: datetime) -> ZoneStatus:
    """Return the status of an object: out, unless its content says draining."""
    if content is None:
        since, reason = modified.timestamp(), "no reason given: the object was created by hand"
        return ZoneStatus(zone=zone, workload=workload, state=ZoneState.OUT, since=since, by="unknown", reason=reason)
    rest = {name: getattr(content, name) for name in _PLAIN}
    return ZoneStatus(zone=zone, workload=workload, state=ZoneState(content.state), **rest)
