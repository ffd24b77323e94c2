"""ASGI and WSGI middleware: applies callers' deadlines, reports outcomes, and refuses requests while the zone is out.

May import calls, telemetry, status and the base, and no web framework. Start reading at `rules.py`; `asgi.py` and
`wsgi.py` are two thin drivers over `gate.py`.
"""

from holdfast.middleware.asgi import AsgiMiddleware
from holdfast.middleware.gate import mark_cache_refresh
from holdfast.middleware.rules import MiddlewareOptions
from holdfast.middleware.wsgi import WsgiMiddleware

__all__ = ["AsgiMiddleware", "MiddlewareOptions", "WsgiMiddleware", "mark_cache_refresh"]
