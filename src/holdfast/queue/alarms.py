"""Alarm rules for a queue, with hysteresis. Pure.

An alarm opens after several consecutive readings at or above its threshold, and closes after several below it, so that
a queue near the threshold causes one incident and not many. A reading without a value changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast._errors import InvalidValue


class AlarmKind(StrEnum):
    """The value that an alarm watches."""

    DEAD_LETTERS = "dead-letters"
    FIRST_ATTEMPT_AGE = "first-attempt-age"
    OLDEST_AGE = "oldest-age"
    NO_EMPTY_POLLS = "no-empty-polls"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRules:
    """The threshold of each alarm, None for no alarm, and how many readings open or close an alarm."""

    dead_letters: int | None = 1
    """Number of dead letters. Default 1, because only people remove dead letters."""
    first_attempt_age: float | None = 60.0
    """90th percentile of the seconds that new messages waited for their first attempt. Default: a minute, as long as a
    message is fresh by default. The tenant that waits longest is left out, unless it is the only one. Backlog messages
    wait by design; the oldest of all counts once fresh ones wait half of `fresh_for`. Spilled messages count only if
    most
    tenants have some and the number of waiting messages does not fall."""
    oldest_age: float | None = None
    """Seconds that the oldest message has been ready. Includes spilled and backlog messages, which wait by design."""
    no_empty_polls: int | None = None
    """Minimum number of polls between two readings. If none of them was empty, the workers have no spare capacity."""
    open_after: int = 3
    """Consecutive readings that open an alarm: half a minute, at a reading every ten seconds."""
    close_after: int = 6
    """Consecutive readings that close it: a minute. More than `open_after`, so as not to report recovery too early."""

    def __post_init__(self) -> None:
        for kind in AlarmKind:
            threshold = self.threshold(kind)
            if threshold is not None and not threshold > 0:
                raise InvalidValue(
                    f"alarm rule {_get_field_name(kind)} {threshold}: expected more than 0, or None for no alarm"
                )
        for name in ("open_after", "close_after"):
            if getattr(self, name) < 1:
                raise InvalidValue(f"alarm rule {name} {getattr(self, name)}: expected 1 or more readings")

    def threshold(self, kind: AlarmKind) -> float | None:
        """Return the value from which the alarm opens, or None for no alarm."""
        threshold: float | None = getattr(self, _get_field_name(kind))
        return threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReading:
    """The values of a queue's alarms at one moment."""

    queue: str
    at: float
    values: Mapping[AlarmKind, float] = field(default_factory=dict, hash=False)
    """Alarm values. A kind without a value is unknown, and its alarm stays as it is."""
    tenants: Mapping[AlarmKind, str] = field(default_factory=dict, hash=False)
    """The tenant that causes nearly all of a value, if there is one."""
    alarms: Mapping[AlarmKind, bool] = field(default_factory=dict, hash=False)
    """Whether each alarm with a threshold is open after this reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAlarm:
    """An alarm of a queue that has opened or closed."""

    queue: str
    kind: AlarmKind
    is_open: bool
    at: float
    value: float
    threshold: float
    since: float
    """When the alarm opened."""
    tenant: str | None = None
    """The tenant that causes nearly all of the value, if there is one."""

    @property
    def summary(self) -> str:
        """One sentence for people."""
        about = f"queue {self.queue}: {_SENTENCES[self.kind].format(value=self.value, threshold=self.threshold)}"
        if not self.is_open:
            return f"{about}: resolved after {self.at - self.since:.0f} s"
        return about if self.tenant is None else f"{about}, nearly all of it of tenant {self.tenant}"


@dataclass(frozen=True, slots=True)
class AlarmTrack:
    """The progress of one alarm."""

    opened_at: float | None = None
    """When the alarm opened, or None if it is closed."""
    streak: int = 0
    """Consecutive readings that contradict the current state."""


@dataclass(frozen=True, slots=True)
class AlarmState:
    """The progress of all alarms of a queue."""

    tracks: Mapping[AlarmKind, AlarmTrack] = field(default_factory=dict, hash=False)

    @property
    def open_alarms(self) -> frozenset[AlarmKind]:
        return frozenset(kind for kind, track in self.tracks.items() if track.opened_at is not None)

    def list_states(self, rules: AlarmRules) -> dict[AlarmKind, bool]:
        """Return for each alarm with a threshold whether it is open."""
        return {kind: kind in self.open_alarms for kind in AlarmKind if rules.threshold(kind) is not None}


def update_alarms(
    rules: AlarmRules, state: AlarmState, reading: QueueReading
) -> tuple[AlarmState, tuple[QueueAlarm, ...]]:
    """Return the state after one more reading, and the alarms that it opened or closed."""
    tracks = dict(state.tracks)
    changed: list[QueueAlarm] = []
    for kind in AlarmKind:
        threshold, value = rules.threshold(kind), reading.values.get(kind)
        if threshold is None or value is None:
            continue
        before = tracks.get(kind, AlarmTrack())
        after = tracks[kind] = _advance(before, rules, reading.at, is_beyond=value >= threshold)
        if (after.opened_at is None) == (before.opened_at is None):
            continue
        changed.append(
            QueueAlarm(
                queue=reading.queue,
                kind=kind,
                is_open=after.opened_at is not None,
                at=reading.at,
                value=value,
                threshold=threshold,
                since=reading.at if before.opened_at is None else before.opened_at,
                tenant=reading.tenants.get(kind),
            )
        )
    return AlarmState(tracks), tuple(changed)


def _advance(track: AlarmTrack, rules: AlarmRules, at: float, *, is_beyond: bool) -> AlarmTrack:
    is_open = track.opened_at is not None
    if is_beyond == is_open:
        return replace(track, streak=0)
    if track.streak + 1 < (rules.close_after if is_open else rules.open_after):
        return replace(track, streak=track.streak + 1)
    return AlarmTrack(None if is_open else at)


def _get_field_name(kind: AlarmKind) -> str:
    return kind.value.replace("-", "_")


_SENTENCES = {
    AlarmKind.DEAD_LETTERS: "dead letters: {value:.0f} (alarm from {threshold:.0f} on): list them, fix the cause, and "
    "redrive them",
    AlarmKind.FIRST_ATTEMPT_AGE: "new messages wait {value:.1f} s for the first attempt "
    "(alarm from {threshold:.0f} s on): too few workers, or handlers are too slow",
    AlarmKind.OLDEST_AGE: "the oldest message has waited {value:.0f} s (alarm from {threshold:.0f} s on)",
    AlarmKind.NO_EMPTY_POLLS: "of {value:.0f} polls none was empty (alarm from {threshold:.0f} on): "
    "the workers have no spare capacity",
}
