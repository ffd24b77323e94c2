"""The heartbeat: sent while windows are evaluated, and not by a process that is merely alive."""

from collections.abc import Iterator

import pytest

from holdfast.alerts import DeliveryFailed, Heartbeat
from holdfast.testing import FakeClock
from tests.support.alert_receivers import Answer, WebhookReceiver, receiving


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with receiving() as receiver:
        yield receiver


class Loop:
    """A detection loop that evaluates windows until it is stuck."""

    def __init__(self) -> None:
        self.evaluated_until: float | None = None

    def get(self) -> float | None:
        return self.evaluated_until


def test_it_beats_while_windows_are_evaluated_and_stops_when_the_loop_is_stuck(
    receiver: WebhookReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    clock, loop = FakeClock(), Loop()
    heartbeat = Heartbeat(receiver.url, loop.get, interval=60.0, max_age=40.0, clock=clock)
    assert not heartbeat.send_if_due(), "no window was evaluated yet"
    assert caplog.text == ""
    for _ in range(30):  # five minutes
        clock.advance(10)
        loop.evaluated_until = clock.wall() - 1.5
        heartbeat.send_if_due()
    assert [(each.method, each.path) for each in receiver.requests] == [("GET", "/hook/secret-path")] * 5
    loop.evaluated_until = clock.wall() - 40.0
    for _ in range(30):  # stuck: the process runs, but evaluates nothing
        clock.advance(10)
        heartbeat.send_if_due()
    assert len(receiver.requests) == 5
    assert caplog.text.count("the heartbeat stops") == 1
    loop.evaluated_until = clock.wall()
    assert heartbeat.send_if_due()


def test_a_heartbeat_that_failed_is_due_at_once(receiver: WebhookReceiver) -> None:
    clock, loop = FakeClock(), Loop()
    loop.evaluated_until = clock.wall()
    heartbeat = Heartbeat(receiver.url, loop.get, interval=60.0, max_age=40.0, clock=clock)
    receiver.answers.append(Answer(500))
    with pytest.raises(DeliveryFailed, match="answered 500"):
        heartbeat.send_if_due()
    assert heartbeat.send_if_due()
    assert not heartbeat.send_if_due()


def test_it_runs_in_a_thread_of_its_own(receiver: WebhookReceiver) -> None:
    clock = FakeClock()
    with Heartbeat(receiver.url, clock.wall, interval=60.0, max_age=40.0, clock=clock):
        receiver.wait_for(1)
