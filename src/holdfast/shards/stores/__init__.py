"""Where tenants' numbers and layouts are kept; each fulfils `holdfast.shards.ShardStore`."""

from holdfast.shards.stores.memory import MemoryShardStore
from holdfast.shards.stores.sql import SqlShardStore

__all__ = ["MemoryShardStore", "SqlShardStore"]
