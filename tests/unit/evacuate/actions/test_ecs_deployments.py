"""What the deployments of an ECS service say: rules without a service."""

from datetime import UTC, datetime
from typing import Any

from holdfast.evacuate.actions.ecs_services.deployments import (
    find_failed_return,
    find_primary,
    find_rollback,
    get_failure,
    get_reason,
    get_subnets,
    is_deployed,
    list_side_effects,
)

HERE, OTHER = "subnet-a", "subnet-b"


def build_deployment(status: str, *subnets: str, state: str | None = None, **fields: Any) -> dict[str, Any]:
    network = {"networkConfiguration": {"awsvpcConfiguration": {"subnets": list(subnets)}}} if subnets else {}
    return {"status": status, **network, **({} if state is None else {"rolloutState": state}), **fields}


def build_service(
    *deployments: dict[str, Any], subnets: tuple[str, ...] = (HERE, OTHER), **fields: Any
) -> dict[str, Any]:
    return build_deployment("ACTIVE", *subnets) | {"deployments": list(deployments), **fields}


def test_a_service_without_addresses_of_its_own_has_no_subnets() -> None:
    assert get_subnets(build_service(subnets=())) == ()
    assert find_primary(build_service()) == {}


def test_a_rollback_has_one_of_two_signs() -> None:
    failed = build_deployment("INACTIVE", OTHER, state="FAILED", rolloutStateReason="tasks failed to start")
    back = build_deployment("PRIMARY", HERE, OTHER, state="COMPLETED")
    assert find_rollback(build_service(back, failed), [HERE], "") == "tasks failed to start"
    rolling = build_deployment("PRIMARY", HERE, OTHER, state="IN_PROGRESS", rolloutStateReason="ECS is rolling back")
    assert find_rollback(build_service(rolling), [HERE], "") == "ECS is rolling back"
    assert find_rollback(build_service(rolling), [HERE], "ECS is rolling back") == "", "it did so before"
    assert find_rollback(build_service(back), [HERE], "") == ""
    older = build_deployment("INACTIVE", HERE, OTHER, state="FAILED")
    unknown = build_deployment("INACTIVE", state="FAILED")
    assert find_rollback(build_service(back, older, unknown), [HERE], "") == "", "it did not lack the subnets"
    moved = build_deployment("PRIMARY", OTHER, state="COMPLETED")
    assert find_rollback(build_service(moved, failed, subnets=(OTHER,)), [HERE], "") == "", "it is still moved"


def test_only_a_recent_deployment_with_the_missing_subnets_is_a_failed_restore() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    failed = build_deployment("INACTIVE", HERE, OTHER, state="FAILED", createdAt=at, rolloutStateReason="no tasks")
    service = build_service(build_deployment("PRIMARY", OTHER, state="COMPLETED"), failed)
    assert find_failed_return(service, [HERE], at.timestamp() - 1) == "no tasks"
    assert find_failed_return(service, [HERE], at.timestamp() + 1) == "", "it is older"
    assert find_failed_return(service, ["subnet-c"], at.timestamp() - 1) == ""
    assert find_failed_return(build_service(build_deployment("INACTIVE", HERE, state="FAILED")), [HERE], 0) == ""


def test_a_deployment_is_complete_by_its_state_or_else_by_its_tasks() -> None:
    assert is_deployed(build_service(build_deployment("PRIMARY", HERE, state="COMPLETED")), [HERE])
    assert not is_deployed(build_service(build_deployment("PRIMARY", HERE, state="IN_PROGRESS")), [HERE])
    assert not is_deployed(build_service(build_deployment("PRIMARY", OTHER, state="COMPLETED")), [HERE])
    assert is_deployed(build_service(build_deployment("PRIMARY", HERE, runningCount=2, desiredCount=2)), [HERE])
    assert not is_deployed(build_service(runningCount=1, desiredCount=2), [HERE])
    assert get_failure(build_service(build_deployment("PRIMARY", HERE, state="FAILED"))) == "FAILED"
    assert get_failure(build_service()) == ""
    assert get_reason({}) == ""


def test_side_effects_follow_from_the_configuration() -> None:
    assert [each.split(";")[0] for each in list_side_effects(build_service())] == ["replaces ALL tasks"]
    configuration = {
        "minimumHealthyPercent": 50,
        "maximumPercent": 200,
        "strategy": "CANARY",
        "bakeTimeInMinutes": 5,
        "deploymentCircuitBreaker": {"enable": True, "rollback": True},
        "alarms": {"enable": True, "rollback": False},
    }
    service = build_service(
        build_deployment("PRIMARY", HERE, state="IN_PROGRESS"),
        deploymentConfiguration=configuration,
        launchType="EC2",
        loadBalancers=[{"loadBalancerName": "old"}],
    )
    effects = "\n".join(list_side_effects(service))
    for text in ("within 50 % and 200 %", "interrupts", "CANARY", "(circuit breaker)", "need room", "Classic"):
        assert text in effects
