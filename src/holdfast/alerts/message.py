"""An alert as people and programs read it: what happened, to which workload, since when, and where to look. Pure."""

from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import asdict

from holdfast._names import escape_unprintable


class AlertEvent(StrEnum):
    """The reason for a message about a verdict."""

    OPENED = "opened"
    REMINDED = "reminded"
    """The verdict is still open at the end of a snooze."""
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    TEST = "test"


class AlertedVerdict(Struct, frozen=True, kw_only=True):
    """A verdict that people are told about."""

    id: str
    workload: str
    kind: str
    since: float
    summary: str
    opened_at: float
    zone: str | None = None
    resource: str | None = None
    closed_at: float | None = None
    acknowledged_at: float | None = None
    acknowledged_by: str | None = None
    snoozed_until: float | None = None
    """The end of the latest snooze of the verdict or its workload, also if that has passed."""
    snoozed_by: str | None = None


class AlertMessage(Struct, frozen=True, kw_only=True):
    """One message about a verdict, for one alert of the settings."""

    alert: str
    event: AlertEvent
    number: int
    """Counts the messages of the alert about this verdict, from 1."""
    verdict: AlertedVerdict
    link: str | None = None
    """The server's page. Opening it changes nothing."""
    advice: str | None = None
    """A sentence that tells people what to do, with the command to run."""

    @property
    def dedup_key(self) -> str:
        """Identifies the verdict to the receiver. All messages of the alert about this verdict have this key."""
        return f"{self.alert}:{self.verdict.id}"

    @property
    def id(self) -> str:
        """Identifies this message. If it is sent again, it has the same id, so that receivers can drop a duplicate."""
        return f"{self.dedup_key}:{self.number}"

    @property
    def title(self) -> str:
        """One line, such as `shop: verdict isolated (use1-az1)`."""
        if self.event is AlertEvent.TEST:
            return f"test of the alert {self.alert}"
        verdict = self.verdict
        about = verdict.zone or verdict.resource
        prefix = "" if self.event is AlertEvent.OPENED else f"{_WORDS[self.event]}: "
        title = f"{prefix}{verdict.workload}: verdict {verdict.kind}{f' ({about})' if about else ''}"
        return escape_unprintable(title)

    @property
    def command(self) -> str | None:
        """The command that shows more. None for a test, which no store has."""
        return None if self.event is AlertEvent.TEST else f"holdfast alerts show {self.verdict.id}"

    @property
    def lines(self) -> list[str]:
        """The sentences for people."""
        verdict = self.verdict
        found = [
            verdict.summary,
            f"Workload: {verdict.workload}",
            f"Verdict: {verdict.id}",
            f"Since: {format_utc(verdict.since)}",
        ]
        if self.event is AlertEvent.REMINDED:
            found.append("It is still open after the snooze.")
        if self.event is AlertEvent.ACKNOWLEDGED and verdict.acknowledged_at is not None:
            found.append(f"Acknowledged: {format_utc(verdict.acknowledged_at)} by {verdict.acknowledged_by}")
        if self.event is AlertEvent.RESOLVED and verdict.closed_at is not None:
            found.append(f"Resolved: {format_utc(verdict.closed_at)}")
        if self.advice is not None and self.event in (AlertEvent.OPENED, AlertEvent.REMINDED):
            found.append(self.advice)
        if self.command is not None:
            found.append(f"Look further: {self.command}")
        if self.link is not None:
            found.append(f"Page: {self.link}")
        return [escape_unprintable(line) for line in found]

    @property
    def text(self) -> str:
        """The sentences for people, one in each line."""
        return "\n".join(self.lines)

    def to_fields(self) -> dict[str, object]:
        """Return the message for programs."""
        verdict = {name: value for name, value in asdict(self.verdict).items() if not name.startswith("snoozed")}
        own = {"id": self.id, "dedup_key": self.dedup_key, "event": self.event, "title": self.title, "text": self.text}
        return {
            **verdict,
            "verdict": self.verdict.id,
            **own,
            "advice": self.advice,
            "command": self.command,
            "link": self.link,
        }


_WORDS = {
    AlertEvent.REMINDED: "still open",
    AlertEvent.ACKNOWLEDGED: "acknowledged",
    AlertEvent.RESOLVED: "resolved",
}


def build_test_message(alert: str, now: float, link: str | None) -> AlertMessage:
    """Return a message that says that it is a test."""
    verdict = AlertedVerdict(
        id=f"test/{now:.12g}",
        workload="test",
        kind="test",
        since=now,
        opened_at=now,
        summary=f"This is a test of the alert {alert}. Nothing has failed.",
    )
    return AlertMessage(alert=alert, event=AlertEvent.TEST, number=1, verdict=verdict, link=link)


def format_utc(at: float) -> str:
    """Return a time as text, such as `2026-03-01 12:00:05 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
