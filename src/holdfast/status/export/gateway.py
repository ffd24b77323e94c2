"""A status endpoint without a server: API Gateway in front of a DynamoDB table, and nothing between them. Pure.

What API Gateway asks DynamoDB, and makes of the answer, is written in few words of the Velocity Template Language,
because API Gateway's dialect is documented by example:
https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-mapping-template-reference.html
CloudFormation puts in `${Table}`, a name without characters that matter, before anything is deployed.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast._errors import InvalidValue
from holdfast.status.export.template import REGION, Template, expect, new_template, policy, resource, retained

# Names in a path may contain anything. This escapes all that ends a string in JSON, and an apostrophe as \', which JSON
# does not know: so that is taken back, as the page above says. The result goes nowhere but into strings.
_ZONE = """#set($zone = $util.escapeJavaScript($input.params('az-id')).replaceAll("\\\\'", "'"))"""
_WORKLOAD = """#set($workload = $util.escapeJavaScript($input.params('workload')).replaceAll("\\\\'", "'"))"""

# The status may be overridden once, or API Gateway fails: hence the variable, and the override at the end.
# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-override-request-response-parameters.html
_ANSWER = """#if($status != 200)
#set($context.responseOverride.status = $status)
#end
{"healthy": $healthy}"""

ASK_FOR_ZONE = f"""{_ZONE}
{{"TableName": "${{Table}}", "Key": {{"AZ-ID": {{"S": "$zone"}}}}, "ConsistentRead": true,
"ProjectionExpression": "Healthy"}}"""
"""GetItem: is the zone out for all workloads?"""

ANSWER_FOR_ZONE = f"""#set($root = $input.path('$'))
#set($status = 200)
#set($healthy = true)
#if($root.Item.Healthy['BOOL'] == false)
#set($status = 500)
#set($healthy = false)
#end
{_ANSWER}"""
"""500 if an item says that the zone is not healthy; 200 if it says so, or there is none."""

ASK_FOR_WORKLOAD = f"""{_ZONE}
{_WORKLOAD}
{{"RequestItems": {{"${{Table}}": {{"Keys": [{{"AZ-ID": {{"S": "$zone"}}}}, {{"AZ-ID": {{"S": "$zone/$workload"}}}}],
"ConsistentRead": true, "ProjectionExpression": "Healthy"}}}}}}"""
"""BatchGetItem: is the zone out for all workloads, or for this one?"""

ANSWER_FOR_WORKLOAD = f"""#set($root = $input.path('$'))
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
{_ANSWER}"""
"""500 if either item says that the zone is not healthy; else 503 if DynamoDB left one of them out."""

ANSWER_FOR_ERROR = '{"healthy": null}'
"""For whatever else DynamoDB says: it is not known. Not 500, because nobody said that the zone is out."""

KEY, EXPIRY = "AZ-ID", "ExpiresAt"
"""Attributes that the table itself knows: its key, and when DynamoDB may delete an item."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_STAGE = re.compile(r"[A-Za-z0-9_-]{1,128}")
_API = {"Ref": "Api"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The table, and the API in front of it."""

    table: str | None = None
    """Its name; None leaves it to CloudFormation."""
    existing: bool = False
    """The table is there already: for the regions of a global table other than the first."""
    replicas: tuple[str, ...] = ()
    """Other regions that are to have the table. The region of the stack always has it, and is not named here."""
    stage: str = "live"
    """The first part of the path, which API Gateway insists on; a domain of one's own hides it."""
    rate: int = 1000
    """Requests a second before API Gateway answers 429. A health check of Route 53 makes two, a host that asks every
    five seconds a fifth: enough for some thousand hosts, and a bound for the bill."""
    burst: int = 1000
    """Requests at once, so that hosts that wake up together are served."""

    def __post_init__(self) -> None:
        if self.table is not None:
            expect("table", self.table, _TABLE, "3 to 255 letters, digits and any of _.-")
        expect("stage", self.stage, _STAGE, "1 to 128 letters, digits and any of _-")
        if self.stage == "status":  # as part of an address it looks as if more than the base was given
            raise InvalidValue("stage is 'status': expected another word than the one that follows it in the path")
        if self.existing and (self.table is None or self.replicas):
            raise InvalidValue("an existing table: expected its name, and no replicas, which belong to whoever made it")
        for region in self.replicas:
            expect("replica", region, REGION, "a region like eu-west-1")
        if len(set(self.replicas)) < len(self.replicas):
            raise InvalidValue(f"replicas {', '.join(self.replicas)}: each region once")
        for name in ("rate", "burst"):
            if not 1 <= getattr(self, name) <= 1_000_000:
                raise InvalidValue(f"{name} is {getattr(self, name)}: expected 1 to 1000000 requests")


def gateway_template(options: GatewayOptions) -> Template:
    """A table of statuses and `GET /status/{az-id}` and `GET /status/{az-id}/{workload}` that read it; HEAD as well.

    Items have the key `use1-az1` for all workloads, `use1-az1/shop` for one, and the attribute Healthy. Answers: 500
    if an item says false, 200 if it says true or is absent, 503 if that cannot be known, 429 above the rate. A zone
    that is out for all is out for each workload. Anybody may read it: health checks cannot sign.
    """
    table = options.table if options.existing else {"Ref": "StatusTable"}
    methods = {
        f"{verb.title()}{route.path}": _method(verb, route, table) for route in _ROUTES for verb in ("GET", "HEAD")
    }
    methods["UnknownResponse"] = _unknown()
    # A deployment is a picture of the API when it was made. Under the same name it would never be made again.
    picture = hashlib.sha256(json.dumps(methods, sort_keys=True).encode()).hexdigest()[:12]
    deployment = f"Deployment{picture}"
    throttling = {"ThrottlingRateLimit": options.rate, "ThrottlingBurstLimit": options.burst}
    resources = {
        **({} if options.existing else {"StatusTable": _table(options)}),
        "ReadRole": _role(options),
        "Api": resource(
            "AWS::ApiGateway::RestApi",
            Name={"Fn::Sub": "${AWS::StackName}-status"},
            Description="Which availability zones are out.",
            EndpointConfiguration={"Types": ["REGIONAL"]},
        ),
        "StatusPath": _path({"Fn::GetAtt": ["Api", "RootResourceId"]}, "status"),
        "ZonePath": _path({"Ref": "StatusPath"}, "{az-id}"),
        "WorkloadPath": _path({"Ref": "ZonePath"}, "{workload}"),
        **methods,
        deployment: {**resource("AWS::ApiGateway::Deployment", RestApiId=_API), "DependsOn": list(methods)},
        "Stage": resource(
            "AWS::ApiGateway::Stage",
            RestApiId=_API,
            DeploymentId={"Ref": deployment},
            StageName=options.stage,
            MethodSettings=[{"HttpMethod": "*", "ResourcePath": "/*", **throttling}],
        ),
    }
    address = f"https://${{Api}}.execute-api.${{AWS::Region}}.${{AWS::URLSuffix}}/{options.stage}"
    outputs = {
        "Endpoint": {"Description": "The base address, for --endpoint as it is.", "Value": {"Fn::Sub": address}},
        "TableName": {"Description": "Where to put and delete items.", "Value": table},
    }
    return new_template("Which zones are out, as items of a table, and over HTTPS.", resources, Outputs=outputs)


def _table(options: GatewayOptions) -> Template:
    recovery = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
    properties = {
        **({} if options.table is None else {"TableName": options.table}),
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        # A net below whoever brings zones back in: DynamoDB deletes what has expired within days, not seconds.
        "TimeToLiveSpecification": {"AttributeName": EXPIRY, "Enabled": True},
    }
    if options.replicas:
        regions: list[Any] = [{"Ref": "AWS::Region"}, *options.replicas]
        kind = "AWS::DynamoDB::GlobalTable"
        properties["Replicas"] = [{"Region": region, **recovery} for region in regions]
        # Replication reads it: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-globaltable.html
        properties["StreamSpecification"] = {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    else:
        kind = "AWS::DynamoDB::Table"
        properties |= recovery
    return retained(kind, **properties)


def _role(options: GatewayOptions) -> Template:
    """Who API Gateway is to DynamoDB: somebody who can read this table, and nothing else."""
    made = {"Fn::GetAtt": ["StatusTable", "Arn"]}
    found = {"Fn::Sub": f"arn:${{AWS::Partition}}:dynamodb:${{AWS::Region}}:${{AWS::AccountId}}:table/{options.table}"}
    assumed = policy(Principal={"Service": "apigateway.amazonaws.com"}, Action="sts:AssumeRole")
    reading = policy(Action=["dynamodb:GetItem", "dynamodb:BatchGetItem"], Resource=found if options.existing else made)
    policies = [{"PolicyName": "read-status", "PolicyDocument": reading}]
    return resource("AWS::IAM::Role", AssumeRolePolicyDocument=assumed, Policies=policies)


def _path(parent: Template, part: str) -> Template:
    return resource("AWS::ApiGateway::Resource", RestApiId=_API, ParentId=parent, PathPart=part)


class _Route(NamedTuple):
    """A path, and what DynamoDB is asked there."""

    path: str
    names: tuple[str, ...]
    action: str
    ask: str
    answer: str


_ROUTES = (
    _Route("ZonePath", ("az-id",), "GetItem", ASK_FOR_ZONE, ANSWER_FOR_ZONE),
    _Route("WorkloadPath", ("az-id", "workload"), "BatchGetItem", ASK_FOR_WORKLOAD, ANSWER_FOR_WORKLOAD),
)


def _method(verb: str, route: _Route, table: Any) -> Template:
    header = "method.response.header.Cache-Control"

    def reply(status: str, template: Any, **pattern: str) -> Template:
        return {
            "StatusCode": status,
            **pattern,
            "ResponseParameters": {header: "'no-store'"},
            "ResponseTemplates": {"application/json": template},
        }

    return resource(
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
            # Anything else would hand the body of a request on to DynamoDB as it is.
            "PassthroughBehavior": "NEVER",
            "RequestTemplates": {"application/json": _filled(route.ask, table)},
            "IntegrationResponses": [
                reply("200", _filled(route.answer, table)),
                reply("503", ANSWER_FOR_ERROR, SelectionPattern=r"[45]\d{2}"),
            ],
        },
    )


def _unknown() -> Template:
    """What API Gateway says when it fails itself: not 500, as it would, because that means that a zone is out.

    This one stands for all its server errors:
    https://docs.aws.amazon.com/apigateway/latest/developerguide/supported-gateway-response-types.html
    """
    return resource(
        "AWS::ApiGateway::GatewayResponse",
        RestApiId=_API,
        ResponseType="DEFAULT_5XX",
        StatusCode="503",
        ResponseTemplates={"application/json": ANSWER_FOR_ERROR},
    )


def _filled(text: str, table: Any) -> Any:
    return {"Fn::Sub": [text, {"Table": table}]} if "${Table}" in text else text
