"""Who is believed when sources differ, lie, lag or are silent."""

import itertools
import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Zone
from holdfast.status.quorum import QuorumDecision, QuorumRules, SilencePolicy, Vote, count_votes
from tests.table import rows

ONE, TWO = Zone("az1"), Zone("az2")
NOW = 1000.0
STALE = 15.0


def vote(answer: str, *, until: float = math.inf, heard: float = NOW) -> Vote | None:
    """What a source says of zone one: `out`, `in`, or nothing at all."""
    match answer:
        case "out":
            return Vote(heard, {(ONE, None): until})
        case "in":
            return Vote(heard, {})
        case _:
            return None


def rules(count: int, when_silent: SilencePolicy = SilencePolicy.KEEP, own: Zone | None = None) -> QuorumRules:
    return QuorumRules(sources=count, stale_after=STALE, when_silent=when_silent, own_zone=own, started_at=NOW - 100)


def is_out(
    answers: Iterable[str], previous: QuorumDecision | None = None, when_silent: SilencePolicy = SilencePolicy.KEEP
) -> bool:
    votes = [vote(answer) for answer in answers]
    return ONE in count_votes(votes, rules(len(votes), when_silent), previous or QuorumDecision(), NOW).zones_out[None]


WAS_OUT = count_votes([vote("out")] * 5, rules(5), QuorumDecision(), NOW)


def test_three_of_five_with_one_healthy_and_one_silent_is_out() -> None:
    assert is_out(["out", "out", "out", "in", "silent"])


@rows("count", [1, 2, 3, 4, 5])
@rows("when_silent", [SilencePolicy.KEEP, SilencePolicy.ALL_IN])
def test_out_needs_a_majority_of_the_configured_whatever_else_is_said(count: int, when_silent: SilencePolicy) -> None:
    for answers in itertools.product(["out", "in", "silent"], repeat=count):
        assert is_out(answers, when_silent=when_silent) is (answers.count("out") * 2 > count)


@pytest.mark.parametrize("before", [True, False])
def test_what_was_decided_stays_until_a_majority_says_otherwise(before: bool) -> None:
    for answers in itertools.product(["out", "in", "silent"], repeat=5):
        expected = before
        if answers.count("out") >= 3 or answers.count("in") >= 3:
            expected = answers.count("out") >= 3
        assert is_out(answers, WAS_OUT if before else QuorumDecision()) is expected


@given(
    st.permutations(range(5)), st.booleans(), st.lists(st.sampled_from(["out", "in", "silent"]), min_size=2, max_size=2)
)
def test_a_minority_that_lies_changes_nothing(order: list[int], truth: bool, lies: list[str]) -> None:
    answers = ["out" if truth else "in"] * 3 + lies
    shuffled = [answers[position] for position in order]
    assert is_out(shuffled, WAS_OUT) is truth
    assert is_out(shuffled, QuorumDecision()) is truth


def test_before_anything_is_heard_nothing_is_out() -> None:
    for when_silent in SilencePolicy:
        decision = count_votes([None] * 3, rules(3, when_silent), QuorumDecision(), NOW - 90)
        assert decision.zones_out == {None: frozenset()}
        assert decision.answering_sources == 0


def test_silence_can_be_set_to_bring_everything_back() -> None:
    assert not is_out(["out", "out", "in", "silent", "silent"], WAS_OUT, SilencePolicy.ALL_IN)


def test_silence_can_be_set_to_leave_the_own_zone_and_no_other() -> None:
    own = rules(3, SilencePolicy.OWN_ZONE_OUT, TWO)
    votes = [vote("in"), None, None]
    assert count_votes(votes, own, QuorumDecision(), NOW).zones_out == {None: frozenset({TWO})}
    assert count_votes([vote("in")] * 3, own, QuorumDecision(), NOW).zones_out == {None: frozenset()}
    left = count_votes(votes, own, QuorumDecision(), NOW)
    assert count_votes([vote("in"), vote("in"), None], own, left, NOW).zones_out == {None: frozenset()}, "heard again"


def test_the_own_zone_is_not_left_before_there_was_time_to_hear_anybody() -> None:
    own = QuorumRules(
        sources=3, stale_after=STALE, when_silent=SilencePolicy.OWN_ZONE_OUT, own_zone=ONE, started_at=NOW
    )
    early = count_votes([None] * 3, own, QuorumDecision(), NOW + 1)
    assert early.zones_out == {None: frozenset()}
    assert early.review_at == NOW + STALE
    assert count_votes([None] * 3, own, early, early.review_at).zones_out == {None: frozenset({ONE})}


def test_leaving_the_own_zone_ends_with_the_silence_even_if_nobody_agrees_on_it() -> None:
    own = rules(5, SilencePolicy.OWN_ZONE_OUT, ONE)
    left = count_votes([None] * 5, own, QuorumDecision(), NOW)
    assert left.zones_out == {None: frozenset({ONE})}
    heard = [vote("in"), vote("in"), vote("out"), None, None]
    assert (
        count_votes(heard, own, left, NOW).zones_out
        == count_votes(heard, own, QuorumDecision(), NOW).zones_out
        == {None: frozenset()}
    )


def test_who_was_not_asked_about_a_zone_is_silent_about_it() -> None:
    about_two = Vote(NOW, {}, frozenset({TWO}))
    was_out = count_votes([vote("out")] * 3, rules(3), QuorumDecision(), NOW)
    votes = [vote("out"), about_two, about_two]
    assert count_votes(votes, rules(3), QuorumDecision(), NOW).zones_out == {None: frozenset()}
    assert count_votes(votes, rules(3), was_out, NOW).zones_out == {None: frozenset({ONE})}, "two of three say nothing"


def test_what_was_heard_too_long_ago_does_not_count() -> None:
    votes = [vote("out", heard=NOW - STALE), vote("out"), vote("in")]
    decision = count_votes(votes, rules(3), QuorumDecision(), NOW)
    assert decision.answering_sources == 2
    assert decision.zones_out == {None: frozenset()}


def test_a_zone_is_out_for_as_long_as_a_majority_says_and_comes_back_unheard() -> None:
    votes = [vote("out", until=NOW + end) for end in (5, 7, 30)]
    decision = count_votes(votes, rules(3), QuorumDecision(), NOW)
    assert decision.out_until == {(ONE, None): NOW + 7}
    assert decision.review_at == NOW + 5
    silent = count_votes([None] * 3, rules(3), decision, NOW + 6)
    assert silent.zones_out == {None: frozenset({ONE})}
    assert silent.review_at == NOW + 7
    assert count_votes([None] * 3, rules(3), silent, NOW + 7).zones_out == {None: frozenset()}


def test_each_workload_is_counted_with_what_is_out_for_all() -> None:
    votes = [
        Vote(NOW, {(ONE, None): math.inf}),
        Vote(NOW, {(ONE, "shop"): math.inf}),
        Vote(NOW, {(TWO, "search"): math.inf}),
    ]
    assert count_votes(votes, rules(3), QuorumDecision(), NOW).zones_out == {
        None: frozenset(),
        "shop": frozenset({ONE}),
    }


def test_a_workload_that_had_no_say_of_its_own_keeps_what_all_had() -> None:
    everywhere = count_votes([vote("out")] * 3, rules(3), QuorumDecision(), NOW)
    alone = [Vote(NOW, {(TWO, "shop"): math.inf}), None, None]
    decision = count_votes(alone, rules(3), everywhere, NOW)
    assert decision.zones_out == {None: frozenset({ONE})}
    assert decision.zones_out.get("shop", decision.zones_out[None]) == {ONE}


@pytest.mark.no_cover
@given(
    st.lists(
        st.none()
        | st.builds(
            Vote,
            st.floats(NOW - 30, NOW),
            st.dictionaries(
                st.tuples(st.sampled_from([ONE, TWO]), st.sampled_from([None, "shop"])), st.floats(NOW - 5, NOW + 50)
            ),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([SilencePolicy.KEEP, SilencePolicy.ALL_IN]),
)
def test_nothing_changes_before_the_review_unless_something_is_heard(
    votes: list[Vote | None], when_silent: SilencePolicy
) -> None:
    told = rules(len(votes), when_silent)
    decision = count_votes(votes, told, QuorumDecision(), NOW)
    assert decision.review_at > NOW
    moment = min(decision.review_at, NOW + 100)
    just_before = math.nextafter(moment, -math.inf)
    assert count_votes(votes, told, decision, just_before).zones_out == decision.zones_out
