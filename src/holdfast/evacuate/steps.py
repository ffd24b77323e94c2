"""Decide the next step for one resource, from what was just read. Pure.

Making a change and undoing it is the same loop: read, decide, write at most once, read again. A write is repeated only
if the resource is still unchanged some seconds after the last write, because a read may show an older state.
"""

from enum import StrEnum

from msgspec import Struct

from holdfast.evacuate.action import ChangeState, Reading
from holdfast.evacuate.journal import EntryState

SETTLING_SECONDS = 15.0
"""Seconds after a write in which a read may still show the state before it (eventual consistency)."""


class StepKind(StrEnum):
    """What to do next with a resource."""

    WRITE = "write"
    WAIT = "wait"
    END = "end"


class Step(Struct, frozen=True):
    """The next step. The last step of a resource also has the result."""

    kind: StepKind
    state: EntryState | None = None
    note: str = ""


WRITE, WAIT = Step(StepKind.WRITE), Step(StepKind.WAIT)


_NOT_APPLIED = {
    ChangeState.FOUND: (EntryState.FOUND, "others made the same change already"),
    ChangeState.DIFFERENT: (EntryState.FAILED, "others changed the resource meanwhile"),
    ChangeState.GONE: (EntryState.FAILED, "the resource does not exist any more"),
}
_NOT_UNDONE = {
    ChangeState.FOUND: (EntryState.KEPT, "others made the same change, so it stays"),
    ChangeState.DIFFERENT: (EntryState.KEPT, "others changed it, so their change stays"),
    ChangeState.GONE: (EntryState.KEPT, "the resource does not exist any more"),
}
"""The result, and a note for readings that have none."""


def decide_apply(reading: Reading, since_write: float | None, *, may_be_ours: bool = False) -> Step:
    """Return the next step to make a change. `since_write` is the time since the last write; None before the first.

    `may_be_ours` says that an earlier attempt of our run may have made it.
    """
    if reading.state is ChangeState.ABSENT:
        return _write_or_wait(since_write)
    if reading.state is ChangeState.APPLIED and not reading.shows_owner and since_write is None and not may_be_ours:
        state, note = _NOT_APPLIED[ChangeState.FOUND]
        return Step(StepKind.END, state, reading.note or note) if reading.is_effective else WAIT
    if reading.state is ChangeState.APPLIED:
        return Step(StepKind.END, EntryState.APPLIED, reading.note) if reading.is_effective else WAIT
    state, note = _NOT_APPLIED[reading.state]
    return Step(StepKind.END, state, reading.note or note)


def decide_restore(reading: Reading, since_write: float | None) -> Step:
    """Return the next step to undo a change."""
    if reading.state is ChangeState.APPLIED:
        return _write_or_wait(since_write)
    if reading.state is ChangeState.ABSENT:
        return Step(StepKind.END, EntryState.RESTORED, reading.note) if reading.is_effective else WAIT
    state, note = _NOT_UNDONE[reading.state]
    return Step(StepKind.END, state, reading.note or note)


def _write_or_wait(since_write: float | None) -> Step:
    return WRITE if since_write is None or since_write >= SETTLING_SECONDS else WAIT
