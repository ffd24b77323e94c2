"""A small test run that starts a service and then waits to be killed; `test_services.py` runs it."""

import os
import threading
from pathlib import Path

from tests.services.run import Run


def test_holds_a_service_until_the_run_is_killed(valkey_url: str, services: Run) -> None:
    note = Path(os.environ["HOLDFAST_HOLD_NOTE"])
    partial = note.with_suffix(".partial")
    partial.write_text(f"{valkey_url}\n{services.directory}")
    partial.rename(note)
    # Longer than the outer test waits for anything, and bounded all the same.
    threading.Event().wait(60)
