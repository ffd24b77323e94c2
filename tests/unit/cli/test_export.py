"""`holdfast export` prints templates, or writes them to files that do not exist yet."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.status.export import (
    AddressOptions,
    BucketOptions,
    CheckTiming,
    EndpointCheck,
    ExistingHealthCheck,
    GatewayOptions,
    ObjectCheck,
    RoutingControlCheck,
    StatusBucket,
    build_address_template,
    build_bucket_template,
    build_gateway_template,
)
from holdfast.status.export.checks import Check
from tests.unit.cli.conftest import Run
from tests.unit.status.export.samples import BALANCER, CONTROLS, IDS, ZONES, records

PLACE = ["--hosted-zone-id", "Z123456789", "--balancer", BALANCER, "--balancer-zone-id", "Z26RNL4JYFTOTI"]
MAPPED = [word for zone in ZONES for word in ("--zone", f"{zone.id}={zone.name}")]
RECORDS = ["export", "route53", "--record", "www.example.com", *PLACE]
ENDPOINT = ["--endpoint", "https://az-status.example.com"]


@pytest.mark.parametrize(
    ("words", "check"),
    [
        (ENDPOINT, EndpointCheck(endpoints=("https://az-status.example.com",))),
        (
            [*ENDPOINT, "--workload", "shop", "--interval", "30", "--failure-threshold", "2"],
            EndpointCheck(
                endpoints=("https://az-status.example.com",),
                workload="shop",
                timing=CheckTiming(interval=30, failure_threshold=2),
            ),
        ),
        (
            [*ENDPOINT, "--endpoint", "https://b.example.com", "--endpoint", "https://c.example.com", "--quorum", "3"],
            EndpointCheck(
                endpoints=("https://az-status.example.com", "https://b.example.com", "https://c.example.com"), quorum=3
            ),
        ),
        (["--bucket", "zones"], ObjectCheck(buckets=(StatusBucket("zones", "us-east-1"),))),
        (
            ["--bucket", "zones=eu-west-1", "--prefix", "status/"],
            ObjectCheck(buckets=(StatusBucket("zones", "eu-west-1"),), prefix="status/"),
        ),
        (
            [word for zone, arn in CONTROLS.items() for word in ("--routing-control", f"{zone}={arn}")],
            RoutingControlCheck(arns=CONTROLS),
        ),
        (
            [word for zone, identity in IDS.items() for word in ("--health-check", f"{zone}={identity}")],
            ExistingHealthCheck(ids=IDS),
        ),
    ],
    ids=["status", "workload", "quorum", "s3", "s3 elsewhere", "routing control", "shared"],
)
def test_the_kind_of_check_follows_from_what_is_to_be_checked(run: Run, words: list[str], check: Check) -> None:
    assert run(*RECORDS, *MAPPED, *words).result == records(check)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], GatewayOptions()),
        (
            ["--table", "zones", "--replica", "eu-west-1", "--replica", "us-west-2"],
            GatewayOptions(table="zones", replicas=("eu-west-1", "us-west-2")),
        ),
        (["--existing-table", "zones"], GatewayOptions(table="zones", table_exists=True)),
        (["--stage", "v1", "--rate", "10", "--burst", "20"], GatewayOptions(stage="v1", rate=10, burst=20)),
    ],
    ids=str,
)
def test_an_endpoint_with_a_table_is_exported(run: Run, words: list[str], options: GatewayOptions) -> None:
    assert run("export", "status-endpoint", "--kind", "dynamodb", *words).result == build_gateway_template(options)


def test_an_endpoint_with_a_bucket_is_exported(run: Run) -> None:
    words = ["export", "status-endpoint", "--kind", "s3"]
    assert run(*words).result == build_bucket_template(BucketOptions())
    assert run(*words, "--bucket", "zones").result == build_bucket_template(BucketOptions(name="zones"))


def test_an_endpoint_for_addresses_is_exported(run: Run) -> None:
    words = ["export", "address-endpoint"]
    assert run(*words).result == build_address_template(AddressOptions())
    given = AddressOptions(vpc_endpoint="vpce-0123456789abcdef0", stage="v1")
    more = ["--vpc-endpoint", "vpce-0123456789abcdef0", "--stage", "v1"]
    assert run(*words, *more).result == build_address_template(given)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*RECORDS, *MAPPED], "expected exactly one of --endpoint, --bucket, --routing-control and --health-check"),
        ([*RECORDS, *MAPPED, *ENDPOINT, "--bucket", "zones"], "expected exactly one of"),
        ([*RECORDS, *ENDPOINT], "expected at least two zones, found 0"),
        ([*RECORDS, "--bucket", "zones"], "region of bucket zones is ''"),
        ([*RECORDS, *ENDPOINT, "--zone", "use1-az1"], "zone 'use1-az1': expected its AZ-ID and its name"),
        ([*RECORDS, *ENDPOINT, "--zone", "us-east-1a=use1-az1"], "us-east-1a is the name of a zone"),
        ([*RECORDS, *MAPPED, *ENDPOINT, "--hosted-zone-name", "example.org"], "outside of the hosted zone"),
        ([*RECORDS, *MAPPED, *ENDPOINT, "--region", "us-east-1"], "--region cannot be used without --discover"),
        ([*RECORDS, *MAPPED, *ENDPOINT, "--prefix", "status/"], "--prefix cannot be used with this kind of check"),
        ([*RECORDS, *MAPPED, *ENDPOINT, "--force"], "--force cannot be used without --output"),
        ([*RECORDS, *MAPPED, "--health-check", "use1-az1"], "--health-check 'use1-az1'"),
        ([*RECORDS, *MAPPED, *["--health-check", "use1-az1=x"] * 2], "--health-check: use1-az1 is given twice"),
        (
            [*RECORDS, *MAPPED, *[f"--health-check={zone}={each}" for zone, each in IDS.items()], "--quorum", "1"],
            "--quorum cannot be used with this kind of check",
        ),
        (["export", "route53", *MAPPED, *ENDPOINT], "--record"),
        (["export", "status-endpoint"], "--kind"),
        (["export", "status-endpoint", "--kind", "redis"], "redis"),
        (["export", "status-endpoint", "--kind", "s3", "--table", "zones"], "--table cannot be used with --kind s3"),
        (["export", "status-endpoint", "--kind", "s3", "--rate", "1"], "--rate cannot be used with --kind s3"),
        (
            ["export", "status-endpoint", "--kind", "dynamodb", "--bucket", "zones"],
            "--bucket cannot be used with --kind dynamodb",
        ),
        (
            ["export", "status-endpoint", "--kind", "dynamodb", "--table", "a12", "--existing-table", "b12"],
            "--table cannot be used with --existing-table",
        ),
        (["export", "address-endpoint", "--vpc-endpoint", "vpc-1"], "vpc_endpoint is 'vpc-1'"),
    ],
)
def test_what_contradicts_itself_exits_with_2_and_says_why(run: Run, words: list[str], told: str) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def test_a_file_is_written_once_and_overwritten_only_by_force(run: Run, here: Path) -> None:
    words = ["export", "status-endpoint", "--kind", "s3", "--output", "endpoint.json"]
    assert (run(*words).code, run(*words, "--bucket", "zones").code) == (0, 1)
    assert "endpoint.json exists already" in run(*words).err
    assert json.loads((here / "endpoint.json").read_text()) == build_bucket_template(BucketOptions())
    ran = run(*words, "--bucket", "zones", "--force")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert json.loads((here / "endpoint.json").read_text()) == build_bucket_template(BucketOptions(name="zones"))


def test_a_file_that_cannot_be_written_is_named(run: Run) -> None:
    ran = run("export", "status-endpoint", "--kind", "s3", "--output", "nowhere/endpoint.json")
    assert ran.code == 2
    assert "nowhere/endpoint.json cannot be written" in ran.err


def test_zones_are_asked_of_the_account_that_the_settings_name(
    run: Run, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_AWS__ENDPOINT_URL", moto_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    words = ["export", "route53", "--record", "www.example.com", "--bucket", "zones", "--discover"]
    everything = run(*words, "--region", "eu-west-1").result
    assert [each["SetIdentifier"] for each in record_sets(everything)] == ["euw1-az1", "euw1-az2", "euw1-az3"]
    assert "zones.s3.eu-west-1.amazonaws.com" in json.dumps(everything)
    some = run(*words, "--region", "eu-west-1", "--zone", "euw1-az3", "--zone", "euw1-az1").result
    assert [each["SetIdentifier"] for each in record_sets(some)] == ["euw1-az3", "euw1-az1"]


def record_sets(template: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = template["Resources"]["Records"]["Properties"]["RecordSets"]
    return found
