"""Whose turn it is: the shares hold exactly, and nobody's turn never comes."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.queue.message import PRIORITIES
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.turns import (
    FEW,
    FRESH,
    FRESH_SPILLED,
    IN_ORDER,
    OLD,
    OLD_FEW,
    OLD_RUN,
    OLD_SPILLED,
    PERIOD,
    RANKS,
    RUN,
    Age,
    Source,
    Turn,
    quota,
    turns,
)

SHARE = st.sampled_from([0.0, 0.001, 0.01, 0.03, 0.1, 0.25, 0.3])
POLICIES = st.builds(QueuePolicy, old_share=SHARE, low_share=SHARE, spill_share=SHARE)
SIZES = st.lists(st.integers(1, 150), min_size=1, max_size=40)
DEFAULTS = QueuePolicy()


def kind_of(turn: Turn) -> str:
    first = turn.sources[0]
    if list(turn.sources) == list(IN_ORDER):
        return "rest"
    if first.rank >= PRIORITIES:
        return "spilled"
    return "old" if first.age is Age.OLD else "low"


def counted(policy: QueuePolicy, sizes: list[int], before: int = 0) -> Counter[str]:
    found: Counter[str] = Counter()
    for size in sizes:
        for turn in turns(size, before, policy):
            found[kind_of(turn)] += turn.number
        before += size
    return found


def served(policy: QueuePolicy, sizes: list[int], there: set[Source]) -> Counter[Source]:
    """What a worker gets where each of these sources has messages without end."""
    found: Counter[Source] = Counter()
    before = 0
    for size in sizes:
        for turn in turns(size, before, policy, {source.rank for source in there}):
            got = [source for source in turn.sources if source in there] or [
                source for source in IN_ORDER if source in there
            ]
            found[got[0]] += turn.number
        before += size
    return found


def test_fresh_comes_before_old_urgent_before_less_urgent_and_spilled_last() -> None:
    assert (*FRESH, *OLD, *FRESH_SPILLED, *OLD_SPILLED) == IN_ORDER
    assert turns(5, 0, QueuePolicy(old_share=0, low_share=0, spill_share=0)) == [Turn(5, IN_ORDER)]
    assert [source.rank for source in IN_ORDER] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]


@given(POLICIES, SIZES, st.integers(0, 5000))
def test_every_message_has_one_turn(policy: QueuePolicy, sizes: list[int], before: int) -> None:
    for size in sizes:
        found = turns(size, before, policy)
        assert sum(turn.number for turn in found) == size
        assert all(turn.number > 0 for turn in found)
        assert len({tuple(turn.sources) for turn in found}) == len(found), "what looks for the same looks once"
        before += size


@given(POLICIES, SIZES)
def test_shares_hold_over_any_sequence_of_sizes(policy: QueuePolicy, sizes: list[int]) -> None:
    """At no moment is one of them a whole turn behind, or ahead."""
    shares = {"old": policy.old_share, "low": policy.low_share, "spilled": policy.spill_share}
    shares["rest"] = 1 - sum(shares.values())
    for taken in range(1, len(sizes) + 1):
        found = counted(policy, sizes[:taken])
        for kind, share in shares.items():
            assert abs(found[kind] - share * sum(sizes[:taken])) < 1 + 1e-9
            assert share or not found[kind]


@given(POLICIES, st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 3000))
def test_it_does_not_matter_how_many_are_taken_at_a_time(policy: QueuePolicy, sizes: list[int], before: int) -> None:
    assert counted(policy, sizes, before) == counted(policy, [1] * sum(sizes), before)


@pytest.mark.parametrize("size", [1, 7, 100, PERIOD])
def test_after_a_period_shares_are_exact(size: int) -> None:
    sizes = [size] * (PERIOD // size) + [PERIOD % size] * bool(PERIOD % size)
    policy = QueuePolicy(old_share=0.29, low_share=0.001, spill_share=0.05)
    assert counted(policy, sizes) == {"old": 290, "low": 1, "spilled": 50, "rest": 659}


def test_whoever_takes_one_at_a_time_serves_all_shares() -> None:
    """All three are due at every tenth message: one must not take the turn of another."""
    assert counted(DEFAULTS, [1] * 100) == {"old": 10, "low": 10, "spilled": 10, "rest": 70}


def test_a_small_share_is_not_none() -> None:
    assert counted(QueuePolicy(old_share=1e-9), [PERIOD])["old"] == 1


@pytest.mark.parametrize("size", [1, 10, 100])
def test_nobody_starves(size: int) -> None:
    """Where there is everything without end, everything is served."""
    found = served(DEFAULTS, [size] * (6 * PERIOD // size), set(IN_ORDER))
    total = sum(found.values())
    assert all(found[source] >= total * 0.007 for source in IN_ORDER)


@given(st.sets(st.sampled_from(IN_ORDER), min_size=1), st.sampled_from([1, 2, 7, 50]))
@settings(max_examples=60)
def test_whatever_there_is_is_served(there: set[Source], size: int) -> None:
    found = served(DEFAULTS, [size] * (600 // size + 1), there)
    assert set(found) == there


def test_old_messages_of_one_priority_have_their_share_and_no_more() -> None:
    """The share for less urgent ones is for those that are less urgent than others."""
    found = served(DEFAULTS, [1] * PERIOD, {Source(2, Age.FRESH), Source(2, Age.OLD)})
    assert found == {Source(2, Age.FRESH): 900, Source(2, Age.OLD): 100}


def test_less_urgent_messages_share_their_share() -> None:
    found = served(DEFAULTS, [1] * PERIOD, set(FRESH))
    assert [found[source] for source in FRESH] == [900, 33, 33, 34]


def test_spilled_messages_have_a_share_of_which_the_urgent_have_half() -> None:
    found = served(DEFAULTS, [10] * (12 * PERIOD // 10), {FRESH[2], *FRESH_SPILLED, *OLD_SPILLED})
    assert found[FRESH[2]] == 10_800 - 1200  # the share of old ones
    assert [found[source] for source in FRESH_SPILLED] == [600, 85, 85, 86]
    assert [found[source] for source in OLD_SPILLED] == [1200 + 86, 86, 86, 86]


def test_old_messages_that_were_spilled_have_the_share_of_old_ones_only_if_there_are_no_others() -> None:
    found = served(DEFAULTS, [1] * PERIOD, {FRESH[2], OLD[2], OLD_SPILLED[2]})
    assert found == {FRESH[2]: 800, OLD[2]: 100, OLD_SPILLED[2]: 100}


@given(POLICIES, st.integers(1, 300), st.integers(0, 3000), st.sets(st.sampled_from(sorted(RANKS))))
def test_what_is_not_there_is_not_looked_for(policy: QueuePolicy, wanted: int, before: int, ranks: set[int]) -> None:
    found = turns(wanted, before, policy, ranks)
    assert {source.rank for turn in found for source in turn.sources} <= ranks
    assert sum(turn.number for turn in found) == (wanted if ranks else 0)
    rest = [source for source in IN_ORDER if source.rank in ranks]
    assert rest not in [list(turn.sources) for turn in found[:-1]], "the rest comes last"


def test_one_priority_needs_few_looks() -> None:
    """Turns that come to the same are one."""
    assert [turn.number for turn in turns(100, 0, DEFAULTS, {2})] == [10, 90]


@given(st.integers(1, 1000), st.integers(0, 600), st.sampled_from(Age))
def test_each_lane_is_asked_for_its_part(wanted: int, lanes: int, age: Age) -> None:
    each = quota(wanted, lanes, age)
    run, few = (RUN, FEW) if age is Age.FRESH else (OLD_RUN, OLD_FEW)
    if not lanes:
        assert each == 0
    else:
        part = max(number for number in range(wanted + 1) if number * lanes <= wanted) or 1
        assert each == max(part, min(run, wanted // few)), "where many are wanted, more of each"
        assert wanted >= 2 * few or each == part, "no lane has a second before all have had one"
