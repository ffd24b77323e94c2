"""A deployment of Aurora scaling on an emulator of AWS, for tests that operate it."""

import io
import json
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast import SystemClock
from holdfast.aurora.machine import Function, Resources, build_machine
from holdfast.aurora.stack import ScalingStack
from holdfast.engines.aws import AwsSession

REGION = "us-east-1"
ROLE = "arn:aws:iam::000000000000:role/scaling"
OLD, NEW = "db.r6g.large", "db.t4g.medium"


@dataclass
class Deployed:
    """A stack with the outputs of the template, made of resources that were created one by one."""

    session: AwsSession
    prefix: str

    @property
    def cluster(self) -> str:
        return f"{self.prefix}-cluster"

    @property
    def stack(self) -> ScalingStack:
        return ScalingStack(self.session, SystemClock(), f"{self.prefix}-scaling")

    def create_cluster(self, *readers: str, **parameters: str) -> None:
        """Create a cluster with a writer, with readers, and with values of parameters in a group of its own."""
        rds, family = self.session.client("rds"), {"DBParameterGroupFamily": "aurora-postgresql14", "Description": "x"}
        values = [
            {"ParameterName": name, "ParameterValue": value, "ApplyMethod": "immediate"}
            for name, value in parameters.items()
        ]
        rds.create_db_cluster_parameter_group(DBClusterParameterGroupName=self.prefix, **family)
        rds.create_db_parameter_group(DBParameterGroupName=self.prefix, **family)
        if values:
            rds.modify_db_cluster_parameter_group(DBClusterParameterGroupName=self.prefix, Parameters=values)
        # The emulators have windows on fixed weekdays, with which a run would overlap on these days.
        day = (datetime.now(UTC) + timedelta(days=3)).strftime("%a").lower()
        window = {"PreferredMaintenanceWindow": f"{day}:10:30-{day}:11:00"}
        rds.create_db_cluster(
            **window,
            DBClusterIdentifier=self.cluster,
            DBClusterParameterGroupName=self.prefix,
            Engine="aurora-postgresql",
            EngineVersion="14.6",  # both emulators know it
            MasterUsername="master",
            MasterUserPassword="not-a-secret",
        )
        for name in ("writer", *readers):
            rds.create_db_instance(
                **window,
                DBInstanceIdentifier=f"{self.prefix}-{name}",
                DBClusterIdentifier=self.cluster,
                DBParameterGroupName=self.prefix,
                DBInstanceClass=OLD,
                Engine="aurora-postgresql",
            )

    def create_stack(self, machine: dict[str, Any] | None = None, **more: str) -> None:
        """Create the resources of a stack: with the real functions and machine, or with another machine alone."""
        table = f"{self.prefix}-scaling-lock"
        self.session.client("dynamodb").create_table(
            TableName=table,
            KeySchema=[{"AttributeName": "lockId", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "lockId", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        topic = self.session.client("sns").create_topic(Name=self.prefix)["TopicArn"]
        rule = f"{self.prefix}-schedule-scaling"
        self.session.client("events").put_rule(Name=rule, ScheduleExpression="cron(0 0 1 1 ? 2199)", State="DISABLED")
        account = self.session.client("sts").get_caller_identity()["Account"]
        functions = {each: f"arn:aws:lambda:{REGION}:{account}:function:{self.prefix}-{each}" for each in Function}
        definition = machine or build_machine(Resources(functions=functions, lock_table=table))
        created = self.session.client("stepfunctions").create_state_machine(
            name=f"{self.prefix}-scaling", definition=json.dumps(definition), roleArn=ROLE
        )
        outputs = {
            "StateMachineArn": created["stateMachineArn"],
            "LockTable": table,
            "RuleName": rule,
            "DeadLettersArn": f"arn:aws:sqs:{REGION}:{account}:{self.prefix}",
            "UpdateScheduleArn": functions[Function.UPDATE_SCHEDULE],
            "ScheduleScalingArn": functions[Function.SCHEDULE_SCALING],
            **more,
        }
        if machine is None:
            self._create_functions(
                {
                    "RULE_NAME": rule,
                    "SCHEDULE_SCALING_ARN": outputs["ScheduleScalingArn"],
                    "STATE_MACHINE_ARN": outputs["StateMachineArn"],
                    "LOCK_TABLE": table,
                    "TOPIC_ARN": topic,
                }
            )
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {name: {"Value": value} for name, value in outputs.items()},
        }
        self.session.client("cloudformation").create_stack(
            StackName=f"{self.prefix}-scaling", TemplateBody=json.dumps(template)
        )

    def _create_functions(self, variables: dict[str, str]) -> None:
        source = Path(__file__).parents[2] / "src"
        code = (
            f"import sys\nsys.path.insert(0, {str(source)!r})\n"
            "from holdfast.aurora.handlers import create_functions\nfrom holdfast.aurora.machine import Function\n"
            + "".join(f"{each.name.lower()} = create_functions().find(Function.{each.name})\n" for each in Function)
        )
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("entry.py", code)
        for each in Function:
            self.session.client("lambda").create_function(
                FunctionName=f"{self.prefix}-{each}",
                Runtime="python3.11",
                Role=ROLE,
                Handler=f"entry.{each.name.lower()}",
                Timeout=60,
                Environment={"Variables": variables},
                Code={"ZipFile": archive.getvalue()},
            )
