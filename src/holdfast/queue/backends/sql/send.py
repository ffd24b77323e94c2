"""Store messages that are sent to a queue."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.queue.backends.sql import groups, keys
from holdfast.queue.backends.sql.extra import Extra, encode
from holdfast.queue.backends.sql.message import NewMessage, milliseconds
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.backends.sql.tenant import TenantRow
from holdfast.queue.message import OutgoingMessage, RefusalReason, RefusedMessage, SentMessage, pack_trace, unpack_trace
from holdfast.queue.rules.admission import Admission, LaneKind, admit, decide_each, get_room
from holdfast.queue.rules.placement import LanePlacement, get_hand_lanes, own_lane, spill_lane


class _Admitted(NamedTuple):
    """A message that is accepted."""

    place: int
    """Its index among the messages that were sent."""
    message: OutgoingMessage
    tenant: TenantRow
    where: LaneKind
    delay: float


class Send:
    """Messages that are stored in one queue, in one transaction."""

    def __init__(self, step: Step, messages: Sequence[OutgoingMessage], publications: Sequence[int] = ()) -> None:
        self.step = step
        self.messages = messages
        self._publications = publications
        self._tenants: dict[str, TenantRow] = {}
        self._wanted: dict[str, int] = {}
        self._pressures: dict[str, float] = {}
        self._results: dict[int, SentMessage | RefusedMessage] = {}

    def run(self) -> list[SentMessage | RefusedMessage]:
        """Store the messages, and return a result for each."""
        self._meet()
        twins = self._deduplicate()
        admitted = self._admit([place for place in range(len(self.messages)) if place not in self._results])
        if admitted:
            self._keep(admitted)
            self._wake_others(self.step.save())
        else:
            self.step.save()
        for place, first in twins.items():
            result = self._results[first]
            if isinstance(result, SentMessage):
                result = msgspec.structs.replace(result, is_duplicate=True)
            self._results[place] = result
        return [self._results[place] for place in range(len(self.messages))]

    # Admission

    def _meet(self) -> None:
        for message in self.messages:
            self._wanted[message.tenant] = self._wanted.get(message.tenant, 0) + 1
        self._tenants = self.step.meet(self._wanted)
        if any(message.key is not None or message.group is not None for message in self.messages) or any(
            row.is_limited or self._is_pressed(row) for row in self._tenants.values()
        ):
            self.step.lock()

    def _is_pressed(self, tenant: TenantRow) -> bool:
        """Return whether these messages may bring a tenant so far that its waiting messages limit it."""
        found = tenant.found
        return found.ready + found.delayed + self._wanted[tenant.name] > get_room(self.step.policy, tenant.limits)

    def _deduplicate(self) -> dict[int, int]:
        """Find messages that were sent before. Return the index of the first for each that occurs again here."""
        places = [place for place, message in enumerate(self.messages) if message.key is not None]
        if not places:
            return {}
        known = keys.find(self.step, {self._key(self.messages[place]) for place in places})
        firsts: dict[tuple[int, str], int] = {}
        twins: dict[int, int] = {}
        for place in places:
            message = self.messages[place]
            key = self._key(message)
            if key in known:
                self._results[place] = self._duplicate(message, *known[key])
            elif firsts.setdefault(key, place) != place:
                twins[place] = firsts[key]
                self._results[place] = self._duplicate(message, 0, 0)  # until the result of the first is known
        return twins

    def _key(self, message: OutgoingMessage) -> tuple[int, str]:
        return self._tenants[message.tenant].id, message.key or ""

    def _duplicate(self, message: OutgoingMessage, id_: int, lane: int) -> SentMessage:
        trace = unpack_trace(pack_trace(message.trace), self.step.origin, id_)
        return SentMessage(id=id_, queue=self.step.name, lane=lane, trace=trace, pressure=0.0, is_duplicate=True)

    def _admit(self, places: Sequence[int]) -> list[_Admitted]:
        wanted: dict[str, int] = {}
        for place in places:
            name = self.messages[place].tenant
            wanted[name] = wanted.get(name, 0) + 1
        admissions = {name: self._admission(self._tenants[name], count) for name, count in wanted.items()}
        decided = {name: decide_each(admission) for name, admission in admissions.items()}
        admitted: list[_Admitted] = []
        for place in places:
            message = self.messages[place]
            where, delay = next(decided[message.tenant])
            if delay is None:
                self._results[place] = _refused(self.step.name, message.tenant, admissions[message.tenant])
            else:
                admitted.append(_Admitted(place, message, self._tenants[message.tenant], where, delay))
        return admitted

    def _admission(self, tenant: TenantRow, count: int) -> Admission:
        step = self.step
        admission = admit(step.policy, tenant.limits, tenant.found, count, step.now)
        self._pressures[tenant.name] = admission.pressure
        if tenant.is_limited or self._is_pressed(tenant):
            tenant.spend(admission.state)
        return admission

    # Storage

    def _keep(self, admitted: Sequence[_Admitted]) -> None:
        step = self.step
        numbers = self._place(admitted)
        lanes = step.lane_ids(numbers)
        parties, parked = self._enrol(admitted)
        rows = [
            self._row(one, lanes[number], parties.get(one.place), is_parked=one.place in parked)
            for one, number in zip(admitted, numbers, strict=True)
        ]
        ids = step.dialect.insert(step.transaction, step.queue, rows)
        for (lane, tenant, is_ready), count in Counter(
            (row.lane, row.tenant, row.until is None) for row in rows
        ).items():
            if is_ready:
                step.count(lane, tenant, ready=count)
                step.lane(lane).newest = step.at
            else:
                step.count(lane, tenant, delayed=count)
        self._remember(admitted, ids, numbers)

    def _place(self, admitted: Sequence[_Admitted]) -> list[int]:
        """Return the number of the lane of each message."""
        policy = self.step.policy
        shared = {
            (one.message.tenant, one.message.priority)
            for one in admitted
            if policy.lanes_per_tenant and one.where is LaneKind.SHARED
        }
        hands = {one: get_hand_lanes(*one, policy.lanes, policy.lanes_per_tenant) for one in shared}
        lanes = {lane for some in hands.values() for lane in some}
        # Whole hands are created: the short path for one message chooses among existing lanes.
        placing = LanePlacement(self.step.depths(lanes))
        numbers: list[int] = []
        for one in admitted:
            if one.where is LaneKind.SPILLED:
                numbers.append(spill_lane(one.tenant.id, one.message.priority))
            elif one.where is LaneKind.SHARED and policy.lanes_per_tenant:
                numbers.append(placing.choose_lane(hands[one.message.tenant, one.message.priority]))
            else:
                numbers.append(own_lane(one.tenant.id, one.message.priority))
        return numbers

    def _enrol(self, admitted: Sequence[_Admitted]) -> tuple[dict[int, int], set[int]]:
        """Return the groups of messages, and the messages that must wait in their groups, both by index."""
        members = {one.place: (one.tenant.id, one.message.group) for one in admitted if one.message.group is not None}
        if not members:
            return {}, set()
        found = groups.enrol(self.step, ((tenant, name or "") for tenant, name in members.values()))
        parties = {place: found[tenant, name or ""] for place, (tenant, name) in members.items()}
        used = groups.used(self.step, parties.values())
        parked: set[int] = set()
        for place, party in parties.items():
            if party in used:
                parked.add(place)
            used.add(party)
        return parties, parked

    def _row(self, one: _Admitted, lane: int, party: int | None, *, is_parked: bool) -> NewMessage:
        at = self.step.at
        message = one.message
        delay = max(one.delay, message.delay)
        due = at + milliseconds(delay) if delay else at
        until = PARKED if is_parked else due if due > at else None
        expires = None if message.ttl is None else due + milliseconds(message.ttl)
        return NewMessage(lane, one.tenant.id, due, until, expires, party, self._extra(one), message.body)

    def _extra(self, one: _Admitted) -> bytes | None:
        message = one.message
        if message.trace is None and message.deadline is None and not self._publications:
            return None
        return encode(
            Extra(
                trace=pack_trace(message.trace),
                deadline=None if message.deadline is None else milliseconds(message.deadline),
                publication=self._publications[one.place] if self._publications else None,
            )
        )

    def _remember(self, admitted: Sequence[_Admitted], ids: Sequence[int], numbers: Sequence[int]) -> None:
        step = self.step
        expires = step.at + milliseconds(step.policy.dedupe_for)
        kept: list[keys.Key] = []
        for one, id_, number in zip(admitted, ids, numbers, strict=True):
            message = one.message
            if message.key is not None:
                kept.append(keys.Key(one.tenant.id, message.key, id_, number, expires))
            self._results[one.place] = SentMessage(
                id=id_,
                queue=step.name,
                lane=number,
                trace=unpack_trace(pack_trace(message.trace), step.origin, id_),
                pressure=self._pressures[message.tenant],
            )
        if kept:
            keys.keep(step, kept)

    def _wake_others(self, filled: Sequence[int]) -> None:
        """Notify workers if an empty lane was filled: busy workers poll by themselves, idle ones found nothing."""
        if filled:
            self.step.dialect.wake(self.step.transaction, self.step.name)


def _refused(queue: str, tenant: str, admission: Admission) -> RefusedMessage:
    return RefusedMessage(
        queue=queue,
        tenant=tenant,
        reason=admission.refusal or RefusalReason.MAX_WAITING,
        retry_after=admission.retry_after,
        pressure=admission.pressure,
    )
