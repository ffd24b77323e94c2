"""A private endpoint that tells a caller in a VPC its own address, from which a Lambda function finds its zone. Pure.

A private REST API of API Gateway answers without a backend:
https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-private-apis.html
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from holdfast.status.export.template import Template, build_policy, build_resource, new_template, require_match

# Both values come from API Gateway itself, and have no characters that JSON would have to escape.
ADDRESS_RESPONSE_TEMPLATE = '{"address": "$context.identity.sourceIp", "vpc": "$context.identity.vpcId"}'

# https://docs.aws.amazon.com/vpc/latest/privatelink/create-interface-endpoint.html
_VPC_ENDPOINT = re.compile(r"vpce-[0-9a-f]{8,17}")
_STAGE = re.compile(r"[A-Za-z0-9_-]{1,128}")
_API = {"Ref": "Api"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressOptions:
    """Options of the endpoint."""

    vpc_endpoint: str | None = None
    """An interface endpoint of `execute-api` that the VPC has already. None creates one: a VPC needs only one."""
    stage: str = "live"
    """First part of the path, which API Gateway requires."""

    def __post_init__(self) -> None:
        if self.vpc_endpoint is not None:
            require_match("vpc_endpoint", self.vpc_endpoint, _VPC_ENDPOINT, "an id such as vpce-0123456789abcdef0")
        require_match("stage", self.stage, _STAGE, "1 to 128 letters, digits and any of _-")


def build_address_template(options: AddressOptions) -> Template:
    """Return the template of an API that answers with the caller's private address and VPC, as JSON.

    Only callers in the VPC reach it, through its interface endpoint.
    """
    endpoint: Any = {"Ref": "VpcEndpoint"} if options.vpc_endpoint is None else options.vpc_endpoint
    method = _build_method()
    access = build_policy(
        Principal="*",
        Action="execute-api:Invoke",
        Resource="execute-api:/*",
        Condition={"StringEquals": {"aws:SourceVpce": endpoint}},
    )
    # A deployment is a snapshot of the API. Under an unchanged name, CloudFormation would never deploy a new one.
    digest = hashlib.sha256(json.dumps([method, access], sort_keys=True).encode()).hexdigest()[:12]
    deployment = f"Deployment{digest}"
    resources = {
        **(_build_vpc_endpoint() if options.vpc_endpoint is None else {}),
        "Api": build_resource(
            "AWS::ApiGateway::RestApi",
            Name={"Fn::Sub": "${AWS::StackName}-address"},
            Description="Tells callers in a VPC their private address.",
            EndpointConfiguration={"Types": ["PRIVATE"], "VpcEndpointIds": [endpoint]},
            Policy=access,
        ),
        "GetAddress": method,
        deployment: {**build_resource("AWS::ApiGateway::Deployment", RestApiId=_API), "DependsOn": "GetAddress"},
        "Stage": build_resource(
            "AWS::ApiGateway::Stage", RestApiId=_API, DeploymentId={"Ref": deployment}, StageName=options.stage
        ),
    }
    # This name also works in a VPC whose interface endpoint has no private DNS.
    host = "${Api}-${Endpoint}.execute-api.${AWS::Region}.${AWS::URLSuffix}"
    address = {"Fn::Sub": [f"https://{host}/{options.stage}", {"Endpoint": endpoint}]}
    return new_template(
        "Tells callers in a VPC their private address, so that Lambda functions can find their availability zone.",
        resources,
        Parameters=_PARAMETERS if options.vpc_endpoint is None else {},
        Outputs={"Endpoint": {"Description": "For aws.address_endpoint.", "Value": address}},
    )


_PARAMETERS = {
    "VpcId": {"Type": "AWS::EC2::VPC::Id", "Description": "The VPC of the functions."},
    "SubnetIds": {"Type": "List<AWS::EC2::Subnet::Id>", "Description": "One subnet in each zone of the functions."},
    "FunctionSecurityGroupId": {
        "Type": "AWS::EC2::SecurityGroup::Id",
        "Description": "The security group of the functions, which may call the endpoint.",
    },
}


def _build_vpc_endpoint() -> Template:
    """Return the interface endpoint, and a security group that admits only the functions."""
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}
    admitted = {"SourceSecurityGroupId": {"Ref": "FunctionSecurityGroupId"}, "Description": "HTTPS of the functions"}
    return {
        "EndpointSecurityGroup": build_resource(
            "AWS::EC2::SecurityGroup",
            GroupDescription="Admits Lambda functions to API Gateway.",
            VpcId={"Ref": "VpcId"},
            SecurityGroupIngress=[{**https, **admitted}],
        ),
        "VpcEndpoint": build_resource(
            "AWS::EC2::VPCEndpoint",
            VpcEndpointType="Interface",
            ServiceName={"Fn::Sub": "com.amazonaws.${AWS::Region}.execute-api"},
            VpcId={"Ref": "VpcId"},
            SubnetIds={"Ref": "SubnetIds"},
            SecurityGroupIds=[{"Ref": "EndpointSecurityGroup"}],
            # Off: with private DNS, the VPC could not reach public APIs of API Gateway any more.
            PrivateDnsEnabled=False,
        ),
    }


def _build_method() -> Template:
    header = "method.response.header.Cache-Control"
    return build_resource(
        "AWS::ApiGateway::Method",
        RestApiId=_API,
        ResourceId={"Fn::GetAtt": ["Api", "RootResourceId"]},
        HttpMethod="GET",
        AuthorizationType="NONE",  # the policy of the API admits one VPC endpoint, and the answer is no secret
        MethodResponses=[{"StatusCode": "200", "ResponseParameters": {header: True}}],
        Integration={
            "Type": "MOCK",
            "PassthroughBehavior": "WHEN_NO_TEMPLATES",
            "RequestTemplates": {"application/json": '{"statusCode": 200}'},
            "IntegrationResponses": [
                {
                    "StatusCode": "200",
                    "ResponseParameters": {header: "'no-store'"},
                    "ResponseTemplates": {"application/json": ADDRESS_RESPONSE_TEMPLATE},
                }
            ],
        },
    )
