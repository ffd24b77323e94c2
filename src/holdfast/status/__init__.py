"""Zone statuses: which zones are out, where that is stored, who may change it, and how every process learns of it.

May import the base, the engines and `calls`. Start reading at `writer.py` for the writing side (`stores/` hold the
statuses), and at `tracker.py` for the reading side (`sources/` deliver statuses, `quorum.py` decides). `sns/` and
`export/` are for AWS.
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
