"""Shuffle sharding: who shares which workers with whom, so that one tenant cannot take everybody down.

May import the base, and `stores/` the engines; everything else is pure. Start reading at `fleet.py` for what there is,
and at `designed.py` for who gets what.
"""

from holdfast.shards.designed import Designed, Shard
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.hashed import Hashed
from holdfast.shards.pick import pick
from holdfast.shards.registry import NumberStore, Registry

__all__ = ["Designed", "Fleet", "Hashed", "NumberStore", "Registry", "Shard", "Slot", "pick"]
