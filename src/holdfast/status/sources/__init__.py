"""Sources of zone statuses for a tracker: a Holdfast server, addresses that answer 200 or 500, a store, or pushes.

May import the base and `status`. Start reading at `source.py`.
"""

from holdfast.status.sources.endpoint import EndpointSource
from holdfast.status.sources.server import ServerSource, build_source
from holdfast.status.sources.source import PushedSource, StatusListener, StatusSource, StoreSource

__all__ = [
    "EndpointSource",
    "PushedSource",
    "ServerSource",
    "StatusListener",
    "StatusSource",
    "StoreSource",
    "build_source",
]
