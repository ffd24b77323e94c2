"""Lease messages to a worker.

First choose messages by the limits of their tenants as they were read, and lock the messages. Then, if limits or groups
matter, lock the tenants, and put back messages that turn out to exceed the limits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from holdfast.queue.backend import LeaseRequest, LeaseResult
from holdfast.queue.backends.sql.due import Due
from holdfast.queue.backends.sql.extra import Extra
from holdfast.queue.backends.sql.groups import names_of
from holdfast.queue.backends.sql.lanes import Lane, next_turn, read_lanes
from holdfast.queue.backends.sql.message import NEVER, Message, milliseconds
from holdfast.queue.backends.sql.remove import remove
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.backends.sql.step import Step, with_ids
from holdfast.queue.backends.sql.tenant import TenantRow
from holdfast.queue.backends.sql.topics import claim
from holdfast.queue.message import Delivery, Receipt, unpack_trace
from holdfast.queue.rules.leasing import (
    FRESH,
    IN_ORDER,
    MAX_SKIPPED,
    RECHECK_SECONDS,
    Age,
    Allowance,
    Source,
    Turn,
    compute_allowance,
    compute_quota,
    plan_turns,
    update_after_lease,
)
from holdfast.queue.rules.placement import get_priority, get_rank, spill_lane

REACH = 6
"""Lanes that are searched at first beyond those that suffice if all have messages, as most have. Later, more."""
AHEAD = 100
"""Maximum messages that are read beyond those wanted, if some could not be leased: more may follow."""

_TAKE = "update holdfast_queue_message set until = $1, leased = 1, tries = tries + 1 where id {ids}"
_MOVE = "update holdfast_queue_message set lane = $1 where id {ids}"
_NEXT = (
    "select until from holdfast_queue_message where queue = $1 and until > $2 and until is not null "
    "order by until limit 1"
)


class Lease:
    """One lease request in progress."""

    def __init__(self, step: Step, want: LeaseRequest) -> None:
        self.step = step
        self.want = want
        cutoff = self._cutoff = step.at - milliseconds(step.policy.fresh_for)
        self._up_to = {Age.FRESH: NEVER, Age.BACKLOG: cutoff}
        self._due = Due(step)
        self._lanes: dict[int, list[Lane]] = {}
        self._by_id: dict[int, Lane] = {}
        self._has_more_lanes = False
        self._exhausted: set[Source] = set()
        self._stale: set[int] = set()
        """Lanes without fresh messages, except those leased or spilled now."""
        self._seen: set[int] = set()
        self._chosen: list[Message] = []
        self._dropped: list[Message] = []
        self._aside: list[Message] = []
        self._allowed: dict[int, Allowance] = {}
        self._given: dict[int, list[int]] = {}
        """Messages chosen by tenant: those from shared lanes, and spilled ones."""
        self._groups: Mapping[int | None, str] = {}
        self._extras: list[Extra] = []
        self._firsts: set[int] = set()
        self._sidelined = 0
        self._following: float | None = None
        """Seconds until more messages may be ready."""

    def run(self) -> Self:
        """Lease the messages, inside the transaction."""
        self._due.make_ready()
        self._find_lanes()
        self._choose_all()
        self._confirm()
        self._take()
        self._due.end()
        remove(self.step, self._dropped)
        self._sidelined = self._move_aside()
        self._pass_over()
        self.step.save()
        if len(self._chosen) < self.want.count:
            self._following = self._next_due()
        return self

    def leased(self) -> LeaseResult:
        """Return the result. Call it after the commit, so that others need not wait while it is built."""
        deliveries = [self._delivery(message, extra) for message, extra in zip(self._chosen, self._extras, strict=True)]
        tenants = {row.name: row.counters for row in self.step.tenants.values()}
        waiting = sum(lane.ready for lane in self._by_id.values()) - len(deliveries) - len(self._dropped)
        return LeaseResult(
            deliveries=deliveries,
            tenants=tenants,
            are_others_waiting=waiting > sum(counters.ready for counters in tenants.values()),
            next_due=self._following,
            spilled=self._sidelined,
            dropped=self._due.dropped + len(self._dropped),
            buried=self._due.buried,
            redelivered=self._due.redelivered,
        )

    # Choosing

    def _find_lanes(self) -> None:
        self._lanes, self._has_more_lanes = read_lanes(self.step, self._cutoff)
        self._by_id = {lane.id: lane for lanes in self._lanes.values() for lane in lanes}
        for message in self._due.ready:
            number = self.step.numbers[message.lane]
            if message.lane not in self._by_id:
                lane = self._by_id[message.lane] = Lane(message.lane, number, 0, 0)
                self._lanes.setdefault(get_rank(number), []).append(lane)
            lane = self._by_id[message.lane]
            lane.ready += 1
            lane.newest = max(lane.newest, message.at)

    def _choose_all(self) -> None:
        """Choose fresh messages that do not touch a share, then messages for the shares, then any others.

        Turns that would search the same sources, because others are exhausted, are combined.
        """
        want, left = self.want, 0
        in_order = tuple(source for source in IN_ORDER if source.rank in self._lanes)
        all_turns = plan_turns(want.count, want.leased_so_far, self.step.policy, self._lanes.keys())
        if all_turns and tuple(all_turns[-1].sources) == in_order:
            left = all_turns.pop().wanted
            left -= self._choose_first([source for source in in_order if source in FRESH], left)
        following: Counter[tuple[Source, ...]] = Counter()
        for number, sources in (*all_turns, Turn(left, in_order)):
            following[tuple(source for source in sources if source not in self._exhausted)] += number
        for some, number in following.items():
            self._choose_first(some, number)
        # The unused part of a share is available to all.
        self._choose_first(in_order, want.count - len(self._chosen))

    def _choose_first(self, sources: Sequence[Source], wanted: int) -> int:
        taken = 0
        for source in sources:
            taken += self._choose(source, wanted - taken)
        return taken

    def _choose(self, source: Source, wanted: int) -> int:
        """Choose up to `wanted` messages from the lanes of a source. Return their number."""
        if wanted < 1 or source in self._exhausted:
            return 0
        step, age, taken = self.step, source.age, 0
        lanes = [lane for lane in self._lanes.get(source.rank, ()) if self._may_have(lane, age)]
        reach = REACH
        while lanes and taken < wanted and self._in_vain < MAX_SKIPPED:
            most = wanted - taken + min(self._in_vain, AHEAD)
            each = compute_quota(most, len(lanes), age)
            enough = -(-most // each)
            searches = [lane.search(age, self._cutoff) for lane in lanes[: enough + reach]]
            rows, asked = step.dialect.take(step.transaction, searches, each, self._up_to[age], most)
            taken += self._sort([Message(*row) for row in rows], age, wanted - taken)
            found = Counter(row[1] for row in rows)
            if age is Age.FRESH and taken < wanted:  # then all that were found were needed
                self._stale.update(lane.id for lane in lanes[:asked] if found[lane.id] < each)
            # First lanes that were not searched, then those that may have more.
            rest = (*lanes[asked:], *(lane for lane in lanes[:asked] if found[lane.id] >= each))
            lanes = [lane for lane in rest if lane.is_open]
            reach *= 4
        if not lanes and taken < wanted:  # otherwise there may be messages that were found and not needed
            self._exhausted.add(source)
        return taken

    def _may_have(self, lane: Lane, age: Age) -> bool:
        return lane.is_open and (age is not Age.FRESH or lane.newest > self._cutoff)

    def _sort(self, messages: list[Message], age: Age, wanted: int) -> int:
        """Sort messages into those to lease, to spill and to drop. Return the number of the first."""
        step, taken = self.step, 0
        last: dict[int, Message] = {}
        step.know(message.tenant for message in messages)
        for message in messages:
            if taken >= wanted:
                break
            last[message.lane] = message
            lane = self._by_id[message.lane]
            if message.id in self._seen:
                continue
            self._seen.add(message.id)
            lane.seen += 1
            if message.expires_at(step.policy) <= step.at:
                self._dropped.append(message)
            elif self._is_allowed(message, is_spilled=lane.number < 0):
                self._chosen.append(message)
                taken += 1
            else:
                self._aside.append(message)
                lane.is_open = lane.number >= 0
        for id_, message in last.items():
            self._by_id[id_].searched(age, message)
        return taken

    @property
    def _in_vain(self) -> int:
        return len(self._dropped) + len(self._aside)

    def _is_allowed(self, message: Message, *, is_spilled: bool) -> bool:
        """Return whether the tenant of a message may have one more, and count it if so."""
        tenant = message.tenant
        if tenant not in self._allowed:
            self._allowed[tenant] = self._allowance(tenant)
            self._given[tenant] = [0, 0]
        allowed, given = self._allowed[tenant], self._given[tenant]
        if given[0] + given[1] >= allowed.total or (not is_spilled and given[0] >= allowed.shared):
            return False
        given[is_spilled] += 1
        return True

    def _allowance(self, tenant: int) -> Allowance:
        row = self.step.tenants[tenant]
        if not self._is_limited(row):
            return _ALL
        return compute_allowance(row.limits, row.state, self.want.caps.get(row.name), self.step.now)

    def _is_limited(self, row: TenantRow) -> bool:
        return row.is_limited or row.name in self.want.caps

    # Leasing

    def _confirm(self) -> None:
        """Lock tenants if limits or groups matter. Chosen messages that exceed the limits now are not leased."""
        step = self.step
        is_limited = any(self._is_limited(step.tenants[tenant]) for tenant in self._allowed)
        is_grouped = self._due.needs_lock or any(message.party is not None for message in self._dropped)
        if not step.dialect.has_locks or not (is_limited or is_grouped):
            return
        step.lock()
        chosen, self._chosen = self._chosen, []
        self._allowed.clear()
        for message in chosen:
            if self._is_allowed(message, is_spilled=step.numbers[message.lane] < 0):
                self._chosen.append(message)
            else:
                self._by_id[message.lane].seen -= 1

    def _take(self) -> None:
        step, chosen = self.step, self._chosen
        if not chosen:
            return
        with_ids(step, _TAKE, [message.id for message in chosen], step.at + milliseconds(self.want.lease))
        for (lane, tenant), count in Counter((message.lane, message.tenant) for message in chosen).items():
            step.count(lane, tenant, ready=-count, leased=count)
            step.lane(lane).turn = step.at
        for tenant, (shared, spilled) in self._given.items():
            row = step.tenants[tenant]
            if row.is_limited and shared + spilled:
                row.spend(update_after_lease(row.limits, row.state, shared + spilled, spilled, step.now))
        self._groups = names_of(step, (message.party for message in chosen))
        self._extras = [message.extra for message in chosen]
        unseen = [
            extra.publication
            for message, extra in zip(chosen, self._extras, strict=True)
            if extra.publication is not None and not message.tries
        ]
        self._firsts = claim(step, unseen)

    def _delivery(self, message: Message, extra: Extra) -> Delivery:
        step = self.step
        return Delivery(
            receipt=Receipt(message.id, message.tries + 1),
            queue=step.name,
            lane=step.numbers[message.lane],
            tenant=step.tenants[message.tenant].name,
            body=bytes(message.body),
            attempt=message.tries + 1 - extra.returned,
            sent_at=message.age_from / 1000,
            ready_since=message.at / 1000,
            trace=unpack_trace(extra.trace, step.origin, message.id),
            deadline=None if extra.deadline is None else extra.deadline / 1000,
            group=self._groups.get(message.party),
            is_first_subscriber=not message.tries and extra.publication in self._firsts,
            expired_leases=extra.expired_leases,
        )

    def _move_aside(self) -> int:
        """Spill messages that their tenants may not have now, and postpone lanes of tenants at their limits."""
        step = self.step
        if not self._aside:
            return 0
        numbers = {message.lane: step.numbers[message.lane] for message in self._aside}
        targets = {
            (message.lane, message.tenant): spill_lane(message.tenant, get_priority(numbers[message.lane]))
            for message in self._aside
        }
        keys = step.lane_ids(targets.values())
        moved: dict[int, list[Message]] = {}
        for message in self._aside:
            target = keys[targets[message.lane, message.tenant]]
            next_check_at = self._again_at(message.tenant)
            if next_check_at > step.at:
                step.lane(target).turn = next_check_at
            if numbers[message.lane] >= 0:
                moved.setdefault(target, []).append(message)
        for target, messages in moved.items():
            with_ids(step, _MOVE, [message.id for message in messages], target)
            tally = step.lane(target)
            tally.newest = max([tally.newest, *(message.at for message in messages)])
            for message in messages:
                step.lane(message.lane).turn = step.at
                step.count(message.lane, message.tenant, ready=-1)
                step.count(target, message.tenant, ready=1)
        return sum(map(len, moved.values()))

    def _pass_over(self) -> None:
        """Record lanes without fresh messages, to skip them in later searches: after an outage there may be many."""
        if self.step.dialect.has_locks:
            return  # others may have sent messages there since
        left = {message.lane for message in self._aside}
        for id_ in self._stale - left:
            tally = self.step.lane(id_)
            if not tally.newest:  # no new message
                tally.newest = -self._cutoff

    def _again_at(self, tenant: int) -> int:
        """Return when a tenant may have more, after what was leased to it now."""
        step = self.step
        row = step.tenants[tenant]
        later = compute_allowance(row.limits, row.state, None, step.now)
        return step.at if later.total else milliseconds(min(later.next_check_at, step.now + RECHECK_SECONDS))

    def _next_due(self) -> float | None:
        """Return the seconds until more may be ready: 0 if there is more than was examined; None if unknown."""
        step = self.step
        if (
            self._due.is_full
            or self._has_more_lanes
            or any(lane.is_open and lane.ready > lane.seen for lane in self._by_id.values())
        ):
            return 0.0
        rows = step.transaction.execute(_NEXT, (step.queue, step.at))
        times = [until for (until,) in rows if until < PARKED]
        turn = next_turn(step)
        if turn is not None:
            times.append(turn)
        return max(0.0, min(times) / 1000 - step.now) if times else None


_ALL = Allowance(NEVER, NEVER, 0.0)
