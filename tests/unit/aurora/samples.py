"""Clusters to test with: a writer, a dedicated reader and one autoscaling reader, all available with db.r6g.large."""

from dataclasses import replace
from typing import Any

from holdfast.aurora.cluster import Cluster, Instance
from holdfast.aurora.preflight import ClusterFacts, PlannedRun

OLD, NEW = "db.r6g.large", "db.t4g.medium"
ZONES = ("ap-northeast-1a", "ap-northeast-1c", "ap-northeast-1d")
WRITER = Instance(id="shop-writer", instance_class=OLD, status="available", is_writer=True, tier=0, zone=ZONES[0])
READER = Instance(id="shop-reader-dedicated", instance_class=OLD, status="available", tier=1, zone=ZONES[1])
SCALED = Instance(id="shop-reader-as-1", instance_class=OLD, status="available", is_autoscaling=True, zone=ZONES[2])
MONDAY = 1_700_438_400.0
"""2023-11-20 00:00 UTC, a Monday."""


def build_cluster(*instances: Instance, status: str = "available", engine: str = "aurora-postgresql") -> Cluster:
    return Cluster(id="shop-cluster", status=status, engine=engine, instances=instances or (WRITER, READER, SCALED))


def change(cluster: Cluster, name: str, **fields: Any) -> Cluster:
    """Return the cluster with other fields of one instance."""
    return replace(
        cluster, instances=tuple(replace(each, **fields) if each.id == name else each for each in cluster.instances)
    )


def build_facts(cluster: Cluster | None = None, classes: tuple[str, ...] = (NEW,), **fields: Any) -> ClusterFacts:
    """Return facts with which every check is ok."""
    run = PlannedRun(cluster_id="shop-cluster", classes=classes, starts_at=MONDAY, **fields.pop("run", {}))
    row = {"StorageType": "aurora", "AvailabilityZones": [{"Name": zone} for zone in ZONES]}
    known: dict[str, Any] = {
        "cluster_description": {
            "DBClusterIdentifier": "shop-cluster",
            "DBClusterArn": "arn:shop",
            "EngineVersion": "15.4",
        },
        "instances": [],
        "orderable_options": {each: [row] for each in classes},
        "connections": {"shop-writer": 20.0},
    }
    return ClusterFacts(run=run, cluster=cluster or build_cluster(), **known | fields)
