"""Simulated control planes, as boto3 sees them: each protocol, pages, refusals, lost replies and several accounts."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import EngineUnavailable, NotAllowed, OutcomeUnknown, Zone
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.simulate.aws.control_plane import ReplyLost, serve
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.testing import FakeClock

LISTS = {
    "arc-zonal-shift": "list_managed_resources",
    "autoscaling": "describe_auto_scaling_groups",
    "ec2": "describe_subnets",
    "eks": "list_clusters",
    "elbv2": "describe_load_balancers",
}
"""A list of each service."""
OTHER_ACCOUNT = "210987654321"


@pytest.fixture(scope="module")
def regions() -> list[SimulatedRegion]:
    return [SimulatedRegion(FakeClock())]


@pytest.fixture(scope="module")
def session(regions: list[SimulatedRegion]) -> Iterator[AwsSession]:
    """Shared by all tests, because boto3 takes long to create clients."""
    with pytest.MonkeyPatch.context() as patch, serve(regions) as address:
        patch.setenv("AWS_ACCESS_KEY_ID", regions[0].access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        with AwsSession(AwsOptions(region="us-east-1", endpoint_url=address, max_attempts=1)) as opened:
            yield opened


@pytest.fixture
def region(regions: list[SimulatedRegion]) -> SimulatedRegion:
    regions[:] = [SimulatedRegion(FakeClock())]
    return regions[0]


@pytest.fixture
def arn(region: SimulatedRegion) -> str:
    return region.add("application", "shop")


@pytest.mark.parametrize("service", LISTS)
def test_a_list_is_read_page_by_page(session: AwsSession, region: SimulatedRegion, service: str) -> None:
    for kind in ("application", "group", "cluster"):
        for number in range(3):
            region.add(kind, f"shop-{number}")
    whole = list(session.paginate(service, LISTS[service]))
    calls = len(region.calls)
    region.page_size = 2
    assert list(session.paginate(service, LISTS[service])) == whole
    assert len(region.calls) - calls == (len(whole) + 1) // 2


def test_replies_have_the_fields_of_their_protocol(session: AwsSession, region: SimulatedRegion) -> None:
    tags = {"team": 'a & <b> "c"'}
    group = region.add("group", "shop", Zone("use1-az2"), tags=tags, is_enabled=False)
    (found,) = session.paginate("autoscaling", "describe_auto_scaling_groups")
    assert (found["AutoScalingGroupARN"], found["AvailabilityZones"]) == (group, ["us-east-1b"])
    assert found["Tags"] == [{"Key": "team", "Value": 'a & <b> "c"'}]
    assert found["AvailabilityZoneImpairmentPolicy"] == {"ZonalShiftEnabled": False}
    assert (found["CreatedTime"].timestamp(), found["MinSize"]) == (region.arc.clock.wall(), 0)
    zones = session.client("ec2").describe_availability_zones(AllAvailabilityZones=True)["AvailabilityZones"]
    assert {each["ZoneName"]: each["ZoneId"] for each in zones} == region.zones
    assert session.client("sts").get_caller_identity()["Account"] == region.account


@pytest.mark.parametrize("service", [*LISTS, "sts"])
@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (Refusal.THROTTLED, EngineUnavailable),
        (Refusal.DENIED, NotAllowed),
        (Refusal.UNKNOWN_KEY, NotAllowed),
        (Refusal.INVALID, None),
    ],
)
def test_refusals_are_those_of_the_protocol(
    session: AwsSession, region: SimulatedRegion, service: str, refusal: Refusal, expected: type[Exception] | None
) -> None:
    def refuse(_: str) -> None:
        raise ServiceError(refusal, "no & <never>")

    region.faults = refuse
    client = session.client(service)
    with pytest.raises(expected or client.exceptions.ClientError, match="no & <never>"):
        getattr(client, LISTS.get(service, "get_caller_identity"))()


def test_a_call_whose_reply_is_lost_is_carried_out(session: AwsSession, region: SimulatedRegion, arn: str) -> None:
    def lose(_: str) -> None:
        raise ReplyLost

    region.faults = lose
    with pytest.raises(OutcomeUnknown):
        start(session, arn)
    assert [each.resource for each in region.arc.shifts] == [arn]


def start(session: AwsSession, arn: str, **changes: Any) -> None:
    arguments = {"resourceIdentifier": arn, "awayFrom": "use1-az1", "expiresIn": "1h", "comment": "c"}
    session.client("arc-zonal-shift").start_zonal_shift(**arguments | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"expiresIn": "1 hour"}, "InvalidExpiresIn"),
        ({"expiresIn": "73h"}, "InvalidExpiresIn"),
        ({"comment": "c" * 129}, "InvalidExpiresIn"),
        ({"awayFrom": "use1-az4"}, "UnsupportedAz"),
    ],
)
@pytest.mark.usefixtures("region")
def test_requests_are_checked_by_the_model(session: AwsSession, arn: str, changes: dict[str, str], reason: str) -> None:
    client = session.client("arc-zonal-shift")
    with pytest.raises(client.exceptions.ValidationException) as refused:
        start(session, arn, **changes)
    assert refused.value.response["reason"] == reason


def test_what_is_not_simulated_is_refused(session: AwsSession, region: SimulatedRegion) -> None:
    client = session.client("ec2")
    with pytest.raises(client.exceptions.ClientError, match="vpc-id is not simulated"):
        client.describe_subnets(Filters=[{"Name": "vpc-id", "Values": ["vpc-1", "vpc-2"]}])
    with pytest.raises(client.exceptions.ClientError, match="DescribeVpcs is not simulated"):
        client.describe_vpcs()
    with pytest.raises(client.exceptions.ClientError, match="GET /clusters/shop/node-groups is not simulated"):
        session.client("eks").list_nodegroups(clusterName="shop")
    region.handlers = {"eks": {"ListClusters": lambda _: {"clusters": [3]}}}
    with pytest.raises(EngineUnavailable):  # AWS never answers a number
        session.client("eks").list_clusters()


def test_an_access_key_belongs_to_one_account(
    session: AwsSession, regions: list[SimulatedRegion], region: SimulatedRegion
) -> None:
    regions.append(SimulatedRegion(FakeClock(), account=OTHER_ACCOUNT))
    regions[1].add("cluster", "theirs")
    region.add("cluster", "ours")
    assert list(session.paginate("eks", "list_clusters")) == ["ours"]
    address = session.client("eks").meta.endpoint_url
    for number, expected in ((OTHER_ACCOUNT, ["theirs"]), ("999999999999", None)):
        role = f"arn:aws:iam::{number}:role/holdfast"
        with AwsSession(AwsOptions(region="us-east-1", endpoint_url=address, max_attempts=1, role_arn=role)) as assumed:
            if expected is None:
                with pytest.raises(NotAllowed, match="does not know the credentials"):
                    list(assumed.paginate("eks", "list_clusters"))
            else:
                assert list(assumed.paginate("eks", "list_clusters")) == expected
