"""Health checks of Route 53 that tell whether a zone is out, and what they decide when somebody is silent. Pure.

A check of an endpoint is healthy when the answer is 2xx or 3xx, and unhealthy for any other answer and for none at all:
https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/dns-failover-determining-health-of-endpoints.html
`Inverted` turns both around. So a check knows two states where there are three (out, in, silent), and has to count
silence as one of the others:

    EndpointCheck   200 in, 500 out, not inverted    silent counts as out
    ObjectCheck   exists: out, inverted            silent counts as in

Several sources are counted by a CALCULATED check, healthy when at least `HealthThreshold` of its children are. A zone
has to be out when m of n sources say so, by default a majority of them. The others, n - m, may all be healthy, and the
zone is out all the same: so the threshold is n - m + 1. When everybody answers, both kinds decide right. No threshold
makes EndpointCheck do so when some are silent; docs/how-to/leave-by-dns.md says what limits the harm.
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
    """How often Route 53 looks, and how often in a row it must see the same before it believes it."""

    interval: Literal[10, 30] = 10
    """Seconds; Route 53 has these two. The faster one costs more, and leaves a zone a minute sooner."""
    failure_threshold: int = 3
    """Route 53's own default: one lost request is not an evacuation, and three take half a minute."""

    def __post_init__(self) -> None:
        if self.interval not in (10, 30):
            raise InvalidValue(f"interval is {self.interval}: expected 10 or 30 seconds")
        if not 1 <= self.failure_threshold <= 10:
            raise InvalidValue(f"failure_threshold is {self.failure_threshold}: expected 1 to 10")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCheck:
    """Asks endpoints for `/status/<az-id>`, or `/status/<az-id>/<workload>`: 200 is in, 500 and silence are out."""

    endpoints: tuple[str, ...]
    """Addresses such as `https://az-status.example.com`, with the stage of an API Gateway if that has one."""
    workload: str | None = None
    quorum: int | None = None
    """How many endpoints have to say that a zone is out; None is a majority of them."""
    timing: CheckTiming = field(default_factory=CheckTiming)

    def __post_init__(self) -> None:
        _check_sources("endpoint", self.endpoints, self.quorum)
        for endpoint in self.endpoints:
            _parse_endpoint(endpoint)
        _check_workload(self.workload)


@dataclass(frozen=True, slots=True)
class StatusBucket:
    """A bucket, and its region: S3 answers a name of the wrong region with 301, which Route 53 takes for an object."""

    name: str
    region: str

    def __post_init__(self) -> None:
        require_match("bucket", self.name, BUCKET, "3 to 63 lower-case letters, digits and hyphens")
        require_match(f"region of bucket {self.name}", self.region, REGION, "a name like eu-west-1")

    @property
    def host(self) -> str:
        """Where the bucket is, over HTTPS."""
        suffix = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        return f"{self.name}.s3.{self.region}.{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCheck:
    """Looks for the object `<prefix><az-id>.txt`, and with a workload for `<prefix><workload>/<az-id>.txt` as well.

    The zone is out while either exists, so that silence counts as in.
    """

    buckets: tuple[StatusBucket, ...]
    prefix: str = ""
    """Folders that end in a slash."""
    workload: str | None = None
    quorum: int | None = None
    """How many buckets have to have the object; None is a majority of them."""
    timing: CheckTiming = field(default_factory=CheckTiming)

    def __post_init__(self) -> None:
        _check_sources("bucket", self.buckets, self.quorum)
        require_match("prefix", self.prefix, _PREFIX, "folders such as status/")
        _check_workload(self.workload)
        if self.workload is not None and len(self.buckets) > 1:
            # Either of two quorums: a calculated check over calculated checks, which is not known to be possible.
            raise InvalidValue(
                f"workload {self.workload} with {len(self.buckets)} buckets: expected one, or no workload"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingControlCheck:
    """Follows routing controls of Application Recovery Controller: a zone is out while its control is Off."""

    arns: Mapping[Zone, str]

    def __post_init__(self) -> None:
        form = "arn:aws:route53-recovery-control::ACCOUNT:controlpanel/ID/routingcontrol/ID"
        object.__setattr__(self, "arns", _check_distinct("routing control", self.arns, _ROUTING_CONTROL, form))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingHealthCheck:
    """Uses health checks that exist, perhaps in another account: Route 53 asks for no more than their ids."""

    ids: Mapping[Zone, str]

    def __post_init__(self) -> None:
        form = "an id like 0385ed2d-d65c-4f63-a19b-2412a31ef431"
        object.__setattr__(self, "ids", _check_distinct("health check", self.ids, _HEALTH_CHECK, form))


Check: TypeAlias = EndpointCheck | ObjectCheck | RoutingControlCheck | ExistingHealthCheck


class HealthCheck(NamedTuple):
    """How a record refers to its health check, and the resources that this check is made of."""

    reference: Any
    resources: Template


def build_health_check(check: Check, zone: Zone) -> HealthCheck:
    """The health check of one zone. Raises InvalidValue if there is none for it."""
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
            return _combine_sources(zone, sources, len(sources))  # both are healthy, or the zone is out
        case RoutingControlCheck(arns=arns):
            arn = _find(arns, zone, "routing control")
            return _combine_sources(zone, [{"Type": "RECOVERY_CONTROL", "RoutingControlArn": arn}], 1)
        case ExistingHealthCheck(ids=ids):  # pragma: no branch - there is no other kind
            return HealthCheck(_find(ids, zone, "health check"), {})


def compute_health_threshold(sources: int, quorum: int | None = None) -> int:
    """How many of the sources have to be healthy, so that `quorum` of them (None: a majority) suffice to be out."""
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
    """Host, port and path of an endpoint."""
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
        raise InvalidValue(f"endpoint {endpoint!r}: expected the base, such as {base}; /status/... is put after it")
    return parts.hostname or "", port, path


def _check_sources(what: str, sources: Sequence[Any], quorum: int | None) -> None:
    if not 1 <= len(sources) <= _MAX_CHILDREN:
        raise InvalidValue(f"{len(sources)} of {what}: expected 1 to {_MAX_CHILDREN}")
    if len(set(sources)) < len(sources):
        raise InvalidValue(f"{what} is given twice: each has one vote")
    if quorum is not None and not 1 <= quorum <= len(sources):
        raise InvalidValue(f"quorum is {quorum}: expected 1 to {len(sources)}, the number of sources")


def _check_workload(workload: str | None) -> None:
    if workload is not None and not check_workload_name(workload).strip("."):
        raise InvalidValue(f"workload {workload!r} means a folder in a path: give it another name")


def _check_distinct(what: str, values: Mapping[Zone, str], pattern: re.Pattern[str], form: str) -> Mapping[Zone, str]:
    """Return the values, unchangeable. Raises InvalidValue if one is not of the form, or is given twice."""
    for zone, value in values.items():
        require_match(f"{what} of {zone}", value, pattern, form)
    if len(set(values.values())) < len(values):
        raise InvalidValue(f"one {what} for several zones: they could only be out together")
    return MappingProxyType(dict(values))


def _find(values: Mapping[Zone, str], zone: Zone, what: str) -> str:
    if zone not in values:
        raise InvalidValue(f"zone {zone} has no {what}: expected one for each zone")
    return values[zone]
