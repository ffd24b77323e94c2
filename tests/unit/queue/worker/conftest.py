"""Workers of these tests look more often: what they prove is the order of things, not how long a pause takes."""

import importlib
import pkgutil

import pytest

import holdfast.queue.worker

PAUSES = {"STOP_CHECK_SECONDS": 0.01, "SETTLE_WAIT": 0.01, "RETURN_SECONDS": 0.1}
"""Seconds, and the names of these pauses, in whatever module of the package they are."""


@pytest.fixture(autouse=True)
def short_pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "Fork" in request.node.nodeid:
        return  # a process is forked in a pause, when no thread is at work on the store
    found = set()
    for module in pkgutil.walk_packages(holdfast.queue.worker.__path__, "holdfast.queue.worker."):
        loaded = importlib.import_module(module.name)
        for name in PAUSES.keys() & vars(loaded).keys():
            monkeypatch.setattr(loaded, name, PAUSES[name])
            found.add(name)
    assert found == PAUSES.keys()
