"""The IAM roles of functions, state machine and scheduler, each with the fewest permissions that it needs. Pure."""

from collections.abc import Sequence
from typing import Any

from holdfast.aurora.cluster import AUTOSCALING_PREFIX, AUTOSCALING_TAG
from holdfast.aurora.machine import Function
from holdfast.aurora.names import ALIAS, Names, Template, build_arn, build_resource, get_attribute

MACHINE_FUNCTIONS = (
    *(Function.MODIFY_INSTANCE, Function.CHECK_INSTANCE_STATUS, Function.GET_CLUSTER_INSTANCES),
    *(Function.FAILOVER_CLUSTER, Function.SEND_NOTIFICATION),
)
"""The functions that the state machine invokes."""
_INTERFACE_ACTIONS = (
    *("ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DeleteNetworkInterface"),
    *("ec2:DescribeSubnets", "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses"),
)


def build_scaling_role(names: Names, databases: Sequence[str], *, has_network: bool) -> Template:
    """Return the role of all functions but send-notification."""
    functions = [each for each in Function if each is not Function.SEND_NOTIFICATION]
    rule = build_arn("events", f"rule/{names.rule}")
    target = build_arn("lambda", f"function:{names.function(Function.SCHEDULE_SCALING)}:{ALIAS}")
    clusters = [build_arn("rds", f"cluster:{pattern}") for pattern in databases]
    statements = [
        _allow_logs(names, functions),
        *_allow_reading(databases),
        _allow("rds:ModifyDBInstance", [build_arn("rds", f"db:{pattern}") for pattern in databases]),
        # The ids of readers that Auto Scaling has created are random: their tag names the cluster.
        _allow(
            "rds:ModifyDBInstance",
            build_arn("rds", f"db:{AUTOSCALING_PREFIX}*"),
            StringLike={f"aws:ResourceTag/{AUTOSCALING_TAG}": [f"cluster:{pattern}" for pattern in databases]},
        ),
        _allow("rds:FailoverDBCluster", clusters),
        _allow("states:StartExecution", build_arn("states", f"stateMachine:{names.stack}")),
        _allow(["events:DescribeRule", "events:DisableRule", "events:PutRule"], rule),
        _allow("events:PutTargets", rule, **{"ForAllValues:ArnEquals": {"events:TargetArn": target}}),
        _allow_dead_letters(),
    ]
    if has_network:
        # Lambda itself uses them with the role of the function, and asks for all resources.
        statements.append(_allow(_INTERFACE_ACTIONS, "*"))
    return _build_role(names.role("lambda-scaling-role"), "lambda.amazonaws.com", statements)


def build_notification_role(names: Names, databases: Sequence[str]) -> Template:
    """Return the role of send-notification. It may release a lock, because an aborted execution cannot."""
    statements = [
        *_allow_reading(databases),
        _allow_logs(names, [Function.SEND_NOTIFICATION]),
        _allow("sns:Publish", build_arn("sns", names.stack)),
        _allow("dynamodb:DeleteItem", build_arn("dynamodb", f"table/{names.lock_table}")),
        _allow_dead_letters(),
    ]
    return _build_role(names.role("lambda-notification-role"), "lambda.amazonaws.com", statements)


def build_execution_role(names: Names) -> Template:
    """Return the role of the state machine."""
    # All versions: an execution in progress invokes those that it started with.
    functions = [build_arn("lambda", f"function:{names.function(each)}:*") for each in MACHINE_FUNCTIONS]
    lock = build_arn("dynamodb", f"table/{names.lock_table}")
    statements = [_allow("lambda:InvokeFunction", functions), _allow(["dynamodb:PutItem", "dynamodb:DeleteItem"], lock)]
    source = {"ArnEquals": {"aws:SourceArn": build_arn("states", f"stateMachine:{names.stack}")}}
    return _build_role(names.role("stepfunctions-execution-role"), "states.amazonaws.com", statements, **source)


def build_scheduler_role(names: Names) -> Template:
    """Return the role with which EventBridge Scheduler invokes schedule-scaling."""
    target = build_arn("lambda", f"function:{names.function(Function.SCHEDULE_SCALING)}:{ALIAS}")
    statements = [_allow("lambda:InvokeFunction", target), _allow_dead_letters()]
    source = {"ArnEquals": {"aws:SourceArn": build_arn("scheduler", f"schedule-group/{names.stack}")}}
    return _build_role(names.role("scheduler-role"), "scheduler.amazonaws.com", statements, **source)


def _allow(actions: str | Sequence[str], resources: Template | Sequence[Template] | str, **conditions: Any) -> Template:
    listed = actions if isinstance(actions, str) else list(actions)
    statement = {"Effect": "Allow", "Action": listed, "Resource": resources}
    return {**statement, "Condition": conditions} if conditions else statement


def _allow_reading(databases: Sequence[str]) -> list[Template]:
    return [
        _allow("rds:DescribeDBClusters", [build_arn("rds", f"cluster:{pattern}") for pattern in databases]),
        # Filtered by cluster, not by instance, so RDS asks for the right to describe all of them.
        _allow("rds:DescribeDBInstances", build_arn("rds", "db:*")),
    ]


def _allow_logs(names: Names, functions: Sequence[Function]) -> Template:
    groups = [build_arn("logs", f"log-group:/aws/lambda/{names.function(each)}:*") for each in functions]
    return _allow(["logs:CreateLogStream", "logs:PutLogEvents"], groups)


def _allow_dead_letters() -> Template:
    return _allow("sqs:SendMessage", get_attribute("DeadLetters"))


def _build_role(name: str, service: str, statements: Sequence[Template], **source: Any) -> Template:
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    if source:
        # Only our own resources may make the service use the role.
        source["StringEquals"] = {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        trust["Condition"] = source
    return build_resource(
        "AWS::IAM::Role",
        RoleName=name,
        AssumeRolePolicyDocument={"Version": "2012-10-17", "Statement": [trust]},
        Policies=[{"PolicyName": name, "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)}}],
    )
