"""Records that spread traffic over zones."""

from typing import Any

import pytest

from holdfast import InvalidValue, Zone
from holdfast.status.export import ExistingHealthCheck, NamedZone, RecordOptions, RoutingControlCheck
from tests.table import rows
from tests.unit.status.export.samples import BALANCER, CHECKS, CONTROLS, IDS, ONE, THREE, TWO, ZONES, records


def record_sets(template: dict[str, Any]) -> list[dict[str, Any]]:
    group = template["Resources"]["Records"]
    assert group["Type"] == "AWS::Route53::RecordSetGroup"
    found: list[dict[str, Any]] = group["Properties"]["RecordSets"]
    return found


@rows("kind", CHECKS)
def test_every_zone_has_one_weighted_alias_on_its_zonal_name_with_its_own_check(kind: str) -> None:
    template = records(CHECKS[kind])
    found = record_sets(template)
    assert {each["SetIdentifier"]: each["AliasTarget"]["DNSName"]["Fn::Sub"] for each in found} == {
        ONE: "us-east-1b.${BalancerName}",
        TWO: "us-east-1c.${BalancerName}",
        THREE: "us-east-1a.${BalancerName}",
    }
    for each in found:
        assert (each["Name"], each["Type"], each["Weight"]) == ("www.example.com", "A", 100)
        assert each["AliasTarget"]["EvaluateTargetHealth"] is True
        assert each["AliasTarget"]["HostedZoneId"] == {"Ref": "BalancerZoneId"}
    checks = [str(each["HealthCheckId"]) for each in found]
    assert len(set(checks)) == 3


def test_a_check_of_another_account_goes_to_the_record_of_the_same_zone_whatever_its_name_here() -> None:
    found = record_sets(records(ExistingHealthCheck(ids=IDS)))
    assert {each["SetIdentifier"]: each["HealthCheckId"] for each in found} == IDS


def test_the_ids_of_new_checks_are_outputs_so_that_other_accounts_can_use_them() -> None:
    outputs = records(CHECKS["status by quorum"])["Outputs"]
    assert {name: output["Value"] for name, output in outputs.items()} == {
        name: {"Ref": name} for name in ("HealthCheckUse1Az1", "HealthCheckUse1Az2", "HealthCheckUse1Az3")
    }
    assert "Outputs" not in records(CHECKS["shared"])


def test_what_is_given_is_a_default_and_what_is_not_must_be_said_at_deployment() -> None:
    given = records(CHECKS["status"])["Parameters"]
    assert {name: parameter["Default"] for name, parameter in given.items()} == {
        "HostedZoneId": "Z123456789",
        "BalancerName": BALANCER,
        "BalancerZoneId": "Z26RNL4JYFTOTI",
    }
    missing = records(CHECKS["status"], hosted_zone_id=None, balancer=None, balancer_zone_id=None)["Parameters"]
    assert missing.keys() == given.keys()
    assert not any("Default" in parameter for parameter in missing.values())


@pytest.mark.parametrize(
    "good",
    [
        {"record": "example.com", "hosted_zone_name": "example.com"},
        {"record": "www.example.com.", "hosted_zone_name": "example.com."},
        {"record": "*.shop.example.com", "hosted_zone_name": "example.com"},
        {"balancer": "internal-shop-123.us-east-1.elb.amazonaws.com"},
    ],
    ids=str,
)
def test_what_route_53_takes_is_taken(good: dict[str, Any]) -> None:
    records(CHECKS["status"], **good)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"record": "www.example.org", "hosted_zone_name": "example.com"}, "record www.example.org is outside of"),
        ({"record": "www.notexample.com", "hosted_zone_name": "example.com"}, "www.notexample.com is outside of"),
        ({"record": "www example"}, "record is 'www example'"),
        ({"record": "www"}, "record is 'www'"),
        ({"hosted_zone_id": "/hostedzone/Z1"}, "hosted_zone_id is '/hostedzone/Z1'"),
        ({"balancer_zone_id": ""}, "balancer_zone_id is ''"),
        ({"balancer": "shop-1.elb.eu-west-1.amazonaws.com"}, "is not a load balancer of us-east-1"),
        ({"balancer": "www.example.com"}, "is not a load balancer of us-east-1"),
        ({"balancer": f"dualstack.{BALANCER}"}, "begins with dualstack"),
        ({"balancer": f"us-east-1a.{BALANCER}"}, "begins with us-east-1a"),
        ({"balancer": f"https://{BALANCER}"}, "balancer is 'https://"),
        ({"zones": ZONES[:1]}, "expected at least two zones, found 1"),
        ({"zones": (ZONES[0], ZONES[0])}, "AZ-ID use1-az1 is given twice"),
        ({"zones": (*ZONES, NamedZone(Zone("usw2-az1"), "us-west-2a"))}, "in another region"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_by_name(bad: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        records(CHECKS["status"], **bad)
    assert told in str(caught.value)


def test_a_zone_without_its_check_and_a_check_without_its_zone_are_refused() -> None:
    with pytest.raises(InvalidValue, match="use1-az3 has no health check"):
        RecordOptions(
            record="a.example.com", zones=ZONES, check=ExistingHealthCheck(ids={ONE: IDS[ONE], TWO: IDS[TWO]})
        )
    with pytest.raises(InvalidValue, match="use1-az3 has a check, but is not among the zones"):
        RecordOptions(record="a.example.com", zones=ZONES[:2], check=RoutingControlCheck(arns=CONTROLS))
