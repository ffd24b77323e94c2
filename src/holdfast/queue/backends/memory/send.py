"""Store messages that are sent to a queue."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.queue.backends.memory.book import Book, Lane, Message, Publication, Tenant, milliseconds
from holdfast.queue.backends.memory.keys import Known
from holdfast.queue.message import OutgoingMessage, RefusalReason, RefusedMessage, SentMessage, pack_trace, unpack_trace
from holdfast.queue.rules.admission import Admission, LaneKind, admit, decide_each
from holdfast.queue.rules.placement import EMPTY_LANE, LaneLoad, LanePlacement, get_hand_lanes, own_lane, spill_lane


class Send:
    """Messages that are stored in one queue together."""

    def __init__(self, book: Book, messages: Sequence[OutgoingMessage], ids: Iterator[int]) -> None:
        self.book = book
        self.messages = messages
        self._ids = ids
        self._placing = LanePlacement({})

    def run(self, publications: Sequence[Publication | None] = ()) -> list[SentMessage | RefusedMessage]:
        """Store the messages, and return a result for each."""
        self.book.keys.forget(self.book.at)
        results: dict[int, SentMessage | RefusedMessage] = {}
        twins: dict[int, int] = {}
        fresh: dict[int, OutgoingMessage] = {}
        firsts: dict[tuple[str, str], int] = {}
        for place, message in enumerate(self.messages):
            if message.key is not None:
                known = self.book.keys.find(self.book.tenant(message.tenant).id, message.key)
                if known is not None:
                    results[place] = self._duplicate(message, known)
                    continue
                first = firsts.setdefault((message.tenant, message.key), place)
                if first != place:
                    twins[place] = first
                    continue
            fresh[place] = message
        admissions = self._admissions(fresh.values())
        decided = {name: decide_each(admission) for name, admission in admissions.items()}
        for place, message in fresh.items():
            admission = admissions[message.tenant]
            where, delay = next(decided[message.tenant])
            if delay is None:
                results[place] = RefusedMessage(
                    queue=self.book.name,
                    tenant=message.tenant,
                    reason=admission.refusal or RefusalReason.MAX_WAITING,
                    retry_after=admission.retry_after,
                    pressure=admission.pressure,
                )
            else:
                publication = publications[place] if publications else None
                kept = self._keep(message, publication, delay, where)
                results[place] = self._sent(kept, admission.pressure)
        for place, first in twins.items():
            result = results[first]
            is_kept = isinstance(result, SentMessage)
            results[place] = msgspec.structs.replace(result, is_duplicate=True) if is_kept else result
        return [results[place] for place in range(len(self.messages))]

    def _admissions(self, messages: Iterable[OutgoingMessage]) -> dict[str, Admission]:
        wanted: dict[str, int] = {}
        for message in messages:
            wanted[message.tenant] = wanted.get(message.tenant, 0) + 1
        found: dict[str, Admission] = {}
        for name, count in wanted.items():
            tenant = self.book.tenant(name)
            limits = self.book.limits(tenant)
            found[name] = admit(self.book.policy, limits, tenant.state(), count, self.book.now)
            tenant.buckets = found[name].state
        return found

    def _keep(
        self, outgoing: OutgoingMessage, publication: Publication | None, delay: float, where: LaneKind
    ) -> Message:
        book = self.book
        tenant = book.tenant(outgoing.tenant)
        lane = self._lane(tenant, outgoing.priority, where)
        at = book.at + milliseconds(max(delay, outgoing.delay))
        message = Message(next(self._ids), book, tenant, lane, at, body=outgoing.body)
        message.trace = pack_trace(outgoing.trace)
        message.deadline = outgoing.deadline
        message.expires = None if outgoing.ttl is None else at + milliseconds(outgoing.ttl)
        message.publication = publication
        if outgoing.group is not None:
            message.group = book.group(tenant, outgoing.group)
        book.keep(message)
        if outgoing.key is not None:
            expires = book.at + milliseconds(book.policy.dedupe_for)
            book.keys.keep(tenant.id, outgoing.key, Known(message.id, lane.number, expires))
        return message

    def _lane(self, tenant: Tenant, priority: int, where: LaneKind) -> Lane:
        book, policy = self.book, self.book.policy
        if where is LaneKind.SPILLED:
            return book.lane(spill_lane(tenant.id, priority))
        if where is LaneKind.OWN or not policy.lanes_per_tenant:
            return book.lane(own_lane(tenant.id, priority))
        lanes = get_hand_lanes(tenant.name, priority, policy.lanes, policy.lanes_per_tenant)
        for number in lanes:
            if number not in self._placing.depths:
                lane = book.lanes.get(number)
                self._placing.depths[number] = EMPTY_LANE if lane is None else LaneLoad(len(lane.waiting), lane.turn)
        return book.lane(self._placing.choose_lane(lanes))

    def _sent(self, message: Message, pressure: float) -> SentMessage:
        return SentMessage(
            id=message.id,
            queue=self.book.name,
            lane=message.lane.number,
            trace=unpack_trace(message.trace, self.book.origin, message.id),
            pressure=pressure,
        )

    def _duplicate(self, outgoing: OutgoingMessage, known: Known) -> SentMessage:
        return SentMessage(
            id=known.message,
            queue=self.book.name,
            lane=known.lane,
            trace=unpack_trace(pack_trace(outgoing.trace), self.book.origin, known.message),
            pressure=0.0,
            is_duplicate=True,
        )
