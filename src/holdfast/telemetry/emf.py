"""Encode a request as a line of CloudWatch's embedded metric format (EMF). Pure.

The dimensions follow the boundaries of failures: instance, zone, region. CloudWatch makes metrics of the same line:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast._names import escape_unprintable
from holdfast._types import Operation, RequestDetail, Side, Zone

DIMENSION_SETS = (
    ("Controller", "Action", "Region", "AZ-ID", "InstanceId"),
    ("Controller", "Action", "Region", "AZ-ID"),
    ("Controller", "Action", "Region"),
)
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
SUCCESS_LATENCY, FAULT_LATENCY = "SuccessLatency", "FaultLatency"
MAX_TEXT = 1024
"""Maximum characters of a dimension's value, which CloudWatch sets, and of other texts, which callers choose."""
MAX_NAMESPACE = 255
"""Maximum characters of a namespace in CloudWatch's API."""
NO_TEXT = "-"
"""Value of a dimension that would be empty: CloudWatch accepts no empty value."""
MAX_MILLISECONDS = 3_600_000.0
"""One hour. Longer latencies are written as one hour: receivers refuse them, and the request must still count."""


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
    path: str = ""
    """Path of the URL, without the query."""
    host: str = ""
    source_ip: str = ""
    """The address of the client."""
    trace: str = ""
    """Trace id."""
    is_cache_refresh: bool = False
    """Whether the request had to refresh a local cache."""
    is_one_box: bool = False
    """Whether the instance is the first one that runs a new version, before all others get it."""
    log_group: str = ""
    """CloudWatch's log group. The CloudWatch agent needs it; elsewhere the collector of the lines chooses it."""


class LineOptions(Struct, frozen=True):
    """The fields that are the same in all lines of one sink."""

    component: str
    region: str
    is_one_box: bool = False
    log_group: str = ""


class _Metadata(Struct, gc=False):
    timestamp: int = field(name="Timestamp")
    directives: Raw = field(name="CloudWatchMetrics")
    log_group: str | UnsetType = field(name="LogGroupName", default=UNSET)


class _Line(Struct, gc=False):
    aws: _Metadata = field(name="_aws")
    is_cache_refresh: bool = field(name="CacheRefresh")
    host: str = field(name="Host")
    source_ip: str = field(name="SourceIp")
    trace: str = field(name="TraceId")
    path: str = field(name="Path")
    is_one_box: bool = field(name="OneBox")
    controller: str = field(name="Controller")
    action: str = field(name="Action")
    region: str = field(name="Region")
    zone: str = field(name="AZ-ID")
    instance: str = field(name="InstanceId")
    side: str = field(name="Side")
    status: int = field(name="HttpStatusCode")
    count_2xx: int = field(name="2xx")
    count_3xx: int = field(name="3xx")
    count_4xx: int = field(name="4xx")
    count_5xx: int = field(name="5xx")
    success: float | UnsetType = field(name=SUCCESS_LATENCY, default=UNSET)
    fault: float | UnsetType = field(name=FAULT_LATENCY, default=UNSET)
    log_group: str | UnsetType = field(name="LogGroupName", default=UNSET)


_encode = msgspec.json.Encoder().encode


def encode_emf(request: RequestRecord) -> bytes:
    """Return the request as one line of JSON, without a line end.

    The status decides which of the four counts is 1, and which latency is written: that of faults for 5xx, that of
    successes for all others.
    """
    detail = RequestDetail(
        status=request.status,
        trace=request.trace,
        path=request.path,
        host=request.host,
        source_ip=request.source_ip,
        is_cache_refresh=request.is_cache_refresh,
    )
    return encode_request(
        LineOptions("", request.region, request.is_one_box, request.log_group),
        namespace=request.namespace,
        operation=request.operation,
        zone=request.zone,
        instance=request.instance,
        at=request.at,
        side=request.side,
        detail=detail,
        seconds=request.seconds,
    )


def encode_request(
    options: LineOptions,
    *,
    namespace: str,
    operation: Operation,
    zone: Zone,
    instance: str,
    at: float,
    side: Side,
    detail: RequestDetail,
    seconds: float,
) -> bytes:
    """Return one request as a line. Text that is too long is cut, because CloudWatch would ignore the whole line."""
    group = detail.status_class
    milliseconds = min(max(0.0, seconds) * 1000, MAX_MILLISECONDS)
    log_group = options.log_group or UNSET
    line = _Line(
        _Metadata(round(at * 1000), _build_directives(namespace, group == 5), log_group),
        detail.is_cache_refresh,
        detail.host[:MAX_TEXT],
        detail.source_ip[:MAX_TEXT],
        detail.trace[:MAX_TEXT],
        detail.path[:MAX_TEXT],
        options.is_one_box,
        _clean_label(operation.service),
        _clean_label(operation.name),
        _clean_label(options.region),
        _clean_label(zone),
        _clean_label(instance),
        side.value,
        detail.status,
        1 if group == 2 else 0,
        1 if group == 3 else 0,
        1 if group == 4 else 0,
        1 if group == 5 else 0,
        UNSET if group == 5 else milliseconds,
        milliseconds if group == 5 else UNSET,
        log_group,
    )
    try:
        return _encode(line)
    except UnicodeEncodeError:
        fields: dict[str, Any] = msgspec.to_builtins(line, builtin_types=(Raw,))
        texts = {name: _replace_surrogates(value) for name, value in fields.items() if isinstance(value, str)}
        return _encode(fields | texts)


@lru_cache(maxsize=64)
def _build_directives(namespace: str, is_fault: bool) -> Raw:
    """Return the metrics and dimensions of a line as JSON. Cached: they are half of a line, and always the same."""
    namespace = _replace_surrogates(namespace)[:MAX_NAMESPACE] or NO_TEXT
    metrics = [{"Name": name, "Unit": "Count"} for name in STATUS_CLASSES]
    metrics.append({"Name": FAULT_LATENCY if is_fault else SUCCESS_LATENCY, "Unit": "Milliseconds"})
    return Raw(_encode([{"Namespace": namespace, "Metrics": metrics, "Dimensions": DIMENSION_SETS}]))


def _clean_label(text: str) -> str:
    """Return a text that receivers accept as a label: not empty, not too long, and without control characters."""
    return escape_unprintable(text)[:MAX_TEXT] or NO_TEXT


def _replace_surrogates(text: str) -> str:
    """Return the text with `?` for every character that UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
