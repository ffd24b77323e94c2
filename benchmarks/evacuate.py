"""What the journal and the checks of an evacuation cost, compared with a loop that makes the same calls.

An account has 1,000 load balancers, on a simulated control plane in a process of its own. `bare loop` uses boto3 with
the timeouts, attempts and threads of Holdfast: it reads each balancer, starts a zonal shift and reads it again; then it
reads each balancer, cancels the shift and reads it again. `holdfast` evacuates the zone and restores it as the commands
do, with a journal in SQLite that is durable before and after every change. The control plane records all calls, and the
benchmark fails unless both made the same ones, in the same order for every resource. A reply takes about a millisecond
here, less than over a network: longer replies would hide what Holdfast adds.

`discovery` plans the evacuation, which the bare loop does not do: it lists the resources that ARC manages, and those
that it does not. In all three, a unit is one resource.

Then, in new processes: the peak memory with a quarter of the resources, with the same quarter four times in a row, and
with all resources.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # makes `benchmarks` importable, and hides no standard module

import boto3.session
from botocore.config import Config

from benchmarks._evacuate_cloud import Cloud
from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main, paired_ratio
from holdfast.compose import Databases
from holdfast.compose_evacuation import open_evacuator
from holdfast.config import Settings
from holdfast.config.evacuation import EvacuationActionSettings, EvacuationSettings
from holdfast.config.settings import AwsSettings
from holdfast.engines.aws import AwsOptions
from holdfast.evacuate import Evacuator, GuardName, Proposal
from holdfast.evacuate.action import PARALLEL_CALLS
from holdfast.simulate.aws.region import REGION, ZONES

ZONE = ZONES[0]
READ, START, CANCEL = "GetManagedResource", "StartZonalShift", "CancelZonalShift"
CALLS = (READ, START, READ, READ, CANCEL, READ)
"""The calls for each resource, in this order."""


@contextmanager
def open_cloud(count: int) -> Iterator[Cloud]:
    """Start a control plane, and let boto3 use its credentials."""
    with Cloud(count) as cloud:
        os.environ |= {"AWS_ACCESS_KEY_ID": cloud.access_key, "AWS_SECRET_ACCESS_KEY": "simulated"}
        yield cloud


def require_calls(cloud: Cloud) -> None:
    """Raise RuntimeError unless every resource was shifted and restored by exactly the expected calls."""
    found, count = cloud.take_calls(), len(cloud.arns)
    total = {READ: 4 * count, START: count, CANCEL: count}
    if found.sequences != {CALLS: count} or found.total != total or found.shifted:
        raise RuntimeError(f"other calls than expected reached the control plane: {found}")


@contextmanager
def bare_loop(count: int, cpu_seconds: list[float]) -> Iterator[Work]:
    with open_cloud(count) as cloud:
        options = AwsOptions(region=REGION, endpoint_url=cloud.address, max_attempts=1)

        def work(_: int) -> int:
            began = time.process_time()
            client = open_client(options)
            with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
                for each in pool.map(partial(evacuate_one, client, ZONE), cloud.arns):
                    assert each == 0.0
                for each in pool.map(partial(restore_one, client, ZONE), cloud.arns):
                    assert each == 1.0
            client.close()
            cpu_seconds.append(time.process_time() - began)
            return count

        yield work
        require_calls(cloud)


def open_client(options: AwsOptions) -> Any:
    config = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
        inject_host_prefix=False,
    )
    return boto3.session.Session().client(
        "arc-zonal-shift", options.region, endpoint_url=options.endpoint_url, config=config
    )


def evacuate_one(client: Any, zone: str, arn: str) -> float:
    """Shift a resource away from a zone. Return the share of traffic that the zone gets now."""
    found = client.get_managed_resource(resourceIdentifier=arn)
    assert not found["zonalShifts"]
    client.start_zonal_shift(resourceIdentifier=arn, awayFrom=zone, expiresIn="12h", comment="a benchmark")
    weight: float = client.get_managed_resource(resourceIdentifier=arn)["appliedWeights"][zone]
    return weight


def restore_one(client: Any, zone: str, arn: str) -> float:
    """Cancel the shift of a resource. Return the share of traffic that the zone gets now."""
    found = client.get_managed_resource(resourceIdentifier=arn)
    client.cancel_zonal_shift(zonalShiftId=found["zonalShifts"][0]["zonalShiftId"])
    weight: float = client.get_managed_resource(resourceIdentifier=arn)["appliedWeights"][zone]
    return weight


@contextmanager
def open_holdfast(address: str) -> Iterator[Evacuator]:
    """Yield what commands evacuate with, and a new journal in SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            data_directory=Path(folder),
            aws=AwsSettings(region=REGION, endpoint_url=address),
            evacuation=EvacuationSettings(action=(EvacuationActionSettings(name="zonal-shift"),)),
        )
        with Databases(settings) as databases, open_evacuator(settings, databases) as evacuator:
            yield evacuator


def plan(evacuator: Evacuator, count: int) -> Proposal:
    """Plan the evacuation of all resources."""
    # Without detection there is no verdict, and the runs of a benchmark follow each other quickly.
    overrides = {str(each): "a benchmark" for each in (GuardName.PAUSE, GuardName.VERDICT)}
    proposal = evacuator.prepare(ZONE, reason="a benchmark", overrides=overrides)
    assert [len(each) for each in proposal.plan.changes.values()] == [count]
    return proposal


def evacuate_and_restore(evacuator: Evacuator, proposal: Proposal) -> None:
    claim, planned = evacuator.begin(proposal, by="a benchmark")
    evacuated = evacuator.evacuate(claim, planned)
    assert not evacuated.problems
    restored = evacuator.restore(evacuator.claim(evacuated.run))
    assert not restored.problems
    assert not restored.run.is_open


@contextmanager
def holdfast(count: int, cpu_seconds: list[float]) -> Iterator[Work]:
    with open_cloud(count) as cloud, open_holdfast(cloud.address) as evacuator:
        proposal = plan(evacuator, count)
        cloud.take_calls()

        def work(_: int) -> int:
            began = time.process_time()
            evacuate_and_restore(evacuator, proposal)
            cpu_seconds.append(time.process_time() - began)
            return count

        yield work
        require_calls(cloud)


@contextmanager
def discovery(count: int) -> Iterator[Work]:
    with open_cloud(count) as cloud, open_holdfast(cloud.address) as evacuator:

        def work(_: int) -> int:
            plan(evacuator, count)
            return count

        yield work


def measure_memory(count: int, times: int = 1) -> float:
    """Return the peak kilobytes of a process that plans, evacuates and restores some resources a number of times."""
    with open_cloud(count) as cloud, get_context("spawn").Pool(1) as pool:
        peak: float = pool.apply(_measure_peak, (cloud.address, count, times))
        return peak


def _measure_peak(address: str, count: int, times: int) -> float:
    with open_holdfast(address) as evacuator:
        for _ in range(times):
            evacuate_and_restore(evacuator, plan(evacuator, count))
    # The operating system's own maximum would include the process that this one was started from.
    status = Path("/proc/self/status").read_text()
    return next(float(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def goals(results: Results, count: int, cpu_seconds: Mapping[str, Sequence[float]]) -> Sequence[Goal]:
    few = count // 4
    once, again, many = measure_memory(few), measure_memory(few, 4), measure_memory(count)
    cpu_ratio = paired_ratio(cpu_seconds["holdfast"][1:], cpu_seconds["bare loop"][1:])  # the first one warms up
    print(f"calls for each resource, of both: {', '.join(CALLS)}")
    print(f"CPU time of the client: {cpu_ratio:.2f} x bare loop")
    print(f"discovery of {count:,} resources: {statistics.median(results.seconds('discovery')) * count:.2f} s")
    megabytes = ", ".join(f"{each / 1024:.1f} MB" for each in (once, again, many))
    print(f"peak memory of {few:,} resources, of {few:,} four times, of {count:,}: {megabytes}")
    elapsed = paired_ratio(results.seconds("holdfast"), results.seconds("bare loop"))
    return [
        Goal("evacuation and restore, times a bare loop", elapsed, 1.3, "lower"),
        Goal("kilobytes of memory for each further resource", (many - once) / (count - few), 20.0, "lower"),
        Goal("memory after four evacuations, times that after one", again / once, 1.05, "lower"),
    ]


def build(quick: bool) -> Benchmark:
    count = 200 if quick else 1000
    cpu_seconds: dict[str, list[float]] = {"bare loop": [], "holdfast": []}
    return Benchmark(
        contenders=[
            Contender("bare loop", lambda: bare_loop(count, cpu_seconds["bare loop"]), count),
            Contender("holdfast", lambda: holdfast(count, cpu_seconds["holdfast"]), count),
            Contender("discovery", lambda: discovery(count), count),
        ],
        goals=lambda results: goals(results, count, cpu_seconds),
        rounds=3 if quick else 5,
        base="bare loop",
        show="seconds",
    )


if __name__ == "__main__":
    sys.exit(main("evacuate", build))
