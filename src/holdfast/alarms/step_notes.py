"""Remember facts about the last evaluation steps that measurements do not show: zones that were out, and pauses. Pure.

A step is the time between two evaluations, 10 or 60 seconds. A period has one step or more. Windows slide by a step, so
a step belongs to several periods, one after the other.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from msgspec import Struct

from holdfast._types import Zone


class StepNote(Struct, frozen=True, array_like=True):
    """Facts about one step, to be saved."""

    start: float
    zones_out: tuple[Zone, ...] = ()
    """The zones that were out when the step ended."""
    is_paused: bool = False
    """Whether Holdfast did not run for most of the step."""


@dataclass(slots=True)
class StepNotes:
    """The notes about the steps that later evaluations may need. Not thread-safe."""

    step: int
    """Seconds of a step."""
    period: int
    """Seconds of a period."""
    _notes: dict[float, StepNote] = field(default_factory=dict)
    """By the start of the step. A step without a note has nothing to tell."""

    @property
    def saved(self) -> list[StepNote]:
        """The notes, oldest first."""
        return [self._notes[start] for start in sorted(self._notes)]

    def restore(self, saved: Iterable[StepNote]) -> None:
        """Replace the notes by saved ones."""
        self._notes = {each.start: each for each in saved}

    def add(self, end: float, zones_out: Set[Zone], *, is_paused: bool) -> None:
        """Note facts about the step that ends at `end`. Forget later steps: the clock was set back."""
        start = end - self.step
        self._notes = {each: note for each, note in self._notes.items() if each < start}
        if zones_out or is_paused:
            self._notes[start] = StepNote(start, tuple(sorted(zones_out)), is_paused)

    def find_zones_out(self, start: float) -> frozenset[Zone]:
        """Return the zones that were out at any time of the period from `start` on."""
        return frozenset(zone for note in self._list_notes(start) for zone in note.zones_out)

    def find_zones_out_at(self, end: float) -> frozenset[Zone]:
        """Return the zones that were out at `end`, which is the end of a step."""
        note = self._notes.get(end - self.step)
        return frozenset() if note is None else frozenset(note.zones_out)

    def is_paused(self, start: float) -> bool:
        """Return whether Holdfast did not run for most of any step of the period from `start` on."""
        return any(note.is_paused for note in self._list_notes(start))

    def is_step_paused(self, end: float) -> bool:
        """Return whether Holdfast did not run for most of the step that ends at `end`."""
        note = self._notes.get(end - self.step)
        return note is not None and note.is_paused

    def drop_before(self, start: float) -> None:
        """Forget the steps that begin before `start`."""
        self._notes = {each: note for each, note in self._notes.items() if each >= start}

    def _list_notes(self, start: float) -> list[StepNote]:
        starts = (start + self.step * number for number in range(self.period // self.step))
        return [self._notes[each] for each in starts if each in self._notes]
