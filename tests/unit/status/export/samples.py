"""One example of every template that there is."""

from typing import Any

from holdfast import Zone
from holdfast.status.export import (
    AddressOptions,
    BucketOptions,
    EndpointCheck,
    ExistingHealthCheck,
    GatewayOptions,
    NamedZone,
    ObjectCheck,
    RecordOptions,
    RoutingControlCheck,
    StatusBucket,
    build_address_template,
    build_bucket_template,
    build_gateway_template,
    build_record_template,
)
from holdfast.status.export.checks import Check

ONE, TWO, THREE = (Zone(f"use1-az{number}") for number in (1, 2, 3))
# As in an account where the order of names is not that of ids.
ZONES = (NamedZone(ONE, "us-east-1b"), NamedZone(TWO, "us-east-1c"), NamedZone(THREE, "us-east-1a"))
BALANCER = "shop-0123456789abcdef.elb.us-east-1.amazonaws.com"
ENDPOINTS = tuple(f"https://status-{number}.example.com/live" for number in range(5))
BUCKETS = tuple(StatusBucket(f"zones-{number}", "us-east-1") for number in range(5))
CONTROL = f"arn:aws:route53-recovery-control::123456789012:controlpanel/{'a' * 32}/routingcontrol/"
CONTROLS = {zone.id: f"{CONTROL}{number:016x}" for number, zone in enumerate(ZONES)}
IDS = {zone.id: f"0385ed2d-d65c-4f63-a19b-2412a31ef43{number}" for number, zone in enumerate(ZONES)}
CHECKS: dict[str, Check] = {
    "status": EndpointCheck(endpoints=ENDPOINTS[:1]),
    "status of a workload": EndpointCheck(endpoints=ENDPOINTS[:1], workload="shop"),
    "status by quorum": EndpointCheck(endpoints=ENDPOINTS),
    "s3": ObjectCheck(buckets=BUCKETS[:1]),
    "s3 of a workload": ObjectCheck(buckets=BUCKETS[:1], prefix="status/", workload="shop"),
    "s3 by quorum": ObjectCheck(buckets=BUCKETS),
    "routing control": RoutingControlCheck(arns=CONTROLS),
    "shared": ExistingHealthCheck(ids=IDS),
}
GATEWAYS = {
    "a table": GatewayOptions(),
    "a table with a name": GatewayOptions(table="zones", stage="v1", rate=10, burst=20),
    "an existing table": GatewayOptions(table="zones", table_exists=True),
    "a global table": GatewayOptions(table="zones", replicas=("eu-west-1", "us-west-2")),
}


def records(check: Check, **options: Any) -> dict[str, Any]:
    given = {
        "record": "www.example.com",
        "zones": ZONES,
        "hosted_zone_id": "Z123456789",
        "balancer": BALANCER,
        "balancer_zone_id": "Z26RNL4JYFTOTI",
    }
    return build_record_template(RecordOptions(check=check, **{**given, **options}))


TEMPLATES = {
    **{f"records with {name}": records(check) for name, check in CHECKS.items()},
    "records with parameters": records(
        CHECKS["status"], hosted_zone_id=None, balancer=None, balancer_zone_id=None, record="*.example.com"
    ),
    **{f"gateway with {name}": build_gateway_template(options) for name, options in GATEWAYS.items()},
    "address endpoint": build_address_template(AddressOptions()),
    "address endpoint in a VPC with one": build_address_template(AddressOptions(vpc_endpoint="vpce-0123456789abcdef0")),
    "bucket": build_bucket_template(BucketOptions()),
    "bucket with a name": build_bucket_template(BucketOptions(name="zones")),
}
