"""Which zones are out: where that is kept, who may change it, and how every process knows it.

May import the base, the engines and `calls`. Start reading at `change.py` for the writer's side (`stores/` hold what it
writes), and at `board.py` for the reader's (`sources/` tell it, `quorum.py` decides). `sns/` and `export/` are for AWS.
"""

from holdfast.status.board import Board, Heard
from holdfast.status.change import Changes
from holdfast.status.quorum import WhenSilent
from holdfast.status.sources import EndpointSource, PushedSource, ServerSource, Source, StoreSource
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.stores.memory import MemoryStatusStore

__all__ = [
    "Board",
    "Changes",
    "EndpointSource",
    "Heard",
    "MemoryStatusStore",
    "PushedSource",
    "ServerSource",
    "Source",
    "SqlStatusStore",
    "StoreSource",
    "WhenSilent",
]
