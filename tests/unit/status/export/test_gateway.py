"""The status endpoint of API Gateway and DynamoDB: what it asks, what it answers, and who may do what."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.status.export import GatewayOptions, build_gateway_template
from tests.table import rows
from tests.unit.status.export.samples import GATEWAYS
from tests.unit.status.export.velocity import Integration

TEMPLATE = build_gateway_template(GatewayOptions(table="zones"))
OF_ZONE = Integration.of(TEMPLATE, "GetZonePath", "zones")
OF_WORKLOAD = Integration.of(TEMPLATE, "GetWorkloadPath", "zones")
SAYS_IN, SAYS_OUT = {"Healthy": {"BOOL": True}}, {"Healthy": {"BOOL": False}}
anything = st.text(min_size=1)


def properties(name: str, template: dict[str, Any] = TEMPLATE) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"][name]["Properties"]
    return found


@given(anything)
def test_whatever_is_in_the_path_the_zone_is_one_key_and_nothing_else(zone: str) -> None:
    assert json.loads(OF_ZONE.request(**{"az-id": zone})) == {
        "TableName": "zones",
        "Key": {"AZ-ID": {"S": zone}},
        "ConsistentRead": True,
        "ProjectionExpression": "Healthy",
    }


@given(anything, anything)
def test_whatever_is_in_the_path_a_workload_is_asked_for_by_two_keys(zone: str, workload: str) -> None:
    assert json.loads(OF_WORKLOAD.request(**{"az-id": zone, "workload": workload})) == {
        "RequestItems": {
            "zones": {
                "Keys": [{"AZ-ID": {"S": zone}}, {"AZ-ID": {"S": f"{zone}/{workload}"}}],
                "ConsistentRead": True,
                "ProjectionExpression": "Healthy",
            }
        }
    }


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ({}, (200, {"healthy": True})),
        ({"Item": {}}, (200, {"healthy": True})),
        ({"Item": SAYS_IN}, (200, {"healthy": True})),
        ({"Item": SAYS_OUT}, (500, {"healthy": False})),
    ],
)
def test_a_zone_is_out_if_its_item_says_so(answer: dict[str, Any], reply: tuple[int, Any]) -> None:
    assert OF_ZONE.reply(200, json.dumps(answer)) == reply


@rows(
    ("items", "unread", "reply"),
    [
        ([], False, (200, {"healthy": True})),
        ([{}], False, (200, {"healthy": True})),
        ([SAYS_IN, SAYS_IN], False, (200, {"healthy": True})),
        ([SAYS_IN, SAYS_OUT], False, (500, {"healthy": False})),
        ([SAYS_OUT, SAYS_IN], False, (500, {"healthy": False})),
        ([SAYS_OUT, SAYS_OUT], False, (500, {"healthy": False})),
        ([], True, (503, {"healthy": None})),
        ([SAYS_IN], True, (503, {"healthy": None})),
        ([SAYS_OUT], True, (500, {"healthy": False})),
    ],
)
def test_a_workload_is_out_if_either_item_says_so_and_unknown_if_one_was_not_read(
    items: list[dict[str, Any]], unread: bool, reply: tuple[int, Any]
) -> None:
    left = {"zones": {"Keys": [{"AZ-ID": {"S": "use1-az1"}}]}} if unread else {}
    answer = {"Responses": {"zones": items}, "UnprocessedKeys": left}
    assert OF_WORKLOAD.reply(200, json.dumps(answer)) == reply


@pytest.mark.parametrize("status", [400, 403, 413, 500, 503])
def test_an_error_of_dynamodb_is_not_said_to_be_a_zone_that_is_out(status: int) -> None:
    for integration in (OF_ZONE, OF_WORKLOAD):
        assert integration.reply(status, '{"__type": "SomeException"}') == (503, {"healthy": None})


def test_an_error_of_api_gateway_itself_is_not_said_to_be_a_zone_that_is_out() -> None:
    assert properties("UnknownResponse") == {
        "RestApiId": {"Ref": "Api"},
        "ResponseType": "DEFAULT_5XX",
        "StatusCode": "503",
        "ResponseTemplates": {"application/json": '{"healthy": null}'},
    }


def test_get_and_head_are_the_same_and_nobody_needs_a_credential() -> None:
    for path in ("ZonePath", "WorkloadPath"):
        get, head = properties(f"Get{path}"), properties(f"Head{path}")
        assert (get["HttpMethod"], head["HttpMethod"]) == ("GET", "HEAD")
        assert get | {"HttpMethod": ""} == head | {"HttpMethod": ""}
        assert get["AuthorizationType"] == "NONE"


def test_a_body_is_never_handed_on_to_dynamodb() -> None:
    for name in ("GetZonePath", "HeadZonePath", "GetWorkloadPath", "HeadWorkloadPath"):
        integration = properties(name)["Integration"]
        assert integration["PassthroughBehavior"] == "NEVER"
        assert list(integration["RequestTemplates"]) == ["application/json"]


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("a table", {"Fn::GetAtt": ["StatusTable", "Arn"]}),
        ("a global table", {"Fn::GetAtt": ["StatusTable", "Arn"]}),
        (
            "an existing table",
            {"Fn::Sub": "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/zones"},
        ),
    ],
)
def test_api_gateway_may_read_this_table_and_nothing_else(kind: str, table: dict[str, Any]) -> None:
    role = properties("ReadRole", build_gateway_template(GATEWAYS[kind]))
    assert [policy["PolicyDocument"]["Statement"] for policy in role["Policies"]] == [
        [{"Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:BatchGetItem"], "Resource": table}]
    ]
    [statement] = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "apigateway.amazonaws.com"}


def test_the_table_has_the_key_the_expiry_and_the_recovery_that_it_should() -> None:
    table = properties("StatusTable")
    assert table["TableName"] == "zones"
    assert table["KeySchema"] == [{"AttributeName": "AZ-ID", "KeyType": "HASH"}]
    assert table["AttributeDefinitions"] == [{"AttributeName": "AZ-ID", "AttributeType": "S"}]
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ExpiresAt", "Enabled": True}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert TEMPLATE["Resources"]["StatusTable"]["DeletionPolicy"] == "RetainExceptOnCreate"


def test_a_global_table_is_in_the_region_of_the_stack_and_in_every_replica() -> None:
    resource = build_gateway_template(GATEWAYS["a global table"])["Resources"]["StatusTable"]
    assert resource["Type"] == "AWS::DynamoDB::GlobalTable"
    assert [replica["Region"] for replica in resource["Properties"]["Replicas"]] == [
        {"Ref": "AWS::Region"},
        "eu-west-1",
        "us-west-2",
    ]


def test_an_existing_table_is_not_made_again() -> None:
    template = build_gateway_template(GATEWAYS["an existing table"])
    assert "StatusTable" not in template["Resources"]
    assert Integration.of(template, "GetZonePath", "").ask == OF_ZONE.ask.replace('"zones"', '""')


def deployment(options: GatewayOptions) -> str:
    resources = build_gateway_template(options)["Resources"]
    names: list[str] = [name for name, each in resources.items() if each["Type"] == "AWS::ApiGateway::Deployment"]
    [name] = names
    assert resources["Stage"]["Properties"]["DeploymentId"] == {"Ref": name}
    methods = {"GetZonePath", "HeadZonePath", "GetWorkloadPath", "HeadWorkloadPath"}
    assert set(resources[name]["DependsOn"]) == methods | {"UnknownResponse"}
    return name


def test_a_deployment_is_made_anew_when_a_method_changes_and_only_then() -> None:
    assert deployment(GatewayOptions()) == deployment(GatewayOptions(rate=5, stage="v2"))
    assert deployment(GatewayOptions()) != deployment(GatewayOptions(table="zones", table_exists=True))


def test_callers_together_are_held_to_the_rate() -> None:
    template = build_gateway_template(GatewayOptions(stage="v1", rate=10, burst=20))
    stage = properties("Stage", template)
    assert stage["StageName"] == "v1"
    assert stage["MethodSettings"] == [
        {"HttpMethod": "*", "ResourcePath": "/*", "ThrottlingRateLimit": 10, "ThrottlingBurstLimit": 20}
    ]
    assert template["Outputs"]["Endpoint"]["Value"]["Fn::Sub"].endswith("/v1")
    assert "/status" not in template["Outputs"]["Endpoint"]["Description"], "the base is what `export route53` takes"


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"table": "a b"}, "table is 'a b'"),
        ({"table": "'"}, 'table is "\'"'),
        ({"stage": "a/b"}, "stage is 'a/b'"),
        ({"stage": "status"}, "stage is 'status': expected another word"),
        ({"table_exists": True}, "an existing table: expected its name"),
        ({"table_exists": True, "table": "zones", "replicas": ("eu-west-1",)}, "no replicas"),
        ({"replicas": ("europe",)}, "replica is 'europe'"),
        ({"replicas": ("eu-west-1", "eu-west-1")}, "each region once"),
        ({"rate": 0}, "rate is 0"),
        ({"burst": 0}, "burst is 0"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_by_name(bad: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        GatewayOptions(**bad)
    assert told in str(caught.value)
