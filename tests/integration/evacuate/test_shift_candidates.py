"""Resources for which zonal shift is not enabled, on moto, which is independent of the simulation of this project."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Zone
from holdfast.engines.aws import AwsSession
from holdfast.evacuate.accounts import Account
from holdfast.evacuate.shift_candidates import Candidates, find_candidates
from tests.integration.evacuate.child import open_accounts


@pytest.fixture
def account(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """The default account of moto, which other tests use, too."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with open_accounts(moto_url) as accounts:
        (found,) = accounts.list_for(Zone("use1-az1"))
        yield found


def create_group(session: AwsSession, name: str, subnets: list[str], **more: Any) -> None:
    session.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name, VPCZoneIdentifier=",".join(subnets), MinSize=0, MaxSize=0, **more
    )


def test_names_of_zones_and_lists_are_read_as_aws_writes_them(account: Account) -> None:
    session, name = account.session, f"shop-{uuid4().hex[:12]}"
    ec2, elb = session.client("ec2"), session.client("elbv2")
    subnets = {each["AvailabilityZoneId"]: each["SubnetId"] for each in ec2.describe_subnets()["Subnets"]}
    inside, outside, third = (Zone(each) for each in sorted(subnets)[:3])
    both, others = [subnets[inside], subnets[outside]], [subnets[outside], subnets[third]]
    for suffix, used in (("in", both), ("out", others)):
        elb.create_load_balancer(Name=f"{name}-{suffix}", Subnets=used, Type="network")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    template = ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": image, "InstanceType": "t3.micro"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    launch = {"LaunchTemplate": {"LaunchTemplateId": template, "Version": "$Latest"}}
    create_group(session, f"{name}-in", both, **launch)
    create_group(session, f"{name}-out", others, **launch)
    eks = session.client("eks")
    for suffix, used in (("in", both), ("out", others)):
        role = f"arn:aws:iam::{account.get_id()}:role/eks"
        eks.create_cluster(name=f"{name}-{suffix}", roleArn=role, resourcesVpcConfig={"subnetIds": used})

    def find(managed: set[str]) -> tuple[Candidates, dict[str, str]]:
        found = find_candidates(account, inside, managed)
        ours = [each for each in found.unmovable if each.resource.name.startswith(name)]
        return found, {each.resource.type: each.resource.id for each in ours if each.resource.name == f"{name}-in"}

    found, arns = find(set())
    assert found.notes == []
    assert sorted(arns) == ["auto-scaling-group", "eks-cluster", "load-balancer"]
    assert not any(each.resource.name == f"{name}-out" for each in found.unmovable)
    assert all(f":{account.get_id()}:" in each for each in arns.values())
    assert find(set(arns.values()))[1] == {}
