"""Which zones are out: where that is kept, who may change it, and how every process knows it.

May import the base, the engines and `calls`. Start reading at `writer.py` for the writer's side (`stores/` hold what it
writes), and at `tracker.py` for the reader's (`sources/` tell it, `quorum.py` decides). `sns/` and `export/` are for
AWS.
"""

from holdfast.status.quorum import SilencePolicy
from holdfast.status.sources import EndpointSource, PushedSource, ServerSource, StatusSource, StoreSource
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.tracker import SourceHealth, ZoneTracker
from holdfast.status.writer import StatusWriter

__all__ = [
    "EndpointSource",
    "MemoryStatusStore",
    "PushedSource",
    "ServerSource",
    "SilencePolicy",
    "SourceHealth",
    "SqlStatusStore",
    "StatusSource",
    "StatusWriter",
    "StoreSource",
    "ZoneTracker",
]
