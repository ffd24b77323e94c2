"""Journals of evacuations: one module each, which implements `holdfast.evacuate.journal.Journal`.

A journal is opened by its address, and registers itself by the name before the colon. `database` is SQLite on the
operator's machine, or PostgreSQL; `dynamodb:TABLE` is a table that several operators share.
"""

from typing import TypeAlias

from holdfast.engines.stores import StoreType, StoreTypes
from holdfast.evacuate.journal import Journal

__all__ = ["JOURNALS", "JournalType"]

JournalType: TypeAlias = StoreType[Journal]
JOURNALS: StoreTypes[Journal] = StoreTypes(
    "journal", package="holdfast.evacuate.journals", group="holdfast.evacuation_journals"
)
"""The registered kinds of journals, by the name before the colon of an address."""
