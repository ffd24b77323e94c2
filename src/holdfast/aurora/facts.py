"""Read what the checks before a run need to know. If a read fails, its check becomes a warning."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from holdfast._errors import HoldfastError
from holdfast.aurora.cluster import parse_cluster
from holdfast.aurora.handlers import describe_cluster
from holdfast.aurora.preflight import ClusterFacts, PlannedRun
from holdfast.engines.aws import AwsSession

T = TypeVar("T")


class ClusterFactReader:
    """Reads facts with the calls of one session."""

    def __init__(self, session: AwsSession, autoscaling_pattern: str) -> None:
        self._session = session
        self._pattern = autoscaling_pattern
        self._unreadable: dict[str, str] = {}

    def read(self, run: PlannedRun, find_lock_holder: Callable[[], str], now: float) -> ClusterFacts:
        """Return the facts for a run. Raise NotFound if there is no such cluster."""
        cluster_id = run.cluster_id
        described, instances = describe_cluster(self._session, cluster_id)
        source = [{"Name": "source", "Values": [described.get("DBClusterArn", "")]}]
        return ClusterFacts(
            run=run,
            cluster=parse_cluster(described, instances, self._pattern),
            cluster_description=described,
            instances=instances,
            orderable_options=self._try({}, lambda: self._read_options(described, run.classes), "target class"),
            maintenance=self._try((), lambda: self._read_maintenance(described, instances), "pending maintenance"),
            endpoints=self._try(
                [],
                lambda: self._list("describe_db_cluster_endpoints", DBClusterIdentifier=cluster_id),
                "custom endpoints",
            ),
            global_clusters=self._try([], lambda: self._list("describe_global_clusters"), "global database"),
            blue_green_deployments=self._try(
                [], lambda: self._list("describe_blue_green_deployments", Filters=source), "blue/green"
            ),
            parameters=self._try(
                {}, lambda: self._read_parameters(described, instances), "memory parameters", "parallel query"
            ),
            connections=self._try({}, lambda: self._read_connections(instances, now), "connections"),
            lock_holder=self._try("", find_lock_holder, "other runs"),
            unreadable=self._unreadable,
        )

    def _try(self, default: T, read: Callable[[], T], *checks: str) -> T:
        try:
            return read()
        except (HoldfastError, ClientError) as error:
            self._unreadable.update(dict.fromkeys(checks, str(error).splitlines()[0].rstrip(":")))
            return default

    def _list(self, operation: str, **arguments: Any) -> list[Any]:
        return list(self._session.paginate("rds", operation, **arguments))

    def _read_options(self, described: Mapping[str, Any], classes: Sequence[str]) -> dict[str, list[Any]]:
        operation = "describe_orderable_db_instance_options"
        engine = {name: described.get(name, "") for name in ("Engine", "EngineVersion")}
        found = {each: self._list(operation, **engine, DBInstanceClass=each) for each in classes}
        return {each: [row for row in rows if row["DBInstanceClass"] == each] for each, rows in found.items()}

    def _read_maintenance(
        self, described: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]
    ) -> tuple[str, ...]:
        arns = {described.get("DBClusterArn"), *(each.get("DBInstanceArn") for each in instances)}
        return tuple(
            f"{each.get('Action', '')} of {found['ResourceIdentifier'].rpartition(':')[2]}"
            for found in self._list("describe_pending_maintenance_actions")
            if found["ResourceIdentifier"] in arns
            for each in found.get("PendingMaintenanceActionDetails", ())
        )

    def _read_parameters(self, described: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        group = described.get("DBClusterParameterGroup", "")
        found = self._list("describe_db_cluster_parameters", DBClusterParameterGroupName=group, Source="user")
        names = {each["DBParameterGroupName"] for one in instances for each in one.get("DBParameterGroups", ())}
        for name in sorted(names):
            found += self._list("describe_db_parameters", DBParameterGroupName=name, Source="user")
        return {each["ParameterName"]: each.get("ParameterValue", "") for each in found}

    def _read_connections(self, instances: Sequence[Mapping[str, Any]], now: float) -> dict[str, float]:
        """Return the highest number of connections of each instance during the last day."""
        names = [each["DBInstanceIdentifier"] for each in instances]
        metric = {"Namespace": "AWS/RDS", "MetricName": "DatabaseConnections"}
        queries = [
            {
                "Id": f"instance{number}",
                "MetricStat": {
                    "Metric": {**metric, "Dimensions": [{"Name": "DBInstanceIdentifier", "Value": name}]},
                    "Period": 3600,
                    "Stat": "Maximum",
                },
            }
            for number, name in enumerate(names)
        ]
        end = datetime.fromtimestamp(now, UTC)
        found = self._session.client("cloudwatch").get_metric_data(
            MetricDataQueries=queries, StartTime=end - timedelta(days=1), EndTime=end
        )["MetricDataResults"]
        return {
            names[int(each["Id"].removeprefix("instance"))]: max(each["Values"]) for each in found if each["Values"]
        }
