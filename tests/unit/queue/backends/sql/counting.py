"""What the counters say, and what counting gives."""

from holdfast.engines import Database, Row, Transaction

_LANES = (
    "select l.id, l.ready, l.leased, l.delayed, l.dead, "
    "(select count(*) from holdfast_queue_message m where m.lane = l.id and m.until is null), "
    "(select count(*) from holdfast_queue_message m where m.lane = l.id and m.leased = 1), "
    "(select count(*) from holdfast_queue_message m where m.lane = l.id and m.until is not null and m.leased = 0), "
    "(select count(*) from holdfast_queue_dead d where d.lane = l.id) from holdfast_queue_lane l order by l.id"
)
_TENANTS = (
    "select t.id, t.ready, t.spilled, t.leased, t.delayed, t.dead, "
    "(select count(*) from holdfast_queue_message m where m.tenant = t.id and m.until is null), "
    "(select count(*) from holdfast_queue_message m join holdfast_queue_lane l on l.id = m.lane "
    "where m.tenant = t.id and m.until is null and l.number < 0), "
    "(select count(*) from holdfast_queue_message m where m.tenant = t.id and m.leased = 1), "
    "(select count(*) from holdfast_queue_message m where m.tenant = t.id and m.until is not null and m.leased = 0), "
    "(select count(*) from holdfast_queue_dead d where d.tenant = t.id) from holdfast_queue_tenant t order by t.id"
)
_HIDDEN = (
    "select l.id from holdfast_queue_lane l where l.filled <> case when l.ready > 0 then 1 else 0 end "
    "or exists (select 1 from holdfast_queue_message m where m.lane = l.id and m.until is null and m.at > l.newest)"
)
_STRAY = (
    "select m.id from (select id, queue, lane, tenant from holdfast_queue_message "
    "union all select id, queue, lane, tenant from holdfast_queue_dead) m "
    "left join holdfast_queue_lane l on l.id = m.lane and l.queue = m.queue "
    "left join holdfast_queue_tenant t on t.id = m.tenant and t.queue = m.queue where l.id is null or t.id is null "
    "union all select tenant from (select tenant from holdfast_queue_key "
    "union all select tenant from holdfast_queue_party) k where tenant not in (select id from holdfast_queue_tenant)"
)
_HEADS = (
    "select party from holdfast_queue_message where party is not null group by party "
    "having sum(case when until = 4611686018427387904 then 0 else 1 end) <> 1"
)
_EMPTY = (
    "select id from holdfast_queue_party p "
    "where not exists (select 1 from holdfast_queue_message m where m.party = p.id) "
    "and not exists (select 1 from holdfast_queue_dead d where d.party = p.id)"
)


def require_exact(database: Database) -> None:
    """Counters equal what is there, each group has one head, and nothing is left over."""

    def work(transaction: Transaction) -> tuple[list[Row], ...]:
        return tuple(
            transaction.execute(statement) for statement in (_LANES, _TENANTS, _HIDDEN, _STRAY, _HEADS, _EMPTY)
        )

    lanes, tenants, *wrong = database.read(work)
    for rows in (lanes, tenants):
        assert [row[: len(row) // 2 + 1] for row in rows] == [(row[0], *row[len(row) // 2 + 1 :]) for row in rows]
    assert wrong == [[], [], [], []], (
        "lanes whose messages are not looked for, messages, keys and groups without a lane or tenant of their queue, "
        "groups without one head, "
        "groups without messages"
    )
