"""Verdicts, and a channel and a source that a test directs."""

from collections.abc import Sequence

import msgspec

from holdfast.alerts import AlertedVerdict, AlertEvent, AlertMessage

START = 1_750_000_000.0


def verdict(name: str = "shop/use1-az1/1750000000", **fields: object) -> AlertedVerdict:
    basis = AlertedVerdict(
        id=name,
        workload="shop",
        kind="isolated",
        zone="use1-az1",
        since=START,
        opened_at=START + 30,
        summary="use1-az1 fails: 40 % of its requests fail, and 0.1 % elsewhere",
    )
    return msgspec.structs.replace(basis, **fields)


class Recorder:
    """A channel that keeps messages, or raises the errors that it was given, one after the other."""

    def __init__(self) -> None:
        self.messages: list[AlertMessage] = []
        self.errors: list[Exception] = []
        self.attempts = 0

    def send(self, message: AlertMessage, timeout: float) -> None:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        self.messages.append(message)

    @property
    def events(self) -> list[AlertEvent]:
        return [message.event for message in self.messages]


class Verdicts:
    """A source whose verdicts are open until they have an end."""

    def __init__(self) -> None:
        self.open: list[AlertedVerdict] = []
        self.ends: dict[str, float] = {}

    def list_open(self) -> Sequence[AlertedVerdict]:
        return [each for each in self.open if each.id not in self.ends]

    def find_end(self, verdict: str) -> float | None:
        return self.ends.get(verdict)
