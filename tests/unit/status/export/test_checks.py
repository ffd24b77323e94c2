"""What health checks decide, for every combination of what their sources say, and what is refused at once."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from holdfast import InvalidValue, Zone
from holdfast.status.export import (
    CheckTiming,
    EndpointCheck,
    ExistingHealthCheck,
    ObjectCheck,
    RoutingControlCheck,
    StatusBucket,
)
from holdfast.status.export.checks import Check, build_health_check, compute_health_threshold
from tests.unit.status.export.health import healthy, used
from tests.unit.status.export.samples import BUCKETS, CHECKS, CONTROLS, ENDPOINTS, IDS, ONE, THREE, TWO, records

SAYS = ("out", "in", "silent")
BY_STATUS = EndpointCheck(endpoints=ENDPOINTS)
BY_OBJECT = ObjectCheck(buckets=BUCKETS)


def config(check: Check, name: str = "HealthCheckUse1Az1") -> dict[str, Any]:
    found: dict[str, Any] = build_health_check(check, ONE).resources[name]["Properties"]["HealthCheckConfig"]
    return found


def endpoints_say(said: Sequence[str]) -> Callable[[str], bool]:
    """Which addresses answer 200 when the endpoints say this of the first zone, and that all others are in."""

    def answers(url: str) -> bool:
        says = said[next(number for number, endpoint in enumerate(ENDPOINTS) if url.startswith(endpoint))]
        return says != "silent" and (says == "in" or not url.endswith(f"/status/{ONE}"))

    return answers


def buckets_say(said: Sequence[str]) -> Callable[[str], bool]:
    """Which addresses answer 200 when the buckets have, or have not, the object of the first zone."""
    there = {f"https://{bucket.host}/{ONE}.txt" for bucket, says in zip(BUCKETS, said, strict=False) if says == "out"}
    return lambda url: url in there


def is_out(check: Check, answers: Callable[[str], bool]) -> bool:
    return not healthy(records(check), "HealthCheckUse1Az1", answers)


def test_by_objects_a_zone_is_out_exactly_when_three_of_five_buckets_say_so() -> None:
    template = records(BY_OBJECT)
    for said in product(SAYS, repeat=5):
        out = not healthy(template, "HealthCheckUse1Az1", buckets_say(said))
        assert out == (said.count("out") >= 3), said


def test_by_status_a_zone_is_in_exactly_when_three_of_five_endpoints_say_so() -> None:
    template = records(BY_STATUS)
    for said in product(SAYS, repeat=5):
        out = not healthy(template, "HealthCheckUse1Az1", endpoints_say(said))
        assert out == (said.count("in") < 3), said
        if said.count("out") >= 3:
            assert out, said
        if out and said.count("silent") < 3:
            assert "out" in said, said


def test_both_decide_alike_when_everybody_answers() -> None:
    for said in product(("out", "in"), repeat=5):
        assert (
            is_out(BY_STATUS, endpoints_say(said)) == is_out(BY_OBJECT, buckets_say(said)) == (said.count("out") >= 3)
        )


def test_three_out_one_in_and_one_silent_is_out() -> None:
    said = ("out", "out", "out", "in", "silent")
    assert is_out(BY_STATUS, endpoints_say(said))
    assert is_out(BY_OBJECT, buckets_say(said))


@pytest.mark.parametrize("silent", [3, 4, 5])
def test_endpoints_that_fall_silent_leave_no_zone_because_then_all_are_unhealthy(silent: int) -> None:
    said = ["silent"] * silent + ["in"] * (5 - silent)
    assert used(records(BY_STATUS), endpoints_say(said)) == {ONE, TWO, THREE}
    assert used(records(BY_OBJECT), buckets_say(said)) == {ONE, TWO, THREE}


def test_dns_leaves_the_zone_that_is_out_and_only_that_one() -> None:
    said = ["out"] * 5
    assert used(records(BY_STATUS), endpoints_say(said)) == {TWO, THREE}
    assert used(records(BY_OBJECT), buckets_say(said)) == {TWO, THREE}


def test_any_quorum_of_any_number_of_sources_is_counted() -> None:
    for sources in range(1, 6):
        for quorum in [None, *range(1, sources + 1)]:
            check = ObjectCheck(buckets=BUCKETS[:sources], quorum=quorum)
            needed = sources // 2 + 1 if quorum is None else quorum
            template = records(check)
            for said in product(SAYS, repeat=sources):
                out = not healthy(template, "HealthCheckUse1Az1", buckets_say(said))
                assert out == (said.count("out") >= needed), (said, quorum)


def test_the_threshold_is_never_one_that_is_always_or_never_met() -> None:
    for sources in range(1, 256):
        assert 1 <= compute_health_threshold(sources) <= sources


def test_a_zone_that_is_out_for_all_is_out_for_a_workload() -> None:
    template = records(CHECKS["s3 of a workload"])
    of_all, of_shop = (
        f"https://zones-0.s3.us-east-1.amazonaws.com/status/{key}" for key in (f"{ONE}.txt", f"shop/{ONE}.txt")
    )
    for there in ([of_all], [of_shop], [of_all, of_shop]):
        assert used(template, there.__contains__) == {TWO, THREE}
    assert used(template, lambda url: False) == {ONE, TWO, THREE}


def test_one_endpoint_is_asked_over_https_for_the_status_of_the_zone() -> None:
    assert config(EndpointCheck(endpoints=("https://az-status.example.com",))) == {
        "Type": "HTTPS",
        "FullyQualifiedDomainName": "az-status.example.com",
        "Port": 443,
        "ResourcePath": "/status/use1-az1",
        "EnableSNI": True,
        "RequestInterval": 10,
        "FailureThreshold": 3,
    }
    check = EndpointCheck(
        endpoints=("https://x.example.com:8443/live/",),
        workload="shop",
        timing=CheckTiming(interval=30, failure_threshold=1),
    )
    assert config(check) | {"Type": "", "EnableSNI": ""} == {
        "Type": "",
        "FullyQualifiedDomainName": "x.example.com",
        "Port": 8443,
        "ResourcePath": "/live/status/use1-az1/shop",
        "EnableSNI": "",
        "RequestInterval": 30,
        "FailureThreshold": 1,
    }


@pytest.mark.parametrize(
    ("region", "host"),
    [("us-east-1", "zones.s3.us-east-1.amazonaws.com"), ("cn-north-1", "zones.s3.cn-north-1.amazonaws.com.cn")],
)
def test_a_bucket_is_asked_in_its_own_region_and_the_answer_is_inverted(region: str, host: str) -> None:
    found = config(ObjectCheck(buckets=(StatusBucket("zones", region),)))
    assert (found["FullyQualifiedDomainName"], found["ResourcePath"], found["Inverted"]) == (
        host,
        "/use1-az1.txt",
        True,
    )


def test_a_routing_control_is_followed_and_a_shared_check_is_only_named() -> None:
    check = config(RoutingControlCheck(arns=CONTROLS))
    assert check == {"Type": "RECOVERY_CONTROL", "RoutingControlArn": CONTROLS[ONE]}
    assert build_health_check(ExistingHealthCheck(ids=IDS), ONE) == (IDS[ONE], {})


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: EndpointCheck(endpoints=()), "0 endpoints: expected 1 to 255"),
        (lambda: EndpointCheck(endpoints=("https://a.example.com",) * 2), "endpoint is given twice"),
        (lambda: EndpointCheck(endpoints=("http://a.example.com",)), "'http://a.example.com': expected an address"),
        (lambda: EndpointCheck(endpoints=("a.example.com",)), "'a.example.com'"),
        (lambda: EndpointCheck(endpoints=("https://me:pass@a.example.com",)), "expected an address"),
        (lambda: EndpointCheck(endpoints=("https://a.example.com/?x=1",)), "expected an address"),
        (lambda: EndpointCheck(endpoints=("https://a.example.com/a b",)), "expected an address"),
        (lambda: EndpointCheck(endpoints=("https://a.example.com:port",)), "https://a.example.com:port"),
        (
            lambda: EndpointCheck(endpoints=("https://a.example.com/live/status",)),
            "expected the base, such as https://a.example.com/live; /status/... is appended to it",
        ),
        (
            lambda: EndpointCheck(endpoints=("https://a.example.com/status-1/status/use1-az1/",)),
            "expected the base, such as https://a.example.com/status-1;",
        ),
        (lambda: EndpointCheck(endpoints=ENDPOINTS, quorum=0), "quorum is 0: expected 1 to 5"),
        (lambda: EndpointCheck(endpoints=ENDPOINTS, quorum=6), "quorum is 6: expected 1 to 5"),
        (lambda: EndpointCheck(endpoints=ENDPOINTS, workload="a/b"), "workload 'a/b'"),
        (lambda: EndpointCheck(endpoints=ENDPOINTS, workload=".."), "workload '..'"),
        (lambda: ObjectCheck(buckets=BUCKETS, workload="shop"), "workload shop with 5 buckets"),
        (lambda: ObjectCheck(buckets=BUCKETS[:1], prefix="status"), "prefix is 'status'"),
        (lambda: StatusBucket("with.dots", "us-east-1"), "bucket is 'with.dots'"),
        (lambda: StatusBucket("zones", ""), "region of bucket zones is ''"),
        (lambda: CheckTiming(interval=20), "interval is 20"),  # type: ignore[arg-type]
        (lambda: CheckTiming(failure_threshold=0), "failure_threshold is 0"),
        (lambda: RoutingControlCheck(arns={ONE: "arn:aws:s3:::x"}), "routing control of use1-az1 is 'arn:aws:s3:::x'"),
        (lambda: RoutingControlCheck(arns={ONE: CONTROLS[ONE], TWO: CONTROLS[ONE]}), "one routing control for several"),
        (lambda: ExistingHealthCheck(ids={ONE: "Z1"}), "health check of use1-az1 is 'Z1'"),
        (lambda: ExistingHealthCheck(ids={ONE: IDS[ONE], TWO: IDS[ONE]}), "one health check for several zones"),
        (
            lambda: build_health_check(ExistingHealthCheck(ids=IDS), Zone("use1-az9")),
            "zone use1-az9 has no health check",
        ),
        (
            lambda: build_health_check(EndpointCheck(endpoints=("https://a.example.com/" + "x" * 250,)), ONE),
            "Route 53 takes 255",
        ),
    ],
)
def test_what_cannot_be_checked_is_refused_by_name(build: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        build()
    assert told in str(caught.value)


def test_checks_cannot_be_changed_after_they_were_looked_at() -> None:
    with pytest.raises(TypeError):
        ExistingHealthCheck(ids=IDS).ids[ONE] = ""  # type: ignore[index]
