"""Detects a failing zone in this process, without a server: `python detect.py`."""

import time

from holdfast import Operation, Outcome, Side, Zone
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import build_deltas
from holdfast.watch import WatchedWorkload, WatchStore, WorkloadWatcher

ZONES = (Zone("use1-az1"), Zone("use1-az2"))
# One bin is enough here. In production, keep the defaults: bins of 10 s, and a detector that learns for 30 minutes.
shop = WatchedWorkload(name="shop", zones=ZONES, detector="threshold", options={"consecutive_windows": 1})


def measure(zone: Zone, *, failed: int) -> Outcome:
    """Return the counts of a service that has measured 30 requests, some of them failed."""
    return Outcome(
        workload="shop",
        operation=Operation("Home", "Index"),
        zone=zone,
        instance=f"i-{zone}",
        at=time.time(),
        side=Side.SERVER,
        count_2xx=30 - failed,
        count_5xx=failed,
        success_seconds=(0.012,) * (30 - failed),
        fault_seconds=(0.012,) * failed,
    )


with SqliteDatabase("watch.sqlite") as database:
    store = WatchStore(database)
    with WorkloadWatcher([shop], store, bin_seconds=0.5) as watcher:
        while not store.verdicts():
            outcomes = [measure(ZONES[0], failed=0), measure(ZONES[1], failed=12)]
            watcher.ingest(build_deltas(outcomes, watcher.bin_seconds))
            time.sleep(0.1)
    print(store.verdicts()[0].summary)
