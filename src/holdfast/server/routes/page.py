"""The page itself: open to everybody, because it shows nothing before its reader has a credential."""

from importlib.resources import files
from typing import Any

from litestar import Request, Response, get

_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_HEADERS = {
    # Nothing from elsewhere, and no framing: the page may hold an operator's credential.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@get(list(_FILES), include_in_schema=False, sync_to_thread=False)
def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """One of the page's three files."""
    name, kind = _FILES[request.scope["path"]]
    content = files("holdfast.server.dashboard").joinpath(name).read_bytes()
    return Response(content, media_type=kind, headers=_HEADERS)
