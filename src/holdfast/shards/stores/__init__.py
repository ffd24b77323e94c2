"""Where tenants' numbers are kept; each fulfils `holdfast.shards.NumberStore`."""

from holdfast.shards.stores.memory import MemoryNumberStore
from holdfast.shards.stores.sql import SqlNumberStore

__all__ = ["MemoryNumberStore", "SqlNumberStore"]
