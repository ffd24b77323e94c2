"""The soak itself: start everything, kill it again and again, break its store, and look whether all is well afterwards.

Start reading at `soak`.
"""

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast._errors import EngineError
from holdfast.engines import Database
from holdfast.queue import OutgoingMessage, open_backend
from holdfast.queue.backend import Ack, Backend, DeadLetterQuery, LeaseRequest, QueueChange, Settlement
from holdfast.queue.job import unpack_call
from tests.soak.items import QUEUE, TENANTS, Item, item, limits, policy
from tests.soak.ledger import Account, now
from tests.soak.processes import Child, Processes
from tests.soak.stores import Store, counters, rows
from tests.soak.verdict import Evidence, Span, Verdict, judge, tally

GLANCE = 0.02
FROZEN_LEASES = 1.3
"""How long a worker stands still, in leases: what it held is in other hands when it goes on."""
REPORT_EVERY = 5.0
CHECK_EVERY = 1.0
"""Seconds between looks whether the counters are right, in the middle of everything."""
SECOND_WAVE = 10
"""One in so many messages is sent and handled once more at the end: the store must not grow by that."""
LARGEST_KEY = 400
LARGEST_DEAD = 24_000
"""Bytes that a deduplication key and a dead letter, which stay, may take with their indexes."""
ROOM = 2_000_000
"""Bytes that an empty queue may take with all its lanes, tenants and indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much, and how long at most."""

    messages: int = 100_000
    kills: int = 100
    seed: int = 1
    producers: int = 3
    workers: int = 4
    freezes: int = 5
    """How often a worker stands still for longer than its leases last, and then goes on."""
    lease: float = 5.0
    seconds: float = 600.0

    def segment(self, number: int) -> int:
        """Whose message it is."""
        return number * self.producers // self.messages

    def first(self, segment: int) -> int:
        """The first number of a segment."""
        return -(-segment * self.messages // self.producers)

    def item(self, number: int) -> Item:
        return item(number, self.segment(number))


@dataclass(slots=True)
class Result:
    """What became of it."""

    backend: str
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def soak(store: Store, plan: Plan, directory: Path, say: Callable[[str], None] = lambda _: None) -> Result:
    """Run it on a store that nothing was sent to yet. Processes write into `directory`."""
    began = time.monotonic()
    with open_backend(store.url) as backend:
        backend.change(QUEUE, QueueChange(policy=policy(plan.lease), limits=limits(plan.messages)), create=True)
    with Processes(directory) as processes:
        run = _Run(store, plan, processes, Account(directory), say)
        try:
            run.until_drained()
        finally:
            run.close()
        handled_in = time.monotonic() - began
        processes.stop()
    run.account.read()
    result = _judged(run)
    result.seconds = round(time.monotonic() - began, 1)
    result.figures |= {"seconds": round(handled_in, 1), "messages/s": round(len(run.account.kept) / handled_in)}
    return result


class _Run:
    """A soak while it is under way."""

    def __init__(
        self, store: Store, plan: Plan, processes: Processes, account: Account, say: Callable[[str], None]
    ) -> None:
        self.store = store
        self.plan = plan
        self.processes = processes
        self.account = account
        self.say = say
        self.randomness = random.Random(plan.seed)
        self.outages: list[Span] = []
        self.frozen: dict[str, list[Span]] = {}
        self.violations: list[str] = []
        self.deepest = 0
        self.largest = 0
        self.checks = self.freezes = self.faults = 0
        self.is_drained = False
        self._began = time.monotonic()
        self._kills = sorted(self.randomness.uniform(0.01, 0.95) for _ in range(plan.kills))
        faults = store.faults()
        self._faults = [((place + 1) / (len(faults) + 1), *fault) for place, fault in enumerate(faults)]
        self._freezes = sorted(self.randomness.uniform(0.05, 0.9) for _ in range(plan.freezes))
        self._frozen: tuple[Child, int] | None = None
        self._open_segments = set(range(plan.producers))
        self._inside: Database = store.database()
        self._next_report = self._next_check = 0.0

    @property
    def progress(self) -> float:
        """How far it is: 1 when all is sent and handled."""
        return (len(self.account.kept) + len(self.account.handled)) / (2 * self.plan.messages)

    @property
    def _is_more_to_come(self) -> bool:
        return bool(self._kills or self._faults or self._freezes or self._frozen or self._open_segments)

    def until_drained(self) -> None:
        """Go on until everything is handled and everybody was killed who was to be, or the time is over."""
        for segment in range(self.plan.producers):
            self._start_producer(segment)
        for _ in range(self.plan.workers):
            self.processes.start("consumer", self.store.url)
        while time.monotonic() - self._began < self.plan.seconds:
            time.sleep(GLANCE)
            self.account.read()
            self._look_after_children()
            self._kill_who_is_due()
            self._freeze_who_is_due()
            self._break_what_is_due()
            self._check()
            self._report()
            if not self._is_more_to_come and self._is_empty():
                self.is_drained = True
                return
        self.violations.append(f"not drained within {self.plan.seconds:g} s")

    def close(self) -> None:
        self._inside.close()

    def _start_producer(self, segment: int) -> None:
        first, last = self.plan.first(segment), self.plan.first(segment + 1)
        seed = self.randomness.randrange(1 << 30)
        self.processes.start("producer", self.store.url, *map(str, (segment, first, last, seed)))

    def _look_after_children(self) -> None:
        for child in self.processes.ended():
            self.account.read()
            segment = int(child.arguments[0]) if child.role == "producer" else None
            if segment is not None and self._is_sent(segment):
                self._open_segments.discard(segment)
            else:  # a complaint was made if it failed; the others must go on without it
                self._start_again(child)

    def _is_sent(self, segment: int) -> bool:
        numbers = range(self.plan.first(segment), self.plan.first(segment + 1))
        return all(number in self.account.kept for number in numbers)

    def _start_again(self, child: Child) -> None:
        if child.role == "producer":
            self._start_producer(int(child.arguments[0]))
        else:
            self.processes.start("consumer", self.store.url)

    def _kill_who_is_due(self) -> None:
        while self._kills and self.progress >= self._kills[0]:
            at_work = [child for child in self.processes.running if child.is_at_work]
            if not at_work:
                return
            self._kills.pop(0)
            child = self.randomness.choice(at_work)
            time.sleep(self.randomness.uniform(0, GLANCE))
            self.processes.kill(child)
            self.account.read()
            if child.role == "producer" and self._is_sent(int(child.arguments[0])):
                self._open_segments.discard(int(child.arguments[0]))
            else:
                self._start_again(child)

    def _freeze_who_is_due(self) -> None:
        """One at a time. In SQLite it may hold the lock that the others need: for them this is an outage, too."""
        if self._frozen is not None:
            child, since = self._frozen
            if now() - since > FROZEN_LEASES * self.plan.lease * 1_000_000:
                self.processes.thaw(child)
                self.frozen.setdefault(child.name, []).append((since, now()))
                if self.store.has_one_writer:
                    self.outages.append((since, now()))
                self.freezes += 1
                self._frozen = None
        elif self._freezes and self.progress >= self._freezes[0]:
            workers = [child for child in self.processes.of("consumer") if child.is_at_work]
            if workers:
                self._freezes.pop(0)
                self._frozen = self.randomness.choice(workers), now()
                self.processes.freeze(self._frozen[0])

    def _break_what_is_due(self) -> None:
        if self._faults and self.progress >= self._faults[0][0]:
            _, what, fault = self._faults.pop(0)
            self.say(f"{self.store.name}: {what}")
            began = now()
            fault()
            self.outages.append((began, now()))
            self.faults += 1

    def _check(self) -> None:
        """The counters are right at every moment, not only in the end."""
        if time.monotonic() < self._next_check:
            return
        self._next_check = time.monotonic() + CHECK_EVERY
        try:
            kept, counted = counters(self._inside)
            self.largest = max(self.largest, self.store.size(self._inside))
        except EngineError:
            return  # it is away
        self.checks += 1
        self.deepest = max(self.deepest, counted["ready by lane"])
        if kept != counted and len(self.violations) < 10:
            self.violations.append(f"the counters say {kept}, counting says {counted}")

    def _is_empty(self) -> bool:
        if not self.account.kept.keys() <= self.account.handled:
            return False
        try:
            _, counted = counters(self._inside)
        except EngineError:
            return False
        return not any(count for name, count in counted.items() if not name.startswith("dead"))

    def _report(self) -> None:
        if time.monotonic() < self._next_report:
            return
        self._next_report = time.monotonic() + REPORT_EVERY
        self.say(
            f"{self.store.name}: {time.monotonic() - self._began:4.0f} s, {len(self.account.kept)} sent, "
            f"{len(self.account.handled)} handled, {len(self.processes.killed)} killed, deepest {self.deepest}"
        )


def _judged(run: _Run) -> Result:
    plan, account, processes = run.plan, run.account, run.processes
    verdict = judge(
        Evidence(
            item=plan.item,
            tried=account.tried,
            kept=account.kept,
            handlings=account.handlings,
            killed=processes.killed,
            outages=run.outages,
            frozen=run.frozen,
            lease=plan.lease,
        )
    )
    if len(account.kept) < plan.messages:
        verdict.violations.append(f"only {len(account.kept)} of {plan.messages} messages were sent")
    figures = _figures(run, verdict)
    with open_backend(run.store.url) as backend, run.store.database() as inside:
        _judge_dead(run, backend, verdict)
        _judge_counters(backend, inside, verdict)
        figures |= _judge_size(run, backend, inside, verdict)
    violations = [*run.violations, *processes.complaints, *verdict.violations]
    return Result(run.store.name, figures=figures, violations=violations)


def _figures(run: _Run, verdict: Verdict) -> dict[str, Any]:
    account, killed = run.account, run.processes.killed
    producers = sum(name.startswith("producer") for name in killed)
    return {
        "acknowledged": len(account.kept),
        "lost": sum(number not in account.handled for number in account.kept),
        "handled": len(account.handled),
        "attempts": dict(sorted(tally(account.handlings).items())),
        "killed producers": producers,
        "killed workers": len(killed) - producers,
        "frozen workers": run.freezes,
        "outages": run.faults,
        "failed sends": dict(sorted(account.errors.items())),
        "handled again after a kill": verdict.repeated_after_kill,
        "handled again after an outage": verdict.repeated_after_outage,
        "handled again after a freeze": verdict.repeated_after_freeze,
        "excused": len(verdict.excused),
        "excused share": round(verdict.excused_share, 5),
        "sent twice": verdict.sent_twice,
        "counters checked": run.checks,
        "deepest": run.deepest,
    }


def _judge_dead(run: _Run, backend: Backend, verdict: Verdict) -> None:
    """The dead letters are those that should be dead."""
    dead: set[int] = set()
    after = 0
    while letters := backend.list_dead_letters(DeadLetterQuery(queue=QUEUE, after=after, limit=1000)):
        after = letters[-1].id
        dead.update(_number(letter.body) for letter in letters)
    expected = {number for number in run.account.kept if run.plan.item(number).fate.is_dead_in_the_end}
    verdict.complain("buried, and should not be", sorted(dead - expected - _unsure(run)))
    if run.is_drained:
        verdict.complain("not buried, and should be", sorted(expected - dead))


def _unsure(run: _Run) -> set[int]:
    """Numbers that should be dead, and of which nobody knows whether they were kept."""
    return {
        number
        for number in run.account.tried
        if number not in run.account.kept and run.plan.item(number).fate.is_dead_in_the_end
    }


def _number(body: bytes) -> int:
    import msgspec

    return int(msgspec.msgpack.decode(unpack_call(body).arguments)["number"])


def _judge_counters(backend: Backend, inside: Database, verdict: Verdict) -> None:
    """Nothing is left but dead letters, and nobody says otherwise."""
    kept, counted = counters(inside)
    if kept != counted:
        verdict.violations.append(f"in the end the counters say {kept}, counting says {counted}")
    snapshot = backend.inspect(QUEUE, tenants=TENANTS, top=100)
    verdict.complain(
        "lanes that are not empty", (lane for lane in snapshot.lanes if lane.ready + lane.leased + lane.delayed)
    )
    verdict.complain(
        "tenants that have something left",
        (tenant for tenant in snapshot.tenants if tenant.ready or tenant.spilled or tenant.leased),
    )
    if sum(lane.dead for lane in snapshot.lanes) != counted["dead by lane"]:
        verdict.violations.append(f"the lanes that are listed do not have the {counted['dead by lane']} dead letters")


def _judge_size(run: _Run, backend: Backend, inside: Database, verdict: Verdict) -> dict[str, Any]:
    """What was handled takes no room, and what comes after it uses the room again."""
    store, found = run.store, rows(inside)
    for table in ("message", "party", "publication"):
        if found[table] and run.is_drained and not (table == "party" and found["dead"]):
            verdict.violations.append(f"{found[table]} rows are left in the table of {table}")
    at_the_end = store.size(inside)
    store.tidy(inside)
    tidied = store.size(inside)
    allowed = ROOM + LARGEST_KEY * found["key"] + LARGEST_DEAD * found["dead"]
    if store.name == "sqlite" and at_the_end > allowed:
        verdict.violations.append(f"{at_the_end} bytes are in use when all is handled: expected at most {allowed}")
    if run.is_drained:
        _second_wave(backend, run.plan.messages // SECOND_WAVE)
    store.tidy(inside)
    after = store.size(inside)
    if after > max(tidied, run.largest) + ROOM:
        verdict.violations.append(f"the store has grown from {tidied} to {after} bytes by what was sent and handled")
    return {
        "bytes at most": run.largest,
        "bytes when drained": at_the_end,
        "bytes when tidied": tidied,
        "bytes after a second wave": after,
        "rows": found,
    }


def _second_wave(backend: Backend, messages: int) -> None:
    for first in range(0, messages, 100):
        backend.send(
            QUEUE,
            [
                OutgoingMessage(tenant=TENANTS[-1 - number % 20], body=b"more")
                for number in range(first, min(messages, first + 100))
            ],
        )
    left = messages
    while left > 0:
        leased = backend.lease(LeaseRequest(queue=QUEUE, count=500, lease=30.0))
        backend.settle([Settlement(delivery.receipt, Ack()) for delivery in leased.deliveries])
        left -= len(leased.deliveries)
