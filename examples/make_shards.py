"""Applies a layout and assigns tenants: `python make_shards.py`."""

import secrets

from holdfast import NotFound
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.shards import Assignments, Fleet, Layout
from holdfast.shards.batch import build_slot_table
from holdfast.shards.report import build_report, compute_blast_radius
from holdfast.shards.stores import SqlShardStore

zones = {zone: [f"{zone}-worker-{number}" for number in range(25)] for zone in ("use1-az1", "use1-az2", "use1-az3")}
layout = Layout.create(Fleet.from_groups(zones), size=3, overlap=1, key=secrets.token_bytes(32))
print(layout.capacity, "shards, survives", layout.sharding.attackers_survived)

with SqliteDatabase("other.sqlite") as database:
    assignments = Assignments(SqlShardStore(database, "shop"))
    try:
        layout = assignments.layout  # of an earlier run
    except NotFound:
        change = assignments.plan(layout)
        print("version", assignments.apply(change).number, "moves", len(change.plan.moving_tenants))
    assignments.assign_many(f"tenant-{number}" for number in range(500))

    slots = build_slot_table(layout, list(assignments.iter_tenants()))
    print("shared at most:", build_report(layout.fleet, slots, overlap=layout.overlap).overlaps.max_shared)
    print("down with one tenant:", compute_blast_radius(layout.fleet, slots, tenants=[17]).fully_hit)
