"""Encode a request as a line of CloudWatch's embedded metric format (EMF), and decode it. Pure.

The dimensions follow the boundaries of failures: instance, zone, region. CloudWatch makes metrics of the same line:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format.html
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Outcome, Side, Zone

DIMENSION_SETS = (
    ("Controller", "Action", "Region", "AZ-ID", "InstanceId"),
    ("Controller", "Action", "Region", "AZ-ID"),
    ("Controller", "Action", "Region"),
)
_STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
_MAX_VALUES = 100
"""Maximum values of one metric in one document: CloudWatch's own limit."""
_MAX_MILLISECONDS = 3_600_000.0
"""One hour. Longer latencies are refused when decoding and capped when encoding, so that the request still counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, as measured by its server or by a client."""

    namespace: str
    """CloudWatch's namespace, `<workload>/<component>`: the text before the slash is the workload."""
    operation: Operation
    region: str
    zone: Zone
    instance: str
    at: float
    status: int
    seconds: float
    side: Side = Side.SERVER
    path: str = "/"
    host: str = ""
    source_ip: str = ""
    """The address of the client."""
    trace: str = ""


def encode_emf(request: RequestRecord) -> bytes:
    """Return the request as one line of JSON, without a line end."""
    counted = f"{request.status // 100}xx"
    latency = "SuccessLatency" if request.status < 500 else "FaultLatency"
    metrics = [{"Name": name, "Unit": "Count"} for name in _STATUS_CLASSES]
    metrics.append({"Name": latency, "Unit": "Milliseconds"})
    document: dict[str, Any] = {
        "_aws": {
            "Timestamp": round(request.at * 1000),
            "CloudWatchMetrics": [
                {"Namespace": request.namespace, "Metrics": metrics, "Dimensions": DIMENSION_SETS},
            ],
        },
        "Controller": request.operation.service,
        "Action": request.operation.name,
        "Region": request.region,
        "AZ-ID": request.zone,
        "InstanceId": request.instance,
        "Side": request.side,
        "HttpStatusCode": request.status,
        "Host": request.host,
        "SourceIp": request.source_ip,
        "TraceId": request.trace,
        "Path": request.path,
        "OneBox": False,
        "CacheRefresh": False,
        **{name: int(name == counted) for name in _STATUS_CLASSES},
        latency: min(request.seconds * 1000, _MAX_MILLISECONDS),
    }
    return msgspec.json.encode(document)


_Text = Annotated[str, Meta(min_length=1, max_length=1024)]
_Count = Annotated[float, Meta(ge=0)]
_Milliseconds = Annotated[float, Meta(ge=0, le=_MAX_MILLISECONDS)]


_Latency = _Milliseconds | Annotated[list[_Milliseconds], Meta(max_length=_MAX_VALUES)] | None


class _Directive(Struct):
    namespace: _Text = field(name="Namespace")


class _Metadata(Struct):
    timestamp: Annotated[float, Meta(gt=0)] = field(name="Timestamp")
    directives: Annotated[list[_Directive], Meta(min_length=1)] = field(name="CloudWatchMetrics")


class _Document(Struct):
    aws: _Metadata = field(name="_aws")
    controller: _Text = field(name="Controller")
    action: _Text = field(name="Action")
    zone: _Text = field(name="AZ-ID")
    instance: _Text = field(name="InstanceId")
    count_2xx: _Count = field(name="2xx", default=0)
    count_3xx: _Count = field(name="3xx", default=0)
    count_4xx: _Count = field(name="4xx", default=0)
    count_5xx: _Count = field(name="5xx", default=0)
    success: _Latency = field(name="SuccessLatency", default=None)
    fault: _Latency = field(name="FaultLatency", default=None)
    side: Side = field(name="Side", default=Side.SERVER)


_decoder = msgspec.json.Decoder(_Document)


def decode_emf(line: bytes) -> Outcome:
    """Decode one EMF line. Raise InvalidValue, naming the missing or wrong field."""
    try:
        document = _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidValue(f"not a request in embedded metric format: {error}") from error
    return Outcome(
        workload=document.aws.directives[0].namespace.partition("/")[0],
        operation=Operation(document.controller, document.action),
        zone=Zone(document.zone),
        instance=document.instance,
        at=document.aws.timestamp / 1000,
        side=document.side,
        count_2xx=int(document.count_2xx),
        count_3xx=int(document.count_3xx),
        count_4xx=int(document.count_4xx),
        count_5xx=int(document.count_5xx),
        success_seconds=_seconds(document.success),
        fault_seconds=_seconds(document.fault),
    )


def _seconds(milliseconds: float | Sequence[float] | None) -> tuple[float, ...]:
    if milliseconds is None:
        return ()
    values = (milliseconds,) if isinstance(milliseconds, int | float) else milliseconds
    return tuple(value / 1000 for value in values)
