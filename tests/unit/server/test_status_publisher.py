"""Every recorded change is published, at least once and in order."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import (
    EngineError,
    EngineUnavailable,
    HoldfastError,
    NotAllowed,
    OutcomeUnknown,
    SettingsError,
    Zone,
    ZoneState,
    ZoneStatus,
)
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.status_log import StatusLog
from holdfast.server.status_publisher import StatusLogPublisher
from holdfast.testing import seeded


class Topic:
    """Keeps what is published; the calls whose numbers are listed fail."""

    def __init__(self, *failing: int, then: Callable[[], None] = lambda: None) -> None:
        self.published: list[str] = []
        self.calls = 0
        self.error: Exception = EngineUnavailable("the topic is away")
        self._failing = failing
        self.then = then

    def publish(self, status: ZoneStatus) -> None:
        self.calls += 1
        if self.calls in self._failing:
            raise self.error
        self.published.append(status.reason)
        self.then()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[StatusLog]:
    with SqliteDatabase(tmp_path / "status.sqlite") as database:
        yield StatusLog(database, publishes=True)


def record(log: StatusLog, *reasons: str) -> None:
    for number, reason in enumerate(reasons):
        status = ZoneStatus(
            zone=Zone("use1-az1"), state=ZoneState.OUT, since=1.0, by="test", reason=reason, version=number + 1
        )
        log.append(status, 1.0)


def test_what_was_recorded_is_published_once_and_in_order(log: StatusLog) -> None:
    topic = Topic()
    record(log, "a", "b", "c")
    publisher = StatusLogPublisher(log, topic)
    publisher.publish_due()
    publisher.publish_due()
    assert topic.published == ["a", "b", "c"]


def test_what_cannot_be_published_holds_up_what_comes_after_it(log: StatusLog) -> None:
    topic = Topic(2, 3)
    record(log, "a", "b", "c")
    publisher = StatusLogPublisher(log, topic)
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            publisher.publish_due()
    assert topic.published == ["a"]
    publisher.publish_due()
    assert topic.published == ["a", "b", "c"]


def test_what_is_refused_for_good_is_left_out_and_does_not_hold_up_the_rest(log: StatusLog) -> None:
    topic = Topic(2)
    topic.error = EngineError("the message is too long")
    record(log, "a", "b", "c")
    StatusLogPublisher(log, topic).publish_due()
    assert topic.published == ["a", "c"]
    assert not log.unpublished()


@pytest.mark.parametrize("error", [SettingsError("no such topic"), NotAllowed("no permission"), OutcomeUnknown("lost")])
def test_what_can_be_mended_is_waited_for(log: StatusLog, error: HoldfastError) -> None:
    topic = Topic(1)
    topic.error = error
    record(log, "a")
    publisher = StatusLogPublisher(log, topic)
    with pytest.raises(type(error)):
        publisher.publish_due()
    publisher.publish_due()
    assert topic.published == ["a"]


def test_what_was_published_and_not_marked_is_published_again(log: StatusLog) -> None:
    def crash() -> None:
        raise KeyboardInterrupt

    record(log, "a", "b")
    before = Topic(then=crash)
    with pytest.raises(KeyboardInterrupt):
        StatusLogPublisher(log, before).publish_due()
    after = Topic()
    StatusLogPublisher(log, after).publish_due()
    assert (before.published, after.published) == (["a"], ["a", "b"])


def test_nothing_more_is_published_once_it_is_closed(log: StatusLog) -> None:
    record(log, "a", "b")
    topic = Topic()
    publisher = StatusLogPublisher(log, topic)
    topic.then = publisher.close
    publisher.publish_due()
    assert topic.published == ["a"]
    assert [entry.status.reason for entry in log.unpublished()] == ["b"]


@pytest.mark.parametrize("error", [EngineUnavailable("away"), RuntimeError("nobody foresaw this")])
def test_its_thread_goes_on_after_a_failure_and_complains_once(
    log: StatusLog, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    topic = Topic(1, 2)
    topic.error = error
    record(log, "a", "b")
    publisher = StatusLogPublisher(log, topic, seeded("announce").random)
    publisher.start()
    end = time.monotonic() + 30
    while log.unpublished():
        assert time.monotonic() < end
        time.sleep(0.01)
    [thread] = [thread for thread in threading.enumerate() if thread.name == "holdfast-publish"]
    publisher.close()
    thread.join(30)
    assert topic.published == ["a", "b"]
    [complaint] = [message for message in caplog.messages if "cannot publish a change of a zone status" in message]
    assert str(error) in complaint
