"""Who may work on which run: the rules of the open runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast import Conflict, Zone
from holdfast.evacuate.journal import (
    CLAIM_SECONDS,
    KEPT_RUNS,
    Entry,
    EntryState,
    RecordedRuns,
    Run,
    RunState,
    add_run,
    build_conflict,
    build_lease_lost,
    claim_run,
    describe_run,
    end_run,
    find_run,
    is_held,
    update_run,
)

ONE, TWO, FAR = Zone("use1-az1"), Zone("use1-az2"), Zone("euw1-az1")
NOW = 1_000_000.0
RUN = Run(id="hf-1", zone=ONE, workload="shop", by="me@here", reason="requests fail", started=NOW - 120)


def test_a_new_run_is_held_for_a_minute_with_a_greater_number() -> None:
    (added,) = add_run(RecordedRuns(7, ()), RUN, "a", NOW)
    assert (added.holder, added.held_until, added.number) == ("a", NOW + CLAIM_SECONDS, 8)
    assert find_run(RecordedRuns(8, (added,)), "hf-1") == added
    assert find_run(RecordedRuns(8, (added,)), "hf-2") is None


def test_an_overlapping_run_is_refused_with_advice() -> None:
    for state, wanted, words in (
        (RunState.EVACUATING, replace(RUN, zone=TWO), "Restore use1-az1 first"),
        (RunState.EVACUATING, RUN, "continue it with `holdfast zone resume use1-az1`"),
        (RunState.EVACUATED, replace(RUN, workload=None), "undo it with `holdfast zone restore use1-az1`"),
        (RunState.RESTORING, RUN, "finish restoring it with"),
        (RunState.RESTORING, replace(RUN, workload="blog"), "it is being restored, so wait until that has ended"),
    ):
        with pytest.raises(Conflict, match=words):
            add_run(RecordedRuns(1, (replace(RUN, state=state),)), replace(wanted, id="hf-2"), "b", NOW)


def test_runs_elsewhere_do_not_overlap() -> None:
    for wanted in (replace(RUN, zone=FAR), replace(RUN, workload="blog")):
        assert len(add_run(RecordedRuns(1, (RUN,)), replace(wanted, id="hf-2"), "b", NOW)) == 2


def test_only_one_process_works_on_a_run() -> None:
    held = RecordedRuns(3, add_run(RecordedRuns(2, (replace(RUN, id="hf-0", zone=FAR),)), RUN, "a", NOW))
    for holder in ("a", "b"):  # the process itself may have another thread that works on it
        with pytest.raises(Conflict, match="or 20 s if its process died"):
            claim_run(held, "hf-1", holder, NOW + 40)
    for holder, now in (("a", NOW + CLAIM_SECONDS), ("b", NOW + CLAIM_SECONDS)):
        claimed = find_run(RecordedRuns(4, claim_run(held, "hf-1", holder, now)), "hf-1")
        assert claimed is not None
        assert (claimed.holder, claimed.number, claimed.held_until) == (holder, 4, now + CLAIM_SECONDS)
    assert find_run(RecordedRuns(4, claim_run(held, "hf-1", "b", NOW + 40, ended={"a"})), "hf-1") is not None
    with pytest.raises(Conflict):
        claim_run(held, "hf-1", "b", NOW + 40, ended={"c"})
    released = RecordedRuns(3, (replace(RUN, holder="", held_until=NOW + 50),))
    assert claim_run(released, "hf-1", "b", NOW)[0].holder == "b"
    with pytest.raises(Conflict, match="run hf-9 is not open any more"):
        claim_run(held, "hf-9", "b", NOW)


def test_a_run_is_held_until_its_claim_expires_or_its_process_has_ended() -> None:
    (held,) = add_run(RecordedRuns(0, ()), RUN, "a", NOW)
    for now, ended, expected in (
        (NOW, (), True),
        (NOW, ("a",), False),
        (NOW, ("b",), True),
        (NOW + CLAIM_SECONDS, (), False),
    ):
        assert is_held(held, now, ended) is expected
    assert not is_held(replace(held, holder=""), NOW)


def test_a_process_whose_run_was_claimed_can_change_nothing() -> None:
    (old,) = add_run(RecordedRuns(0, ()), RUN, "a", NOW)
    taken = RecordedRuns(2, claim_run(RecordedRuns(1, (old,)), "hf-1", "b", NOW + 100))
    for change in (update_run, lambda runs, run: end_run(runs, run, NOW)):
        with pytest.raises(Conflict, match="another process has continued run hf-1"):
            change(taken, old)
        with pytest.raises(Conflict):
            change(RecordedRuns(2, ()), old)
    new = taken.runs[0]
    assert update_run(taken, replace(new, state=RunState.EVACUATED))[0].state is RunState.EVACUATED
    (ended,) = end_run(taken, new, NOW + 200)
    assert (ended.is_open, ended.ended, ended.holder) == (False, NOW + 200, "")
    with pytest.raises(Conflict, match="not open any more"):
        claim_run(RecordedRuns(3, (ended,)), "hf-1", "b", NOW + 300)


def test_the_last_restored_runs_are_kept_and_refuse_nothing() -> None:
    old = [replace(RUN, id=f"old-{n}", state=RunState.RESTORED, ended=NOW + n) for n in range(KEPT_RUNS + 3)]
    (running,) = add_run(RecordedRuns(1, ()), RUN, "a", NOW)
    runs = end_run(RecordedRuns(2, (*old, running, replace(RUN, id="hf-2", zone=FAR))), running, NOW + 100)
    assert [each.id for each in runs] == [*(f"old-{n}" for n in range(4, KEPT_RUNS + 3)), "hf-1", "hf-2"]
    assert add_run(RecordedRuns(3, runs), replace(RUN, id="hf-3", zone=TWO), "a", NOW)[-1].id == "hf-3"


def test_a_second_zone_is_recorded_only_if_an_operator_allows_it() -> None:
    wanted = replace(RUN, id="hf-2", zone=TWO)
    assert len(add_run(RecordedRuns(1, (RUN,)), wanted, "a", NOW, allows_second_zone=True)) == 2
    with pytest.raises(Conflict):
        add_run(RecordedRuns(1, (RUN,)), replace(wanted, zone=ONE), "a", NOW, allows_second_zone=True)


def test_what_another_process_has_changed_says_so() -> None:
    assert "since version 3: read them again" in str(build_conflict(3))
    entry = Entry(
        zone=ONE, resource="arn:a", type="group", action="a", run="hf-1", number=1, state=EntryState.INTENDED, at=NOW
    )
    assert str(build_lease_lost(entry)).startswith("another process has continued run hf-1")


def test_a_run_is_described_by_its_operator_and_its_age() -> None:
    assert describe_run(RUN, NOW) == ("run hf-1, which me@here started 2 minutes ago, is evacuating use1-az1 for shop")
    done = replace(RUN, state=RunState.EVACUATED, workload=None)
    assert describe_run(done, NOW).endswith("ago, has evacuated use1-az1 for all workloads")


def test_entries_are_open_while_there_may_be_something_to_restore() -> None:
    assert {each for each in EntryState if each.is_open} == {
        EntryState.INTENDED,
        EntryState.APPLIED,
        EntryState.RESTORING,
    }


zones, workloads = st.sampled_from([ONE, TWO, FAR]), st.sampled_from([None, "shop", "blog"])


@given(st.lists(st.tuples(zones, workloads), max_size=8))
def test_no_history_of_runs_evacuates_two_zones_of_a_region_for_a_workload(
    history: list[tuple[Zone, str | None]],
) -> None:
    runs = RecordedRuns(0, ())
    for number, (zone, workload) in enumerate(history):
        wanted = replace(RUN, id=f"hf-{number}", zone=zone, workload=workload)
        try:
            runs = RecordedRuns(runs.version + 1, add_run(runs, wanted, "a", NOW))
        except Conflict:
            continue
    for region in ({ONE, TWO}, {FAR}):
        for workload in ("shop", "blog"):
            evacuated = {each.zone for each in runs.runs if each.workload in (None, workload)}
            assert len(evacuated & region) <= 1
