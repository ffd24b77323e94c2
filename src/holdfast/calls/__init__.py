"""One remote call: where it goes. May import the base only. Start reading at `endpoints.py`."""

from holdfast.calls.endpoints import Endpoints, NoEndpoint

__all__ = ["Endpoints", "NoEndpoint"]
