"""Simulated ECS, as boto3 sees it: deployments that take time, fail and roll back, and the zones of tasks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import EngineUnavailable, OutcomeUnknown, Zone
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.simulate.aws.control_plane import serve
from holdfast.simulate.aws.ecs import ROLLBACK
from holdfast.simulate.aws.protocols import ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.testing import FakeClock

AZ1, AZ2, AZ3 = Zone("use1-az1"), Zone("use1-az2"), Zone("use1-az3")


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
def ecs(session: AwsSession, region: SimulatedRegion) -> Any:
    return session.client("ecs")


def describe(ecs: Any, *services: str) -> Any:
    return ecs.describe_services(cluster="shop", services=list(services))


def leave_first_zone(ecs: Any, region: SimulatedRegion, service: str) -> None:
    network = {"subnets": list(region.subnets)[1:]}
    ecs.update_service(cluster="shop", service=service, networkConfiguration={"awsvpcConfiguration": network})


def count_by_zone(session: AwsSession) -> dict[str, int]:
    """Return the number of running tasks by the names of zones."""
    arns = list(session.paginate("ecs", "list_tasks", cluster="shop", serviceName="web"))
    tasks = session.client("ecs").describe_tasks(cluster="shop", tasks=arns)["tasks"]
    zones = [each["availabilityZone"] for each in tasks if each["lastStatus"] == "RUNNING"]
    return {each: zones.count(each) for each in sorted(set(zones))}


def test_clusters_services_and_tasks_are_listed_in_pages(session: AwsSession, region: SimulatedRegion) -> None:
    services = [region.ecs.add("shop", name) for name in ("cart", "web")] + [region.ecs.add("bank", "loans")]
    region.page_size = 1
    clusters = list(session.paginate("ecs", "list_clusters"))
    assert [each.rpartition("/")[2] for each in clusters] == ["shop", "bank"]
    found = [arn for each in clusters for arn in session.paginate("ecs", "list_services", cluster=each)]
    assert found == services
    assert count_by_zone(session) == {"us-east-1a": 2, "us-east-1b": 2, "us-east-1c": 2}


def test_tasks_are_where_a_test_puts_them_and_pending_tasks_are_listed(
    session: AwsSession, region: SimulatedRegion, ecs: Any
) -> None:
    arn = region.ecs.add("shop", "web", tasks={AZ1: 3, AZ2: 1})
    region.ecs.services[arn].pending = 2
    assert count_by_zone(session) == {"us-east-1a": 3, "us-east-1b": 1}
    assert len(ecs.list_tasks(cluster="shop")["taskArns"]) == 6
    (service,) = describe(ecs, arn)["services"]
    assert (service["desiredCount"], service["runningCount"], service["pendingCount"]) == (4, 4, 2)


def test_a_change_of_the_network_replaces_all_tasks_after_some_time(region: SimulatedRegion, ecs: Any) -> None:
    arn = region.ecs.add("shop", "web")
    leave_first_zone(ecs, region, arn)
    (service,) = describe(ecs, "web")["services"]
    assert [(each["status"], each["rolloutState"]) for each in service["deployments"]] == [
        ("PRIMARY", "IN_PROGRESS"),
        ("ACTIVE", "COMPLETED"),
    ]
    # Parts of the configuration that are left out do not stay as they were.
    assert service["networkConfiguration"]["awsvpcConfiguration"]["securityGroups"] == ["sg-default"]
    assert region.ecs.count_tasks(arn)[AZ1] == 2
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    (service,) = describe(ecs, "web")["services"]
    assert [(each["status"], each["rolloutState"]) for each in service["deployments"]] == [("PRIMARY", "COMPLETED")]
    assert region.ecs.count_tasks(arn) == {AZ2: 3, AZ3: 3}


@pytest.mark.parametrize("rolls_back", [True, False])
def test_a_deployment_that_fails_leaves_the_tasks_where_they_were(
    region: SimulatedRegion, ecs: Any, *, rolls_back: bool
) -> None:
    arn = region.ecs.add("shop", "web")
    service = region.ecs.services[arn]
    service.fails, before = True, service.network
    service.configuration |= ROLLBACK if rolls_back else {}
    leave_first_zone(ecs, region, arn)
    region.arc.clock.sleep(region.ecs.deploy_seconds)
    (found,) = describe(ecs, arn)["services"]
    states = [(each["status"], each["rolloutState"]) for each in found["deployments"]]
    assert (service.network == before) is rolls_back
    assert region.ecs.count_tasks(arn)[AZ1] == 2
    if rolls_back:
        assert states == [("PRIMARY", "IN_PROGRESS"), ("ACTIVE", "FAILED")]
        assert "rolling back to deploymentId" in found["deployments"][0]["rolloutStateReason"]
        region.arc.clock.sleep(region.ecs.deploy_seconds)
        (found,) = describe(ecs, arn)["services"]
        assert [(each["status"], each["rolloutState"]) for each in found["deployments"]] == [("PRIMARY", "COMPLETED")]
    else:
        assert states == [("PRIMARY", "FAILED"), ("ACTIVE", "COMPLETED")]


def test_calls_that_aws_refuses_are_refused(region: SimulatedRegion, ecs: Any) -> None:
    arn = region.ecs.add("shop", "web")
    network = {"awsvpcConfiguration": {"subnets": ["subnet-unknown"]}}
    service = {"cluster": "shop", "service": arn, "networkConfiguration": network}
    refused: dict[str, Callable[[], object]] = {
        "ClusterNotFoundException": lambda: ecs.list_services(cluster="nowhere"),
        "ServiceNotFoundException": lambda: ecs.update_service(cluster="shop", service="nothing"),
        "InvalidParameterException": lambda: ecs.update_service(**service),
    }
    for code, call in refused.items():
        with pytest.raises(getattr(ecs.exceptions, code)):
            call()
    with pytest.raises(ecs.exceptions.InvalidParameterException, match="at most 10"):
        describe(ecs, *[arn] * 11)
    assert describe(ecs, "nothing")["failures"] == [{"arn": "nothing", "reason": "MISSING"}]
    region.ecs.services[arn].status = "DRAINING"
    with pytest.raises(ecs.exceptions.ServiceNotActiveException):
        ecs.update_service(cluster="shop", service=arn)


def test_an_error_of_the_server_leaves_the_outcome_of_a_write_open(region: SimulatedRegion, ecs: Any) -> None:
    arn = region.ecs.add("shop", "web")

    def fail(_: str) -> None:
        raise ServiceError("ServerException")

    region.faults = fail
    with pytest.raises(OutcomeUnknown):
        ecs.update_service(cluster="shop", service=arn)
    with pytest.raises(EngineUnavailable):
        ecs.list_clusters()
