"""What stands between a web server and an application: deadlines that come in, outcomes that go out, zones obeyed.

May import calls, telemetry, status and the base, and no web framework. Start reading at `rules.py`; `asgi.py` and
`wsgi.py` are two thin drivers over `gate.py`.
"""

from holdfast.middleware.asgi import AsgiMiddleware
from holdfast.middleware.rules import Service
from holdfast.middleware.wsgi import WsgiMiddleware

__all__ = ["AsgiMiddleware", "Service", "WsgiMiddleware"]
