"""The CloudFormation template: functions, state machine, events, roles and network."""

import json
import re
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.aurora.machine import TIMEOUTS, Function
from holdfast.aurora.names import Names
from holdfast.aurora.schedule import MAX_EVENT_AGE
from holdfast.aurora.template import Network, Scheduler, TemplateOptions, build_template
from tests.table import every_row

EXISTING = {"subnets": ("subnet-0123abcd",), "security_groups": ("sg-0123abcd",)}


def build(network: Network = Network.NONE, code_key: str = "code.zip", **options: Any) -> dict[str, Any]:
    given = {**(EXISTING if network is Network.EXISTING else {}), **options}
    return build_template(TemplateOptions(prefix="shop", network=network, **given), code_key)


def find(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the properties of all resources of a type, by their logical ids."""
    return {
        name: resource["Properties"] for name, resource in template["Resources"].items() if resource["Type"] == kind
    }


def find_references(value: Any) -> Iterator[str]:
    """Yield the logical ids that a part of a template refers to."""
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case {"Fn::Sub": str(text)}:
            yield from re.findall(r"\$\{(\w+)[.}]", text)
        case dict():
            for part in value.values():
                yield from find_references(part)
        case list():
            for part in value:
                yield from find_references(part)


def statements(template: Mapping[str, Any], role: str) -> dict[str, list[Any]]:
    """Return what a role may do: the resources of each action, without account and region."""
    found: dict[str, list[Any]] = {}
    for statement in template["Resources"][role]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]:
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        for action in actions:
            found.setdefault(action, []).extend(
                each["Fn::Sub"].split(":", 5)[5].removeprefix(":AccountId}:").split("AccountId}:")[-1]
                if isinstance(each, dict) and "Fn::Sub" in each
                else each
                for each in resources
            )
    return found


def test_no_resource_needs_another_that_needs_it() -> None:
    for network in Network:
        resources = build(network, scheduler=Scheduler.SCHEDULER, email="ops@example.com")["Resources"]
        graph = {
            name: {each for each in find_references(resource["Properties"]) if each in resources}
            for name, resource in resources.items()
        }
        assert len(list(TopologicalSorter(graph).static_order())) == len(resources)


def test_every_reference_has_something_to_refer_to() -> None:
    for network in Network:
        template = build(network, scheduler=Scheduler.SCHEDULER)
        known = {*template["Resources"], *template["Parameters"]}
        names = {name for name in find_references(template) if not name.startswith("AWS")}
        placeholders = template["Resources"]["StateMachine"]["Properties"]["DefinitionSubstitutions"]
        assert names <= known
        definition = json.dumps(template["Resources"]["StateMachine"]["Properties"]["Definition"])
        assert set(re.findall(r"\$\{(\w+)\}", definition)) == set(placeholders)


def test_seven_functions_have_their_timeouts_and_handlers() -> None:
    functions = find(build(), "AWS::Lambda::Function").values()
    assert {each["FunctionName"]: each["Timeout"] for each in functions} == {
        f"shop-{function}": seconds for function, seconds in TIMEOUTS.items()
    }
    assert "holdfast.aurora.lambdas.modify_instance" in {each["Handler"] for each in functions}


@pytest.mark.parametrize("network", list(Network))
def test_all_functions_but_the_first_and_the_last_are_inside_the_network(network: Network) -> None:
    inside = {
        name
        for name, each in find(build(network), "AWS::Lambda::Function").items()
        if each.get("VpcConfig") is not None
    }
    expected = {"ScheduleScaling", "ModifyInstance", "CheckInstanceStatus", "GetClusterInstances", "FailoverCluster"}
    assert inside == (set() if network is Network.NONE else expected)


def test_each_function_gets_the_variables_that_it_reads() -> None:
    variables = {
        name: set(each["Environment"]["Variables"]) for name, each in find(build(), "AWS::Lambda::Function").items()
    }
    pattern = {"AUTOSCALING_PATTERN"}
    assert variables == {
        "UpdateSchedule": {"RULE_NAME", "SCHEDULE_SCALING_ARN", "DEAD_LETTER_ARN"},
        "ScheduleScaling": {"RULE_NAME", "STATE_MACHINE_ARN", *pattern},
        "ModifyInstance": pattern,
        "CheckInstanceStatus": pattern,
        "GetClusterInstances": pattern,
        "FailoverCluster": pattern,
        "SendNotification": {"TOPIC_ARN", "LOCK_TABLE"},
    }


def test_a_version_is_published_when_the_code_or_the_settings_of_a_function_change_and_only_then() -> None:
    versions = set(find(build(), "AWS::Lambda::Version"))
    assert len(versions) == len(Function)
    assert set(find(build(email="ops@example.com", scheduler=Scheduler.SCHEDULER), "AWS::Lambda::Version")) == versions
    assert not versions & set(find(build(code_key="other.zip"), "AWS::Lambda::Version"))
    other_pattern = set(find(build(autoscaling_pattern="x"), "AWS::Lambda::Version"))
    assert len(versions - other_pattern) == 5
    existing = set(find(build(Network.EXISTING), "AWS::Lambda::Version"))
    assert existing != set(find(build(Network.EXISTING, subnets=("subnet-99999999",)), "AWS::Lambda::Version"))


def test_a_run_keeps_its_code_because_the_machine_invokes_versions_that_stay() -> None:
    template = build()
    placeholders = template["Resources"]["StateMachine"]["Properties"]["DefinitionSubstitutions"]
    version = placeholders["ModifyInstance"]["Ref"]
    assert version in find(template, "AWS::Lambda::Version")
    assert template["Resources"][version]["DeletionPolicy"] == "RetainExceptOnCreate"
    assert template["Resources"][version]["UpdateReplacePolicy"] == "Retain"
    events = find(template, "AWS::Events::Rule").values()
    assert {each["Targets"][0]["Arn"]["Ref"] for each in events} == {"ScheduleScalingAlias", "SendNotificationAlias"}


def test_the_rule_that_starts_runs_is_disabled_and_gives_late_events_to_the_dead_letters() -> None:
    rule = find(build(), "AWS::Events::Rule")["ScheduleRule"]
    assert (rule["Name"], rule["State"]) == ("shop-schedule-scaling", "DISABLED")
    [target] = rule["Targets"]
    assert target["Id"] == "schedule-scaling"
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] == MAX_EVENT_AGE
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": ["DeadLetters", "Arn"]}}


def test_ends_that_cannot_notify_are_noticed_from_outside() -> None:
    pattern = find(build(), "AWS::Events::Rule")["EndedRule"]["EventPattern"]
    assert pattern["source"] == ["aws.states"]
    assert pattern["detail-type"] == ["Step Functions Execution Status Change"]
    assert pattern["detail"]["status"] == ["FAILED", "ABORTED", "TIMED_OUT"]
    [machine] = pattern["detail"]["stateMachineArn"]
    assert machine["Fn::Sub"].endswith(":stateMachine:shop-scaling")
    alarms = find(build(), "AWS::CloudWatch::Alarm").values()
    assert {each["MetricName"] for each in alarms} >= {"ExecutionsFailed", "ExecutionsTimedOut"}


def test_only_the_machine_and_the_rules_may_invoke_functions() -> None:
    permissions = find(build(), "AWS::Lambda::Permission")
    by_machine = {name for name, each in permissions.items() if each["Principal"] != "events.amazonaws.com"}
    assert by_machine == {
        f"{name}Permission"
        for name in (
            *("ModifyInstance", "CheckInstanceStatus", "GetClusterInstances", "FailoverCluster", "SendNotification"),
        )
    }
    assert all(permissions[name]["Principal"] == {"Fn::GetAtt": ["ExecutionRole", "Arn"]} for name in by_machine)
    for rule in ("ScheduleRule", "EndedRule"):
        assert permissions[f"{rule}Permission"]["SourceArn"] == {"Fn::GetAtt": [rule, "Arn"]}


def test_the_scaling_role_is_limited_to_the_databases_the_machine_and_the_rule() -> None:
    allowed = statements(build(), "LambdaScalingRole")
    assert allowed["rds:ModifyDBInstance"] == ["db:shop-*", "db:application-autoscaling-*"]
    assert allowed["rds:FailoverDBCluster"] == ["cluster:shop-*"]
    assert allowed["states:StartExecution"] == ["stateMachine:shop-scaling"]
    assert allowed["events:PutTargets"] == ["rule/shop-schedule-scaling"]
    assert "sns:Publish" not in allowed
    assert not any(action.startswith("ec2:") for action in allowed)
    assert "ec2:CreateNetworkInterface" in statements(build(Network.NEW), "LambdaScalingRole")
    other = statements(build(databases=("orders", "cart*")), "LambdaScalingRole")
    assert other["rds:FailoverDBCluster"] == ["cluster:orders", "cluster:cart*"]


def test_readers_of_auto_scaling_are_recognised_by_the_cluster_in_their_tag() -> None:
    [document] = find(build(), "AWS::IAM::Role")["LambdaScalingRole"]["Policies"]
    [condition] = [
        each["Condition"]
        for each in document["PolicyDocument"]["Statement"]
        if each["Action"] == "rds:ModifyDBInstance" and "Condition" in each
    ]
    assert condition == {"StringLike": {"aws:ResourceTag/application-autoscaling:resourceId": ["cluster:shop-*"]}}


def test_the_documentation_counts_the_resources_of_its_example() -> None:
    page = Path(__file__).parents[3] / "docs/how-to/aurora-deploy.md"
    resources = build(Network.NONE, email="ops@example.com")["Resources"]
    assert f"Make these {len(resources)} changes to stack shop-scaling?" in page.read_text()


def test_the_notification_role_lists_instances_publishes_and_releases_locks_and_can_do_no_more() -> None:
    allowed = statements(build(), "LambdaNotificationRole")
    assert allowed.pop("sqs:SendMessage") == [{"Fn::GetAtt": ["DeadLetters", "Arn"]}]
    logs = ["log-group:/aws/lambda/shop-send-notification:*"]
    assert allowed == {
        "logs:CreateLogStream": logs,
        "logs:PutLogEvents": logs,
        "sns:Publish": ["shop-scaling"],
        "rds:DescribeDBClusters": ["cluster:shop-*"],
        "rds:DescribeDBInstances": ["db:*"],
        "dynamodb:DeleteItem": ["table/shop-scaling-lock"],
    }


def test_the_execution_role_invokes_five_functions_and_uses_the_lock() -> None:
    allowed = statements(build(), "ExecutionRole")
    assert set(allowed) == {"lambda:InvokeFunction", "dynamodb:PutItem", "dynamodb:DeleteItem"}
    assert "function:shop-modify-instance:*" in allowed["lambda:InvokeFunction"]
    assert not any("schedule" in each for each in allowed["lambda:InvokeFunction"])
    [trust] = find(build(), "AWS::IAM::Role")["ExecutionRole"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "states.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}


def test_the_scheduler_has_a_group_and_a_role_when_it_is_chosen() -> None:
    assert not find(build(), "AWS::Scheduler::ScheduleGroup")
    template = build(scheduler=Scheduler.SCHEDULER)
    assert find(template, "AWS::Scheduler::ScheduleGroup")["ScheduleGroup"] == {"Name": "shop-scaling"}
    assert statements(template, "SchedulerRole")["lambda:InvokeFunction"] == ["function:shop-schedule-scaling:live"]
    assert {"ScheduleGroup", "SchedulerRoleArn"} <= set(template["Outputs"])


def test_the_lock_table_has_its_key_and_forgets_expired_locks() -> None:
    [table] = find(build(), "AWS::DynamoDB::Table").values()
    assert table["KeySchema"] == [{"AttributeName": "lockId", "KeyType": "HASH"}]
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expiresAt", "Enabled": True}


def test_an_address_subscribes_to_the_topic() -> None:
    assert not find(build(), "AWS::SNS::Subscription")
    [subscription] = find(build(email="ops@example.com"), "AWS::SNS::Subscription").values()
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")


def test_the_new_network_has_the_subnets_gateways_and_endpoints_of_the_plan() -> None:
    template = build(Network.NEW)
    assert find(template, "AWS::EC2::VPC")["Vpc"]["CidrBlock"] == "10.0.0.0/16"
    zones = {
        name: each["AvailabilityZone"]["Fn::Select"][0] + 1 for name, each in find(template, "AWS::EC2::Subnet").items()
    }
    assert zones == {
        **{f"PublicSubnet{zone}": zone for zone in (1, 2)},
        **{f"AuroraSubnet{zone}": zone for zone in (1, 2, 3)},
        **{f"LambdaSubnet{zone}": zone for zone in (1, 2, 3)},
    }
    assert len({each["CidrBlock"] for each in find(template, "AWS::EC2::Subnet").values()}) == len(zones)
    routes = {
        each["RouteTableId"]["Ref"]: (each.get("NatGatewayId") or each["GatewayId"])["Ref"]
        for each in find(template, "AWS::EC2::Route").values()
    }
    # The third subnet of the functions and those of Aurora have no way out.
    assert routes == {
        "PublicRoutes": "InternetGateway",
        "LambdaRoutes1": "NatGateway1",
        "LambdaRoutes2": "NatGateway2",
    }
    endpoints = find(template, "AWS::EC2::VPCEndpoint")
    assert set(endpoints) == {"RdsEndpoint", "LogsEndpoint", "StatesEndpoint", "EventsEndpoint"}
    assert endpoints["LogsEndpoint"]["ServiceName"] == {"Fn::Sub": "com.amazonaws.${AWS::Region}.logs"}
    assert endpoints["RdsEndpoint"]["ServiceName"]["Fn::If"][1:] == [
        {"Fn::Sub": "cn.com.amazonaws.${AWS::Region}.rds"},
        {"Fn::Sub": "com.amazonaws.${AWS::Region}.rds"},
    ]
    groups = find(template, "AWS::EC2::SecurityGroup")
    assert "SecurityGroupIngress" not in groups["LambdaSecurityGroup"]
    [ingress] = groups["EndpointSecurityGroup"]["SecurityGroupIngress"]
    assert (ingress["FromPort"], ingress["ToPort"]) == (443, 443)
    assert ingress["SourceSecurityGroupId"] == {"Ref": "LambdaSecurityGroup"}


def test_an_existing_network_is_checked_by_typed_parameters() -> None:
    parameters = build(Network.EXISTING, subnets=("subnet-11111111", "subnet-22222222"))["Parameters"]
    assert parameters["Subnets"] == {
        "Type": "List<AWS::EC2::Subnet::Id>",
        "Default": "subnet-11111111,subnet-22222222",
    }
    assert parameters["SecurityGroups"]["Default"] == "sg-0123abcd"


def test_it_can_be_deployed_in_every_partition() -> None:
    for network in Network:
        assert "arn:aws" not in json.dumps(build(network, scheduler=Scheduler.SCHEDULER))


def test_names_are_those_that_commands_look_for() -> None:
    names = Names("shop")
    assert (names.stack, names.rule) == ("shop-scaling", "shop-schedule-scaling")
    assert (names.ended_rule, names.dead_letters) == ("shop-scaling-ended", "shop-scaling-dead-letters")


def test_options_that_cannot_work_are_refused() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"prefix": "Shop"}, "prefix is 'Shop'"),
        ({"prefix": "shop-"}, "prefix is 'shop-': .* beginning with a letter, and not ending with a hyphen"),
        ({"prefix": "a" * 31}, "prefix is"),
        ({"databases": ("*",)}, "database is"),
        ({"databases": ("shop:*",)}, "database is"),
        ({"email": "nobody"}, "email is"),
        ({"network": Network.EXISTING}, "at least one subnet"),
        ({"network": Network.EXISTING, "subnets": ("subnet-0123abcd",)}, "one security group"),
        ({**EXISTING, "network": Network.NEW}, "need an existing network, and network is new"),
        ({**EXISTING, "network": Network.EXISTING, "subnets": ("vpc-1",)}, "subnet is 'vpc-1'"),
        ({**EXISTING, "network": Network.EXISTING, "security_groups": ("1",)}, "security group is '1'"),
        ({"autoscaling_pattern": "("}, "autoscaling pattern"),
    ]

    def check(row: tuple[dict[str, Any], str]) -> None:
        options, message = row
        with pytest.raises(InvalidValue, match=message):
            TemplateOptions(**{"prefix": "shop", "network": Network.NONE, **options})

    every_row(rows, check)
