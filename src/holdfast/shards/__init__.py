"""Shuffle sharding: who shares which workers with whom, so that one tenant cannot take everybody down.

May import the base; pure. Start reading at `fleet.py` for what there is, and at `designed.py` for who gets what.
"""

from holdfast.shards.designed import Designed, Shard
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.hashed import Hashed
from holdfast.shards.pick import pick

__all__ = ["Designed", "Fleet", "Hashed", "Shard", "Slot", "pick"]
