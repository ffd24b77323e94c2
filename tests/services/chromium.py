"""The system's own Chromium, headless, driven over its debugging port."""

import os
import shutil
from pathlib import Path

from tests.services.http import get
from tests.services.start import Order, ServiceFailed

FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Containers have 64 MB of shared memory, too little for a screenshot.
    "--disable-dev-shm-usage",
    # A page that names another host fails at once, the same with and without a network.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


def chromium(directory: Path, port: int) -> Order:
    # Its own sandbox does not work for root.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    profile = f"--user-data-dir={directory / 'profile'}"
    return Order(
        url=f"http://127.0.0.1:{port}",
        command=[executable(), *FLAGS, *sandbox, profile, f"--remote-debugging-port={port}", "about:blank"],
        listening="DevTools listening on",
        answers=lambda: get(port, "/json/version"),
    )


def executable() -> str:
    """The path of Chromium: HOLDFAST_CHROMIUM, or what the system has."""
    chosen = os.environ.get("HOLDFAST_CHROMIUM")
    found = chosen or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not found:
        raise ServiceFailed("there is no Chromium: install it, or set HOLDFAST_CHROMIUM to its path")
    return found
