"""Shuffle sharding: who shares which workers with whom, so that one tenant cannot take everybody down.

May import the base, and `stores/` the engines; everything else is pure. Start reading at `fleet.py` for what there is,
at `designed.py` for who gets what, and at `assignments.py` for how that is kept.
"""

from holdfast.shards.assignments import Assignments, Change, Version
from holdfast.shards.designed import Designed
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.hashed import Hashed
from holdfast.shards.layout import Layout, Numbered, adapted
from holdfast.shards.plan import Move, Plan, Sharding, plan
from holdfast.shards.registry import Registry, ShardStore, StoredLayout
from holdfast.shards.searched import Searched
from holdfast.shards.shard import Shard, pick
from holdfast.shards.suspects import Suspect, suspects

__all__ = [
    "Assignments",
    "Change",
    "Designed",
    "Fleet",
    "Hashed",
    "Layout",
    "Move",
    "Numbered",
    "Plan",
    "Registry",
    "Searched",
    "Shard",
    "ShardStore",
    "Sharding",
    "Slot",
    "StoredLayout",
    "Suspect",
    "Version",
    "adapted",
    "pick",
    "plan",
    "suspects",
]
