"""A short soak: producers and workers are killed, the store breaks, and every message is accounted for.

`scripts/soak` runs the same with far more messages. Whoever judges others is judged first.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.services.postgres import RestartablePostgres
from tests.soak.items import Fate, Item
from tests.soak.ledger import Handling
from tests.soak.run import Plan, soak
from tests.soak.stores import PostgresStore, SqliteStore, Store
from tests.soak.verdict import Evidence, Span, judge
from tests.table import sampled

PLANS = {
    f"{messages} messages": Plan(
        messages=messages, kills=kills, producers=2, workers=2, freezes=0, lease=3.0, seconds=100.0
    )
    for messages, kills in ((800, 4), (2000, 8))
}
SECOND = 1_000_000
LEASE = 5


@pytest.fixture(params=sampled(["sqlite", "postgres"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        yield SqliteStore(tmp_path)
    else:
        server: RestartablePostgres = request.getfixturevalue("restartable_postgres")
        yield PostgresStore(server)


@pytest.mark.parametrize("size", sampled(PLANS))
def test_nothing_is_lost_stuck_or_left_behind(store: Store, tmp_path: Path, size: str) -> None:
    plan = PLANS[size]
    result = soak(store, plan, tmp_path)
    assert result.violations == []
    assert result.figures["acknowledged"] == result.figures["handled"] == plan.messages
    assert result.figures["killed producers"] + result.figures["killed workers"] == plan.kills
    assert result.figures["outages"] == 2
    assert result.figures["excused share"] < 0.2  # of more, little would be judged


class TestVerdict:
    """Numbers are those of messages and, where nothing else is said, their ids as well. Times are in seconds."""

    def test_all_is_well_when_each_is_handled_once(self) -> None:
        verdict = judge(evidence(handled(1, 0), handled(2, 1)))
        assert verdict.violations == []

    def test_what_was_acknowledged_must_be_handled(self) -> None:
        assert complaints(evidence(handled(1, 0), kept={1: {1}, 2: {2}})) == ["acknowledged, and never handled"]

    def test_an_attempt_that_failed_does_not_count(self) -> None:
        failed = handled(1, 0, outcome=Fate.FAILS_ONCE)
        assert complaints(evidence(failed)) == ["acknowledged, and never handled"]
        assert complaints(evidence(failed, handled(1, 1, tries=2))) == []

    def test_nothing_is_handled_that_was_never_sent(self) -> None:
        assert complaints(evidence(handled(1, 0), kept={}, tried={})) == ["handled, and never sent"]

    def test_what_is_handled_twice_needs_a_worker_that_was_killed_at_that_time(self) -> None:
        twice = (handled(1, 0, worker="one"), handled(1, 7, tries=2, worker="two"))
        assert complaints(evidence(*twice)) == ["messages handled again for no reason"]
        assert complaints(evidence(*twice, killed={"two": 8 * SECOND})) == ["messages handled again for no reason"]
        assert complaints(evidence(*twice, killed={"one": 60 * SECOND})) == ["messages handled again for no reason"]
        killed = judge(evidence(*twice, killed={"one": 1 * SECOND}))
        assert (killed.violations, killed.repeated_after_kill) == ([], 1)

    def test_or_a_store_that_was_away_while_it_had_the_message(self) -> None:
        """From when it was leased until it must have been settled; not before, and not shortly after."""
        twice = (handled(1, 3, leased=2), handled(1, 9, tries=2))
        for began, end in ((1.0, 2.5), (3.5, 3.6), (4.9, 8.0), (0.0, 60.0)):
            away = judge(evidence(*twice, outages=[span(began, end)]))
            assert (away.violations, away.repeated_after_outage, away.excused) == ([], 1, {1})
        for began, end in ((0.0, 1.9), (5.1, 6.0), (8.0, 9.5)):
            assert complaints(evidence(*twice, outages=[span(began, end)])) == ["messages handled again for no reason"]

    def test_or_that_stood_still_itself(self) -> None:
        """Nobody else is excused by that."""
        twice = (handled(1, 0, worker="one"), handled(1, 7, tries=2, worker="two"))
        frozen = judge(evidence(*twice, frozen={"one": [span(1, 6)]}))
        assert (frozen.violations, frozen.repeated_after_freeze, frozen.excused) == ([], 1, {1})
        for worker, when in (("other", span(1, 6)), ("one", span(20, 26)), ("two", span(1, 6))):
            assert complaints(evidence(*twice, frozen={worker: [when]})) == ["messages handled again for no reason"]

    def test_what_is_handled_twice_at_once_needs_a_reason_of_its_own(self) -> None:
        both = (
            handled(1, 0, seconds=9, worker="one", outcome=Fate.FAILS_ONCE),
            handled(1, 7, tries=2, worker="two"),
        )
        assert complaints(evidence(*both)) == ["messages in the hands of two workers at once"]
        assert judge(evidence(*both, frozen={"one": [span(1, 6)]})).excused == {1}
        assert judge(evidence(*both, outages=[span(1, 6)])).excused == {1}
        assert complaints(evidence(*both, frozen={"two": [span(1, 6)]})) == [
            "messages in the hands of two workers at once"
        ]
        assert complaints(evidence(*both, outages=[span(11, 12)])) == ["messages in the hands of two workers at once"]

    def test_how_much_was_excused_is_told(self) -> None:
        some = [handled(number, 0) for number in (2, 4, 6)]
        verdict = judge(evidence(*some, handled(2, 7, tries=2), handled(8, 0), outages=[span(1, 2)]))
        assert (verdict.excused, verdict.excused_share) == ({2}, 0.25)
        assert judge(evidence()).excused_share == 0

    def test_a_message_is_in_one_pair_of_hands(self) -> None:
        both = (handled(1, 0, seconds=3, worker="one"), handled(1, 2, tries=2, worker="two"))
        assert complaints(evidence(*both, killed={"one": 4 * SECOND})) == [
            "messages in the hands of two workers at once"
        ]

    def test_deliveries_count_up(self) -> None:
        same = (handled(1, 0, worker="one"), handled(1, 7, worker="two"))
        assert complaints(evidence(*same, killed={"one": SECOND})) == ["messages whose deliveries do not count up"]

    def test_a_message_is_there_as_often_as_it_was_sent_and_with_a_key_once(self) -> None:
        twice = (handled(2, 0), handled(2, 1, id_=9))
        assert complaints(evidence(*twice)) == ["there more often than they were sent"]
        assert judge(evidence(*twice, tried={2: 2})).sent_twice == 1
        assert complaints(evidence(*twice, tried={2: 2})) == []
        keyed = (handled(1, 0), handled(1, 1, id_=9))
        assert complaints(evidence(*keyed, tried={1: 2})) == ["there twice in spite of a key"]

    def test_a_group_keeps_its_order(self) -> None:
        """By the first time that each was handled; what comes again later does not matter."""
        assert complaints(evidence(handled(10, 0), handled(20, 2), handled(30, 4))) == []
        assert complaints(evidence(handled(10, 3), handled(20, 2), handled(30, 5))) == [
            "messages that overtook others of their group"
        ]
        again = handled(10, 9, tries=2)
        assert complaints(evidence(handled(10, 0, worker="one"), handled(20, 2), again, killed={"one": SECOND})) == []


def handled(
    number: int,
    began: int,
    *,
    id_: int | None = None,
    tries: int = 1,
    seconds: int = 1,
    outcome: str = Fate.DONE,
    worker: str = "worker",
    leased: int | None = None,
) -> Handling:
    """Leased when it was begun, unless it is said otherwise."""
    since, end = began if leased is None else leased, began + seconds
    return Handling(number, id_ or number, tries, since * SECOND, began * SECOND, end * SECOND, outcome, worker)


def span(began: float, ended: float) -> Span:
    return int(began * SECOND), int(ended * SECOND)


def evidence(
    *handlings: Handling,
    kept: Mapping[int, set[int]] | None = None,
    tried: Mapping[int, int] | None = None,
    killed: Mapping[str, int] | None = None,
    outages: list[Span] | None = None,
    frozen: Mapping[str, list[Span]] | None = None,
) -> Evidence:
    numbers = {handling.number for handling in handlings}
    return Evidence(
        item=_item,
        tried=dict.fromkeys(numbers, 1) if tried is None else tried,
        kept={number: {number} for number in numbers} if kept is None else kept,
        handlings=handlings,
        killed=killed or {},
        outages=outages or [],
        frozen=frozen or {},
        lease=LEASE,
    )


def _item(number: int) -> Item:
    """Odd ones have a key, full tens are of one group."""
    group = "group" if number % 10 == 0 else None
    return Item(number, "tenant", Fate.DONE, "blocking", group, number % 2 == 1, 0.0, 2)


def complaints(evidence: Evidence) -> list[str]:
    return [violation.partition(":")[0] for violation in judge(evidence).violations]
