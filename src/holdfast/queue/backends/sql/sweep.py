"""Drop old messages, and delete the rows of tenants that nothing refers to."""

from holdfast.engines import Value
from holdfast.queue.backends.sql.lanes import earliest_turns
from holdfast.queue.backends.sql.message import Message, columns, milliseconds
from holdfast.queue.backends.sql.remove import remove
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.backends.sql.step import Step, with_ids
from holdfast.queue.rules.admission import FORGET_AFTER
from holdfast.queue.rules.placement import get_rank, tenant_lanes

AT_ONCE = 1000
"""Messages that are dropped in one transaction, so that others do not wait long."""
TENANTS_AT_ONCE = 500
"""Tenants that are examined in one transaction."""
_FROM = "select m.id, m.tenant from holdfast_queue_message m where "
_EXPIRED = f"{_FROM}m.queue = $1 and m.expires <= $2 and m.leased = 0 order by m.expires limit $3"
_RESENT = f"{_FROM}m.queue = $1 and m.sent < $2 and m.leased = 0{{own}} order by m.sent limit $3"
_PARKED = f"{_FROM}m.queue = $1 and m.until = {PARKED} and m.at < $2 and m.sent is null{{own}} order by m.at limit $3"
_READY = f"{_FROM}m.lane = $1 and m.until is null and m.at < $2 and m.sent is null{{own}} order by m.at limit $3"
_LANES = (
    "select l.id from holdfast_queue_lane l where l.queue = $1 and l.ready > 0 and exists ("
    "select 1 from holdfast_queue_message m where m.lane = l.id and m.until is null and m.at < $2)"
)
_TAKE = (
    f"select {columns()}, l.number from holdfast_queue_message m "  # noqa: S608 - constants
    "join holdfast_queue_lane l on l.id = m.lane where m.leased = 0 and m.id {ids}"
)

# Full buckets are those of a new tenant. Messages, dead letters and groups are counted.
_UNUSED = (
    "t.ready = 0 and t.leased = 0 and t.delayed = 0 and t.dead = 0 and t.limits is null and t.used <= $1 "
    "and t.rate_full_at <= $2 and t.max_rate_full_at <= $2 and t.pressure_full_at <= $2 and t.spill_full_at <= $2 "
    "and t.run_full_at <= $2 and t.lease_full_at <= $2"
)
_FOLLOWING = (
    f"select t.name, t.id, {_UNUSED} from holdfast_queue_tenant t where t.queue = $3 and t.name > $4 "  # noqa: S608 - constants
    "order by t.name limit {limit}"  # the planner must know it
)
_LOCK = f"select t.id from holdfast_queue_tenant t where {_UNUSED} and t.id {{ids}} order by t.id"  # noqa: S608 - constants
_OWN = "select l.id, l.number, l.turn from holdfast_queue_lane l where l.queue = $1 and l.number {ids} order by l.id"
_KEYS = "select distinct k.tenant from holdfast_queue_key k where k.tenant {ids}"
_FORGET_LANES = "delete from holdfast_queue_lane where id {ids}"
_FORGET = "delete from holdfast_queue_tenant where id {ids}"


class Sweep:
    """One transaction of a sweep: drop messages that were sent before a time, or have expired.

    Messages are found without locks. Their tenants are locked first, because some messages may be parked; concurrent
    sweeps wait there. Then the messages are locked that still exist and that no other transaction has locked.
    """

    def __init__(self, step: Step, before: float | None) -> None:
        self.step = step
        self._before = None if before is None else milliseconds(before)
        self._found: dict[int, int] = {}
        """The tenants of found messages, by message."""

    def run(self) -> tuple[int, bool]:
        """Drop the messages. Return their number, and whether there may be more."""
        step = self.step
        self._find(_EXPIRED, step.queue, step.at)
        if step.policy.ttl is not None:
            # Messages with their own ttl were found by it.
            self._find_older(step.at - milliseconds(step.policy.ttl) + 1, " and m.expires is null")
        if self._before is not None:
            self._find_older(self._before, "")
        if not self._found:
            return 0, False
        step.know(self._found.values())
        step.lock()
        old = [message for message in self._take() if self._is_old(message)]
        remove(step, old)
        step.save()
        return len(old), self._room < 1

    def _find_older(self, limit: int, own: str) -> None:
        """Find messages that were sent before a time."""
        step = self.step
        self._find(_RESENT.format(own=own), step.queue, limit)
        self._find(_PARKED.format(own=own), step.queue, limit)
        for (lane,) in step.transaction.execute(_LANES, (step.queue, limit)):
            if self._room < 1:
                break
            self._find(_READY.format(own=own), lane, limit)

    @property
    def _room(self) -> int:
        return AT_ONCE - len(self._found)

    def _find(self, statement: str, *parameters: Value) -> None:
        if self._room > 0:
            self._found.update(self.step.transaction.execute(statement, (*parameters, self._room)))

    def _take(self) -> list[Message]:
        step = self.step
        rows = with_ids(step, _TAKE + step.dialect.skip("m"), list(self._found))
        step.numbers.update((row[1], row[-1]) for row in rows)
        return [Message(*row[:-1]) for row in rows]

    def _is_old(self, message: Message) -> bool:
        """Return whether a message is still old: it may have changed since it was found."""
        is_before = self._before is not None and message.age_from < self._before
        return is_before or message.expires_at(self.step.policy) <= self.step.at


def forget_tenants(step: Step, after: str) -> tuple[str, bool]:
    """Delete tenants that nothing refers to, with their own lanes, among the next after a name.

    Return the name after which to continue, "" at the end, and whether any was deleted. Never waits for a tenant, so
    that it cannot deadlock. Keys, groups and lanes of a tenant are added under its lock, and so are complete once it is
    locked; a sender that adds a message before that finds its tenant gone, and starts again: see `step.py`.
    """
    unused = (step.at - milliseconds(FORGET_AFTER), round(step.now * 1_000_000))
    statement = _FOLLOWING.format(limit=TENANTS_AT_ONCE)
    rows = step.transaction.execute(statement, (*unused, step.queue, after))
    following = rows[-1][0] if len(rows) >= TENANTS_AT_ONCE else ""
    found = [id_ for _, id_, is_unused in rows if is_unused]
    if found:
        found = [id_ for (id_,) in with_ids(step, _LOCK + step.dialect.skip("t"), found, *unused)]
    if not found:
        return following, False
    owners = {lane: id_ for id_ in found for lane in tenant_lanes(id_)}
    lanes = with_ids(step, _OWN + step.dialect.lock("l"), list(owners), step.queue)
    needed = {id_ for (id_,) in with_ids(step, _KEYS, found)}
    if lanes:  # a new lane is served before all that have been served: it must not overtake them that way
        earliest = earliest_turns(step)
        needed.update(owners[number] for _, number, turn in lanes if turn > earliest.get(get_rank(number), turn))
    gone = [id_ for id_ in found if id_ not in needed]
    own = [id_ for id_, number, _ in lanes if owners[number] not in needed]
    if own:
        with_ids(step, _FORGET_LANES, own)
    if gone:
        with_ids(step, _FORGET, gone)
    return following, bool(gone)
