"""Exported templates, deployed: by moto, which has health checks, and by MiniStack, which has all of API Gateway.

Neither can run an integration of API Gateway with DynamoDB. So its mapping templates are run here, and what they make
is sent to a real DynamoDB of the emulators, word for word.
"""

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from holdfast import InvalidValue
from holdfast.engines.aws import AwsSession
from holdfast.status.export import (
    BucketOptions,
    GatewayOptions,
    NamedZone,
    RecordOptions,
    build_bucket_template,
    build_gateway_template,
    build_record_template,
)
from holdfast.status.export.discovery import discover_zones
from tests.unit.status.export.samples import BALANCER, CHECKS, ENDPOINTS, IDS, ONE, TWO, ZONES
from tests.unit.status.export.velocity import Integration

HOSTILE = (
    "'",
    '"',
    "\\",
    '\\"',
    '"}}, "TableName": "other", "Key": {"AZ-ID": {"S": "use1-az1',
    "use1-az1\n",
    "{}",
    "$zone",
    "#set($status = 500)",
    "${Table}",
    "\0",
    "\u2028",
    "🙂",
    "use1-az1'",
    " ",
)
Open = Callable[..., AwsSession]
Dynamo = Callable[[str, str], tuple[int, str]]


def deploy(session: AwsSession, template: dict[str, Any]) -> dict[str, str]:
    """The outputs of the template, as a new stack."""
    cloudformation = session.client("cloudformation")
    stack = f"holdfast-{uuid4().hex}"
    cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
    cloudformation.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig={"Delay": 0.05})
    [found] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", ())}


def anonymous(url: str, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.request(method, path, body.encode(), headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def dynamodb_of(url: str, region: str = "us-east-1") -> Dynamo:
    """Sends a body as it is, like API Gateway."""
    scope = (
        f"AWS4-HMAC-SHA256 Credential=testing/20260101/{region}/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
    )

    def call(action: str, body: str) -> tuple[int, str]:
        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{action}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": scope,
        }
        return anonymous(url, "POST", "/", body, **headers)

    return call


def deployed(session: AwsSession, api: str) -> dict[str, Integration]:
    """The methods of an API as API Gateway has them, by verb and path."""
    gateway = session.client("apigateway")
    found = {}
    for resource in gateway.get_resources(restApiId=api)["items"]:
        for verb in resource.get("resourceMethods", ()):
            each = gateway.get_integration(restApiId=api, resourceId=resource["id"], httpMethod=verb)
            answers = {
                status: (reply.get("selectionPattern", ""), reply["responseTemplates"]["application/json"])
                for status, reply in each["integrationResponses"].items()
            }
            action = each["uri"].rpartition("/")[2]
            found[f"{verb} {resource['path']}"] = Integration(
                action, each["requestTemplates"]["application/json"], answers
            )
    return found


def hosted_zone(session: AwsSession) -> str:
    made = session.client("route53").create_hosted_zone(Name="example.com", CallerReference=uuid4().hex)
    identity: str = made["HostedZone"]["Id"]
    return identity.rpartition("/")[2]


def records_of(session: AwsSession, zone: str) -> dict[str, dict[str, Any]]:
    found = session.paginate("route53", "list_resource_record_sets", HostedZoneId=zone)
    return {each["SetIdentifier"]: each for each in found if each["Type"] == "A"}


def checks_of(session: AwsSession) -> dict[str, dict[str, Any]]:
    found = session.paginate("route53", "list_health_checks")
    return {each["Id"]: each["HealthCheckConfig"] for each in found}


@pytest.mark.parametrize("kind", CHECKS)
def test_route_53_has_one_record_for_each_zone_with_the_check_of_that_zone(
    moto_url: str, connect: Open, kind: str
) -> None:
    session = connect(moto_url)
    zone = hosted_zone(session)
    options = RecordOptions(
        record="www.example.com",
        zones=ZONES,
        check=CHECKS[kind],
        hosted_zone_id=zone,
        balancer=BALANCER,
        balancer_zone_id="Z26RNL4JYFTOTI",
    )
    outputs = deploy(session, build_record_template(options))
    found = records_of(session, zone)
    assert {name: (each["Weight"], each["AliasTarget"]) for name, each in found.items()} == {
        each.id: (
            100,
            {
                "HostedZoneId": "Z26RNL4JYFTOTI",
                "DNSName": f"{each.name}.{BALANCER}",
                "EvaluateTargetHealth": True,
            },
        )
        for each in ZONES
    }
    ids = {name: each["HealthCheckId"] for name, each in found.items()}
    if kind == "shared":
        assert ids == IDS
        return
    assert ids == {each.id: outputs[f"HealthCheckUse1Az{each.id[-1]}"] for each in ZONES}
    kinds = {"routing control": "RECOVERY_CONTROL", "status": "HTTPS", "status of a workload": "HTTPS", "s3": "HTTPS"}
    checks = checks_of(session)
    assert {checks[identity]["Type"] for identity in ids.values()} == {kinds.get(kind, "CALCULATED")}


@pytest.mark.parametrize("kind", CHECKS)
def test_route_53_takes_every_health_check_with_all_that_it_says(moto_url: str, connect: Open, kind: str) -> None:
    """By its own interface, because moto's CloudFormation drops thresholds, children and inversion."""
    session = connect(moto_url)
    client = session.client("route53")
    wanted = {
        name: each["Properties"]["HealthCheckConfig"]
        for name, each in build_record_template(RecordOptions(record="a.example.com", zones=ZONES, check=CHECKS[kind]))[
            "Resources"
        ].items()
        if each["Type"] == "AWS::Route53::HealthCheck"
    }
    ids: dict[str, str] = {}
    for name, config in wanted.items():  # children come before the check that counts them
        if "ChildHealthChecks" in config:
            config["ChildHealthChecks"] = [ids[child["Ref"]] for child in config["ChildHealthChecks"]]
        made = client.create_health_check(CallerReference=uuid4().hex, HealthCheckConfig=config)
        ids[name] = made["HealthCheck"]["Id"]
    found = checks_of(session)
    for name, config in wanted.items():
        kept = found[ids[name]]
        # moto forgets which routing control was meant.
        assert {key: kept.get(key) for key in config if key != "RoutingControlArn"} == {
            key: value for key, value in config.items() if key != "RoutingControlArn"
        }


def test_the_table_of_an_endpoint_is_made_as_it_should_be(emulator: str, connect: Open) -> None:
    session = connect(emulator)
    table = deploy(session, build_gateway_template(GatewayOptions()))["TableName"]
    dynamodb = session.client("dynamodb")
    described = dynamodb.describe_table(TableName=table)["Table"]
    assert described["KeySchema"] == [{"AttributeName": "AZ-ID", "KeyType": "HASH"}]
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


@pytest.fixture
def methods(emulator: str, connect: Open) -> tuple[dict[str, Integration], Dynamo, Any, str]:
    """The methods of a new endpoint, the DynamoDB behind it, a client for that, and the name of the table."""
    session = connect(emulator)
    template = build_gateway_template(GatewayOptions())
    outputs = deploy(session, template)
    table = outputs["TableName"]
    found = {
        "GET /status/{az-id}": Integration.of(template, "GetZonePath", table),
        "HEAD /status/{az-id}": Integration.of(template, "HeadZonePath", table),
        "GET /status/{az-id}/{workload}": Integration.of(template, "GetWorkloadPath", table),
        "HEAD /status/{az-id}/{workload}": Integration.of(template, "HeadWorkloadPath", table),
    }
    api = urlsplit(outputs["Endpoint"]).netloc.partition(".")[0]
    resources = session.client("apigateway").get_resources(restApiId=api)["items"]
    assert {f"{verb} {each['path']}" for each in resources for verb in each.get("resourceMethods", ())} == found.keys()
    return found, dynamodb_of(emulator), session.client("dynamodb"), table


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
def test_a_zone_is_out_when_an_item_says_so_and_in_when_it_does_not_or_is_not_there(
    methods: tuple[dict[str, Integration], Dynamo, Any, str], verb: str
) -> None:
    found, dynamodb, client, table = methods
    of_zone = found[f"{verb} /status/{{az-id}}"]
    assert of_zone.call(dynamodb, **{"az-id": ONE}) == (200, {"healthy": True})
    client.put_item(TableName=table, Item={"AZ-ID": {"S": ONE}, "Healthy": {"BOOL": False}, "By": {"S": "ada"}})
    assert of_zone.call(dynamodb, **{"az-id": ONE}) == (500, {"healthy": False})
    assert of_zone.call(dynamodb, **{"az-id": TWO}) == (200, {"healthy": True})
    client.put_item(TableName=table, Item={"AZ-ID": {"S": ONE}, "Healthy": {"BOOL": True}})
    assert of_zone.call(dynamodb, **{"az-id": ONE}) == (200, {"healthy": True})


@pytest.mark.parametrize(
    ("of_all", "of_shop", "status"),
    [
        (None, None, 200),
        (True, True, 200),
        (True, None, 200),
        (None, False, 500),
        (True, False, 500),
        (False, None, 500),
        (False, True, 500),
        (False, False, 500),
    ],
)
def test_a_zone_is_out_for_a_workload_when_it_is_for_that_one_or_for_all(
    methods: tuple[dict[str, Integration], Dynamo, Any, str], of_all: bool | None, of_shop: bool | None, status: int
) -> None:
    found, dynamodb, client, table = methods
    for key, healthy in ((ONE, of_all), (f"{ONE}/shop", of_shop)):
        if healthy is not None:
            client.put_item(TableName=table, Item={"AZ-ID": {"S": key}, "Healthy": {"BOOL": healthy}})
    of_workload = found["GET /status/{az-id}/{workload}"]
    assert of_workload.call(dynamodb, **{"az-id": ONE, "workload": "shop"}) == (status, {"healthy": status == 200})
    other = 500 if of_all is False else 200
    assert of_workload.call(dynamodb, **{"az-id": ONE, "workload": "other"}) == (other, {"healthy": other == 200})
    of_zone = found["GET /status/{az-id}"]
    assert of_zone.call(dynamodb, **{"az-id": ONE}) == (other, {"healthy": other == 200})


def test_hostile_paths_name_an_item_that_is_not_there_and_reach_nothing_else(
    methods: tuple[dict[str, Integration], Dynamo, Any, str],
) -> None:
    found, dynamodb, client, table = methods
    client.put_item(TableName=table, Item={"AZ-ID": {"S": ONE}, "Healthy": {"BOOL": False}})
    for hostile in HOSTILE:
        assert found["GET /status/{az-id}"].call(dynamodb, **{"az-id": hostile}) == (200, {"healthy": True}), hostile
        both = {"az-id": TWO, "workload": hostile}
        assert found["GET /status/{az-id}/{workload}"].call(dynamodb, **both) == (200, {"healthy": True}), hostile
        # It is the key that was meant, and not one that lost something on the way.
        client.put_item(TableName=table, Item={"AZ-ID": {"S": f"{TWO}/{hostile}"}, "Healthy": {"BOOL": False}})
        assert found["GET /status/{az-id}/{workload}"].call(dynamodb, **both) == (500, {"healthy": False}), hostile


def test_a_table_that_cannot_be_read_is_not_said_to_be_a_zone_that_is_out(emulator: str) -> None:
    template = build_gateway_template(GatewayOptions(table="holdfast-nowhere", table_exists=True))
    dynamodb = dynamodb_of(emulator)
    for method in ("GetZonePath", "GetWorkloadPath"):
        integration = Integration.of(template, method, "holdfast-nowhere")
        assert integration.call(dynamodb, **{"az-id": ONE, "workload": "shop"}) == (503, {"healthy": None})


def test_what_is_deployed_is_what_was_exported(ministack_url: str, connect: Open) -> None:
    session = connect(ministack_url)
    template = build_gateway_template(GatewayOptions(stage="v1", rate=10, burst=20))
    outputs = deploy(session, template)
    api = urlsplit(outputs["Endpoint"]).netloc.partition(".")[0]
    assert outputs["Endpoint"] == f"https://{api}.execute-api.us-east-1.amazonaws.com/v1"
    found = deployed(session, api)
    assert found == {
        f"{verb} {path}": Integration.of(template, f"{verb.title()}{name}", outputs["TableName"])
        for verb in ("GET", "HEAD")
        for path, name in (("/status/{az-id}", "ZonePath"), ("/status/{az-id}/{workload}", "WorkloadPath"))
    }
    gateway = session.client("apigateway")
    assert gateway.get_gateway_response(restApiId=api, responseType="DEFAULT_5XX")["statusCode"] == "503"
    [stage] = gateway.get_stages(restApiId=api)["item"]
    settings = stage["methodSettings"]["*/*"]
    assert (stage["stageName"], settings["throttlingRateLimit"], settings["throttlingBurstLimit"]) == ("v1", 10, 20)


def test_a_global_table_tells_the_same_in_every_region(ministack_url: str, connect: Open) -> None:
    table = f"holdfast-{uuid4().hex}"
    home, away = connect(ministack_url), connect(ministack_url, "eu-west-1")
    deploy(home, build_gateway_template(GatewayOptions(table=table, replicas=("eu-west-1",))))
    # MiniStack's CloudFormation makes the table in one region only.
    replica = {"Create": {"RegionName": "eu-west-1"}}
    home.client("dynamodb").update_table(TableName=table, ReplicaUpdates=[replica])
    outputs = deploy(away, build_gateway_template(GatewayOptions(table=table, table_exists=True)))
    assert outputs["TableName"] == table
    found = deployed(away, urlsplit(outputs["Endpoint"]).netloc.partition(".")[0])
    ask = found["GET /status/{az-id}"]
    assert ask.call(dynamodb_of(ministack_url, "eu-west-1"), **{"az-id": ONE}) == (200, {"healthy": True})
    item = {"AZ-ID": {"S": ONE}, "Healthy": {"BOOL": False}}
    home.client("dynamodb").put_item(TableName=table, Item=item)
    assert ask.call(dynamodb_of(ministack_url, "eu-west-1"), **{"az-id": ONE}) == (500, {"healthy": False})


def test_a_bucket_shows_its_objects_of_zones_to_anybody_and_no_others(moto_url: str, connect: Open) -> None:
    """By moto, which obeys policies, but does not make them from a template: so it is handed to it."""
    session = connect(moto_url)
    template = build_bucket_template(BucketOptions())
    bucket = deploy(session, template)["BucketName"]
    policy = json.dumps(template["Resources"]["StatusPolicy"]["Properties"]["PolicyDocument"])
    policy = policy.replace('{"Fn::Sub": "${StatusBucket.Arn}/*.txt"}', f'"arn:aws:s3:::{bucket}/*.txt"')
    s3 = session.client("s3")
    keys = ("use1-az1.txt", "shop/use1-az1.txt", "notes.md")
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key)

    def seen() -> list[int]:
        return [anonymous(moto_url, "GET", f"/{bucket}/{key}")[0] for key in (*keys, "use1-az2.txt")]

    assert seen() == [403, 403, 403, 404]
    s3.put_bucket_policy(Bucket=bucket, Policy=policy)
    assert seen() == [200, 200, 403, 404]


def test_a_bucket_is_deployed_with_its_policy(ministack_url: str, connect: Open) -> None:
    session = connect(ministack_url)
    name = f"holdfast-{uuid4().hex}"
    outputs = deploy(session, build_bucket_template(BucketOptions(name=name)))
    assert outputs == {"BucketName": name, "Endpoint": f"https://{name}.s3.us-east-1.amazonaws.com"}
    policy = json.loads(session.client("s3").get_bucket_policy(Bucket=name)["Policy"])
    assert [statement["Resource"] for statement in policy["Statement"]] == [f"arn:aws:s3:::{name}/*.txt"]


def test_zones_are_discovered_with_the_names_that_the_account_has(moto_url: str, connect: Open) -> None:
    session = connect(moto_url)
    found = discover_zones(session)
    answer = session.client("ec2").describe_availability_zones()["AvailabilityZones"]
    assert {zone.id: zone.name for zone in found} == {each["ZoneId"]: each["ZoneName"] for each in answer}
    assert len(found) > 3
    first, second = found[:2]
    assert discover_zones(session, [second.id, f"{first.id}={first.name}"]) == (second, first)


def test_a_zone_that_the_account_calls_otherwise_or_does_not_have_is_refused(moto_url: str, connect: Open) -> None:
    session = connect(moto_url)
    first, second, *_ = discover_zones(session)
    with pytest.raises(
        InvalidValue, match=f"zone {first.id} is called {first.name} in this account, not {second.name}"
    ):
        discover_zones(session, [f"{first.id}={second.name}"])
    with pytest.raises(InvalidValue, match="zone euw1-az1 is not in this account and region"):
        discover_zones(session, ["euw1-az1"])
    with pytest.raises(InvalidValue, match="us-east-1a is the name of a zone"):
        discover_zones(session, ["us-east-1a"])


def test_discovered_zones_make_records(moto_url: str, connect: Open) -> None:
    zones: tuple[NamedZone, ...] = discover_zones(connect(moto_url))
    template = build_record_template(RecordOptions(record="www.example.com", zones=zones, check=CHECKS["status"]))
    assert len(template["Resources"]["Records"]["Properties"]["RecordSets"]) == len(zones)
    assert ENDPOINTS[0].split("/")[2] in json.dumps(template)
