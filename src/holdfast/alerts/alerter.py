"""Tell people: follow the verdicts, write messages to the outbox, and send them, one thread for each alert.

A message is stored before it is sent, and marked after it was confirmed: people are told at least once, also if the
process is killed in between. Detection never waits for any of this.
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast._background import BackgroundLoop
from holdfast._backoff import Chance
from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError, OutcomeUnknown
from holdfast.alerts.channel import Channel
from holdfast.alerts.message import AlertedVerdict, AlertMessage, build_test_message
from holdfast.alerts.rules import Delivery, DeliveryState, Drop, QueueEvent, decide_next, plan_retry
from holdfast.alerts.store import AlertReport, AlertStore
from holdfast.calls import Dependency, Failure, FailureKind, Retry, Timeouts, classify, current_attempt

logger = logging.getLogger("holdfast.alerts")

POLL_SECONDS = 1.0
"""How often verdicts and the outbox are looked at: little, compared with the bins of a verdict."""
SEND_SECONDS = 10.0
"""Timeout of one attempt. Receivers answer in less than a second."""
CLAIM_SECONDS = 60.0
"""How long a message is reserved for the process that sends it: longer than an attempt with the retries of boto3. After
a crash, another process sends it again after this time."""

CLOSE_SECONDS = 0.5
"""How long a server that stops waits for messages that are being sent: a part of `server.shutdown_timeout`."""


class VerdictSource(Protocol):
    """The verdicts that detection has recorded."""

    def list_open(self) -> Sequence[AlertedVerdict]:
        """Return the open verdicts."""

    def find_end(self, verdict: str) -> float | None:
        """Return when a verdict was closed; None if it is open, or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert of the settings: a channel, and the verdicts that it is for."""

    name: str
    channel: Channel
    kinds: frozenset[str] = frozenset()
    """Empty means all kinds."""
    workloads: frozenset[str] = frozenset()
    """Empty means all workloads."""
    after: float = 0.0
    """Seconds that a verdict must be open."""

    def wants(self, verdict: AlertedVerdict) -> bool:
        """Return whether the alert is for this verdict."""
        is_kind = not self.kinds or verdict.kind in self.kinds
        return is_kind and (not self.workloads or verdict.workload in self.workloads)


@dataclass(slots=True)
class _Sender:
    """The thread and the dependency of one alert."""

    alert: Alert
    dependency: Dependency
    loop: BackgroundLoop = field(init=False)


class Alerter:
    """Tells people of verdicts, in background threads. Use as a context manager, or call `start` and `close`."""

    def __init__(
        self,
        alerts: Sequence[Alert],
        store: AlertStore,
        source: VerdictSource,
        *,
        link: str | None = None,
        advise: Callable[[AlertedVerdict], str | None] = lambda _: None,
        clock: Clock | None = None,
        chance: Chance = random.random,
    ) -> None:
        """`advise` returns what people should do about a verdict, in one sentence."""
        self._store = store
        self._source = source
        self._link = link
        self._advise = advise
        self._clock = clock or SystemClock()
        self._chance = chance
        self._senders = [_Sender(alert, build_dependency(f"alert {alert.name}")) for alert in alerts]
        for sender in self._senders:
            sender.loop = self._build_loop(f"send the messages of alert {sender.alert.name}", sender)
        self._follower = self._build_loop("follow the verdicts for alerts", None)

    def _build_loop(self, action: str, sender: _Sender | None) -> BackgroundLoop:
        def step() -> float:
            if sender is None:
                self.follow_verdicts()
                return POLL_SECONDS
            return 0.0 if self._send_next(sender) else POLL_SECONDS

        return BackgroundLoop("holdfast-alerts", step, action=action, logger=logger, chance=self._chance)

    def start(self) -> "Alerter":
        """Start all threads. May be repeated."""
        for loop in (self._follower, *(sender.loop for sender in self._senders)):
            loop.start()
        return self

    def close(self) -> None:
        """Send no further message. One that takes longer than CLOSE_SECONDS is sent again later. May be repeated."""
        loops = (self._follower, *(sender.loop for sender in self._senders))
        for loop in loops:
            loop.stop()
        end = self._clock.monotonic() + CLOSE_SECONDS
        for loop in loops:
            loop.stop(timeout=max(0.0, end - self._clock.monotonic()))

    def __enter__(self) -> "Alerter":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def follow_verdicts(self) -> None:
        """Compare the verdicts with the messages so far, and add those that follow to the outbox."""
        current = {verdict.id: verdict for verdict in self._source.list_open()}
        active = self._store.list_active()
        new = [current[name] for name in current.keys() - {report.verdict.id for report in active}]
        if new:
            self._store.add_verdicts(new)
            active = self._store.list_active()
        for report in active:
            verdict = report.verdict
            if verdict.closed_at is None and verdict.id not in current:
                end = self._source.find_end(verdict.id) or self._clock.wall()
                self._store.close_verdict(verdict.id, end)
                report = self._store.get(verdict.id)  # noqa: PLW2901 - it may have been acknowledged meanwhile
            self._tell(report)

    def _tell(self, report: AlertReport) -> None:
        verdict, is_finished = report.verdict, report.verdict.closed_at is not None
        for sender in self._senders:
            if not sender.alert.wants(verdict):
                continue
            deliveries = [each for each in report.deliveries if each.alert == sender.alert.name]
            now = self._clock.wall()
            decision = decide_next(verdict, deliveries, sender.alert.after, now)
            if decision is not None or any(each.state is DeliveryState.WAITING for each in deliveries):
                is_finished = False
            match decision:
                case QueueEvent(event):
                    number = max((each.number for each in deliveries), default=0) + 1
                    self._store.queue_message(verdict.id, sender.alert.name, number, event, now)
                    sender.loop.wake()
                case Drop(delivery):
                    self._store.drop(delivery)
        if is_finished:
            self._store.finish_verdict(verdict.id)

    def send_due(self, name: str) -> bool:
        """Send the next message of an alert. Return whether there was one."""
        [sender] = [sender for sender in self._senders if sender.alert.name == name]
        return self._send_next(sender)

    def _send_next(self, sender: _Sender) -> bool:
        now = self._clock.wall()
        claimed = self._store.claim(sender.alert.name, now, now + CLAIM_SECONDS)
        if claimed is None:
            return False
        delivery, verdict = claimed
        message = AlertMessage(
            alert=delivery.alert,
            event=delivery.event,
            number=delivery.number,
            verdict=verdict,
            link=self._link,
            advice=self._advise(verdict),
        )
        try:
            send_once(sender.alert.channel, message, sender.dependency)
        except Exception as error:  # noqa: BLE001 - a channel may raise anything, and the message must not be lost
            self._record_failure(delivery, error)
        else:
            self._store.mark_delivered(delivery, self._clock.wall())
            logger.info("told alert %s: %s", delivery.alert, message.title)
        return True

    def _record_failure(self, delivery: Delivery, error: Exception) -> None:
        now = self._clock.wall()
        failure = classify(error, self._clock.wall, _judge)
        following = plan_retry(delivery, failure, now, self._chance, had_unknown_outcome=delivery.may_have_arrived)
        reason = _describe(error)[:500]
        if following.state is DeliveryState.FAILED:
            logger.error("alert %s was not told of verdict %s: %s", delivery.alert, delivery.verdict, reason)
        elif delivery.attempts == 1:
            pause = following.due_at - now
            logger.warning("cannot tell alert %s, trying again in %.0f s: %s", delivery.alert, pause, reason)
        self._store.mark_failed(delivery, reason, following)


def build_dependency(name: str) -> Dependency:
    """Return the dependency of one receiver. It makes one attempt: the outbox retries, also after a restart.

    It has no sink, so that its calls are not counted as those of a workload.
    """
    return Dependency(
        name,
        timeouts=Timeouts(attempt=SEND_SECONDS, total=CLAIM_SECONDS),
        retry=Retry(max_attempts=1),
    )


def send_once(channel: Channel, message: AlertMessage, dependency: Dependency) -> None:
    """Send a message in one attempt. Raise the error of the channel."""
    dependency.run(
        lambda: channel.send(message, min(SEND_SECONDS, current_attempt().timeout)), idempotent=True, operation="send"
    )


def _judge(error: Exception) -> Failure | None:
    """Return the failure after which a message may have arrived, or None for the usual rules."""
    return Failure(FailureKind.TRANSIENT) if isinstance(error, OutcomeUnknown) else None


@dataclass(frozen=True, slots=True)
class AlertTestResult:
    """The result of a test message: `error` is None if its receiver has confirmed it."""

    alert: str
    error: str | None


def send_test(alert: Alert, link: str | None, now: float) -> AlertTestResult:
    """Send a test message through the channel of an alert. Never raises."""
    try:
        send_once(alert.channel, build_test_message(alert.name, now, link), build_dependency(f"alert {alert.name}"))
    except Exception as error:  # noqa: BLE001 - a channel may raise anything
        return AlertTestResult(alert.name, _describe(error))
    return AlertTestResult(alert.name, None)


def _describe(error: Exception) -> str:
    """Return the message of an error. One that is not Holdfast's may say too little without its type."""
    return str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
