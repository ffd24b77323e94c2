"""Stores of tenants' numbers and of layouts. Each one implements `holdfast.shards.ShardStore`."""

from holdfast.shards.stores.memory import MemoryShardStore
from holdfast.shards.stores.sql import SqlShardStore

__all__ = ["MemoryShardStore", "SqlShardStore"]
