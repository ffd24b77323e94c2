"""Listening to a server: its events as they come, and waiting for what must come."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.integration.server.process import STUCK, HoldfastServer


@dataclass(frozen=True)
class Heard:
    """One event, as a listener hears it."""

    id: str
    name: str
    data: Any


@contextmanager
def events(
    server: HoldfastServer, last: str = "", *, port: int | None = None, token: str | None = None
) -> Iterator[Iterator[Heard]]:
    """The events of a stream of statuses; after the one with id `last`, if that is given."""
    headers = {"Last-Event-ID": last} if last else {}
    with server.client(token, **headers) as client:
        base = f"http://127.0.0.1:{port or server.port}"
        with client.stream("GET", f"{base}/v1/status/events") as response:
            response.raise_for_status()
            yield heard(response)


def heard(response: httpx.Response) -> Iterator[Heard]:
    """The events of an answer that does not end."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        name, colon, value = line.partition(": ")
        if line == "" and "event" in fields:
            yield Heard(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
        if line == "":
            fields = {}
        elif colon and name:
            fields[name] = value


def until(true: Callable[[], object], within: float = STUCK) -> None:
    """Wait for something, and fail if it does not happen."""
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
