"""What a page did that a page of Holdfast never does: log an error, or speak to another host."""

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, WebSocket

# `data:`, `blob:` and `about:` have no host: they stay inside the browser.
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", None})


class PageWatch:
    """Collects complaints about all pages of one browser context."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._allowed: list[re.Pattern[str]] = []

    def allow(self, pattern: str) -> None:
        """Expect complaints that match, such as the 401 that a test provokes."""
        self._allowed.append(re.compile(pattern))

    def watch(self, context: "BrowserContext") -> None:
        context.on("console", self._console)
        context.on("weberror", lambda error: self._complain(f"uncaught error: {error.error}"))
        context.on("request", self._request)
        context.on("page", self._page)

    def verdict(self) -> list[str]:
        """The complaints that were not allowed."""
        return [text for text in self.complaints if not any(pattern.search(text) for pattern in self._allowed)]

    def _console(self, message: "ConsoleMessage") -> None:
        if message.type == "error":
            self._complain(f"console error: {message.text} ({message.location.get('url')})")

    def _request(self, request: "Request") -> None:
        self._address(request.url)

    def _page(self, page: "Page") -> None:
        page.on("websocket", self._socket)

    def _socket(self, socket: "WebSocket") -> None:
        self._address(socket.url)

    def _address(self, url: str) -> None:
        if urlsplit(url).hostname not in LOOPBACK:
            self._complain(f"request beyond loopback: {url}")

    def _complain(self, text: str) -> None:
        self.complaints.append(text)
