"""Lease messages to a worker."""

from itertools import islice

from holdfast.queue.backend import LeaseRequest, LeaseResult
from holdfast.queue.backends.memory.book import NEVER, Book, Lane, Message, Place, Tenant, milliseconds
from holdfast.queue.backends.memory.due import make_due_ready
from holdfast.queue.message import PRIORITY_LEVELS, Delivery, Receipt, unpack_trace
from holdfast.queue.rules.leasing import (
    FRESH_FACTOR,
    IN_ORDER,
    MAX_FRESH_LANES,
    MAX_LANES_BY_RANK,
    MAX_SKIPPED,
    RECHECK_SECONDS,
    Age,
    Allowance,
    Source,
    TenantCounters,
    compute_allowance,
    compute_quota,
    plan_turns,
    update_after_lease,
)
from holdfast.queue.rules.placement import get_priority, spill_lane


class Lease:
    """One lease request in progress."""

    def __init__(self, book: Book, want: LeaseRequest) -> None:
        self.book = book
        self.want = want
        self._until = book.at + milliseconds(want.lease)
        cutoff = book.at - milliseconds(book.policy.fresh_for)
        self._ages = {Age.FRESH: (cutoff + 1, NEVER), Age.BACKLOG: (0, cutoff)}
        self._deliveries: list[Delivery] = []
        self._sidelined = self._dropped = self._in_vain = 0
        self._lanes: dict[int, list[Lane]] = {}
        self._seen: dict[str, Tenant] = {}
        self._allowed: dict[str, Allowance] = {}
        self._given: dict[str, list[int]] = {}
        """Messages leased now by tenant: those from shared lanes, and spilled ones."""

    def run(self) -> LeaseResult:
        """Lease the messages, and return the result."""
        book, want = self.book, self.want
        due = make_due_ready(book)
        for message in due.messages:
            self._seen[message.tenant.name] = message.tenant
        self._find_lanes()
        waiting = sum(len(lane.waiting) for lanes in self._lanes.values() for lane in lanes)
        for turn in plan_turns(want.count, want.leased_so_far, book.policy, self._lanes.keys()):
            left = turn.wanted
            for source in turn.sources:
                left -= self._take(source, left)
        self._take_in_order()  # the unused part of the shares
        dropped = 0
        while self._dropped > dropped:  # and messages behind dropped ones of their group
            dropped = self._dropped
            self._find_lanes()
            self._take_in_order()
        self._count()
        others = waiting - len(self._deliveries) - self._dropped - sum(one.ready for one in self._seen.values())
        return LeaseResult(
            deliveries=self._deliveries,
            tenants={name: TenantCounters(tenant.ready, tenant.leased) for name, tenant in self._seen.items()},
            are_others_waiting=others > 0,
            next_due=self._next_due() if len(self._deliveries) < want.count else None,
            spilled=self._sidelined,
            dropped=due.dropped + self._dropped,
            buried=due.buried,
            redelivered=due.redelivered,
        )

    def _find_lanes(self) -> None:
        self._lanes.clear()
        fresh_from = self._ages[Age.FRESH][0]
        for rank, lanes in enumerate(self.book.ranks):
            waiting = lanes.between(0, self.book.at)
            found = list(islice(waiting, MAX_LANES_BY_RANK[rank]))
            others = islice(waiting, MAX_FRESH_LANES - MAX_LANES_BY_RANK[rank])
            fresh = (lane for lane in others if (lane.waiting.last() or 0) >= fresh_from)
            found += islice(fresh, FRESH_FACTOR * MAX_LANES_BY_RANK[rank])
            if found:
                self._lanes[rank] = found

    def _take_in_order(self) -> None:
        for source in IN_ORDER:
            self._take(source, self.want.count - len(self._deliveries))

    def _take(self, source: Source, wanted: int) -> int:
        """Lease up to `wanted` messages from the lanes of a source. Return their number."""
        taken, lanes = 0, self._lanes.get(source.rank, [])
        while lanes and taken < wanted:
            each = compute_quota(wanted - taken, len(lanes), source.age)
            more: list[Lane] = []
            for lane in lanes:
                if taken >= wanted or self._in_vain >= MAX_SKIPPED:
                    return taken
                found = list(islice(lane.waiting.between(*self._ages[source.age]), min(each, wanted - taken)))
                given, is_open = self._serve(lane, found)
                taken += given
                if is_open and len(found) == each:
                    more.append(lane)
            lanes = more
        return taken

    def _serve(self, lane: Lane, messages: list[Message]) -> tuple[int, bool]:
        """Lease allowed messages, and spill the others. Return the number leased, and whether to ask the lane again."""
        taken = 0
        for message in messages:
            if self.book.expires_at(message) <= self.book.at:
                self.book.forget(message)
                self._dropped += 1
                self._in_vain += 1
            elif self._may_have(message):
                self._hand_out(message)
                taken += 1
            elif lane.is_spill:
                return taken, False
            else:
                self._move_aside(message)
        if messages:
            self.book.turn(lane, self.book.at)
        return taken, True

    def _may_have(self, message: Message) -> bool:
        tenant = message.tenant
        if tenant.name not in self._given:
            self._seen[tenant.name] = tenant
            limits, cap = self.book.limits(tenant), self.want.caps.get(tenant.name)
            self._allowed[tenant.name] = compute_allowance(limits, tenant.state(), cap, self.book.now)
            self._given[tenant.name] = [0, 0]
        allowed, (shared, spilled) = self._allowed[tenant.name], self._given[tenant.name]
        return shared + spilled < allowed.total and (message.lane.is_spill or shared < allowed.shared)

    def _hand_out(self, message: Message) -> None:
        book = self.book
        self._given[message.tenant.name][message.lane.is_spill] += 1
        book.leave(message)
        message.tries += 1
        book.enter(message, Place.LEASED, self._until)
        publication, is_first = message.publication, False
        if publication is not None and message.tries == 1:
            is_first, publication.is_attempted = not publication.is_attempted, True
        self._deliveries.append(
            Delivery(
                receipt=Receipt(message.id, message.tries),
                queue=book.name,
                lane=message.lane.number,
                tenant=message.tenant.name,
                body=message.body,
                attempt=message.tries - message.returned,
                sent_at=message.age_from / 1000,
                ready_since=message.at / 1000,
                trace=unpack_trace(message.trace, book.origin, message.id),
                deadline=message.deadline,
                group=None if message.group is None else message.group.name,
                is_first_subscriber=is_first,
                expired_leases=message.expired_leases,
            )
        )

    def _move_aside(self, message: Message) -> None:
        """Spill a message that its tenant may not have now."""
        book = self.book
        book.leave(message)
        message.lane = book.lane(spill_lane(message.tenant.id, get_priority(message.lane.number)))
        book.enter(message, Place.READY)
        self._sidelined += 1
        self._in_vain += 1

    def _count(self) -> None:
        """Count leased messages against their tenants' rates, and postpone the lanes of tenants at their limits."""
        book = self.book
        for name, (shared, spilled) in self._given.items():
            tenant = book.tenants[name]
            limits = book.limits(tenant)
            tenant.buckets = update_after_lease(limits, tenant.buckets, shared + spilled, spilled, book.now)
            later = compute_allowance(limits, tenant.state(), None, book.now)
            if not later.total:
                next_check_at = milliseconds(min(later.next_check_at, book.now + RECHECK_SECONDS))
                for priority in range(PRIORITY_LEVELS):
                    lane = book.lanes.get(spill_lane(tenant.id, priority))
                    if lane is not None:
                        book.turn(lane, max(book.at + 1, next_check_at))

    def _next_due(self) -> float | None:
        """Return the seconds until more may be ready: 0 if there is more than was examined; None if unknown."""
        found = [self.book.held.first(), *(lanes.first() for lanes in self.book.ranks)]
        return min((max(0.0, at / 1000 - self.book.now) for at in found if at is not None), default=None)
