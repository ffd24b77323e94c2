"""The next step for a resource, from what was just read."""

from msgspec.structs import replace

from holdfast.evacuate.action import ChangeState, Reading
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.steps import SETTLING_SECONDS, WAIT, WRITE, Step, StepKind, decide_apply, decide_restore


def test_a_change_is_written_only_where_it_is_absent() -> None:
    for state, result in (
        (ChangeState.APPLIED, EntryState.APPLIED),
        (ChangeState.FOUND, EntryState.FOUND),
        (ChangeState.DIFFERENT, EntryState.FAILED),
        (ChangeState.GONE, EntryState.FAILED),
    ):
        assert decide_apply(Reading(state=state, note="why"), None) == Step(StepKind.END, result, "why")
        assert decide_apply(Reading(state=state), None).note or state is ChangeState.APPLIED
    assert decide_apply(Reading(state=ChangeState.ABSENT), None) is WRITE
    assert decide_apply(Reading(state=ChangeState.APPLIED, is_effective=False), None) is WAIT


def test_a_change_without_the_name_of_a_run_is_ours_only_if_our_run_may_have_made_it() -> None:
    reading = Reading(state=ChangeState.APPLIED, shows_owner=False)
    assert decide_apply(reading, None).state is EntryState.FOUND
    assert decide_apply(reading, None, may_be_ours=True).state is EntryState.APPLIED
    assert decide_apply(reading, 0.5).state is EntryState.APPLIED, "we have just written it"
    assert decide_apply(replace(reading, is_effective=False), None) is WAIT, "theirs must have an effect, too"
    assert decide_restore(reading, None) is WRITE


def test_an_undone_change_must_take_effect() -> None:
    assert decide_restore(Reading(state=ChangeState.ABSENT, is_effective=False), 1.0) is WAIT


def test_a_change_is_undone_only_where_it_is_ours() -> None:
    for state, result in (
        (ChangeState.ABSENT, EntryState.RESTORED),
        (ChangeState.FOUND, EntryState.KEPT),
        (ChangeState.DIFFERENT, EntryState.KEPT),
        (ChangeState.GONE, EntryState.KEPT),
    ):
        assert decide_restore(Reading(state=state, note="why"), None) == Step(StepKind.END, result, "why")
        assert decide_restore(Reading(state=state), None).note or state is ChangeState.ABSENT
    assert decide_restore(Reading(state=ChangeState.APPLIED), None) is WRITE


def test_a_write_is_not_repeated_while_reads_may_be_old() -> None:
    for decide, state in ((decide_apply, ChangeState.ABSENT), (decide_restore, ChangeState.APPLIED)):
        assert decide(Reading(state=state), SETTLING_SECONDS - 1) is WAIT
        assert decide(Reading(state=state), SETTLING_SECONDS) is WRITE
