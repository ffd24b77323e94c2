"""The checks before a run: each says ok, warns or refuses, with one sentence that says what to do."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.aurora.cluster import Cluster
from holdfast.aurora.preflight import (
    CHECKS,
    CheckFinding,
    CheckResult,
    ClusterFacts,
    PlannedRun,
    check_run,
    compute_max_connections,
    find_memory,
    is_in_window,
)
from holdfast.aurora.rules import ClusterState, decide_start
from tests.table import every_row
from tests.unit.aurora.samples import (
    MONDAY,
    NEW,
    OLD,
    READER,
    SCALED,
    WRITER,
    ZONES,
    build_cluster,
    build_facts,
    change,
)

HOUR = 3600.0


def find(facts: ClusterFacts, name: str) -> CheckFinding:
    [found] = [each for each in check_run(facts) if each.name == name]
    return found


def described(**fields: Any) -> dict[str, Any]:
    return {"cluster_description": {"DBClusterIdentifier": "shop-cluster", "DBClusterArn": "arn:shop", **fields}}


def test_a_usual_cluster_passes_all_checks() -> None:
    findings = check_run(build_facts())
    assert [each.name for each in findings] == list(CHECKS)
    assert {each.result for each in findings} == {CheckResult.OK}


MEMBER = {"DBClusterArn": "arn:shop", "IsWriter": True}
OTHER = {"DBClusterArn": "arn:other", "IsWriter": True}
WINDOW = described(PreferredMaintenanceWindow="mon:00:30-mon:01:00")
THURSDAY = described(PreferredMaintenanceWindow="thu:00:30-thu:01:00")
ENDPOINT = {"EndpointType": "CUSTOM", "DBClusterEndpointIdentifier": "reports", "StaticMembers": [READER.id]}
REFUSED, WARNING, OK = CheckResult.REFUSED, CheckResult.WARNING, CheckResult.OK
EMPTY = Cluster(id="shop-cluster", status="available", engine="aurora-postgresql", instances=())
SERVERLESS = change(build_cluster(), SCALED.id, instance_class="db.serverless")
ROWS: list[tuple[str, ClusterFacts, CheckResult, str]] = [
    ("engine", build_facts(build_cluster(engine="postgres")), REFUSED, "ModifyDBCluster"),
    ("engine", build_facts(SERVERLESS), REFUSED, "capacity"),
    ("engine", build_facts(**described(EngineMode="serverless")), REFUSED, "capacity"),
    (
        "target class",
        build_facts(orderable_options={}),
        REFUSED,
        "db.t4g.medium does not exist for aurora-postgresql 15.4",
    ),
    ("target class", build_facts(**described(StorageType="aurora-iopt1")), REFUSED, "storage aurora-iopt1"),
    ("target class", build_facts(classes=(NEW, OLD)), OK, "db.t4g.medium and db.r6g.large"),
    (
        "target class",
        build_facts(orderable_options={NEW: [{"AvailabilityZones": [{"Name": zone} for zone in ZONES[:2]]}]}),
        REFUSED,
        "does not exist in ap-northeast-1d",
    ),
    ("change needed", build_facts(EMPTY), REFUSED, "has no instances"),
    ("change needed", build_facts(classes=(OLD,)), REFUSED, "nothing to do"),
    ("change needed", build_facts(change(build_cluster(), SCALED.id, instance_class=NEW)), OK, "2 of 3 instances"),
    ("state", build_facts(build_cluster(status="stopped")), REFUSED, "start it first"),
    ("state", build_facts(change(build_cluster(), READER.id, status="storage-full")), REFUSED, "repair or delete it"),
    ("state", build_facts(change(build_cluster(), READER.id, status="rebooting")), WARNING, "is rebooting"),
    ("state", build_facts(build_cluster(status="starting")), WARNING, "the cluster is starting"),
    ("state", build_facts(build_cluster(READER)), WARNING, "no writer"),
    ("dedicated reader", build_facts(build_cluster(WRITER, SCALED)), REFUSED, "down for minutes: add a reader"),
    (
        "pending changes",
        build_facts(change(build_cluster(), READER.id, pending=frozenset({"EngineVersion"}))),
        REFUSED,
        "shop-reader-dedicated (EngineVersion)",
    ),
    ("maintenance window", build_facts(**WINDOW), WARNING, "choose another time"),
    ("maintenance window", build_facts(**THURSDAY), OK, "does not overlap"),
    ("maintenance window", build_facts(**THURSDAY, run={"is_daily": True}), WARNING, "thu:00:30-thu:01:00 of"),
    ("maintenance window", build_facts(**WINDOW, maintenance=["os-upgrade"]), REFUSED, "maintenance is pending"),
    ("pending maintenance", build_facts(maintenance=["system-update of db:a"]), WARNING, "system-update of db:a"),
    (
        "connections",
        build_facts(connections={}),
        WARNING,
        "no DatabaseConnections of the last day: check that clients need at most about 419",
    ),
    ("connections", build_facts(connections={"a": 419.0, "b": 3.0}), REFUSED, "a had up to 419 connections"),
    ("connections", build_facts(connections={"a": 400.0}), WARNING, "more than 80%, so choose a larger class"),
    ("connections", build_facts(connections={"a": 400.0}, run={"max_connections": 600}), OK, "about 600"),
    ("connections", build_facts(connections={"a": 40.0}, parameters={"max_connections": "30"}), REFUSED, "about 30"),
    ("connections", build_facts(classes=("db.z9.large",)), WARNING, "--max-connections"),
    ("memory parameters", build_facts(parameters={"shared_buffers": "4194304"}), WARNING, "use a formula"),
    ("memory parameters", build_facts(parameters={"shared_buffers": "{DBInstanceClassMemory/2}"}), OK, "no memory"),
    ("global database", build_facts(global_clusters=[{"GlobalClusterMembers": [OTHER]}]), OK, "no global database"),
    (
        "global database",
        build_facts(global_clusters=[{"GlobalClusterMembers": [OTHER, {**MEMBER, "IsWriter": False}]}]),
        REFUSED,
        "secondary",
    ),
    ("global database", build_facts(global_clusters=[{"GlobalClusterMembers": [MEMBER]}]), REFUSED, "memory-optimized"),
    (
        "global database",
        build_facts(classes=("db.r6g.xlarge",), global_clusters=[{"GlobalClusterMembers": [MEMBER]}]),
        OK,
        "primary",
    ),
    (
        "blue/green",
        build_facts(blue_green_deployments=[{"Status": "AVAILABLE", "BlueGreenDeploymentName": "upgrade"}]),
        REFUSED,
        "upgrade is in progress",
    ),
    ("blue/green", build_facts(blue_green_deployments=[{"Status": "SWITCHOVER_COMPLETED"}]), OK, "no blue/green"),
    ("parallel query", build_facts(parameters={"aurora_parallel_query": "ON"}), REFUSED, "db.r*"),
    ("parallel query", build_facts(**described(EngineMode="parallelquery")), REFUSED, "db.r*"),
    ("parallel query", build_facts(classes=(OLD,), parameters={"aurora_parallel_query": "1"}), OK, "works"),
    (
        "custom endpoints",
        build_facts(endpoints=[ENDPOINT]),
        WARNING,
        "reports lists shop-reader-dedicated, whose role changes",
    ),
    ("custom endpoints", build_facts(endpoints=[{**ENDPOINT, "StaticMembers": [SCALED.id]}]), OK, "no custom"),
    ("promotion tiers", build_facts(change(build_cluster(), READER.id, tier=2)), WARNING, "has promotion tier 2"),
    ("promotion tiers", build_facts(change(build_cluster(), SCALED.id, tier=1)), WARNING, "may promote"),
    ("promotion tiers", build_facts(build_cluster(WRITER)), OK, "no other reader"),
    ("other runs", build_facts(lock_holder="arn:aws:states:x:execution:m:shop_1"), REFUSED, "shop_1 is in progress"),
]


def test_each_check_says_what_is_wrong_and_what_to_do() -> None:
    def check(row: tuple[str, ClusterFacts, CheckResult, str]) -> None:
        name, facts, result, text = row
        found = find(facts, name)
        assert found.result is result, found
        assert text in found.text, found

    every_row(ROWS, check, lambda row: f"{row[0]}: {row[3]}")
    assert {row[0] for row in ROWS} == {*CHECKS}


def test_facts_that_could_not_be_read_make_a_warning() -> None:
    found = find(build_facts(orderable_options={}, unreadable={"target class": "AWS rds: not allowed"}), "target class")
    assert found == CheckFinding(
        "target class", WARNING, "could not be checked (AWS rds: not allowed): check it yourself"
    )


@pytest.mark.parametrize(
    "cluster",
    [build_cluster(engine="mysql"), build_cluster(status="stopping"), SERVERLESS, build_cluster(WRITER, SCALED), EMPTY],
)
def test_a_cluster_that_a_run_would_refuse_is_refused_before(cluster: Cluster) -> None:
    assert decide_start(cluster)[0] is ClusterState.REFUSED
    assert REFUSED in {each.result for each in check_run(build_facts(cluster))}


def test_windows_overlap_over_the_end_of_the_week() -> None:
    rows = [
        ("mon:00:00-mon:00:30", 0.0, 60.0, True),
        ("mon:00:00-mon:00:30", 30 * 60.0, HOUR, False),
        ("mon:00:59-mon:01:30", 0.0, HOUR, True),
        ("mon:01:00-mon:01:30", 0.0, HOUR, False),
        ("Sun:23:45-Mon:00:15", 0.0, 60.0, True),
        ("mon:00:00-mon:00:30", -600.0, HOUR, True),
        ("tue:00:00-tue:00:30", 0.0, HOUR, False),
        ("", 0.0, HOUR, False),
    ]

    def check(row: tuple[str, float, float, bool]) -> None:
        window, start, seconds, expected = row
        assert is_in_window(window, MONDAY + start, seconds) is expected

    every_row(rows, check)


def test_limits_of_connections_follow_the_tables_of_aws() -> None:
    rows = [
        ("aurora-postgresql", "db.t4g.medium", 419),
        ("aurora-postgresql", "db.r5.large", 1678),
        ("aurora-postgresql", "db.r6g.4xlarge", 5000),
        ("aurora-mysql", "db.t4g.medium", 90),
        ("aurora-mysql", "db.t4g.large", 135),
        ("aurora-mysql", "db.r5.large", 1000),
        ("aurora-mysql", "db.r5.xlarge", 2000),
        ("aurora-mysql", "db.r5.12xlarge", 6000),
        ("aurora-mysql", "db.r5.24xlarge", 7000),
        ("aurora-mysql", "db.unknown", None),
    ]

    def check(row: tuple[str, str, int | None]) -> None:
        engine, instance_class, expected = row
        assert compute_max_connections(engine, instance_class) == expected

    every_row(rows, check)
    assert [find_memory(f"db.{each}") for each in ("t3.small", "x2g.xlarge", "r7i.48xlarge")] == [2, 64, 1536]


@pytest.mark.parametrize("wrong", [{"cluster_id": "Shop"}, {"classes": ("t4g.medium",)}])
def test_a_request_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        replace(PlannedRun(cluster_id="shop", classes=(NEW,), starts_at=0.0), **wrong)
