"""Route 53 health checks that tell whether a zone is out, and what they decide without an answer. Pure.

A check of an endpoint is healthy when the answer is 2xx or 3xx, and unhealthy for any other answer or none:
https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/dns-failover-determining-health-of-endpoints.html
`Inverted` swaps the two. So a check has two states for three cases (out, in, no answer), and has to count a missing
answer as out or in:

    EndpointCheck   200 in, 500 out, not inverted    no answer counts as out
    ObjectCheck     exists: out, inverted            no answer counts as in

A CALCULATED check counts several sources; it is healthy when at least `HealthThreshold` of its children are. A zone
must be out when m of n sources report it out, by default a majority. The other n - m may all be healthy, and the zone
must still be out: so the threshold is n - m + 1. When all sources answer, both kinds of check are right. No threshold
makes EndpointCheck right when some do not answer; docs/how-to/leave-by-dns.md describes how to limit the damage.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from holdfast._errors import InvalidValue
from holdfast._names import check_workload_name
from holdfast._types import Zone
from holdfast.status.export.template import (
    BUCKET,
    HOST,
    REGION,
    Template,
    build_logical_id,
    build_resource,
    require_match,
)

_ROUTING_CONTROL = re.compile(
    r"arn:aws[a-z-]*:route53-recovery-control::\d{12}:controlpanel/[0-9a-f]{32}/routingcontrol/[0-9a-f]{16}"
)
_HEALTH_CHECK = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_PREFIX = re.compile(r"([A-Za-z0-9._-]+/)*")
# https://docs.aws.amazon.com/Route53/latest/APIReference/API_HealthCheckConfig.html
_MAX_PATH_CHARACTERS = 255
_MAX_CHILDREN = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTiming:
    """How often Route 53 checks, and how many equal results in a row change the state of a check."""

    interval: Literal[10, 30] = 10
    """Seconds; Route 53 offers these two. 10 costs more, and evacuates a zone a minute sooner."""
    failure_threshold: int = 3
    """Route 53's own default: one lost request does not evacuate a zone, and three take half a minute."""

    def __post_init__(self) -> None:
        if self.interval not in (10, 30):
            raise InvalidValue(f"interval is {self.interval}: expected 10 or 30 seconds")
        if not 1 <= self.failure_threshold <= 10:
            raise InvalidValue(f"failure_threshold is {self.failure_threshold}: expected 1 to 10")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCheck:
    """A check of `/status/<az-id>`, or `/status/<az-id>/<workload>`: 200 means in, 500 or no answer means out."""

    endpoints: tuple[str, ...]
    """Addresses such as `https://az-status.example.com`, with the stage of an API Gateway if it has one."""
    workload: str | None = None
    quorum: int | None = None
    """Number of endpoints that must report a zone out; None means a majority."""
    timing: CheckTiming = field(default_factory=CheckTiming)

    def __post_init__(self) -> None:
        _check_sources("endpoint", self.endpoints, self.quorum)
        for endpoint in self.endpoints:
            _parse_endpoint(endpoint)
        _check_workload(self.workload)


@dataclass(frozen=True, slots=True)
class StatusBucket:
    """A bucket and its region: S3 answers 301 in the wrong region, which Route 53 would take for an existing object."""

    name: str
    region: str

    def __post_init__(self) -> None:
        require_match("bucket", self.name, BUCKET, "3 to 63 lower-case letters, digits and hyphens")
        require_match(f"region of bucket {self.name}", self.region, REGION, "a name like eu-west-1")

    @property
    def host(self) -> str:
        suffix = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        return f"{self.name}.s3.{self.region}.{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCheck:
    """A check of the object `<prefix><az-id>.txt`, and with a workload also `<prefix><workload>/<az-id>.txt`.

    The zone is out while either exists; no answer counts as in.
    """

    buckets: tuple[StatusBucket, ...]
    prefix: str = ""
    """Folders, ending in a slash."""
    workload: str | None = None
    quorum: int | None = None
    """Number of buckets that must have the object; None means a majority."""
    timing: CheckTiming = field(default_factory=CheckTiming)

    def __post_init__(self) -> None:
        _check_sources("bucket", self.buckets, self.quorum)
        require_match("prefix", self.prefix, _PREFIX, "folders such as status/")
        _check_workload(self.workload)
        if self.workload is not None and len(self.buckets) > 1:
            # Either of two quorums needs a calculated check of calculated checks, which Route 53 may not support.
            raise InvalidValue(
                f"workload {self.workload} with {len(self.buckets)} buckets: expected one, or no workload"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingControlCheck:
    """A check of routing controls of Application Recovery Controller: a zone is out while its control is Off."""

    arns: Mapping[Zone, str]

    def __post_init__(self) -> None:
        form = "arn:aws:route53-recovery-control::ACCOUNT:controlpanel/ID/routingcontrol/ID"
        object.__setattr__(self, "arns", _check_distinct("routing control", self.arns, _ROUTING_CONTROL, form))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingHealthCheck:
    """Health checks that exist already, perhaps in another account: Route 53 needs only their ids."""

    ids: Mapping[Zone, str]

    def __post_init__(self) -> None:
        form = "an id like 0385ed2d-d65c-4f63-a19b-2412a31ef431"
        object.__setattr__(self, "ids", _check_distinct("health check", self.ids, _HEALTH_CHECK, form))


Check: TypeAlias = EndpointCheck | ObjectCheck | RoutingControlCheck | ExistingHealthCheck


class HealthCheck(NamedTuple):
    """The reference to a health check in a record, and the resources of the check."""

    reference: Any
    resources: Template


def build_health_check(check: Check, zone: Zone) -> HealthCheck:
    """Return the health check of one zone. Raise InvalidValue if `check` has none for it."""
    match check:
        case EndpointCheck(endpoints=endpoints):
            path = "/".join(word for word in ("/status", zone, check.workload) if word is not None)
            sources = [
                _build_endpoint_check(host, port, base + path, check.timing)
                for host, port, base in map(_parse_endpoint, endpoints)
            ]
            return _combine_sources(zone, sources, compute_health_threshold(len(sources), check.quorum))
        case ObjectCheck(buckets=buckets):
            sources = [_build_object_check(bucket, f"{check.prefix}{zone}.txt", check.timing) for bucket in buckets]
            if check.workload is None:
                return _combine_sources(zone, sources, compute_health_threshold(len(sources), check.quorum))
            sources.append(_build_object_check(buckets[0], f"{check.prefix}{check.workload}/{zone}.txt", check.timing))
            return _combine_sources(zone, sources, len(sources))  # unless both are healthy, the zone is out
        case RoutingControlCheck(arns=arns):
            arn = _find(arns, zone, "routing control")
            return _combine_sources(zone, [{"Type": "RECOVERY_CONTROL", "RoutingControlArn": arn}], 1)
        case ExistingHealthCheck(ids=ids):  # pragma: no branch - there is no other kind
            return HealthCheck(_find(ids, zone, "health check"), {})


def compute_health_threshold(sources: int, quorum: int | None = None) -> int:
    """Return how many sources must be healthy for a zone to be in, if `quorum` of them suffice to take it out.

    None means a majority.
    """
    return sources - (sources // 2 + 1 if quorum is None else quorum) + 1


def _combine_sources(zone: Zone, sources: Sequence[Template], healthy: int) -> HealthCheck:
    name = build_logical_id("HealthCheck", zone)
    if len(sources) == 1:
        return HealthCheck({"Ref": name}, {name: _build_check_resource(sources[0], f"holdfast {zone}")})
    children = {
        f"{name}Source{number}": _build_check_resource(source, f"holdfast {zone}, source {number} of {len(sources)}")
        for number, source in enumerate(sources, 1)
    }
    references = [{"Ref": child} for child in children]
    counting = {"Type": "CALCULATED", "ChildHealthChecks": references, "HealthThreshold": healthy}
    return HealthCheck({"Ref": name}, {**children, name: _build_check_resource(counting, f"holdfast {zone}")})


def _build_check_resource(config: Template, name: str) -> Template:
    tags = [{"Key": "Name", "Value": name}]
    return build_resource("AWS::Route53::HealthCheck", HealthCheckConfig=config, HealthCheckTags=tags)


def _build_endpoint_check(host: str, port: int, path: str, timing: CheckTiming) -> Template:
    if len(path) > _MAX_PATH_CHARACTERS:
        raise InvalidValue(f"path {path} has {len(path)} characters: Route 53 takes {_MAX_PATH_CHARACTERS}")
    return {
        "Type": "HTTPS",
        "FullyQualifiedDomainName": host,
        "Port": port,
        "ResourcePath": path,
        "EnableSNI": True,
        "RequestInterval": timing.interval,
        "FailureThreshold": timing.failure_threshold,
    }


def _build_object_check(bucket: StatusBucket, key: str, timing: CheckTiming) -> Template:
    return {**_build_endpoint_check(bucket.host, 443, f"/{key}", timing), "Inverted": True}


def _parse_endpoint(endpoint: str) -> tuple[str, int, str]:
    """Return host, port and path of an endpoint."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or 443
    except ValueError as error:
        raise InvalidValue(f"endpoint {endpoint!r}: {error}") from error
    path = parts.path.rstrip("/")
    plain = f"https://{parts.netloc}{parts.path}" == endpoint and "@" not in parts.netloc
    if not (plain and HOST.fullmatch(parts.hostname or "") and _PATH.fullmatch(path)):
        raise InvalidValue(f"endpoint {endpoint!r}: expected an address such as https://az-status.example.com")
    before, found, _ = f"{path}/".partition("/status/")
    if found:
        base = f"https://{parts.netloc}{before}"
        raise InvalidValue(f"endpoint {endpoint!r}: expected the base, such as {base}; /status/... is appended to it")
    return parts.hostname or "", port, path


def _check_sources(noun: str, sources: Sequence[Any], quorum: int | None) -> None:
    if not 1 <= len(sources) <= _MAX_CHILDREN:
        raise InvalidValue(f"{len(sources)} {noun}s: expected 1 to {_MAX_CHILDREN}")
    if len(set(sources)) < len(sources):
        raise InvalidValue(f"the same {noun} is given twice: expected each once, because each has one vote")
    if quorum is not None and not 1 <= quorum <= len(sources):
        raise InvalidValue(f"quorum is {quorum}: expected 1 to {len(sources)}, the number of sources")


def _check_workload(workload: str | None) -> None:
    if workload is not None and not check_workload_name(workload).strip("."):
        raise InvalidValue(f"workload {workload!r} means a folder in a path: use another name")


def _check_distinct(what: str, values: Mapping[Zone, str], pattern: re.Pattern[str], form: str) -> Mapping[Zone, str]:
    """Return the values as an immutable mapping. Raise InvalidValue if one does not match `form`, or is repeated."""
    for zone, value in values.items():
        require_match(f"{what} of {zone}", value, pattern, form)
    if len(set(values.values())) < len(values):
        raise InvalidValue(f"one {what} for several zones: expected one each, or the zones could only be out together")
    return MappingProxyType(dict(values))


def _find(values: Mapping[Zone, str], zone: Zone, what: str) -> str:
    if zone not in values:
        raise InvalidValue(f"zone {zone} has no {what}: expected one for each zone")
    return values[zone]
