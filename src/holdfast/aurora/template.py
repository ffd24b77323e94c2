"""The CloudFormation template of everything that a run needs. Pure.

All names begin with a prefix, so ARNs are built from names: schedule-scaling knows the state machine, which knows the
functions, without circular references. The state machine invokes published versions, and old ones stay, so that an
execution in progress keeps the code that it started with.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast._errors import InvalidValue
from holdfast.aurora.cluster import AUTOSCALING_PATTERN
from holdfast.aurora.machine import SERVICE_CALLS, TIMEOUTS, Function, Resources, build_machine
from holdfast.aurora.names import (
    ALIAS,
    Names,
    Template,
    build_arn,
    build_resource,
    check_prefix,
    get_attribute,
    get_logical_id,
    refer,
)
from holdfast.aurora.network import build_network
from holdfast.aurora.roles import (
    MACHINE_FUNCTIONS,
    build_execution_role,
    build_notification_role,
    build_scaling_role,
    build_scheduler_role,
)
from holdfast.aurora.schedule import DELIVERY, MAX_EVENT_AGE

RUNTIME = "python3.13"
MEMORY = 256
"""Megabytes. boto3 takes about 100; more memory also means more CPU, and so a faster cold start."""
MAX_NOTIFICATION_AGE = 21_600
"""Seconds, the most that Lambda offers. A late notification is better than none."""
LOG_RETENTION = 90
"""Days."""
DEAD_LETTER_RETENTION = 1_209_600
"""Seconds, the most that SQS offers: two weeks."""
PLACEHOLDER_SCHEDULE = "cron(0 0 1 1 ? 2199)"
"""The schedule of the rule until update-schedule sets another one."""
_DATABASE = re.compile(r"[a-z][a-z0-9-]{0,62}\*?")
_SUBNET, _SECURITY_GROUP = re.compile(r"subnet-[0-9a-f]{8,17}"), re.compile(r"sg-[0-9a-f]{8,17}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_OUTSIDE_NETWORK = (Function.UPDATE_SCHEDULE, Function.SEND_NOTIFICATION)


class Network(StrEnum):
    """Where the functions run that call RDS, Step Functions and EventBridge."""

    NEW = "new"
    """In a new VPC."""
    EXISTING = "existing"
    """In given subnets."""
    NONE = "none"
    """In no VPC: no function connects to a database, so none is needed."""


class Scheduler(StrEnum):
    """The service of AWS that starts runs on a schedule."""

    RULE = "rule"
    """A rule of EventBridge, for one schedule."""
    SCHEDULER = "scheduler"
    """EventBridge Scheduler beside the rule, for several schedules with time zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """The choices that a template is built from."""

    prefix: str
    """Begins the name of every resource."""
    network: Network
    subnets: tuple[str, ...] = ()
    """For an existing network: subnets that reach RDS, Logs, Step Functions and EventBridge."""
    security_groups: tuple[str, ...] = ()
    """For an existing network: groups that allow HTTPS to these services."""
    scheduler: Scheduler = Scheduler.RULE
    databases: tuple[str, ...] = ()
    """Ids of the clusters and instances that runs may change, perhaps with `*` at the end. None means `<prefix>-*`."""
    email: str | None = None
    """An address for notifications. Its owner has to confirm."""
    autoscaling_pattern: str = AUTOSCALING_PATTERN
    """A regular expression for the ids of autoscaling readers that Application Auto Scaling has not created."""

    def __post_init__(self) -> None:
        check_prefix(self.prefix)
        _require("database", self.databases, _DATABASE, "the id of a cluster or instance, perhaps with * at its end")
        _require("subnet", self.subnets, _SUBNET, "an id such as subnet-0123abcd")
        _require("security group", self.security_groups, _SECURITY_GROUP, "an id such as sg-0123abcd")
        _require("email", [] if self.email is None else [self.email], _EMAIL, "an address such as ops@example.com")
        if self.network is Network.EXISTING and not (self.subnets and self.security_groups):
            raise InvalidValue("network is existing: give at least one subnet and one security group")
        if self.network is not Network.EXISTING and (self.subnets or self.security_groups):
            raise InvalidValue(f"subnets and security groups need an existing network, and network is {self.network}")
        try:
            re.compile(self.autoscaling_pattern)
        except re.error as error:
            raise InvalidValue(f"autoscaling pattern {self.autoscaling_pattern!r} is not valid: {error}") from error


def build_template(options: TemplateOptions, code_key: str) -> Template:
    """Return the template. `code_key` is the key of the zip in the bucket, and changes with the content of the zip."""
    return _Builder(options, code_key).build()


class _Builder:
    def __init__(self, options: TemplateOptions, code_key: str) -> None:
        self._options = options
        self._code_key = code_key
        self._names = Names(options.prefix)
        self._network: Template | None = None
        self._resources: Template = {}
        self._versions: dict[Function, str] = {}

    def build(self) -> Template:
        parameters = {"CodeBucket": {"Type": "String", "Description": "The bucket with the zip of the functions"}}
        conditions = {}
        if self._options.network is Network.NEW:
            self._network, self._resources = build_network()
            conditions["IsChina"] = {"Fn::Equals": [refer("AWS::Partition"), "aws-cn"]}
        elif self._options.network is Network.EXISTING:
            # Typed parameters, so that CloudFormation checks that the ids exist.
            for name, kind, ids in (
                ("Subnets", "AWS::EC2::Subnet::Id", self._options.subnets),
                ("SecurityGroups", "AWS::EC2::SecurityGroup::Id", self._options.security_groups),
            ):
                parameters[name] = {"Type": f"List<{kind}>", "Default": ",".join(ids)}
            self._network = {"SubnetIds": refer("Subnets"), "SecurityGroupIds": refer("SecurityGroups")}
        self._add_roles()
        for function in Function:
            self._add_function(function)
        self._add_machine()
        self._add_events()
        self._add_alarms()
        return {
            "AWSTemplateFormatVersion": "2010-09-09",
            "Description": f"Changes the instance class of Aurora clusters on a schedule ({self._options.prefix})",
            "Parameters": parameters,
            **({"Conditions": conditions} if conditions else {}),
            "Resources": self._resources,
            "Outputs": self._build_outputs(),
        }

    def _add(self, logical_id: str, kind: str, **properties: Any) -> None:
        self._resources[logical_id] = build_resource(kind, **properties)

    def _add_roles(self) -> None:
        databases = self._options.databases or (f"{self._options.prefix}-*",)
        self._resources |= {
            "LambdaScalingRole": build_scaling_role(self._names, databases, has_network=self._network is not None),
            "LambdaNotificationRole": build_notification_role(self._names, databases),
            "ExecutionRole": build_execution_role(self._names),
        }
        if self._options.scheduler is Scheduler.SCHEDULER:
            self._resources["SchedulerRole"] = build_scheduler_role(self._names)
            self._add("ScheduleGroup", "AWS::Scheduler::ScheduleGroup", Name=self._names.stack)

    def _add_function(self, function: Function) -> None:
        name, logical_id = self._names.function(function), get_logical_id(function)
        role = "LambdaNotificationRole" if function is Function.SEND_NOTIFICATION else "LambdaScalingRole"
        properties = {
            "FunctionName": name,
            "Handler": f"holdfast.aurora.lambdas.{function.replace('-', '_')}",
            "Runtime": RUNTIME,
            "MemorySize": MEMORY,
            "Timeout": TIMEOUTS[function],
            "Role": get_attribute(role),
            "Code": {"S3Bucket": refer("CodeBucket"), "S3Key": self._code_key},
            "Environment": {"Variables": self._build_environment(function)},
            "LoggingConfig": {"LogGroup": refer(f"{logical_id}Logs")},
        }
        if self._network is not None and function not in _OUTSIDE_NETWORK:
            properties["VpcConfig"] = self._network
        self._add(
            f"{logical_id}Logs",
            "AWS::Logs::LogGroup",
            LogGroupName=f"/aws/lambda/{name}",
            RetentionInDays=LOG_RETENTION,
        )
        self._add(logical_id, "AWS::Lambda::Function", **properties)
        # CloudFormation publishes a version once for each name: the name changes with everything that a version keeps.
        kept = [properties, self._options.subnets, self._options.security_groups]
        digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]
        version = self._versions[function] = f"{logical_id}Version{digest}"
        self._add(version, "AWS::Lambda::Version", FunctionName=refer(logical_id))
        self._resources[version] |= {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain"}
        self._add(
            f"{logical_id}Alias",
            "AWS::Lambda::Alias",
            Name=ALIAS,
            FunctionName=refer(logical_id),
            FunctionVersion=get_attribute(version, "Version"),
        )

    def _build_environment(self, function: Function) -> Template:
        names = self._names
        target = f"function:{names.function(Function.SCHEDULE_SCALING)}:{ALIAS}"
        pattern = {"AUTOSCALING_PATTERN": self._options.autoscaling_pattern}
        special: dict[Function, Template] = {
            Function.UPDATE_SCHEDULE: {
                "RULE_NAME": names.rule,
                "SCHEDULE_SCALING_ARN": build_arn("lambda", target),
                "DEAD_LETTER_ARN": get_attribute("DeadLetters"),
            },
            Function.SCHEDULE_SCALING: {
                "RULE_NAME": names.rule,
                "STATE_MACHINE_ARN": build_arn("states", f"stateMachine:{names.stack}"),
                **pattern,
            },
            Function.SEND_NOTIFICATION: {"TOPIC_ARN": refer("Topic"), "LOCK_TABLE": refer("LockTable")},
        }
        return special.get(function, pattern)

    def _add_machine(self) -> None:
        self._add(
            "LockTable",
            "AWS::DynamoDB::Table",
            TableName=self._names.lock_table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "lockId", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "lockId", "KeyType": "HASH"}],
            TimeToLiveSpecification={"AttributeName": "expiresAt", "Enabled": True},
        )
        functions = {function: get_logical_id(function) for function in MACHINE_FUNCTIONS}
        # `LambdaInvoke` for `lambda:invoke`
        services = {each: "".join(part[0].upper() + part[1:] for part in each.split(":")) for each in SERVICE_CALLS}
        placeholders = Resources(
            functions={function: f"${{{name}}}" for function, name in functions.items()},
            lock_table="${LockTable}",
            services={service: f"${{{name}}}" for service, name in services.items()},
        )
        self._add(
            "StateMachine",
            "AWS::StepFunctions::StateMachine",
            StateMachineName=self._names.stack,
            StateMachineType="STANDARD",
            RoleArn=get_attribute("ExecutionRole"),
            Definition=build_machine(placeholders),
            DefinitionSubstitutions={
                **{name: refer(self._versions[function]) for function, name in functions.items()},
                "LockTable": refer("LockTable"),
                **{
                    name: {"Fn::Sub": f"arn:${{AWS::Partition}}:states:::{service}"}
                    for service, name in services.items()
                },
            },
        )
        for function, name in functions.items():
            self._allow_invocation(f"{name}Permission", self._versions[function], get_attribute("ExecutionRole"))

    def _allow_invocation(self, name: str, target: str, principal: Any, **source: Any) -> None:
        self._add(
            name,
            "AWS::Lambda::Permission",
            Action="lambda:InvokeFunction",
            FunctionName=refer(target),
            Principal=principal,
            **source,
        )

    def _add_events(self) -> None:
        """Add the rules, the topic, and the queue of events that could not be handled."""
        self._add("Topic", "AWS::SNS::Topic", TopicName=self._names.stack)
        if self._options.email is not None:
            self._add(
                "Subscription",
                "AWS::SNS::Subscription",
                TopicArn=refer("Topic"),
                Protocol="email",
                Endpoint=self._options.email,
            )
        self._add(
            "DeadLetters",
            "AWS::SQS::Queue",
            QueueName=self._names.dead_letters,
            MessageRetentionPeriod=DEAD_LETTER_RETENTION,
            SqsManagedSseEnabled=True,
        )
        machine = build_arn("states", f"stateMachine:{self._names.stack}")
        self._add_rule(
            "ScheduleRule",
            self._names.rule,
            Function.SCHEDULE_SCALING,
            MAX_EVENT_AGE,
            State="DISABLED",
            ScheduleExpression=PLACEHOLDER_SCHEDULE,
        )
        self._add_rule(
            "EndedRule",
            self._names.ended_rule,
            Function.SEND_NOTIFICATION,
            MAX_NOTIFICATION_AGE,
            EventPattern={
                "source": ["aws.states"],
                "detail-type": ["Step Functions Execution Status Change"],
                "detail": {"status": ["FAILED", "ABORTED", "TIMED_OUT"], "stateMachineArn": [machine]},
            },
        )
        rules = [build_arn("events", f"rule/{name}") for name in (self._names.rule, self._names.ended_rule)]
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": get_attribute("DeadLetters"),
            "Condition": {"ArnEquals": {"aws:SourceArn": rules}},
        }
        self._add(
            "DeadLettersPolicy",
            "AWS::SQS::QueuePolicy",
            Queues=[refer("DeadLetters")],
            PolicyDocument={"Version": "2012-10-17", "Statement": [statement]},
        )

    def _add_rule(self, logical_id: str, name: str, function: Function, max_age: int, **properties: Any) -> None:
        """Add a rule that invokes a function. After `max_age` seconds an event goes to the dead letters."""
        alias = f"{get_logical_id(function)}Alias"
        dead_letters = get_attribute("DeadLetters")
        target = {
            "Id": function,  # update-schedule replaces the target with this id
            "Arn": refer(alias),
            "RetryPolicy": {**DELIVERY, "MaximumEventAgeInSeconds": max_age},
            "DeadLetterConfig": {"Arn": dead_letters},
        }
        self._add(logical_id, "AWS::Events::Rule", Name=name, Targets=[target], **properties)
        self._allow_invocation(
            f"{logical_id}Permission", alias, "events.amazonaws.com", SourceArn=get_attribute(logical_id)
        )
        self._add(
            f"{logical_id}Invocations",
            "AWS::Lambda::EventInvokeConfig",
            FunctionName=refer(get_logical_id(function)),
            Qualifier=ALIAS,
            MaximumEventAgeInSeconds=max_age,
            MaximumRetryAttempts=2,
            DestinationConfig={"OnFailure": {"Destination": dead_letters}},
        )
        self._resources[f"{logical_id}Invocations"]["DependsOn"] = alias

    def _add_alarms(self) -> None:
        machine = {"Name": "StateMachineArn", "Value": refer("StateMachine")}
        queue = {"Name": "QueueName", "Value": get_attribute("DeadLetters", "QueueName")}
        for name, namespace, metric, statistic, dimension in (
            ("FailedAlarm", "AWS/States", "ExecutionsFailed", "Sum", machine),
            ("TimedOutAlarm", "AWS/States", "ExecutionsTimedOut", "Sum", machine),
            ("DeadLettersAlarm", "AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", queue),
        ):
            self._add(
                name,
                "AWS::CloudWatch::Alarm",
                Namespace=namespace,
                MetricName=metric,
                Dimensions=[dimension],
                Statistic=statistic,
                Period=300,
                EvaluationPeriods=1,
                Threshold=1,
                ComparisonOperator="GreaterThanOrEqualToThreshold",
                TreatMissingData="notBreaching",
                AlarmActions=[refer("Topic")],
            )

    def _build_outputs(self) -> Template:
        outputs = {
            "StateMachineArn": refer("StateMachine"),
            "TopicArn": refer("Topic"),
            "LockTable": refer("LockTable"),
            "RuleName": refer("ScheduleRule"),
            "UpdateScheduleArn": refer("UpdateScheduleAlias"),
            "ScheduleScalingArn": refer("ScheduleScalingAlias"),
            "DeadLettersArn": get_attribute("DeadLetters"),
            "AutoscalingPattern": self._options.autoscaling_pattern,
        }
        if self._options.scheduler is Scheduler.SCHEDULER:
            outputs |= {"ScheduleGroup": refer("ScheduleGroup"), "SchedulerRoleArn": get_attribute("SchedulerRole")}
        if self._options.network is Network.NEW:
            subnets = [refer(f"AuroraSubnet{zone}") for zone in (1, 2, 3)]
            outputs |= {"VpcId": refer("Vpc"), "AuroraSubnetIds": {"Fn::Join": [",", subnets]}}
        return {name: {"Value": value} for name, value in outputs.items()}


def _require(name: str, values: Iterable[str], pattern: re.Pattern[str], expected: str) -> None:
    for value in values:
        if not pattern.fullmatch(value):
            raise InvalidValue(f"{name} is {value!r}: expected {expected}")
