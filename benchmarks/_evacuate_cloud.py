"""A simulated AWS account in a process of its own, which records the calls that reach it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

from holdfast._clock import SystemClock
from holdfast.simulate.aws.control_plane import serve
from holdfast.simulate.aws.region import SimulatedRegion

ENOUGH = 60.0
"""Seconds for the process to start, or to answer."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls since the last reset."""

    total: Mapping[str, int]
    """How often each operation was called."""
    sequences: Mapping[tuple[str, ...], int]
    """The operations of one resource in their order, and how many resources had exactly these."""
    shifted: int
    """Resources that have an active zonal shift now."""


class RecordingRegion(SimulatedRegion):
    """Records the operations of each resource in their order."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.operations: defaultdict[str, list[str]] = defaultdict(list)

    def call(self, service: str, operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
        reply = super().call(service, operation, values)
        # The client waits for a reply before its next call for the same resource, so the order is right. Only the reply
        # to CancelZonalShift names the resource.
        arn = values.get("resourceIdentifier") or reply.get("resourceIdentifier")
        if arn is not None:
            self.operations[arn].append(operation)
        return reply

    def read_calls(self) -> Calls:
        return Calls(
            total=Counter(self.calls),
            sequences=Counter(tuple(each) for each in self.operations.values()),
            shifted=sum(self.arc.get_active(each) is not None for each in self.resources),
        )


def run_server(pipe: Connection, count: int) -> None:
    """Serve one account with `count` balancers. Answer each message with the calls so far, and forget them."""
    region = RecordingRegion()
    arns = [region.add("application" if each % 2 else "network", f"shop-{each:05}") for each in range(count)]
    with serve([region]) as address:
        pipe.send((address, region.access_key, arns))
        while pipe.recv():
            pipe.send(region.read_calls())
            region.calls.clear()
            region.operations.clear()


class Cloud(AbstractContextManager["Cloud"]):
    """An account with balancers in three zones, for all of which zonal shift is enabled."""

    address: str
    access_key: str
    arns: Sequence[str]

    def __init__(self, count: int) -> None:
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=run_server, args=(other, count), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.address, self.access_key, self.arns = self._receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def take_calls(self) -> Calls:
        """Return the calls since the last time."""
        self._pipe.send(True)
        found: Calls = self._receive()
        return found

    def _receive(self) -> Any:
        if not self._pipe.poll(ENOUGH):
            raise RuntimeError("the simulated control plane does not answer")
        return self._pipe.recv()
