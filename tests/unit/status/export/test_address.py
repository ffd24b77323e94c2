"""The private endpoint that tells a function its address: what it answers, and who may ask it."""

import json
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.status.export import AddressOptions, build_address_template

ENDPOINT = "vpce-0123456789abcdef0"
NEW, EXISTING = (build_address_template(AddressOptions(vpc_endpoint=given)) for given in (None, ENDPOINT))


def properties(name: str, template: dict[str, Any] = NEW) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"][name]["Properties"]
    return found


def test_the_answer_is_the_address_and_the_vpc_as_api_gateway_sees_them() -> None:
    [answer] = properties("GetAddress")["Integration"]["IntegrationResponses"]
    text = answer["ResponseTemplates"]["application/json"]
    for variable, value in {"sourceIp": "10.0.1.5", "vpcId": "vpc-0a1"}.items():
        text = text.replace(f"$context.identity.{variable}", value)
    assert json.loads(text) == {"address": "10.0.1.5", "vpc": "vpc-0a1"}
    assert answer["ResponseParameters"] == {"method.response.header.Cache-Control": "'no-store'"}


def test_equal_options_give_equal_templates() -> None:
    """So an update of the stack deploys nothing new."""
    assert build_address_template(AddressOptions()) == NEW
    assert build_address_template(AddressOptions(vpc_endpoint=ENDPOINT)) == EXISTING


def test_api_gateway_answers_by_itself_with_200() -> None:
    integration = properties("GetAddress")["Integration"]
    assert integration["Type"] == "MOCK"
    assert json.loads(integration["RequestTemplates"]["application/json"]) == {"statusCode": 200}


@pytest.mark.parametrize(("template", "endpoint"), [(NEW, {"Ref": "VpcEndpoint"}), (EXISTING, ENDPOINT)])
def test_only_callers_behind_the_endpoint_of_the_vpc_get_an_answer(template: dict[str, Any], endpoint: Any) -> None:
    api = properties("Api", template)
    assert api["EndpointConfiguration"] == {"Types": ["PRIVATE"], "VpcEndpointIds": [endpoint]}
    [statement] = api["Policy"]["Statement"]
    assert statement["Effect"] == "Allow"
    assert statement["Condition"] == {"StringEquals": {"aws:SourceVpce": endpoint}}


def test_an_endpoint_that_the_stack_creates_admits_the_functions_only() -> None:
    [rule] = properties("EndpointSecurityGroup")["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"]) == (443, 443)
    assert rule["SourceSecurityGroupId"] == {"Ref": "FunctionSecurityGroupId"}
    assert NEW["Parameters"].keys() == {"VpcId", "SubnetIds", "FunctionSecurityGroupId"}


def test_an_endpoint_that_exists_needs_no_parameters_and_nothing_of_ec2() -> None:
    assert "Parameters" not in EXISTING
    assert not {"VpcEndpoint", "EndpointSecurityGroup"} & EXISTING["Resources"].keys()


def test_the_output_is_an_address_that_needs_no_private_dns() -> None:
    text, values = EXISTING["Outputs"]["Endpoint"]["Value"]["Fn::Sub"]
    assert text == "https://${Api}-${Endpoint}.execute-api.${AWS::Region}.${AWS::URLSuffix}/live"
    assert values == {"Endpoint": ENDPOINT}


def test_another_policy_is_another_deployment() -> None:
    def deployment(template: dict[str, Any]) -> list[str]:
        return [name for name in template["Resources"] if name.startswith("Deployment")]

    assert len(deployment(NEW)) == 1
    assert deployment(NEW) != deployment(EXISTING)
    assert properties("Stage")["DeploymentId"] == {"Ref": deployment(NEW)[0]}


@pytest.mark.parametrize(
    ("options", "told"), [({"vpc_endpoint": "vpc-1"}, "vpc_endpoint is 'vpc-1'"), ({"stage": "a/b"}, "stage is 'a/b'")]
)
def test_what_api_gateway_would_refuse_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        AddressOptions(**options)
