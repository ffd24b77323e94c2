"""Records that spread traffic over the zones of a load balancer, except zones whose health check fails. Pure."""

import re
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast.status.export.checks import Check, ExistingHealthCheck, RoutingControlCheck, build_health_check
from holdfast.status.export.template import HOST, Template, build_resource, new_template, require_match
from holdfast.status.export.zones import NamedZone, check_zones

WEIGHT = 100
"""Equal for all zones: only the ratio matters."""

_ZONE_ID = re.compile(r"[A-Z0-9]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """A record name, the zones behind it, and the health check that says whether a zone is out.

    A field that is None becomes a template parameter without a default, to be given when the template is deployed.
    """

    record: str
    """The name that clients look up, such as `www.example.com`."""
    zones: tuple[NamedZone, ...]
    check: Check
    hosted_zone_id: str | None = None
    hosted_zone_name: str | None = None
    """Only used to check, before CloudFormation does, that the record belongs to the hosted zone."""
    balancer: str | None = None
    """The DNS name of the load balancer, unchanged: a zone's name is put in front of it."""
    balancer_zone_id: str | None = None
    """The load balancer's own hosted zone: `CanonicalHostedZoneId` of DescribeLoadBalancers."""

    def __post_init__(self) -> None:
        check_zones(self.zones)
        require_match("record", self.record.removeprefix("*.").rstrip("."), HOST, "a name like www.example.com")
        for name in ("hosted_zone_id", "balancer_zone_id"):
            value: str | None = getattr(self, name)
            if value is not None:
                require_match(name, value, _ZONE_ID, "an id like Z26RNL4JYFTOTI")
        if self.hosted_zone_name is not None:
            record, hosted_zone = self.record.rstrip("."), self.hosted_zone_name.rstrip(".")
            require_match("hosted_zone_name", hosted_zone, HOST, "a name like example.com")
            if record != hosted_zone and not record.endswith(f".{hosted_zone}"):
                raise InvalidValue(f"record {record} is outside of the hosted zone {hosted_zone}")
        if self.balancer is not None:
            _check_balancer(self.balancer, self.zones[0].region)
        _check_same_zones(self.zones, self.check)


def build_record_template(options: RecordOptions) -> Template:
    """Return the template of weighted alias records, one per zone, each with its health check.

    Route 53 refuses the records while a simple record has the same name. One record set group creates all of them
    together: created one by one, the first would get all traffic for a while.
    """
    checks = {zone: build_health_check(options.check, zone.id) for zone in options.zones}
    records = [
        {
            "Name": options.record,
            "Type": "A",
            "SetIdentifier": zone.id,
            "Weight": WEIGHT,
            "AliasTarget": {
                "DNSName": {"Fn::Sub": f"{zone.name}.${{BalancerName}}"},
                "HostedZoneId": {"Ref": "BalancerZoneId"},
                "EvaluateTargetHealth": True,
            },
            "HealthCheckId": checks[zone].reference,
        }
        for zone in options.zones
    ]
    resources = {name: part for check in checks.values() for name, part in check.resources.items()}
    resources["Records"] = build_resource(
        "AWS::Route53::RecordSetGroup", HostedZoneId={"Ref": "HostedZoneId"}, RecordSets=records
    )
    # With these ids, other accounts attach the same checks to their own records.
    outputs = {
        check.reference["Ref"]: {"Description": f"The health check of {zone.id}.", "Value": check.reference}
        for zone, check in checks.items()
        if check.resources
    }
    return new_template(
        f"{options.record} over {len(options.zones)} zones, each with a health check that says whether it is out.",
        resources,
        Parameters=_build_parameters(options),
        Outputs=outputs,
    )


def _build_parameters(options: RecordOptions) -> Template:
    parameters = (
        ("HostedZoneId", "The hosted zone that the records are in.", options.hosted_zone_id),
        ("BalancerName", "The DNS name of the load balancer, without a zone in front.", options.balancer),
        ("BalancerZoneId", "The canonical hosted zone id of the load balancer.", options.balancer_zone_id),
    )
    return {
        name: {"Type": "String", "Description": description, "MinLength": 1}
        | ({} if default is None else {"Default": default})
        for name, description, default in parameters
    }


def _check_balancer(name: str, region: str) -> None:
    require_match("balancer", name, HOST, f"a DNS name like name-0123456789abcdef.elb.{region}.amazonaws.com")
    # A Network Load Balancer is called name.elb.region.amazonaws.com, an Application Load Balancer name.region.elb...
    labels = name.split(".")
    if region not in labels or "elb" not in labels:
        raise InvalidValue(f"balancer {name} is not a load balancer of {region}, the region of the zones")
    if labels[0] == "dualstack" or labels[0][:-1] == region:
        raise InvalidValue(f"balancer {name} begins with {labels[0]}: expected its DNS name as AWS gave it")


def _check_same_zones(zones: tuple[NamedZone, ...], check: Check) -> None:
    """Raise InvalidValue unless each zone has its own check, and each check its zone: none was forgotten."""
    match check:
        case RoutingControlCheck(arns=given) | ExistingHealthCheck(ids=given):
            for zone in given:
                if zone not in {each.id for each in zones}:
                    raise InvalidValue(f"{zone} has a check, but is not among the zones: add it, or remove the check")
            for each in zones:
                build_health_check(check, each.id)
