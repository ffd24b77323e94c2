"""The simulated RDS takes as long, and refuses, as Aurora does; in process and over HTTP."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.simulate.aws.emulator import Emulator
from holdfast.simulate.aws.lifecycle import Outcome, RdsTimes
from holdfast.simulate.aws.rds import REGION, Rds, serve_rds

OLD, NEW = "db.r6g.large", "db.t4g.medium"
CLUSTER = [("w", OLD, 0), ("d", OLD, 1), ("a", OLD, 15)]
Call = Callable[..., Any]


class Account:
    """A client of RDS, and a clock that the test moves."""

    def __init__(self, rds: Rds, client: Any) -> None:
        self.rds, self.client = rds, client

    def at(self, seconds: float) -> dict[str, tuple[str, str, bool]]:
        """Return class, status and writer flag of all instances, after the clock was moved to a time."""
        self.rds.timeline.clock.now = seconds
        cluster = self.client.describe_db_clusters()["DBClusters"][0]
        writers = {each["DBInstanceIdentifier"]: each["IsClusterWriter"] for each in cluster["DBClusterMembers"]}
        return {
            each["DBInstanceIdentifier"]: (
                each["DBInstanceClass"],
                each["DBInstanceStatus"],
                writers[each["DBInstanceIdentifier"]],
            )
            for each in self.client.describe_db_instances()["DBInstances"]
        }

    def cluster_status(self) -> str:
        return str(self.client.describe_db_clusters()["DBClusters"][0]["Status"])

    def modify(self, name: str, *, immediately: bool = True) -> None:
        self.client.modify_db_instance(DBInstanceIdentifier=name, DBInstanceClass=NEW, ApplyImmediately=immediately)

    def fail_over(self, target: str) -> None:
        self.client.failover_db_cluster(DBClusterIdentifier="shop", TargetDBInstanceIdentifier=target)

    def refused(self, code: str, call: Call, *arguments: Any, **options: Any) -> None:
        with pytest.raises(ClientError) as caught:
            call(*arguments, **options)
        assert caught.value.response["Error"]["Code"] == code


@pytest.fixture
def account() -> Iterator[Account]:
    rds = Rds(RdsTimes())
    with Emulator(rds, lambda *_: {}) as aws, aws.open_session(1) as session:
        rds.create_cluster("shop", CLUSTER)
        yield Account(rds, session.client("rds"))


def test_a_class_changes_at_the_end_of_a_modification_that_begins_after_a_while(account: Account) -> None:
    account.modify("d")
    pending = account.client.describe_db_instances(DBInstanceIdentifier="d")["DBInstances"][0]
    assert pending["PendingModifiedValues"] == {"DBInstanceClass": NEW}
    assert account.at(19)["d"] == (OLD, "available", False)
    account.refused("InvalidDBInstanceState", account.modify, "d")
    assert account.at(20)["d"] == (OLD, "modifying", False)
    account.refused("InvalidDBInstanceState", account.modify, "d")
    account.refused("InvalidDBInstanceState", account.fail_over, "d")
    assert account.at(719)["d"] == (OLD, "modifying", False)
    assert account.at(720)["d"] == (NEW, "available", False)
    assert [each.at for each in account.rds.snapshots] == [0, 0, 20, 720]
    account.refused("DBInstanceNotFound", account.modify, "nobody")


def test_without_apply_immediately_a_change_stays_pending(account: Account) -> None:
    account.modify("d", immediately=False)
    assert account.at(10_000)["d"] == (OLD, "available", False)
    described = account.client.describe_db_instances(DBInstanceIdentifier="d")["DBInstances"][0]
    assert described["PendingModifiedValues"] == {"DBInstanceClass": NEW}


def test_a_failover_takes_a_while_without_a_writer(account: Account) -> None:
    account.refused("InvalidDBInstanceState", account.fail_over, "w")
    account.fail_over("d")
    assert (account.cluster_status(), account.at(9)["w"]) == ("failing-over", (OLD, "available", True))
    account.refused("InvalidDBClusterStateFault", account.fail_over, "d")
    during = account.at(15)
    assert (during["w"], during["d"]) == ((OLD, "rebooting", False), (OLD, "available", False))
    assert account.at(30)["d"] == (OLD, "available", True)
    assert account.cluster_status() == "available"
    assert account.at(50)["w"] == (OLD, "available", False)


def test_a_failover_may_be_ignored_or_reverted_and_a_class_not_be_applied(account: Account) -> None:
    account.rds.set_outcomes("FailoverDBCluster", Outcome.IGNORED, 1)
    account.rds.set_outcomes("FailoverDBCluster", Outcome.REVERTED, 1)
    account.rds.set_outcomes("ModifyDBInstance", Outcome.IGNORED, 1)
    account.fail_over("d")
    assert account.at(100)["w"] == (OLD, "available", True)
    account.fail_over("d")
    assert account.at(115)["w"] == (OLD, "rebooting", False)
    assert account.at(200)["w"] == (OLD, "available", True)
    account.modify("a")
    assert account.at(300)["a"] == (OLD, "modifying", False)
    assert account.at(1000)["a"] == (OLD, "available", False)


def test_a_writer_that_fails_or_is_deleted_or_modified_is_replaced_by_the_lowest_tier(account: Account) -> None:
    account.rds.crash_writer()
    account.rds.crash_writer()  # once
    assert account.at(60)["d"] == (OLD, "available", True)
    account.client.delete_db_instance(DBInstanceIdentifier="d", SkipFinalSnapshot=True)
    account.rds.delete("d")
    after = account.at(120)
    assert (after["d"], after["w"]) == ((OLD, "deleting", False), (OLD, "available", True))
    assert "d" not in account.at(500)
    account.modify("w")  # which no run of ours does
    assert account.at(540)["w"][1:] == ("modifying", False)
    assert account.at(550)["a"] == (OLD, "available", True)
    assert account.at(1300)["w"] == (NEW, "available", False)


def test_a_writer_that_fails_alone_comes_back(account: Account) -> None:
    account.rds.delete("d")
    account.modify("a")
    account.at(400)
    account.rds.crash_writer()
    assert account.at(415)["w"] == (OLD, "rebooting", False)
    assert account.at(460)["w"] == (OLD, "available", True)


def test_a_deleted_writer_leaves_no_writer_until_an_instance_is_available(account: Account) -> None:
    account.rds.delete("d")
    account.modify("a")
    account.at(400)
    account.rds.delete("w")
    assert [each[2] for each in account.at(500).values()] == [False, False]
    assert account.cluster_status() == "failing-over"
    assert account.at(730)["a"] == (NEW, "available", True)


def test_a_modification_ends_with_a_deletion_and_waits_for_a_restart(account: Account) -> None:
    account.modify("a")
    account.rds.delete("a")
    assert account.at(100)["a"][1] == "deleting"
    assert "a" not in account.at(400)
    account.fail_over("d")
    account.at(450)
    account.rds.crash_writer()
    account.at(455)
    account.modify("d")  # fails over while the change begins
    assert account.at(471)["d"][1] == "rebooting"
    assert account.at(500)["d"][1] == "modifying"


def test_auto_scaling_adds_readers_of_the_class_of_the_writer_when_the_cluster_is_available(account: Account) -> None:
    account.fail_over("d")
    account.at(1)
    account.rds.scale_out()
    assert len(account.at(60)) == 3
    added = account.at(70)
    name = next(each for each in added if each.startswith("application-autoscaling-"))
    assert added[name] == (OLD, "creating", False)
    assert account.at(600)[name] == (OLD, "available", False)
    described = account.client.describe_db_instances(DBInstanceIdentifier=name)["DBInstances"][0]
    assert described["TagList"] == [{"Key": "application-autoscaling:resourceId", "Value": "cluster:shop"}]
    assert described["PromotionTier"] == 15


def test_a_stopped_cluster_starts_slowly_and_refuses_changes_meanwhile(account: Account) -> None:
    account.refused("InvalidDBClusterStateFault", account.client.start_db_cluster, DBClusterIdentifier="shop")
    account.client.stop_db_cluster(DBClusterIdentifier="shop")
    account.refused("InvalidDBClusterStateFault", account.client.stop_db_cluster, DBClusterIdentifier="shop")
    account.refused("InvalidDBInstanceState", account.modify, "d")
    account.client.start_db_cluster(DBClusterIdentifier="shop")
    assert (account.at(10)["d"][1], account.cluster_status()) == ("starting", "starting")
    account.refused("InvalidDBInstanceState", account.modify, "d")
    account.refused("InvalidDBClusterStateFault", account.fail_over, "d")
    assert account.at(1500)["d"] == (OLD, "available", False)


def test_an_instance_that_is_being_deleted_goes_although_the_cluster_starts(account: Account) -> None:
    account.rds.start_cluster()
    account.rds.delete("a")
    assert account.at(10)["a"][1] == "deleting"
    account.rds.start_cluster()
    assert account.at(20)["a"][1] == "deleting"
    assert "a" not in account.at(400)


def test_calls_are_throttled_and_refused_and_capacity_is_missing_as_planned(account: Account) -> None:
    account.rds.refuse_class(NEW, 1)
    account.refused("InsufficientDBInstanceCapacity", account.modify, "d")
    account.rds.refuse("ModifyDBInstance", "StorageTypeNotSupported", 1)
    account.refused("StorageTypeNotSupported", account.modify, "d")
    account.modify("d")
    account.rds.throttle(60)
    with pytest.raises(Exception, match="throttled"):
        account.at(59)
    assert account.at(60)["d"][1] == "modifying"


def test_it_is_served_over_http_with_a_clock_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    now = [100.0]
    rds = Rds(RdsTimes(), lambda: now[0])
    with serve_rds(rds) as url, AwsSession(AwsOptions(region=REGION, endpoint_url=url)) as session:
        rds.create_cluster("shop", CLUSTER)
        client = session.client("rds")
        client.modify_db_instance(DBInstanceIdentifier="d", DBInstanceClass=NEW, ApplyImmediately=True)

        def read() -> tuple[str, str]:
            found = client.describe_db_instances(DBInstanceIdentifier="d")["DBInstances"][0]
            return found["DBInstanceClass"], found["DBInstanceStatus"]

        found = []
        for seconds in (110, 200, 900):
            now[0] = seconds
            found.append(read())
    assert found == [(OLD, "available"), (OLD, "modifying"), (NEW, "available")]
