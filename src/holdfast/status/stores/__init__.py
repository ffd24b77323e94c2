"""Stores of zone statuses: one module each, which implements `holdfast.StatusStore` and registers itself by name.

A store is opened by its address: its name, then after a colon its argument, such as `dynamodb:TABLE`. Other
distributions add stores through the entry point group `holdfast.status_stores`. Rules for all stores are in `rules.py`,
those for stores in AWS in `aws.py`. `dynamodb` and `s3` need boto3, and are imported by their full names.
"""

from typing import TypeAlias

from holdfast._types import StatusStore
from holdfast.engines.stores import StoreResources, StoreType, StoreTypes

__all__ = ["STATUS_STORES", "StatusStoreType", "StoreResources"]

StatusStoreType: TypeAlias = StoreType[StatusStore]
STATUS_STORES: StoreTypes[StatusStore] = StoreTypes(
    "status store", package="holdfast.status.stores", group="holdfast.status_stores"
)
"""The registered kinds of status stores, by the name before the colon of an address."""
