"""Telling people: each once, in order, again after failures and restarts, and never in the way of others."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import DatabaseFull, OutcomeUnknown
from holdfast.alerts import Alert, Alerter, AlertEvent, AlertMessage, AlertStore, DeliveryFailed, send_test
from holdfast.alerts.alerter import CLAIM_SECONDS
from holdfast.alerts.rules import GIVE_UP_SECONDS, UNKNOWN_SECONDS
from holdfast.calls import FailureKind
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.testing import FakeClock
from tests.support.disk import FaultyDisk
from tests.unit.alerts.world import START, Recorder, Verdicts, verdict

OPENED, REMINDED, ACKNOWLEDGED, RESOLVED, _ = AlertEvent
DOWN = DeliveryFailed("down", FailureKind.UNSENT)
LOST = DeliveryFailed("the reply was lost")
ID = verdict().id
STUCK = 60.0


class World:
    """One store, one source, and an alerter that can be restarted."""

    def __init__(self, path: Path, *alerts: Alert) -> None:
        self.clock = FakeClock(wall=START + 30)
        self.verdicts = Verdicts()
        self.channel = Recorder()
        self.alerts = alerts or (Alert(name="on-call", channel=self.channel),)
        self.database = SqliteDatabase(path / "alerts.sqlite")
        self.store = AlertStore(self.database)
        self.restart()

    def restart(self) -> None:
        self.alerter = Alerter(self.alerts, self.store, self.verdicts, clock=self.clock, chance=lambda: 0.5)

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass, then follow the verdicts and send everything that is due."""
        self.clock.advance(seconds)
        for _ in range(3):
            self.alerter.follow_verdicts()
            for alert in self.alerts:
                while self.alerter.send_due(alert.name):
                    pass

    def states(self, name: str = ID) -> list[tuple[AlertEvent, str]]:
        return [(each.event, each.state.value) for each in self.store.get(name).deliveries]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def test_people_are_told_once_of_the_opening_and_once_of_the_end(world: World) -> None:
    world.verdicts.open = [verdict()]
    for _ in range(3):
        world.run(10)
        world.restart()
    assert world.channel.events == [OPENED]
    world.verdicts.ends[ID] = START + 100
    for _ in range(3):
        world.run(10)
        world.restart()
    assert world.channel.events == [OPENED, RESOLVED]
    assert world.channel.messages[1].verdict.closed_at == START + 100
    assert world.states() == [(OPENED, "delivered"), (RESOLVED, "delivered")]
    assert world.store.list_active() == [], "nothing is left to do"


def test_a_receiver_that_is_down_is_told_later_and_in_order(world: World) -> None:
    world.verdicts.open = [verdict()]
    world.channel.errors = [LOST, DOWN]
    world.run()
    world.verdicts.ends[ID] = START + 100
    world.run()
    assert world.channel.events == []
    assert world.states() == [(OPENED, "waiting"), (RESOLVED, "waiting")]
    world.run(1)
    assert world.channel.attempts == 2
    world.run(60)
    assert world.channel.events == [OPENED, RESOLVED]
    [first, _] = world.store.get(ID).deliveries
    assert (first.attempts, first.error, first.delivered_at) == (3, None, world.clock.wall())


def test_nobody_is_told_of_a_verdict_that_ended_before_anybody_could_be_told(world: World) -> None:
    world.verdicts.open = [verdict()]
    world.channel.errors = [DOWN]
    world.run()
    world.verdicts.ends[ID] = START + 100
    world.run(600)
    assert world.channel.events == []
    assert world.states() == [(OPENED, "dropped")]
    assert world.store.list_active() == []


def test_an_end_during_a_surely_failed_attempt_is_not_told_either(world: World) -> None:
    """The end is queued while the opening is being sent, because it may arrive; then it turns out that it did not."""
    world.verdicts.open = [verdict()]

    class ClosesMeanwhile(Recorder):
        def send(self, message: AlertMessage, timeout: float) -> None:
            world.verdicts.ends[ID] = START + 100
            world.alerter.follow_verdicts()
            assert world.states() == [(OPENED, "waiting"), (RESOLVED, "waiting")]
            raise DOWN

    world.alerts = (Alert(name="on-call", channel=ClosesMeanwhile()),)
    world.restart()
    world.alerter.follow_verdicts()
    world.alerter.send_due("on-call")
    world.alerter.follow_verdicts()
    world.alerter.follow_verdicts()
    assert world.states() == [(OPENED, "dropped"), (RESOLVED, "dropped")]


def test_a_message_that_fails_for_a_day_is_given_up_and_recorded(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.verdicts.open = [verdict()]
    world.channel.errors = [DOWN] * 2
    world.run()
    world.run(GIVE_UP_SECONDS)
    assert world.states() == [(OPENED, "failed")]
    assert [each.error for each in world.store.get(ID).deliveries] == ["down"]
    assert "alert on-call was not told of verdict" in caplog.text


def test_any_error_of_a_channel_is_recorded_and_the_message_is_sent_again(world: World) -> None:
    world.verdicts.open = [verdict()]
    world.channel.errors = [ZeroDivisionError("a bug"), OutcomeUnknown("lost")]
    world.run()
    assert world.store.get(ID).deliveries[0].error == "ZeroDivisionError: a bug"
    assert not world.store.get(ID).deliveries[0].may_have_arrived
    world.run(400)
    assert world.store.get(ID).deliveries[0].may_have_arrived
    world.run(400)
    assert world.channel.events == [OPENED]


def test_a_message_that_a_dead_process_was_sending_is_sent_again(world: World) -> None:
    world.verdicts.open = [verdict()]
    world.alerter.follow_verdicts()
    now = world.clock.wall()
    assert world.store.claim("on-call", now, now + CLAIM_SECONDS) is not None  # and then the process dies
    world.restart()
    world.run(CLAIM_SECONDS - 1)
    assert world.channel.events == []
    world.run(1)
    assert world.channel.events == [OPENED]


def test_an_alert_gets_only_the_kinds_and_workloads_that_it_is_for(tmp_path: Path) -> None:
    every, some, late = Recorder(), Recorder(), Recorder()
    world = World(
        tmp_path,
        Alert(name="every", channel=every),
        Alert(name="some", channel=some, kinds=frozenset({"regional"}), workloads=frozenset({"bank"})),
        Alert(name="late", channel=late, after=600.0),
    )
    with world.database:
        world.verdicts.open = [
            verdict("a"),
            verdict("b", kind="regional"),
            verdict("c", kind="regional", workload="bank"),
            verdict("d", kind="unknown"),
        ]
        world.run()
        assert sorted(each.verdict.id for each in every.messages) == ["a", "b", "c"]
        assert [each.verdict.id for each in some.messages] == ["c"]
        world.run(UNKNOWN_SECONDS)
        assert len(every.messages) == 4, "an unknown verdict that lasts is told, too"
        assert late.messages == []
        world.store.acknowledge("a", "anna", world.clock.wall())
        world.run(300)
        assert sorted(each.verdict.id for each in late.messages) == ["b", "c", "d"], "somebody takes care of a"


def test_an_acknowledgement_is_told_once_to_those_who_were_told(world: World) -> None:
    world.verdicts.open = [verdict()]
    world.run()
    for person in ("anna", "bert"):
        world.store.acknowledge(ID, person, world.clock.wall())
        world.run(10)
    assert world.channel.events == [OPENED, ACKNOWLEDGED]
    assert world.channel.messages[1].verdict.acknowledged_by == "anna"


def test_a_snooze_silences_and_what_is_open_at_its_end_is_told(world: World) -> None:
    world.verdicts.open = [verdict()]
    world.run()
    world.store.snooze(verdict=None, workload="shop", by="anna", until=world.clock.wall() + 600)
    world.verdicts.open.append(verdict("second"))
    world.run(599)
    assert world.channel.events == [OPENED]
    world.run(1)
    told = {each.verdict.id: each.event for each in world.channel.messages[1:]}
    assert told == {ID: REMINDED, "second": OPENED}
    world.run(600)
    assert len(world.channel.messages) == 3


def test_a_message_that_waits_is_not_sent_during_a_snooze(world: World) -> None:
    world.verdicts.open = [verdict()]
    world.channel.errors = [DOWN]
    world.run()
    world.store.snooze(verdict=ID, workload=None, by="anna", until=world.clock.wall() + 3600)
    world.alerter.follow_verdicts()
    world.run(600)
    assert world.channel.events == []
    world.run(3000)
    assert world.channel.events == [OPENED]
    assert world.states() == [(OPENED, "dropped"), (OPENED, "delivered")]


def test_a_channel_that_hangs_blocks_neither_others_nor_the_following_of_verdicts(tmp_path: Path) -> None:
    """With real threads: the waits end at once unless something is stuck."""
    released, told = threading.Event(), threading.Event()

    class Hangs(Recorder):
        def send(self, message: AlertMessage, timeout: float) -> None:
            released.wait(STUCK)

    class Tells(Recorder):
        def send(self, message: AlertMessage, timeout: float) -> None:
            super().send(message, timeout)
            if len(self.messages) == 2:
                told.set()

    good = Tells()
    world = World(tmp_path, Alert(name="stuck", channel=Hangs()), Alert(name="good", channel=good))
    world.verdicts.open = [verdict("a"), verdict("b")]
    with world.database, world.alerter:
        assert told.wait(STUCK)
        released.set()
    assert sorted(each.verdict.id for each in good.messages) == ["a", "b"]


def test_a_full_disk_delays_messages_and_loses_none(tmp_path: Path) -> None:
    with FaultyDisk() as disk:
        world = World(tmp_path)
        with world.database:
            world.verdicts.open = [verdict()]
            disk.full = True
            with pytest.raises(DatabaseFull):
                world.alerter.follow_verdicts()
            assert world.channel.messages == []
            disk.full = False
            world.alerter.follow_verdicts()
            disk.full = True  # a message is not sent if it could not be recorded that it is being sent
            with pytest.raises(DatabaseFull):
                world.alerter.send_due("on-call")
            assert world.channel.messages == []
            disk.full = False
            world.run()
            assert world.channel.events == [OPENED]


def test_a_delivery_that_cannot_be_recorded_is_repeated_with_the_same_id(tmp_path: Path) -> None:
    with FaultyDisk() as disk:
        world = World(tmp_path)

        class FillsDisk(Recorder):
            def send(self, message: AlertMessage, timeout: float) -> None:
                super().send(message, timeout)
                disk.full = len(self.messages) == 1

        channel = FillsDisk()
        world.alerts = (Alert(name="on-call", channel=channel),)
        world.restart()
        with world.database:
            world.verdicts.open = [verdict()]
            world.alerter.follow_verdicts()
            with pytest.raises(DatabaseFull):
                world.alerter.send_due("on-call")
            disk.full = False
            world.run(CLAIM_SECONDS)
        first, second = channel.messages
        assert first.id == second.id


def test_a_test_message_says_what_happened_and_never_raises() -> None:
    channel = Recorder()
    assert send_test(Alert(name="on-call", channel=channel), None, START).error is None
    assert channel.events == [AlertEvent.TEST]
    channel.errors = [DOWN]
    assert send_test(Alert(name="on-call", channel=channel), None, START).error == "down"
