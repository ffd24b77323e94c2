"""What must be true of all that was written down, whoever was killed and whatever broke. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.soak.items import ATTEMPTS, Fate, Item
from tests.soak.ledger import Handling

SHOWN = 5
"""Examples of each violation."""
SETTLED = 1_000_000
"""Microseconds within which what was handled is settled, unless something is in the way."""

Span = tuple[int, int]
"""From when to when."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What happened, as far as it was not the queue's own doing. Times are those of the ledgers."""

    item: Callable[[int], Item]
    tried: Mapping[int, int]
    kept: Mapping[int, set[int]]
    handlings: Sequence[Handling]
    killed: Mapping[str, int]
    """When workers were killed, by name."""
    outages: Sequence[Span]
    """When the store was away or took no writes, or a worker stood still that may have held what others need."""
    frozen: Mapping[str, Sequence[Span]]
    """When workers stood still, by name."""
    lease: float


@dataclass(slots=True)
class Verdict:
    """What is wrong, and what was counted."""

    violations: list[str] = field(default_factory=list)
    repeated_after_kill: int = 0
    repeated_after_outage: int = 0
    repeated_after_freeze: int = 0
    excused: set[int] = field(default_factory=set)
    """Messages that were handled again, or by two at once, for a reason that is not the queue's."""
    handled: int = 0
    """All messages that were handled."""
    sent_twice: int = 0
    """Numbers that are there more than once because their producer could not know that they were kept."""

    @property
    def excused_share(self) -> float:
        """Of all messages: if it is large, little was judged."""
        return len(self.excused) / max(1, self.handled)

    def complain(self, what: str, numbers: Iterable[object]) -> None:
        found = list(numbers)
        if found:
            examples = ", ".join(str(one) for one in found[:SHOWN])
            self.violations.append(f"{what}: {len(found)}, such as {examples}")


def judge(evidence: Evidence) -> Verdict:
    """Everything that can be said without looking into the store."""
    verdict = Verdict()
    by_number: dict[int, list[Handling]] = defaultdict(list)
    by_id: dict[int, list[Handling]] = defaultdict(list)
    for handling in sorted(evidence.handlings, key=lambda handling: handling.began):
        by_number[handling.number].append(handling)
        by_id[handling.id].append(handling)
    verdict.handled = len(by_id)
    verdict.complain(
        "acknowledged, and never handled",
        (number for number in evidence.kept if not any(map(_is_end, by_number.get(number, ())))),
    )
    verdict.complain("handled, and never sent", (number for number in by_number if number not in evidence.tried))
    _judge_sends(evidence, by_number, verdict)
    _judge_repeats(evidence, by_id, verdict)
    _judge_groups(evidence, by_number, verdict)
    return verdict


def _is_end(handling: Handling) -> bool:
    """Whether it is an attempt after which there is no other, unless what became of it was lost."""
    return handling.outcome in (Fate.DONE, Fate.REJECTED, Fate.FAILS_ALWAYS)


def _judge_sends(evidence: Evidence, by_number: Mapping[int, list[Handling]], verdict: Verdict) -> None:
    """A message is there as often as it was sent and may have been kept; with a key, once."""
    too_often, in_spite_of_key = [], []
    for number, some in by_number.items():
        ids = {handling.id for handling in some} | evidence.kept.get(number, set())
        verdict.sent_twice += len(ids) > 1
        if len(ids) > max(1, evidence.tried.get(number, 0)):
            too_often.append(number)
        if len(ids) > 1 and evidence.item(number).is_keyed:
            in_spite_of_key.append(number)
    verdict.complain("there more often than they were sent", too_often)
    verdict.complain("there twice in spite of a key", in_spite_of_key)


def _judge_repeats(evidence: Evidence, by_id: Mapping[int, list[Handling]], verdict: Verdict) -> None:
    """What was handled is handled again only if its worker was killed or frozen, or its store away, while it had it."""
    unexplained, at_once, out_of_order = [], [], []
    # What is done is settled within a moment, or when the store is back: far sooner than a lease ends.
    moment = int(evidence.lease * 1_000_000)
    for id_, some in by_id.items():
        for earlier, later in pairwise(some):
            if later.tries <= earlier.tries:
                out_of_order.append(id_)
            was_away = _overlaps(earlier, evidence.outages)
            was_frozen = any(_overlaps(one, evidence.frozen.get(one.worker, ())) for one in (earlier, later))
            if later.began < earlier.ended:
                if was_away or was_frozen:
                    verdict.excused.add(id_)
                else:
                    at_once.append(id_)
            if earlier.outcome not in (Fate.DONE, Fate.REJECTED):
                continue
            died = evidence.killed.get(earlier.worker)
            if died is not None and died - earlier.ended <= moment:
                verdict.repeated_after_kill += 1
            elif was_frozen:
                verdict.repeated_after_freeze += 1
            elif was_away:
                verdict.repeated_after_outage += 1
            else:
                unexplained.append(id_)
                continue
            verdict.excused.add(id_)
    verdict.complain("messages handled again for no reason", unexplained)
    verdict.complain("messages in the hands of two workers at once", at_once)
    verdict.complain("messages whose deliveries do not count up", out_of_order)


def _overlaps(handling: Handling, spans: Iterable[Span]) -> bool:
    """Whether something lasted while the worker had the message: from when it was leased until it was settled."""
    return any(began <= handling.ended + SETTLED and handling.leased <= ended for began, ended in spans)


def _judge_groups(evidence: Evidence, by_number: Mapping[int, list[Handling]], verdict: Verdict) -> None:
    """Within a group, no message is begun before the one that was sent before it has come to its end once."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in sorted(evidence.kept):
        item = evidence.item(number)
        if item.group is not None:
            groups[item.tenant, item.group].append(number)
    overtaken = []
    for numbers in groups.values():
        for before, after in pairwise(numbers):
            ends = [handling.ended for handling in by_number.get(before, ()) if _is_end(handling)]
            if evidence.item(before).fate is Fate.FAILS_ALWAYS:
                ends = sorted(ends)[ATTEMPTS - 1 :]
            begins = [handling.began for handling in by_number.get(after, ())]
            if ends and begins and min(begins) < min(ends):
                overtaken.append(f"{after} before {before}")
    verdict.complain("messages that overtook others of their group", overtaken)


def tally(handlings: Iterable[Handling]) -> Counter[str]:
    """Attempts by how they ended."""
    return Counter(handling.outcome for handling in handlings)
