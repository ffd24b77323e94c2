"""CloudFormation templates: records and health checks that avoid zones that are out, and endpoints for zones.

May import the base, the engines and the rest of `status`. Pure functions from frozen options to a template as a dict;
only `discovery.py` calls AWS, and is not imported here. Start reading at `route53.py`; `checks.py` explains how health
checks of several endpoints decide.
"""

from holdfast.status.export.address import AddressOptions, build_address_template
from holdfast.status.export.bucket import BucketOptions, build_bucket_template
from holdfast.status.export.checks import (
    CheckTiming,
    EndpointCheck,
    ExistingHealthCheck,
    ObjectCheck,
    RoutingControlCheck,
    StatusBucket,
)
from holdfast.status.export.gateway import GatewayOptions, build_gateway_template
from holdfast.status.export.route53 import RecordOptions, build_record_template
from holdfast.status.export.zones import NamedZone

__all__ = [
    "AddressOptions",
    "BucketOptions",
    "CheckTiming",
    "EndpointCheck",
    "ExistingHealthCheck",
    "GatewayOptions",
    "NamedZone",
    "ObjectCheck",
    "RecordOptions",
    "RoutingControlCheck",
    "StatusBucket",
    "build_address_template",
    "build_bucket_template",
    "build_gateway_template",
    "build_record_template",
]
