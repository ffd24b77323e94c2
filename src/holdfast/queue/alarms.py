"""When somebody should look at a queue: rules with patience in both directions, and what they say. Pure.

A rule opens after some looks in a row at or beyond its threshold, and closes after some below it, so that a queue on
the edge is one incident and not many. What a look cannot tell neither opens nor closes anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast._errors import InvalidValue


class AlarmKind(StrEnum):
    """What an alarm is about."""

    DEAD_LETTERS = "dead-letters"
    FIRST_ATTEMPT_AGE = "first-attempt-age"
    OLDEST_AGE = "oldest-age"
    NO_EMPTY_POLLS = "no-empty-polls"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRules:
    """From which values on a queue needs attention; None: never."""

    dead_letters: int | None = 1
    """Dead letters: from the first on, because nothing but people takes them away."""
    first_attempt_age: float | None = 60.0
    """Seconds that a tenth of the new messages waited, or more, for the first attempt: a minute, as long as a message
    is fresh by default. The tenant that waits the most is left out, and so is what is spilled or old, which waits by
    design, unless most tenants have spilled messages and the backlog does not shrink."""
    oldest_age: float | None = None
    """Seconds that the oldest message has waited since it could be handled. Excess, and what is old, wait by design."""
    no_empty_polls: int | None = None
    """Polls between two looks of which none was empty: the workers have nothing in reserve."""
    open_after: int = 3
    """Looks in a row after which an alarm opens: half a minute, at a look every ten seconds."""
    close_after: int = 6
    """Looks in a row after which it closes: a minute. Slower, because it is told as good news."""

    def __post_init__(self) -> None:
        for kind in AlarmKind:
            threshold = self.threshold(kind)
            if threshold is not None and not threshold > 0:
                raise InvalidValue(
                    f"alarm rule {_get_field_name(kind)} {threshold}: expected more than 0, or None for no alarm"
                )
        for name in ("open_after", "close_after"):
            if getattr(self, name) < 1:
                raise InvalidValue(f"alarm rule {name} {getattr(self, name)}: expected 1 look or more")

    def threshold(self, kind: AlarmKind) -> float | None:
        """From which value on; None: never."""
        threshold: float | None = getattr(self, _get_field_name(kind))
        return threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReading:
    """What one look at a queue tells."""

    queue: str
    at: float
    values: Mapping[AlarmKind, float] = field(default_factory=dict, hash=False)
    """What is not here is not known."""
    tenants: Mapping[AlarmKind, str] = field(default_factory=dict, hash=False)
    """The tenant that causes nearly all of it, where there is one."""
    alarms: Mapping[AlarmKind, bool] = field(default_factory=dict, hash=False)
    """Whether each alarm is open that there is a rule for, after this look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAlarm:
    """A queue needs attention, or does not any more."""

    queue: str
    kind: AlarmKind
    is_open: bool
    at: float
    value: float
    threshold: float
    since: float
    """When it opened."""
    tenant: str | None = None
    """The tenant that causes nearly all of it, where there is one."""

    @property
    def sentence(self) -> str:
        about = f"queue {self.queue}: {_SENTENCES[self.kind].format(value=self.value, threshold=self.threshold)}"
        if not self.is_open:
            return f"{about}: it is over, after {self.at - self.since:.0f} s"
        return about if self.tenant is None else f"{about}, nearly all of it of tenant {self.tenant}"


@dataclass(frozen=True, slots=True)
class AlarmTrack:
    """One rule over time."""

    opened_at: float | None = None
    """When it opened; None: it is closed."""
    streak: int = 0
    """Looks in a row that say the opposite of what it is."""


@dataclass(frozen=True, slots=True)
class AlarmState:
    """What is known of a queue's alarms from the looks so far."""

    tracks: Mapping[AlarmKind, AlarmTrack] = field(default_factory=dict, hash=False)

    @property
    def open_alarms(self) -> frozenset[AlarmKind]:
        return frozenset(kind for kind, track in self.tracks.items() if track.opened_at is not None)

    def list_states(self, rules: AlarmRules) -> dict[AlarmKind, bool]:
        """Whether each alarm is open that there is a rule for."""
        return {kind: kind in self.open_alarms for kind in AlarmKind if rules.threshold(kind) is not None}


def update_alarms(
    rules: AlarmRules, state: AlarmState, reading: QueueReading
) -> tuple[AlarmState, tuple[QueueAlarm, ...]]:
    """The alarms after one more look, and those that have opened or closed by it."""
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
    AlarmKind.DEAD_LETTERS: "there are {value:.0f} dead letters (alarm from {threshold:.0f} on): "
    "look at them, mend what failed, and redrive them",
    AlarmKind.FIRST_ATTEMPT_AGE: "new messages wait {value:.1f} s for the first attempt "
    "(alarm from {threshold:.0f} s on): there are too few workers, or they do not get on",
    AlarmKind.OLDEST_AGE: "the oldest message has waited {value:.0f} s (alarm from {threshold:.0f} s on)",
    AlarmKind.NO_EMPTY_POLLS: "of {value:.0f} polls none was empty (alarm from {threshold:.0f} on): "
    "the workers have nothing in reserve",
}
