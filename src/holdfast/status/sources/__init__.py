"""Where a board hears of zones: a Holdfast server, addresses that answer 200 or 500, a store, or somebody who tells.

May import the base and `status`. Start reading at `source.py`.
"""

from holdfast.status.sources.endpoint import EndpointSource
from holdfast.status.sources.server import ServerSource, source_of
from holdfast.status.sources.source import Listener, PushedSource, Source, StoreSource

__all__ = ["EndpointSource", "Listener", "PushedSource", "ServerSource", "Source", "StoreSource", "source_of"]
