"""A status endpoint without a server: API Gateway directly in front of a DynamoDB table. Pure.

The mapping templates are in Velocity Template Language. They use few of its features, because API Gateway's dialect is
documented only by examples:
https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-mapping-template-reference.html
CloudFormation replaces `${Table}`, a name without special characters, before anything is deployed.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast._errors import InvalidValue
from holdfast.status.export.template import (
    REGION,
    Template,
    build_policy,
    build_resource,
    build_retained_resource,
    new_template,
    require_match,
)

# Names in a path may contain any character. escapeJavaScript escapes whatever ends a JSON string, but also writes an
# apostrophe as \', which JSON does not allow: undone here, as the page above says. Use the result only in JSON strings.
_ZONE = """#set($zone = $util.escapeJavaScript($input.params('az-id')).replaceAll("\\\\'", "'"))"""
_WORKLOAD = """#set($workload = $util.escapeJavaScript($input.params('workload')).replaceAll("\\\\'", "'"))"""

# API Gateway fails if the status is overridden twice: hence the variable, and one override at the end.
# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-override-request-response-parameters.html
_RESPONSE_END = """#if($status != 200)
#set($context.responseOverride.status = $status)
#end
{"healthy": $healthy}"""

ZONE_REQUEST_TEMPLATE = f"""{_ZONE}
{{"TableName": "${{Table}}", "Key": {{"AZ-ID": {{"S": "$zone"}}}}, "ConsistentRead": true,
"ProjectionExpression": "Healthy"}}"""
"""GetItem: is the zone out for all workloads?"""

ZONE_RESPONSE_TEMPLATE = f"""#set($root = $input.path('$'))
#set($status = 200)
#set($healthy = true)
#if($root.Item.Healthy['BOOL'] == false)
#set($status = 500)
#set($healthy = false)
#end
{_RESPONSE_END}"""
"""500 if an item says that the zone is not healthy; 200 if an item says that it is, or there is none."""

WORKLOAD_REQUEST_TEMPLATE = f"""{_ZONE}
{_WORKLOAD}
{{"RequestItems": {{"${{Table}}": {{"Keys": [{{"AZ-ID": {{"S": "$zone"}}}}, {{"AZ-ID": {{"S": "$zone/$workload"}}}}],
"ConsistentRead": true, "ProjectionExpression": "Healthy"}}}}}}"""
"""BatchGetItem: is the zone out for all workloads, or for this one?"""

WORKLOAD_RESPONSE_TEMPLATE = f"""#set($root = $input.path('$'))
#set($status = 200)
#set($healthy = true)
#foreach($key in $root.UnprocessedKeys['${{Table}}'].Keys)
#set($status = 503)
#set($healthy = "null")
#end
#foreach($item in $root.Responses['${{Table}}'])
#if($item.Healthy['BOOL'] == false)
#set($status = 500)
#set($healthy = false)
#end
#end
{_RESPONSE_END}"""
"""500 if either item says that the zone is not healthy; otherwise 503 if DynamoDB did not return both."""

ERROR_RESPONSE_TEMPLATE = '{"healthy": null}'
"""For any other answer of DynamoDB: the state is unknown. Not 500, because nothing says that the zone is out."""

KEY, EXPIRY = "AZ-ID", "ExpiresAt"
"""Attributes that the table itself uses: its key, and when DynamoDB may delete an item."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_STAGE = re.compile(r"[A-Za-z0-9_-]{1,128}")
_API = {"Ref": "Api"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Options of the table and of the API in front of it."""

    table: str | None = None
    """Name of the table; None lets CloudFormation generate one."""
    table_exists: bool = False
    """Use an existing table: for the regions of a global table other than the first."""
    replicas: tuple[str, ...] = ()
    """Other regions that get a replica. The region of the stack always has the table, and is not listed here."""
    stage: str = "live"
    """First part of the path, which API Gateway requires; a custom domain hides it."""
    rate: int = 1000
    """Requests per second above which API Gateway answers 429. A health check of Route 53 sends two, a host that polls
    every five seconds a fifth: enough for some thousand hosts, and a limit for the bill."""
    burst: int = 1000
    """Concurrent requests, so that hosts that wake up together are served."""

    def __post_init__(self) -> None:
        if self.table is not None:
            require_match("table", self.table, _TABLE, "3 to 255 letters, digits and any of _.-")
        require_match("stage", self.stage, _STAGE, "1 to 128 letters, digits and any of _-")
        if self.stage == "status":  # in an address, it would look as if the path /status had been given
            raise InvalidValue("stage is 'status': expected another word than the one that follows it in the path")
        if self.table_exists and (self.table is None or self.replicas):
            raise InvalidValue("an existing table: expected its name, and no replicas, which its own stack defines")
        for region in self.replicas:
            require_match("replica", region, REGION, "a region like eu-west-1")
        if len(set(self.replicas)) < len(self.replicas):
            raise InvalidValue(f"replicas {', '.join(self.replicas)}: expected each region once")
        for name in ("rate", "burst"):
            if not 1 <= getattr(self, name) <= 1_000_000:
                raise InvalidValue(f"{name} is {getattr(self, name)}: expected 1 to 1000000 requests")


def build_gateway_template(options: GatewayOptions) -> Template:
    """Return the template of a status table and its API: `/status/{az-id}` and `/status/{az-id}/{workload}`.

    Items have the key `use1-az1` for all workloads, `use1-az1/shop` for one, and the attribute Healthy. Responses: 500
    if Healthy is false, 200 if it is true or the item is absent, 503 if that is unknown, 429 above the rate. A zone
    that is out for all is out for each workload. The endpoint is public: health checks cannot sign requests.
    """
    table = options.table if options.table_exists else {"Ref": "StatusTable"}
    methods = {
        f"{verb.title()}{route.path}": _build_method(verb, route, table)
        for route in _ROUTES
        for verb in ("GET", "HEAD")
    }
    methods["UnknownResponse"] = _build_unknown_response()
    # A deployment is a snapshot of the API. Under an unchanged name, CloudFormation would never deploy a new one.
    digest = hashlib.sha256(json.dumps(methods, sort_keys=True).encode()).hexdigest()[:12]
    deployment = f"Deployment{digest}"
    throttling = {"ThrottlingRateLimit": options.rate, "ThrottlingBurstLimit": options.burst}
    resources = {
        **({} if options.table_exists else {"StatusTable": _build_table(options)}),
        "ReadRole": _build_role(options),
        "Api": build_resource(
            "AWS::ApiGateway::RestApi",
            Name={"Fn::Sub": "${AWS::StackName}-status"},
            Description="Which availability zones are out.",
            EndpointConfiguration={"Types": ["REGIONAL"]},
        ),
        "StatusPath": _build_path({"Fn::GetAtt": ["Api", "RootResourceId"]}, "status"),
        "ZonePath": _build_path({"Ref": "StatusPath"}, "{az-id}"),
        "WorkloadPath": _build_path({"Ref": "ZonePath"}, "{workload}"),
        **methods,
        deployment: {**build_resource("AWS::ApiGateway::Deployment", RestApiId=_API), "DependsOn": list(methods)},
        "Stage": build_resource(
            "AWS::ApiGateway::Stage",
            RestApiId=_API,
            DeploymentId={"Ref": deployment},
            StageName=options.stage,
            MethodSettings=[{"HttpMethod": "*", "ResourcePath": "/*", **throttling}],
        ),
    }
    address = f"https://${{Api}}.execute-api.${{AWS::Region}}.${{AWS::URLSuffix}}/{options.stage}"
    outputs = {
        "Endpoint": {"Description": "The base address, for --endpoint.", "Value": {"Fn::Sub": address}},
        "TableName": {"Description": "Where to put and delete items.", "Value": table},
    }
    return new_template("Which zones are out, as items of a table, and over HTTPS.", resources, Outputs=outputs)


def _build_table(options: GatewayOptions) -> Template:
    recovery = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
    properties = {
        **({} if options.table is None else {"TableName": options.table}),
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        # Fallback if no server deletes expired items: DynamoDB deletes them within days, not seconds.
        "TimeToLiveSpecification": {"AttributeName": EXPIRY, "Enabled": True},
    }
    if options.replicas:
        regions: list[Any] = [{"Ref": "AWS::Region"}, *options.replicas]
        kind = "AWS::DynamoDB::GlobalTable"
        properties["Replicas"] = [{"Region": region, **recovery} for region in regions]
        # Replication needs it: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-globaltable.html
        properties["StreamSpecification"] = {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    else:
        kind = "AWS::DynamoDB::Table"
        properties |= recovery
    return build_retained_resource(kind, **properties)


def _build_role(options: GatewayOptions) -> Template:
    """Return the IAM role of API Gateway, which may only read this table."""
    own = {"Fn::GetAtt": ["StatusTable", "Arn"]}
    given = {"Fn::Sub": f"arn:${{AWS::Partition}}:dynamodb:${{AWS::Region}}:${{AWS::AccountId}}:table/{options.table}"}
    assumed = build_policy(Principal={"Service": "apigateway.amazonaws.com"}, Action="sts:AssumeRole")
    reading = build_policy(
        Action=["dynamodb:GetItem", "dynamodb:BatchGetItem"], Resource=given if options.table_exists else own
    )
    policies = [{"PolicyName": "read-status", "PolicyDocument": reading}]
    return build_resource("AWS::IAM::Role", AssumeRolePolicyDocument=assumed, Policies=policies)


def _build_path(parent: Template, part: str) -> Template:
    return build_resource("AWS::ApiGateway::Resource", RestApiId=_API, ParentId=parent, PathPart=part)


class _Route(NamedTuple):
    """A path, and the DynamoDB request that answers it."""

    path: str
    names: tuple[str, ...]
    action: str
    request_template: str
    response_template: str


_ROUTES = (
    _Route("ZonePath", ("az-id",), "GetItem", ZONE_REQUEST_TEMPLATE, ZONE_RESPONSE_TEMPLATE),
    _Route(
        "WorkloadPath", ("az-id", "workload"), "BatchGetItem", WORKLOAD_REQUEST_TEMPLATE, WORKLOAD_RESPONSE_TEMPLATE
    ),
)


def _build_method(verb: str, route: _Route, table: Any) -> Template:
    header = "method.response.header.Cache-Control"

    def reply(status: str, template: Any, **pattern: str) -> Template:
        return {
            "StatusCode": status,
            **pattern,
            "ResponseParameters": {header: "'no-store'"},
            "ResponseTemplates": {"application/json": template},
        }

    return build_resource(
        "AWS::ApiGateway::Method",
        RestApiId=_API,
        ResourceId={"Ref": route.path},
        HttpMethod=verb,
        AuthorizationType="NONE",
        RequestParameters={f"method.request.path.{name}": True for name in route.names},
        MethodResponses=[
            {"StatusCode": status, "ResponseParameters": {header: True}} for status in ("200", "500", "503")
        ],
        Integration={
            "Type": "AWS",
            "IntegrationHttpMethod": "POST",
            "Uri": {"Fn::Sub": f"arn:${{AWS::Partition}}:apigateway:${{AWS::Region}}:dynamodb:action/{route.action}"},
            "Credentials": {"Fn::GetAtt": ["ReadRole", "Arn"]},
            # Any other behaviour would pass the body of a request unchanged to DynamoDB.
            "PassthroughBehavior": "NEVER",
            "RequestTemplates": {"application/json": _fill(route.request_template, table)},
            "IntegrationResponses": [
                reply("200", _fill(route.response_template, table)),
                reply("503", ERROR_RESPONSE_TEMPLATE, SelectionPattern=r"[45]\d{2}"),
            ],
        },
    )


def _build_unknown_response() -> Template:
    """Return the response for failures of API Gateway itself: 503 instead of its 500, which means that a zone is out.

    DEFAULT_5XX covers all its server errors:
    https://docs.aws.amazon.com/apigateway/latest/developerguide/supported-gateway-response-types.html
    """
    return build_resource(
        "AWS::ApiGateway::GatewayResponse",
        RestApiId=_API,
        ResponseType="DEFAULT_5XX",
        StatusCode="503",
        ResponseTemplates={"application/json": ERROR_RESPONSE_TEMPLATE},
    )


def _fill(text: str, table: Any) -> Any:
    return {"Fn::Sub": [text, {"Table": table}]} if "${Table}" in text else text
