"""Read and redrive dead letters."""

from typing import Any

from holdfast.engines import Row
from holdfast.queue.backend import DeadLetterQuery
from holdfast.queue.backends.sql import groups
from holdfast.queue.backends.sql.extra import decode, encode
from holdfast.queue.backends.sql.message import NEVER, is_id, is_storable, milliseconds
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.backends.sql.step import Step, with_ids
from holdfast.queue.message import DeadLetter, unpack_trace
from holdfast.queue.rules.placement import get_priority

_COLUMNS = "d.id, d.lane, l.number, d.tenant, t.name, d.tries, d.sent, d.buried, d.party, d.extra"
_TEXTS = ", d.reason, d.detail, d.body"
_FROM = (
    " from holdfast_queue_dead d join holdfast_queue_lane l on l.id = d.lane "
    "join holdfast_queue_tenant t on t.id = d.tenant where d.queue = $1 and d.id > $2"
)
_TENANT = "select id from holdfast_queue_tenant where queue = $1 and name = $2"
_BACK = (
    "insert into holdfast_queue_message (id, queue, lane, tenant, tries, until, at, sent, expires, party, extra, body) "
    "select d.id, d.queue, d.lane, d.tenant, d.tries, $1, $2, d.sent, $3, d.party, $4, d.body "
    "from holdfast_queue_dead d where d.id = $5"
)
_FORGET = "delete from holdfast_queue_dead where id {ids}"


def dead(step: Step, query: DeadLetterQuery) -> list[DeadLetter]:
    """Return the dead letters that match a query."""
    rows = _find(step, query, _COLUMNS + _TEXTS)
    names = groups.names_of(step, (row[8] for row in rows))
    return [_letter(step, row, names) for row in rows]


def redrive(step: Step, query: DeadLetterQuery, *, discard: bool) -> int:
    """Redrive dead letters that match a query, as if they had just been sent, or delete them. Return their number."""
    rows = _find(step, query, _COLUMNS, step.dialect.lock("d"))
    if not rows:
        return 0
    step.know(row[3] for row in rows)
    parties = {row[8] for row in rows if row[8] is not None}
    if parties:
        step.lock()
    for row in rows:
        step.numbers[row[1]] = row[2]
        step.count(row[1], row[3], dead=-1)
    if not discard:
        _put_back(step, rows)
    with_ids(step, _FORGET, [row[0] for row in rows])
    if discard:
        groups.forget(step, parties)
    if step.save():
        step.dialect.wake(step.transaction, step.name)
    return len(rows)


def _put_back(step: Step, rows: list[Row]) -> None:
    used = groups.used(step, {row[8] for row in rows if row[8] is not None})
    ttl = step.policy.ttl
    expires = None if ttl is None else step.at + milliseconds(ttl)
    back: list[tuple[Any, ...]] = []
    for id_, lane, _, tenant, _, tries, _, _, party, kept in rows:
        is_parked = party is not None and party in used
        if party is not None:
            used.add(party)
        # It is fresh, its attempts count from 1 again, and its old receipts are invalid.
        extra = encode(decode(kept).redriven(tries))
        back.append((PARKED if is_parked else None, step.at, expires, extra, id_))
        if is_parked:
            step.count(lane, tenant, delayed=1)
        else:
            step.count(lane, tenant, ready=1)
            step.lane(lane).newest = step.at
    step.transaction.execute_many(_BACK, back)


def _find(step: Step, query: DeadLetterQuery, columns: str, lock: str = "") -> list[Row]:
    conditions, parameters = "", [step.queue, min(query.after, NEVER)]

    def add(condition: str, value: Any) -> None:
        nonlocal conditions
        parameters.append(value)
        conditions += f" and {condition.format(place=f'${len(parameters)}')}"

    if not is_storable(query.tenant or "") or not is_storable(query.reason or ""):
        return []  # no stored name or reason can contain such text
    if query.tenant is not None:
        ids = step.transaction.execute(_TENANT, (step.queue, query.tenant))
        if not ids:
            return []
        add("d.tenant = {place}", ids[0][0])
    if query.reason:
        add(f"{step.dialect.contains}(d.reason, {{place}}) > 0", query.reason)
    if query.ids:
        add(f"d.id {step.dialect.among('{place}')}", step.dialect.numbers(filter(is_id, query.ids)))
    if query.buried_before is not None:
        add("d.buried < {place}", milliseconds(query.buried_before))
    parameters.append(query.limit)
    statement = f"select {columns}{_FROM}{conditions} order by d.id limit ${len(parameters)}{lock}"
    return step.transaction.execute(statement, parameters)


def _letter(step: Step, row: Row, names: dict[int | None, str]) -> DeadLetter:
    id_, _, number, _, tenant, tries, sent, buried, party, kept, reason, detail, body = row
    extra = decode(kept)
    return DeadLetter(
        id=id_,
        queue=step.name,
        tenant=tenant,
        body=bytes(body),
        priority=get_priority(number),
        group=names.get(party),
        attempts=tries - extra.returned,
        sent_at=sent / 1000,
        buried_at=buried / 1000,
        reason=reason,
        detail=detail,
        trace=unpack_trace(extra.trace, step.origin, id_),
    )
