import logging

import pytest

from holdfast._multi_sink import MultiSink


class Kept:
    def __init__(self) -> None:
        self.all: list[str] = []

    def emit(self, event: str) -> None:
        self.all.append(event)


class Broken:
    def emit(self, event: str) -> None:
        raise OSError(f"no room for {event}")


def test_every_sink_has_every_event_in_order() -> None:
    one, two = Kept(), Kept()
    several = MultiSink(one, two)
    several.emit("a")
    several.emit("b")
    assert one.all == two.all == ["a", "b"]


def test_a_sink_that_raises_keeps_nothing_from_the_others_and_does_not_flood_the_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, after = Kept(), Kept()
    several = MultiSink[str](before, Broken(), after)
    with caplog.at_level(logging.ERROR):
        for event in "abc":
            several.emit(event)
    assert before.all == after.all == ["a", "b", "c"]
    assert several.failures == [0, 3, 0]
    assert len(caplog.records) == 1
    assert "no room for a" in caplog.text


def test_none_at_all_is_one_too() -> None:
    MultiSink[str]().emit("a")
