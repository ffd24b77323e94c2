"""Auto Scaling groups on moto, which is independent of the simulation of this project."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast import Zone
from holdfast._clock import SystemClock
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.action import Target
from holdfast.evacuate.actions.auto_scaling_groups.action import AutoScalingGroups
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.runner import Runner
from holdfast.evacuate.selection import Selection
from tests.integration.evacuate.child import open_accounts


@pytest.fixture
def accounts(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Accounts]:
    """The default account of moto, which other tests use, too."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with open_accounts(moto_url) as opened:
        yield opened


def test_subnets_are_removed_and_come_back(accounts: Accounts) -> None:
    """Takes some seconds, because moto loads its networks and images with the first calls of EC2."""
    (account,) = accounts.list_for(Zone("use1-az1"))
    name = f"shop-{uuid4().hex[:12]}"
    ec2, client = account.session.client("ec2"), account.session.client("autoscaling")
    listed = [
        each for each in ec2.describe_subnets()["Subnets"] if each["DefaultForAz"]
    ]  # others have VPCs of their own
    subnets = {each["AvailabilityZoneId"]: each["SubnetId"] for each in listed}
    first, second = sorted(subnets)[:2]
    before = [subnets[first], subnets[second]]
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    template = ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": image, "InstanceType": "t3.micro"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    client.create_auto_scaling_group(
        AutoScalingGroupName=name,
        VPCZoneIdentifier=",".join(before),
        MinSize=1,
        MaxSize=2,
        LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"},
    )

    def read_subnets() -> list[str]:
        (found,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return str(found["VPCZoneIdentifier"]).split(",")

    runner = Runner({"auto-scaling-groups": AutoScalingGroups(accounts)}, MemoryJournal(), SystemClock())
    plan = runner.plan(Target(zone=Zone(first), run="hf-1", selection=Selection(names=(name,))))
    (change,), found = plan.changes["auto-scaling-groups"], plan.discoveries["auto-scaling-groups"]
    assert change.resource.name == name
    assert change.change["removed"] == before[:1]
    assert [each for each in found.notes if "instance refreshes cannot be read" not in each] == []
    evacuated = runner.evacuate(runner.begin(plan, by="me@here"), plan)
    assert ([each.state for each in evacuated.entries], read_subnets()) == ([EntryState.APPLIED], before[1:])
    restored = runner.restore(runner.claim("hf-1"))
    assert ([each.state for each in restored.entries], read_subnets()) == ([EntryState.RESTORED], before)
