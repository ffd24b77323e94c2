"""An RDS with the lifecycle of Aurora. It extends that of moto: changes take time, and AWS's errors refuse wrong calls.

Nothing happens in the background. Every call first applies the changes whose time has come, in the order of time, so
that a virtual clock and a real one give the same result.
"""

import math
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias
from unittest.mock import patch

from holdfast._errors import EngineError, MissingExtra

try:
    from moto.rds.exceptions import RDSClientError
    from moto.rds.models import DBCluster, RDSBackend, rds_backends
except ImportError as error:
    raise MissingExtra("a simulation of AWS", "simulate") from error

from holdfast.aurora.cluster import AUTOSCALING_PREFIX, AUTOSCALING_TAG
from holdfast.simulate.aws.lifecycle import AcceptedCall, InstanceState, Outcome, RdsTimes, Snapshot
from holdfast.simulate.virtual import Process, Timeline

REGION = "ap-northeast-1"
ENGINE = "aurora-postgresql"
Instance: TypeAlias = Any
"""moto's DBInstanceClustered. It serializes `pending_modified_values`, but does not declare it."""


@dataclass
class _Plan:
    """The faults that are still to happen."""

    refusals: dict[str, deque[str]] = field(default_factory=dict)
    outcomes: dict[str, deque[Outcome]] = field(default_factory=dict)
    no_capacity: Counter[str] = field(default_factory=Counter)
    throttled_until: float = -1.0


class Rds:
    """The RDS of one simulated account, with one cluster. Its calls may come from several threads."""

    def __init__(self, times: RdsTimes, clock: Callable[[], float] | None = None) -> None:
        """Create an RDS. Without `clock`, its time is `timeline.clock`, which the caller advances."""
        self.times = times
        self.timeline = Timeline()
        self.snapshots: list[Snapshot] = []
        self.calls: list[AcceptedCall] = []
        self._read_clock = clock or self.timeline.clock.monotonic
        self._lock = threading.RLock()
        self._plan = _Plan()
        self._created = 0

    @contextmanager
    def install(self) -> Iterator[None]:
        """Replace moto's RDS, in this process, by this one."""
        rds_backends.clear()
        try:
            with warnings.catch_warnings(), patch.object(rds_backends, "backend", partial(_Backend, self)):
                warnings.filterwarnings("ignore", ".*code Throttling does not match")  # AWS has no model of it either
                yield
        finally:
            rds_backends.clear()

    def advance(self) -> None:
        """Apply every change whose time has come."""
        with self._lock:
            now = self._read_clock()
            self.timeline.run(math.nextafter(now, math.inf))
            self.timeline.clock.now = now

    def start(self, process: Process[object], at: float | None = None) -> None:
        """Start a process now, or at a later time, and record what it changes."""
        self.timeline.start(self.timeline.clock.now if at is None else at, self._record_steps(process))

    def schedule(self, at: float, action: Callable[[], object]) -> None:
        """Call `action` at a time, such as `partial(rds.delete, "reader-1")`."""

        def process() -> Process[None]:
            action()
            yield 0

        self.start(process(), at)

    def refuse(self, operation: str, code: str, times: int) -> None:
        """Answer the next calls of `operation` with an error."""
        self._plan.refusals.setdefault(operation, deque()).extend([code] * times)

    def throttle(self, seconds: float) -> None:
        """Refuse all calls for some time."""
        self._plan.throttled_until = self.timeline.clock.now + seconds

    def set_outcomes(self, operation: str, outcome: Outcome, times: int) -> None:
        """Set how the next `times` accepted calls of `operation` end."""
        self._plan.outcomes.setdefault(operation, deque()).extend([outcome] * times)

    def refuse_class(self, instance_class: str, times: int) -> None:
        """Refuse the next `times` changes to a class for lack of capacity."""
        self._plan.no_capacity[instance_class] += times

    def create_cluster(self, cluster_id: str, instances: Sequence[tuple[str, str, int]]) -> None:
        """Create a cluster with available instances: id, class and promotion tier. The first one is the writer."""
        self.backend.create_db_cluster(
            {
                "db_cluster_identifier": cluster_id,
                "engine": ENGINE,
                "master_username": "admin",
                "master_user_password": "simulated",
            }
        )
        for name, instance_class, tier in instances:
            self._create(name, instance_class, tier).status = "available"
        self._record()

    def create_instance(self, name: str, instance_class: str, tier: int, *, is_autoscaling: bool = False) -> None:
        """Begin to create a reader."""
        instance = self._create(name, instance_class, tier, is_autoscaling=is_autoscaling)
        self.start(self._change_status(instance, "creating", self.times.creation, "available"))

    def scale_out(self) -> None:
        """Add a reader as Auto Scaling does: of the class of the writer, as soon as the cluster is available."""
        self._created += 1
        name = f"{AUTOSCALING_PREFIX}{self._created:08x}-0000-4000-8000-000000000000"

        def process() -> Process[None]:
            while self.cluster.status != "available" or self.cluster.writer is None:
                yield 60
            self.create_instance(name, self.cluster.writer.db_instance_class, 15, is_autoscaling=True)

        self.start(process())

    def delete(self, name: str) -> None:
        """Begin to delete an instance, if it exists. If it is the writer, Aurora fails over."""
        instance = self.backend.databases.get(name)
        if instance is not None and instance.status != "deleting":
            self.start(self._delete(instance))

    def crash_writer(self) -> None:
        """Let the writer fail, so that Aurora promotes a reader, if one is available."""
        if self.cluster.status == "available":
            self.start(self._fail_over(None, Outcome.DONE))

    def stop_cluster(self) -> None:
        """Stop the cluster at once. Its instances cannot be changed any more."""
        self._set_status("stopped")

    def start_cluster(self) -> None:
        """Begin to start a stopped cluster."""
        self.start(self._start_cluster())

    @property
    def backend(self) -> "_Backend":
        backend = rds_backends["123456789012"][REGION]
        assert isinstance(backend, _Backend)
        return backend

    @property
    def cluster(self) -> DBCluster:
        return next(iter(self.backend.clusters.values()))

    @property
    def members(self) -> list[Instance]:
        return list(self.backend.databases.values())

    def begin_call(self, operation: str) -> None:
        """Begin a call: apply the changes whose time has come, and raise an error that was planned."""
        self.advance()
        if self.timeline.clock.now < self._plan.throttled_until:
            raise RDSClientError("Throttling", "Simulated: Rate exceeded")
        codes = self._plan.refusals.get(operation)
        if codes:
            raise RDSClientError(codes.popleft(), f"Simulated: {operation} is refused.")

    def modify(self, instance: Instance, instance_class: str, *, is_immediate: bool) -> None:
        """Begin to change the class of an instance. Raise an error of AWS if that is refused."""
        name = instance.db_instance_identifier
        if instance.status != "available":
            raise RDSClientError("InvalidDBInstanceState", f"Instance {name} is {instance.status}.")
        if instance.pending_modified_values:
            raise RDSClientError("InvalidDBInstanceState", f"Instance {name} is being modified.")
        if self._plan.no_capacity[instance_class] > 0:
            self._plan.no_capacity[instance_class] -= 1
            raise RDSClientError("InsufficientDBInstanceCapacity", f"No capacity for {instance_class}.")
        self._accept("ModifyDBInstance", name, instance_class)
        instance.pending_modified_values = {"DBInstanceClass": instance_class}
        if is_immediate:
            self.start(self._modify(instance, instance_class, self._take_outcome("ModifyDBInstance")))

    def fail_over(self, target: Instance | None) -> None:
        """Begin a failover. Raise an error of AWS if that is refused."""
        if self.cluster.status != "available":
            raise RDSClientError("InvalidDBClusterStateFault", f"The cluster is {self.cluster.status}.")
        if target is not None and (target.status != "available" or target.is_cluster_writer):
            raise RDSClientError("InvalidDBInstanceState", f"{target.db_instance_identifier} cannot be promoted.")
        self._accept("FailoverDBCluster", target.db_instance_identifier if target is not None else "")
        outcome = self._take_outcome("FailoverDBCluster")
        if outcome is not Outcome.IGNORED:
            self.start(self._fail_over(target, outcome))

    def _modify(self, instance: Instance, instance_class: str, outcome: Outcome) -> Process[None]:
        yield self.times.delay_before_modifying
        while instance.status != "available":
            if instance.status == "deleting":
                return
            yield 5
        instance.status = "modifying"
        if instance.is_cluster_writer and self.cluster.status == "available":  # promoted meanwhile
            self.start(self._fail_over(None, Outcome.DONE))
        yield self.times.modification
        if outcome is Outcome.DONE:
            instance.db_instance_class = instance_class
        instance.pending_modified_values = {}
        if instance.status == "modifying":
            instance.status = "available"

    def _fail_over(self, target: Instance | None, outcome: Outcome) -> Process[None]:
        cluster, old = self.cluster, self.cluster.writer
        cluster.status = "failing-over"
        yield self.times.failover / 3
        if old is not None:
            old.is_cluster_writer = False
            self._restart(old)
        yield self.times.failover * 2 / 3
        candidates = [each for each in self.members if each.status == "available" and each is not old]
        best = min(candidates, key=lambda each: (each.promotion_tier, each.db_instance_identifier), default=None)
        chosen = target if target is not None and target.status == "available" else best
        if outcome is Outcome.REVERTED or chosen is None:
            chosen = old if old is not None and old.status != "deleting" else best
        while chosen is None:  # all instances are busy
            yield 10
            chosen = next((each for each in self.members if each.status == "available"), None)
        chosen.is_cluster_writer = True
        cluster.status = "available"

    def _restart(self, instance: Instance) -> None:
        if instance.status == "available":
            seconds = self.times.failover * 2 / 3 + self.times.reboot
            self.start(self._change_status(instance, "rebooting", seconds, "available"))

    def _change_status(self, instance: Instance, status: str, seconds: float, following: str) -> Process[None]:
        instance.status = status
        yield seconds
        if instance.status == status:
            instance.status = following

    def _delete(self, instance: Instance) -> Process[None]:
        instance.status = "deleting"
        if instance.is_cluster_writer and self.cluster.status == "available":
            self.start(self._fail_over(None, Outcome.DONE))
        yield self.times.deletion
        while instance.is_cluster_writer:
            yield 10
        self.backend.databases.pop(instance.db_instance_identifier, None)

    def _start_cluster(self) -> Process[None]:
        self._set_status("starting")
        yield self.times.start
        self._set_status("available")

    def _set_status(self, status: str) -> None:
        self.cluster.status = status
        for each in self.members:
            if each.status != "deleting":
                each.status = status

    def _create(self, name: str, instance_class: str, tier: int, *, is_autoscaling: bool = False) -> Instance:
        tags = [{"Key": AUTOSCALING_TAG, "Value": f"cluster:{self.cluster.db_cluster_identifier}"}]
        instance = self.backend.create_db_instance(
            {
                "db_instance_identifier": name,
                "db_instance_class": instance_class,
                "db_cluster_identifier": self.cluster.db_cluster_identifier,
                "engine": ENGINE,
                "promotion_tier": tier,
                "tags": tags if is_autoscaling else [],
            }
        )
        instance.status = "creating"
        return instance

    def _take_outcome(self, operation: str) -> Outcome:
        planned = self._plan.outcomes.get(operation)
        return planned.popleft() if planned else Outcome.DONE

    def _accept(self, operation: str, instance_id: str, instance_class: str = "") -> None:
        self.calls.append(AcceptedCall(self.timeline.clock.now, operation, instance_id, instance_class))

    def _record_steps(self, process: Process[object]) -> Process[None]:
        for seconds in process:
            self._record()
            yield seconds
        self._record()

    def _record(self) -> None:
        states = {
            each.db_instance_identifier: InstanceState(
                each.db_instance_class, each.status, each.is_cluster_writer, bool(each.pending_modified_values)
            )
            for each in self.members
        }
        now = Snapshot(self.timeline.clock.now, self.cluster.status, states)
        last = self.snapshots[-1] if self.snapshots else None
        if last is None or (last.cluster_status, last.instances) != (now.cluster_status, now.instances):
            self.snapshots.append(now)


class _Cluster(DBCluster):
    """A cluster that has no writer while it fails over."""

    def designate_writer(self) -> None:
        if self.status != "failing-over":
            super().designate_writer()


class _Backend(RDSBackend):
    """moto's RDS, with calls whose effects take time, and reads that show them."""

    __module__ = RDSBackend.__module__  # where moto looks for the addresses of the service

    def __init__(self, rds: Rds, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self._rds = rds

    def create_db_cluster(self, kwargs: dict[str, Any]) -> DBCluster:
        cluster = super().create_db_cluster(kwargs)
        cluster.__class__ = _Cluster
        cluster.status = "available"
        return cluster

    def create_db_instance(self, db_kwargs: dict[str, Any]) -> Instance:
        instance: Instance = super().create_db_instance(db_kwargs)
        instance.pending_modified_values = {}
        return instance

    def describe_db_clusters(self, db_cluster_identifier: str | None = None, filters: Any = None) -> list[DBCluster]:
        self._rds.begin_call("DescribeDBClusters")
        return super().describe_db_clusters(db_cluster_identifier, filters)

    def describe_db_instances(self, db_instance_identifier: str | None = None, filters: Any = None) -> list[Instance]:
        self._rds.begin_call("DescribeDBInstances")
        return super().describe_db_instances(db_instance_identifier, filters)

    def modify_db_instance(self, db_instance_identifier: str, db_kwargs: dict[str, Any]) -> Instance:
        self._rds.begin_call("ModifyDBInstance")
        instance = super().describe_db_instances(db_instance_identifier)[0]
        new_class = db_kwargs.get("db_instance_class")
        if new_class:
            self._rds.modify(instance, new_class, is_immediate=bool(db_kwargs.get("apply_immediately")))
        return instance

    def failover_db_cluster(
        self, db_cluster_identifier: str, target_db_instance_identifier: str | None = None
    ) -> DBCluster:
        self._rds.begin_call("FailoverDBCluster")
        cluster = super().describe_db_clusters(db_cluster_identifier)[0]
        name = target_db_instance_identifier
        self._rds.fail_over(super().describe_db_instances(name)[0] if name else None)
        return cluster

    def delete_db_instance(self, db_instance_identifier: str, *_arguments: Any, **_options: Any) -> Instance:
        self._rds.begin_call("DeleteDBInstance")
        instance = super().describe_db_instances(db_instance_identifier)[0]
        self._rds.delete(db_instance_identifier)
        return instance

    def start_db_cluster(self, cluster_identifier: str) -> DBCluster:
        self._rds.begin_call("StartDBCluster")
        cluster = super().describe_db_clusters(cluster_identifier)[0]
        if cluster.status != "stopped":
            raise RDSClientError("InvalidDBClusterStateFault", f"The cluster is {cluster.status}.")
        self._rds.start_cluster()
        return cluster

    def stop_db_cluster(self, cluster_identifier: str) -> DBCluster:
        self._rds.begin_call("StopDBCluster")
        cluster = super().describe_db_clusters(cluster_identifier)[0]
        if cluster.status != "available":
            raise RDSClientError("InvalidDBClusterStateFault", f"The cluster is {cluster.status}.")
        self._rds.stop_cluster()
        return cluster


@contextmanager
def serve_rds(rds: Rds) -> Iterator[str]:
    """Serve an RDS over HTTP on loopback, for other processes and emulators. Yield its address."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        raise EngineError("serving a simulated RDS needs moto's server: pip install 'moto[server]'") from error

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    with rds.install():
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()
