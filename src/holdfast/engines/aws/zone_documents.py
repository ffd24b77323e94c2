"""Read the answers of metadata services about the zone of this process. Pure.

A zone has an AZ-ID, which means the same zone in all accounts (`use1-az1`), and a name, which each account has for
itself (`us-east-1a`). Only AZ-IDs leave this package. Every function raises InvalidValue for an answer that it does not
understand.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeVar

import msgspec

from holdfast._errors import InvalidValue
from holdfast._names import MAX_ZONE_CHARACTERS
from holdfast._types import Zone

# Availability zones and Local Zones end in az1, Wavelength Zones in wlz1: use1-az1, usw2-lax1-az1, use1-wl1-bos-wlz1.
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*-(az|wlz)\d+")
# us-east-1a, us-gov-west-1a, us-west-2-lax-1a, us-east-1-wl1-bos-wlz-1
_NAME = re.compile(r"(?P<region>[a-z]{2,4}(-[a-z]+)+-\d+)([a-z]|(-[a-z0-9]+)+)")
_ECS_ARN = re.compile(r"arn:[a-z-]+:ecs:[a-z0-9-]+:(?P<account>\d{12}):.+")
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_VPC = re.compile(r"vpc-[0-9a-z]+")

ZONE_ID_LABEL = "topology.k8s.aws/zone-id"
"""The node label with the AZ-ID; EKS sets it from Kubernetes 1.30 on."""
ZONE_NAME_LABEL = "topology.kubernetes.io/zone"
"""The node label with the name of the zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneReport:
    """A zone as a source reports it: its AZ-ID, or only its name."""

    zone: Zone | None = None
    name: str | None = None
    account: str | None = None
    """The account that uses this name, if the source says so."""
    max_age: float | None = None
    """Seconds for which the report is valid; None means as long as the process runs."""


@dataclass(frozen=True, slots=True)
class CallerAddress:
    """The address from which this process calls, as another service sees it."""

    address: str
    vpc: str | None = None

    @property
    def filter_name(self) -> str:
        """Name of EC2's filter for network interfaces with this address."""
        return "ipv6-addresses.ipv6-address" if ":" in self.address else "addresses.private-ip-address"


def is_zone_id(text: str) -> bool:
    """Return whether `text` is an AZ-ID of AWS, in any partition."""
    return bool(len(text) <= MAX_ZONE_CHARACTERS and _ID.fullmatch(text) and not _NAME.fullmatch(text))


def get_region(name: str) -> str:
    """Return the region in the name of a zone: `us-west-2` for `us-west-2-lax-1a`."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InvalidValue(f"{name[:80]!r} is no zone of AWS: expected a name such as us-east-1a")
    return found["region"]


def parse_report(text: str, *, account: str | None = None) -> ZoneReport:
    """Return the zone in `text`, which is an AZ-ID or a name."""
    if is_zone_id(text):
        return ZoneReport(zone=Zone(text), account=account)
    get_region(text)
    return ZoneReport(name=text, account=account)


def parse_zone_id(text: str) -> ZoneReport:
    """Return the AZ-ID in `text`. A name is refused."""
    if not is_zone_id(text):
        raise InvalidValue(f"the answer is {text[:80]!r}: expected an AZ-ID such as use1-az1")
    return ZoneReport(zone=Zone(text))


class _ExecutionEnvironment(msgspec.Struct):
    zone: str = msgspec.field(name="AvailabilityZoneID")


class _Task(msgspec.Struct):
    zone: str | None = msgspec.field(name="AvailabilityZone", default=None)
    task: str = msgspec.field(name="TaskARN", default="")
    status: str | None = msgspec.field(name="MetadataFileStatus", default=None)


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = {}


class _Node(msgspec.Struct):
    metadata: _Metadata


class _Caller(msgspec.Struct):
    address: str
    vpc: str | None = None


_Document = TypeVar("_Document")


def _decode(body: bytes, kind: type[_Document]) -> _Document:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue(f"the answer cannot be read ({error}): {body[:80]!r}") from error


def parse_lambda(body: bytes, cache_control: str | None) -> ZoneReport:
    """Return the zone in the metadata of a Lambda execution environment, and how long that is valid."""
    report = parse_zone_id(_decode(body, _ExecutionEnvironment).zone)
    return ZoneReport(zone=report.zone, max_age=parse_max_age(cache_control))


def parse_max_age(cache_control: str | None) -> float:
    """Return the seconds for which an answer may be kept: 0 unless the header allows more."""
    found = _MAX_AGE.search(cache_control or "")
    return 0.0 if found is None or "no-store" in (cache_control or "").lower() else float(found[1])


def parse_task(body: bytes) -> ZoneReport:
    """Return the zone in the metadata of an ECS task."""
    task = _decode(body, _Task)
    if not task.zone:
        raise InvalidValue("the task metadata has no AvailabilityZone: Fargate needs platform version 1.4 or newer")
    arn = _ECS_ARN.fullmatch(task.task)
    return parse_report(task.zone, account=None if arn is None else arn["account"])


def parse_task_file(body: bytes) -> ZoneReport | None:
    """Return the zone in the metadata file of an ECS container, or None while the ECS agent still writes the file."""
    try:
        is_ready = _decode(body, _Task).status == "READY"
    except InvalidValue:
        return None
    return parse_task(body) if is_ready else None


def parse_node(body: bytes) -> ZoneReport:
    """Return the zone in the labels of a Kubernetes node."""
    labels = _decode(body, _Node).metadata.labels
    zone, name = labels.get(ZONE_ID_LABEL), labels.get(ZONE_NAME_LABEL)
    if zone is not None and is_zone_id(zone):
        return ZoneReport(zone=Zone(zone), name=name)
    if name is None:
        raise InvalidValue(f"the node has neither the label {ZONE_ID_LABEL} nor {ZONE_NAME_LABEL}")
    return parse_report(name)


def parse_address(body: bytes) -> CallerAddress:
    """Return the address in the answer of `address_endpoint`: plain text, or JSON with `address` and `vpc`."""
    if body.lstrip().startswith(b"{"):
        caller = _decode(body, _Caller)
    else:
        caller = _Caller(body.decode(errors="replace").strip())
    try:
        address = str(ip_address(caller.address))
    except ValueError as error:
        raise InvalidValue(f"the answer is {caller.address[:80]!r}: expected an address such as 10.0.1.5") from error
    return CallerAddress(address, caller.vpc if caller.vpc and _VPC.fullmatch(caller.vpc) else None)


def select_zone_ids(ids: Mapping[str, str], region: str) -> dict[str, Zone]:
    """Return the AZ-IDs by the names of a region's zones. Leave out names of other regions, and all but AZ-IDs."""
    return {name: Zone(zone) for name, zone in ids.items() if _is_named_in(name, region) and is_zone_id(zone)}


def _is_named_in(name: str, region: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and found["region"] == region


def parse_zone_ids(body: bytes, region: str) -> dict[str, Zone]:
    """Return the AZ-IDs in a cache file, by the names of a region's zones."""
    return select_zone_ids(_decode(body, dict[str, str]), region)
