"""Read the requests of one EMF record of any emitter, as its plan says. Pure."""

from typing import NamedTuple

from holdfast._types import Side
from holdfast.metrics.histogram import Histogram
from holdfast.telemetry.bins import MAX_REQUESTS, Bin
from holdfast.telemetry.sources.emf_mapping import OWN_NAMES
from holdfast.telemetry.sources.emf_plan import NO_REQUESTS, PlanPart
from holdfast.telemetry.sources.emf_values import (
    INVALID,
    OUT_OF_RANGE,
    Members,
    Refused,
    format_path,
    read_count,
    read_label,
    read_latencies,
    read_status,
)

SIDE = "Side"
_SIDES = {side.value: side for side in Side}


class Labels(NamedTuple):
    """The labels of a record, as texts. Whether they are valid is checked once for each series."""

    service: str
    operation: str
    zone: str
    instance: str
    side: Side


def read_labels(part: PlanPart, members: Members) -> Labels:
    """Return the labels of a record. Raise Refused if one is missing or no text."""
    names = part.names
    side = Side.SERVER
    if names is OWN_NAMES and SIDE in members:
        text = read_label(members, SIDE)
        if text not in _SIDES:
            raise Refused(INVALID, f"{format_path(SIDE)} is {text[:40]!r}: expected {', '.join(_SIDES)}")
        side = _SIDES[text]
    return Labels(
        part.workload.name if names.service is None else read_label(members, names.service),
        read_label(members, names.operation),
        read_label(members, names.zone),
        "" if names.instance is None else read_label(members, names.instance),
        side,
    )


def read_requests(part: PlanPart, members: Members, second: int) -> Bin:
    """Return the requests of a record that ended in `second`. Raise Refused if a value cannot be right."""
    names, status = part.names, read_status(members, part.names.status)
    given = {kind: read_count(members[name], name) for kind, name in part.counts.items() if name in members}
    latency = {
        kind: read_latencies(members[name], name, unit_seconds)
        for kind, (name, unit_seconds) in part.latency.items()
        if name in members
    }
    if not given and not latency:
        expected = " or ".join(names.metrics)
        raise Refused(NO_REQUESTS, f"the record has no value of a declared metric: expected {expected[:200]}")
    counts = {kind: count for kind, (count, _) in given.items()}
    numbers = {kind: each.seconds.count for kind, each in latency.items()}
    found = Bin()
    if "total" in names.counts:
        _count_total(found, counts.get("total"), counts.get("faults", 0), status)
    elif names.counts:
        found.count_2xx, found.count_3xx = counts.get("2xx", 0), counts.get("3xx", 0)
        found.count_4xx, found.count_5xx = counts.get("4xx", 0), counts.get("5xx", 0)
    else:
        _count_class(found, numbers.get("success", 0) + numbers.get("all", 0), status)
        found.count_5xx += numbers.get("fault", 0)
    requests = found.requests
    if requests > MAX_REQUESTS:
        raise Refused(OUT_OF_RANGE, f"the record has {requests:,} requests: expected at most {MAX_REQUESTS:,}")
    found.faults = part.workload.count_faults(found.count_4xx, found.count_5xx, status)
    empty = Histogram()
    are_faults = status >= 500 if status is not None else 0 < requests == found.count_5xx
    if "all" in latency:
        found.success_seconds, found.fault_seconds = (
            (empty, latency["all"].seconds) if are_faults else (latency["all"].seconds, empty)
        )
    else:
        found.success_seconds = latency["success"].seconds if "success" in latency else empty
        found.fault_seconds = latency["fault"].seconds if "fault" in latency else Histogram()
    found.is_coarse = any(each.is_coarse for each in latency.values())
    is_summary = any(is_sum for _, is_sum in given.values()) or any(each.is_summary for each in latency.values())
    if requests and (not is_summary or part.has_high_resolution):
        found.by_second = {second: requests}
    return found


def _count_total(found: Bin, total: int | None, faults: int, status: int | None) -> None:
    if total is None:
        if faults:
            raise Refused(INVALID, "the record has a number of faults without the total of requests")
        return
    if faults > total:
        raise Refused(INVALID, f"the record has {faults:,} faults in {total:,} requests")
    _count_class(found, total - faults, status)
    found.count_5xx += faults


def _count_class(found: Bin, count: int, status: int | None) -> None:
    """Count requests by the class of the record's status; without a status they are successes."""
    match 2 if status is None else status // 100:
        case 5:
            found.count_5xx += count
        case 4:
            found.count_4xx += count
        case 3:
            found.count_3xx += count
        case _:
            found.count_2xx += count
