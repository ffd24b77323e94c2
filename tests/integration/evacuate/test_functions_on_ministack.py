"""Lambda functions on an emulator with revisions: an evacuation, a restore, and a write with an old revision."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Conflict, Zone
from holdfast._clock import SystemClock
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.action import Target
from holdfast.evacuate.actions.lambda_functions.action import LambdaFunctions
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.runner import Runner
from holdfast.evacuate.selection import Selection
from holdfast.testing import FakeClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A function with a subnet in each of two zones."""

    session: AwsSession
    name: str
    subnets: list[str]
    zone: Zone
    """The zone of the first subnet."""

    @property
    def network(self) -> Mapping[str, Any]:
        found = self.session.client("lambda").get_function_configuration(FunctionName=self.name)["VpcConfig"]
        return {key: found[key] for key in ("SubnetIds", "SecurityGroupIds")}

    @property
    def target(self) -> Target:
        return Target(zone=self.zone, run="hf-1", selection=Selection(names=(self.name,)))


@pytest.fixture
def shop(ministack_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with AwsSession(AwsOptions(region="us-east-1", endpoint_url=ministack_url, max_attempts=1)) as session:
        ec2, name = session.client("ec2"), f"shop-{uuid4().hex[:8]}"
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnets = [
            ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=f"us-east-1{letter}")
            for number, letter in enumerate("ab")
        ]
        ids = [each["Subnet"]["SubnetId"] for each in subnets]
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("index.py", "def handler(event, context):\n    return event\n")
        session.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.12",
            Role="arn:aws:iam::000000000000:role/shop",
            Handler="index.handler",
            Code={"ZipFile": code.getvalue()},
            VpcConfig={"SubnetIds": ids, "SecurityGroupIds": ["sg-shop"]},
        )
        zone = Zone(subnets[0]["Subnet"]["AvailabilityZoneId"])
        yield Shop(session=session, name=name, subnets=ids, zone=zone)
        session.client("lambda").delete_function(FunctionName=name)


@pytest.fixture
def action(shop: Shop) -> LambdaFunctions:
    return LambdaFunctions(Accounts([("the emulator", lambda *_: shop.session)], lambda _: "us-east-1"))


def test_a_function_leaves_a_zone_and_comes_back(shop: Shop, action: LambdaFunctions) -> None:
    """The emulator makes updates by the real clock. Each takes half a second."""
    before, runner = shop.network, Runner({"lambda-functions": action}, MemoryJournal(), SystemClock())
    planned = runner.plan(shop.target)
    report = runner.evacuate(runner.begin(planned, by="me@here"), planned)
    assert [(each.name, each.state) for each in report.entries] == [(shop.name, EntryState.APPLIED)]
    assert shop.network == {**before, "SubnetIds": shop.subnets[1:]}
    assert runner.restore(runner.claim("hf-1")).problems == []
    assert shop.network == before


def test_a_write_with_an_old_revision_changes_nothing(
    shop: Shop, action: LambdaFunctions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer changes the function between the read and the write of the action."""
    (change,) = Runner({"tested": action}, MemoryJournal(), FakeClock()).plan(shop.target).changes["tested"]
    entry = Entry(
        zone=shop.zone,
        resource=change.resource.id,
        type=change.resource.type,
        action="tested",
        run="hf-1",
        number=1,
        state=EntryState.INTENDED,
        at=0.0,
        change=change.change,
    )
    client = shop.session.client("lambda")
    update = client.update_function_configuration

    def change_first(**arguments: Any) -> Any:
        update(FunctionName=shop.name, VpcConfig={"SubnetIds": shop.subnets, "SecurityGroupIds": ["sg-new"]})
        return update(**arguments)

    monkeypatch.setattr(client, "update_function_configuration", change_first)
    with pytest.raises(Conflict, match="RevisionId"):
        action.apply(entry)
    assert shop.network == {"SubnetIds": shop.subnets, "SecurityGroupIds": ["sg-new"]}
