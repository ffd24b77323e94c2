"""The states that take and release the lock of a cluster, on moto's interpreter and its DynamoDB."""

import json
from collections.abc import Iterator

import pytest

from holdfast.aurora.machine import Function, Resources, build_machine
from holdfast.engines.aws import AwsSession
from holdfast.simulate.aws.emulator import ACCOUNT, Emulator
from holdfast.simulate.aws.lifecycle import RdsTimes
from holdfast.simulate.aws.rds import REGION, Rds
from tests.table import every_row

NOW, EXPIRY = 1_000, 216_000
ANOTHER = "arn:another"
STATES = build_machine(Resources(functions={each: each for each in Function}, lock_table="locks"))["States"]
ENDS = ("EvaluateClusterState", "SendSkippedNotification", "UnexpectedError", "ScalingSucceeded")
KEY = {"lockId": {"S": "shop-cluster"}}


class Locks:
    """The lock table, and machines of one state that uses it."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._runs = 0
        self._table = session.client("dynamodb")
        self._table.create_table(
            TableName="locks",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "lockId", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "lockId", "KeyType": "HASH"}],
        )
        for name in ("AcquireLock", "ReleaseLock"):
            ends = {end: {"Type": "Pass", "Result": {"end": end}, "End": True} for end in ENDS}
            definition = json.dumps({"StartAt": name, "States": {name: STATES[name], **ends}})
            role = f"arn:aws:iam::{ACCOUNT}:role/x"
            session.client("stepfunctions").create_state_machine(name=name, definition=definition, roleArn=role)

    def run(self, state: str, holder: str, expires_at: int = NOW + 1) -> tuple[str, tuple[str, str] | None]:
        """Execute a state while the lock has a holder. Return the following state, and the lock as it is then."""
        self._runs += 1
        own = f"arn:aws:states:{REGION}:{ACCOUNT}:execution:{state}:run{self._runs}"
        self._table.delete_item(TableName="locks", Key=KEY)
        if holder:
            item = {"executionArn": {"S": holder.replace("mine", own)}, "expiresAt": {"N": str(expires_at)}}
            self._table.put_item(TableName="locks", Item={**KEY, **item})
        client, lock = self._session.client("stepfunctions"), {"now": str(NOW), "expiresAt": str(EXPIRY)}
        client.start_execution(
            stateMachineArn=f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{state}",
            name=f"run{self._runs}",
            input=json.dumps({"clusterIdentifier": "shop-cluster", "refresh": {"lock": lock}}),
        )
        following = json.loads(client.describe_execution(executionArn=own)["output"])["end"]
        left = self._table.get_item(TableName="locks", Key=KEY).get("Item")
        return following, left and (left["executionArn"]["S"].replace(own, "mine"), left["expiresAt"]["N"])


@pytest.fixture
def locks() -> Iterator[Locks]:
    with Emulator(Rds(RdsTimes()), lambda *_: {}) as aws, aws.open_session(1) as session:
        yield Locks(session)


def test_a_lock_is_taken_if_there_is_none_or_if_it_has_expired_or_is_mine(locks: Locks) -> None:
    rows = [("", 0, True), (ANOTHER, NOW - 1, True), ("mine", NOW + 1, True), (ANOTHER, NOW, False)]

    def check(row: tuple[str, int, bool]) -> None:
        holder, expires_at, is_taken = row
        following, left = locks.run("AcquireLock", holder, expires_at)
        assert following == ("EvaluateClusterState" if is_taken else "SendSkippedNotification")
        assert left == (("mine", str(EXPIRY)) if is_taken else (holder, str(expires_at)))

    every_row(rows, check)


def test_only_my_own_lock_is_released(locks: Locks) -> None:
    assert locks.run("ReleaseLock", "mine") == ("ScalingSucceeded", None)
    assert locks.run("ReleaseLock", ANOTHER) == ("ScalingSucceeded", (ANOTHER, str(NOW + 1)))
    assert locks.run("ReleaseLock", "") == ("ScalingSucceeded", None)
