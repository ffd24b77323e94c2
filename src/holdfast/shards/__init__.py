"""Shuffle sharding: a few workers for each tenant, so that one tenant cannot take down all workers.

May import the base, and `stores/` the engines; everything else is pure. Start reading at `fleet.py` for the workers, at
`designed.py` for the shard of a tenant, and at `assignments.py` for tenants and layouts in a store.
"""

from holdfast.shards.assignments import Assignments, LayoutChange, LayoutVersion
from holdfast.shards.designed import DesignedSharding
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.hashed import HashedSharding
from holdfast.shards.layout import Layout, NumberedTenant, adapt_layout
from holdfast.shards.plan import Move, Plan, Sharding, plan
from holdfast.shards.registry import ShardStore, StoredLayout, TenantRegistry
from holdfast.shards.searched import SearchedSharding
from holdfast.shards.shard import Shard, pick_worker
from holdfast.shards.suspects import Suspect, find_suspects

__all__ = [
    "Assignments",
    "DesignedSharding",
    "Fleet",
    "HashedSharding",
    "Layout",
    "LayoutChange",
    "LayoutVersion",
    "Move",
    "NumberedTenant",
    "Plan",
    "SearchedSharding",
    "Shard",
    "ShardStore",
    "Sharding",
    "Slot",
    "StoredLayout",
    "Suspect",
    "TenantRegistry",
    "adapt_layout",
    "find_suspects",
    "pick_worker",
    "plan",
]
