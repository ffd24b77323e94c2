"""Roles are found by facts: the writer flag, tags and tiers, and names only where nothing else is known."""

from typing import Any

from holdfast.aurora.cluster import (
    AUTOSCALING_TAG,
    Availability,
    Cluster,
    Instance,
    describes_same_instances,
    parse_cluster,
)
from tests.table import every_row


def describe(*members: tuple[str, bool, int]) -> dict[str, Any]:
    return {
        "DBClusterIdentifier": "shop-cluster",
        "Status": "available",
        "Engine": "aurora-postgresql",
        "DBClusterMembers": [
            {"DBInstanceIdentifier": name, "IsClusterWriter": is_writer, "PromotionTier": tier}
            for name, is_writer, tier in members
        ],
    }


def instance(name: str, status: str = "available", **more: Any) -> dict[str, Any]:
    return {
        "DBInstanceIdentifier": name,
        "DBInstanceClass": "db.r6g.large",
        "DBInstanceStatus": status,
        "AvailabilityZone": "ap-northeast-1a",
        **more,
    }


def test_a_status_is_available_busy_gone_stopped_or_broken() -> None:
    rows = [
        ("available", Availability.AVAILABLE),
        *(
            (status, Availability.BUSY)
            for status in ("modifying", "creating", "backing-up", "configuring-iam-database")
        ),
        *((status, Availability.GONE) for status in ("deleting", "delete-precheck")),
        *((status, Availability.STOPPED) for status in ("stopped", "stopping")),
        *((status, Availability.BROKEN) for status in ("failed", "incompatible-network", "storage-full")),
    ]

    def check(row: tuple[str, Availability]) -> None:
        assert Instance(id="a", instance_class="", status=row[0]).availability is row[1]

    every_row(rows, check)


def test_the_roles_follow_writer_flag_tag_prefix_pattern_and_tier() -> None:
    members = [("shop-writer", False, 1), ("shop-reader-dedicated", True, 0), ("tagged", False, 0)]
    members += [("application-autoscaling-1", False, 15), ("shop-reader-as-1", False, 15), ("zz-reporting", False, 1)]
    described = [
        instance("tagged", TagList=[{"Key": AUTOSCALING_TAG, "Value": "cluster:shop-cluster"}]),
        *(instance(name) for name, _, _ in members if name != "tagged"),
    ]
    cluster = parse_cluster(describe(*members), described)
    assert cluster.writer is not None
    assert cluster.writer.id == "shop-reader-dedicated"
    assert cluster.dedicated_reader is not None
    assert cluster.dedicated_reader.id == "shop-writer"
    assert [each.id for each in cluster.other_readers] == [
        *("application-autoscaling-1", "shop-reader-as-1", "tagged", "zz-reporting"),
    ]
    assert (cluster.id, cluster.status, cluster.engine) == ("shop-cluster", "available", "aurora-postgresql")
    assert cluster.writer.zone == "ap-northeast-1a"
    another = parse_cluster(describe(*members), described, autoscaling_pattern="shop-writer|zz-.*")
    assert another.dedicated_reader is not None
    assert another.dedicated_reader.id == "shop-reader-as-1"


def test_an_instance_that_is_being_deleted_is_left_out() -> None:
    described = [instance("w"), instance("d", "deleting")]
    cluster = parse_cluster(describe(("w", True, 0), ("d", False, 1)), described)
    assert [each.id for each in cluster.instances] == ["w"]
    assert cluster.find("w") is cluster.writer
    assert cluster.find("d") is None
    assert cluster.dedicated_reader is None
    assert cluster.other_readers == ()


def test_what_is_not_described_has_a_default() -> None:
    cluster = parse_cluster({"DBClusterIdentifier": "shop"}, [{"DBInstanceIdentifier": "a"}])
    assert (cluster.status, cluster.engine, cluster.writer) == ("", "", None)
    assert cluster.instances[0] == Instance(id="a", instance_class="", status="")
    tier = parse_cluster({"DBClusterIdentifier": "shop"}, [{"DBInstanceIdentifier": "a", "PromotionTier": 3}])
    assert tier.instances[0].tier == 3


def test_a_class_that_is_pending_is_not_there_yet() -> None:
    pending = instance("a", PendingModifiedValues={"DBInstanceClass": "db.t4g.medium", "Port": None})
    found = parse_cluster(describe(("a", True, 0)), [pending]).instances[0]
    assert found.pending == {"DBInstanceClass"}
    assert not found.has_class(["db.r6g.large"])
    assert not found.is_ready(["db.r6g.large"])


def test_two_reads_are_one_snapshot_if_they_list_the_same_instances() -> None:
    cluster = describe(("a", True, 0), ("b", False, 1))
    assert describes_same_instances(cluster, [instance("b"), instance("a")])
    assert not describes_same_instances(cluster, [instance("a")])
    assert not describes_same_instances({}, [instance("a")])


def test_other_readers_are_in_the_order_of_their_numbers() -> None:
    names = [f"shop-reader-as-{number}" for number in (10, 2, 1)]
    readers = [Instance(id=name, instance_class="x", status="available", is_autoscaling=True) for name in names]
    cluster = Cluster(id="shop", status="available", engine="aurora-postgresql", instances=tuple(readers))
    assert [each.id for each in cluster.other_readers] == names[::-1]
