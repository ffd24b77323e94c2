"""CloudFormation templates that make DNS leave a zone: records, their health checks, and status endpoints.

May import the base, the engines and the rest of `status`. Pure functions from frozen options to a template as a dict;
only `discovery.py` calls AWS, and is not imported here. Start reading at `route53.py`; what a health check of several
endpoints decides is in `checks.py`.
"""

from holdfast.status.export.bucket import BucketOptions, bucket_template
from holdfast.status.export.checks import ObjectCheck, Pace, RoutingControlCheck, SharedCheck, StatusBucket, StatusCheck
from holdfast.status.export.gateway import GatewayOptions, gateway_template
from holdfast.status.export.route53 import RecordOptions, record_template
from holdfast.status.export.zones import MappedZone

__all__ = [
    "BucketOptions",
    "GatewayOptions",
    "MappedZone",
    "ObjectCheck",
    "Pace",
    "RecordOptions",
    "RoutingControlCheck",
    "SharedCheck",
    "StatusBucket",
    "StatusCheck",
    "bucket_template",
    "gateway_template",
    "record_template",
]
