"""Random sequences of operations, checked against a simple model."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.queue.message import (
    Ack,
    Bury,
    Delivery,
    Disposition,
    Drop,
    ExtendLease,
    OutgoingMessage,
    Release,
    RetryLater,
)
from holdfast.queue.rules.disposition import compute_redelivery_delay
from holdfast.testing.queue.probe import BackendSuite, DepthCounts, Probe, message

ATTEMPTS = 3
POLICY_LEASE = 6.0
"""The lease in the policy, which limits the delay of messages whose workers crashed."""
LEASE = 10
TENANTS = ("a", "b", "c")
DISPOSITIONS: tuple[Disposition, ...] = (Ack(), RetryLater(5.0), Bury("why"), Release(), ExtendLease(20.0), Drop())


class ModelState(Enum):
    """The state of a message."""

    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    PARKED = "parked"
    DEAD = "dead"


@dataclass(slots=True)
class ModelMessage:
    """A message in the model."""

    id: int
    tenant: str
    group: str | None
    state: ModelState
    due: float
    """When its delay or lease ends."""
    tries: int = 0
    returned: int = 0
    held: Delivery | None = None


class Machine(RuleBasedStateMachine):
    """Sends, leases, settles and waits at random, and compares the backend with the model."""

    def __init__(self, work: Probe) -> None:
        super().__init__()
        self.work = work
        self.now = 0
        self.kept: dict[int, ModelMessage] = {}
        self.stale: list[Delivery] = []
        work.change_policy(max_attempts=ATTEMPTS, spill_above=5, lanes=4, lanes_per_tenant=2, lease=POLICY_LEASE)

    # Operations

    @rule(
        messages=st.lists(
            st.tuples(
                st.sampled_from(TENANTS),
                st.sampled_from([None, None, "g", "h"]),
                st.sampled_from([0, 0, 5]),
                st.integers(0, 3),
            ),
            max_size=6,
        )
    )
    def send(self, messages: list[tuple[str, str | None, int, int]]) -> None:
        outgoing: list[OutgoingMessage] = [
            message(tenant, group=group, delay=float(delay), priority=priority)
            for tenant, group, delay, priority in messages
        ]
        for sent, (tenant, group, delay, _) in zip(self.work.send_accepted(*outgoing), messages, strict=True):
            assert sent.id not in self.kept
            state = ModelState.DELAYED if delay else ModelState.READY
            if group is not None and self._living(tenant, group):
                state = ModelState.PARKED
            self.kept[sent.id] = ModelMessage(sent.id, tenant, group, state, self.now + delay)

    @rule(count=st.integers(1, 8), before=st.integers(0, 20))
    def lease(self, count: int, before: int) -> None:
        """Check that leases return ready messages: at most as many as requested, and at least one if any is ready."""
        self._make_due()
        waiting = self._in(ModelState.READY)
        found = self.work.lease(count, lease=float(LEASE), leased_so_far=before)
        assert len(found) <= count
        assert bool(found) == bool(waiting)
        for delivery in found:
            kept = self.kept[delivery.id]
            assert kept.state is ModelState.READY, f"a message that is {kept.state.value} was delivered"
            kept.state, kept.due, kept.held = ModelState.LEASED, self.now + LEASE, delivery
            kept.tries += 1
            assert (delivery.tenant, delivery.group) == (kept.tenant, kept.group)
            assert (delivery.receipt.deliveries, delivery.attempt) == (kept.tries, kept.tries - kept.returned)

    @precondition(lambda self: self._in(ModelState.LEASED))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self._in(ModelState.LEASED)), min_size=1, max_size=4, unique_by=id))
        disposition = data.draw(st.sampled_from(DISPOSITIONS))
        held = [kept.held for kept in some if kept.held is not None]
        assert self.work.settle(disposition, *held) == [True] * len(some)
        if not isinstance(disposition, ExtendLease):
            self.stale += held
        for kept in some:
            self._settled(kept, disposition)

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.stale), min_size=1, max_size=3))
        disposition = data.draw(st.sampled_from(DISPOSITIONS))
        assert self.work.settle(disposition, *some) == [False] * len(some)

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.work.advance_time(float(seconds))

    @rule()
    def sweep(self) -> None:
        assert self.work.backend.sweep(self.work.queue) == 0
        self._make_due()

    @precondition(lambda self: self._in(ModelState.DEAD))
    @rule(limit=st.integers(1, 3), tenant=st.sampled_from([None, *TENANTS]), discard=st.booleans())
    def redrive(self, limit: int, tenant: str | None, discard: bool) -> None:
        meant = [kept for kept in self._in(ModelState.DEAD) if tenant in (None, kept.tenant)][:limit]
        query = self.work.query(limit=limit, tenant=tenant)
        assert self.work.backend.redrive(query, discard=discard) == len(meant)
        for kept in meant:
            if discard:
                del self.kept[kept.id]
                continue
            is_behind = kept.group is not None and self._living(kept.tenant, kept.group)
            kept.state = ModelState.PARKED if is_behind else ModelState.READY
            kept.due, kept.returned = self.now, kept.tries

    # Invariants

    @invariant()
    def counters_are_exact(self) -> None:
        """Check that counters of lanes and tenants are exact after every operation."""
        count = {state: len(self._in(state)) for state in ModelState}
        delayed = count[ModelState.DELAYED] + count[ModelState.PARKED]
        assert self.work.depth == DepthCounts(
            count[ModelState.READY], count[ModelState.LEASED], delayed, count[ModelState.DEAD]
        )
        snapshot = self.work.inspect(*TENANTS)
        spilled = sum(lane.ready for lane in snapshot.lanes if lane.is_spilled)
        assert sum(one.spilled for one in snapshot.tenants) == snapshot.totals.spilled == spilled
        for one in snapshot.tenants:
            mine = [kept.state for kept in self.kept.values() if kept.tenant == one.tenant]
            expected = tuple(mine.count(state) for state in (ModelState.READY, ModelState.LEASED, ModelState.DEAD))
            assert (one.waiting, one.leased, one.dead) == expected
            assert one.delayed == mine.count(ModelState.DELAYED) + mine.count(ModelState.PARKED)

    def teardown(self) -> None:
        """Check that every message that is not dead is delivered in the end."""
        for _ in range(200):
            if all(kept.state is ModelState.DEAD for kept in self.kept.values()):
                return
            held = [kept for kept in self._in(ModelState.LEASED) if kept.held is not None]
            assert self.work.settle(Ack(), *(kept.held for kept in held if kept.held is not None)) == [True] * len(held)
            for kept in held:
                self._settled(kept, Ack())
            self.wait(LEASE)
            self.lease(8, 0)
        raise AssertionError(f"these are stuck: {self.kept}")

    # The model

    def _in(self, state: ModelState) -> list[ModelMessage]:
        return [kept for _, kept in sorted(self.kept.items()) if kept.state is state]

    def _living(self, tenant: str, group: str) -> list[ModelMessage]:
        found = [kept for _, kept in sorted(self.kept.items()) if (kept.tenant, kept.group) == (tenant, group)]
        return [kept for kept in found if kept.state is not ModelState.DEAD]

    def _make_due(self) -> None:
        for kept in [*self._in(ModelState.DELAYED), *self._in(ModelState.LEASED)]:
            if kept.due > self.now:
                continue
            if kept.state is ModelState.DELAYED:
                kept.state = ModelState.READY
            elif kept.tries - kept.returned >= ATTEMPTS:
                self._settled(kept, Bury("given up"))
            elif pause := round(compute_redelivery_delay(kept.id, kept.tries - kept.returned, POLICY_LEASE) * 1000):
                kept.state, kept.due = ModelState.DELAYED, self.now + pause / 1000
            else:
                kept.state = ModelState.READY

    def _settled(self, kept: ModelMessage, disposition: Disposition) -> None:
        match disposition:
            case Ack() | Drop():
                del self.kept[kept.id]
                self._follow(kept)
            case Bury():
                kept.state = ModelState.DEAD
                self._follow(kept)
            case RetryLater(delay):
                kept.state, kept.due = ModelState.DELAYED, self.now + int(delay)
            case Release():
                kept.state = ModelState.READY
                kept.returned += 1
            case ExtendLease(seconds):
                kept.due = self.now + int(seconds)

    def _follow(self, gone: ModelMessage) -> None:
        if gone.group is not None and (rest := self._living(gone.tenant, gone.group)):
            assert all(kept.state is ModelState.PARKED for kept in rest), "one of a group at a time"
            rest[0].state = ModelState.READY if rest[0].due <= self.now else ModelState.DELAYED


class ModelSuite(BackendSuite):
    """Tests with the model."""

    def test_any_sequence_of_operations_loses_and_doubles_nothing(self, work: Probe) -> None:
        """The order of groups is kept, and counters are exact after every operation."""
        number = 0

        def machine() -> Machine:
            nonlocal number
            number += 1
            return Machine(work.another(f"work-{number}"))

        # Hypothesis accepts a function as a factory: https://hypothesis.readthedocs.io/en/latest/stateful.html
        factory: Any = machine
        steps = settings(max_examples=20, stateful_step_count=30, deadline=None)
        run_state_machine_as_test(factory, settings=steps)
