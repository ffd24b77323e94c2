"""A zone status as an object in S3. Pure.

That the object is there says that the zone is out; so any tool can take a zone out, and any reader that can tell 200
from 404 can ask. The content is for people, and for us.
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
"""Bytes of the largest content that is ours: the longest reason fits many times over. More is not even read."""


class ObjectContent(Struct, frozen=True, kw_only=True):
    """What an object of ours says beside that the zone is out."""

    state: Literal["out", "draining"] = "out"
    since: float
    by: str
    reason: str
    expires: float | None
    version: Annotated[int, Meta(ge=1)]
    write: str
    """Tells one write from all others, so that whoever lost the reply can see whether it was done."""


_PLAIN = ("since", "by", "reason", "expires", "version")
"""The fields that a status and the content of its object have in common."""


def build_key(prefix: str, zone: Zone, workload: str | None) -> str:
    """The name of the object: `use1-az1.txt` for all workloads, `shop/use1-az1.txt` for one."""
    return f"{prefix}{zone}{SUFFIX}" if workload is None else f"{prefix}{workload}/{zone}{SUFFIX}"


def parse_key(prefix: str, key: str) -> tuple[Zone, str | None]:
    """The zone and the workload that a key stands for. Raises InvalidValue if it stands for none."""
    workload, slash, zone = key.removeprefix(prefix).removesuffix(SUFFIX).rpartition("/")
    if slash and not workload:
        raise InvalidValue("nothing stands before the slash: expected a workload")
    return parse_zone(zone), workload or None


def encode_content(status: ZoneStatus, write: str) -> bytes:
    """What the object says when it is written by the write of that name. Raises InvalidValue if it is too much."""
    state: Literal["out", "draining"] = "draining" if status.state is ZoneState.DRAINING else "out"
    content = ObjectContent(state=state, write=write, **{name: getattr(status, name) for name in _PLAIN})
    encoded = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    if len(encoded) > MAX_CONTENT_BYTES:
        raise InvalidValue(
            f"the status of zone {status.zone} takes {len(encoded)} bytes: expected at most {MAX_CONTENT_BYTES}"
        )
    return encoded


def parse_content(content: bytes) -> ObjectContent | None:
    """What the object says; None if it was put there by somebody else."""
    try:
        return msgspec.json.decode(content, type=ObjectContent)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def build_status(zone: Zone, workload: str | None, content: ObjectContent | None, modified: datetime) -> ZoneStatus:
    """Return the status that an object stands for: out, unless it says that the zone is draining."""
    if content is None:
        since, reason = modified.timestamp(), "none was given: the object was put there by hand"
        return ZoneStatus(zone=zone, workload=workload, state=ZoneState.OUT, since=since, by="unknown", reason=reason)
    rest = {name: getattr(content, name) for name in _PLAIN}
    return ZoneStatus(zone=zone, workload=workload, state=ZoneState(content.state), **rest)
