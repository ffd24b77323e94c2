"""The tables. Times are whole milliseconds since the epoch: SQLite stores such numbers in six bytes."""

from typing import Final, Literal

from holdfast.engines import Migration

SUBSYSTEM = "queue"
PARKED: Final = 1 << 62
"""`until` of a message that waits for earlier ones of its group."""

_QUEUE = """create table holdfast_queue (
    id {number},
    name text not null unique,
    origin bigint not null,
    policy bytea not null,
    seen bigint not null default 0
)"""
# Counters are in no index: PostgreSQL rewrites every index entry of a row if a value in any index changes. `magnitude`
# is the number of digits of `ready`, and `filled` whether it is more than 0; both rarely change. Buckets count in
# microseconds, or rates above a thousand per second would never be used up one by one. `used` is when a counter or
# bucket was last changed.
_TENANT = """create table holdfast_queue_tenant (
    id {number},
    queue bigint not null,
    name text not null,
    ready bigint not null default 0,
    spilled bigint not null default 0,
    leased bigint not null default 0,
    delayed bigint not null default 0,
    dead bigint not null default 0,
    rate_full_at bigint not null default 0,
    max_rate_full_at bigint not null default 0,
    pressure_full_at bigint not null default 0,
    spill_full_at bigint not null default 0,
    run_full_at bigint not null default 0,
    lease_full_at bigint not null default 0,
    magnitude bigint not null default 0,
    used bigint not null default 0,
    limits bytea,
    unique (queue, name)
){changing}"""
_BUSIEST = "create index holdfast_queue_tenant_busiest on holdfast_queue_tenant (queue, magnitude) where magnitude > 0"
_LANE = """create table holdfast_queue_lane (
    id {number},
    queue bigint not null,
    number bigint not null,
    rank bigint not null,
    ready bigint not null default 0,
    leased bigint not null default 0,
    delayed bigint not null default 0,
    dead bigint not null default 0,
    turn bigint not null default 0,
    newest bigint not null default 0,
    filled bigint not null default 0,
    unique (queue, number)
){changing}"""
_TURN = "create index holdfast_queue_lane_turn on holdfast_queue_lane (queue, rank, turn) where filled = 1"
# `sent` is null unless the message was delayed since; `expires` unless it has its own ttl. The body is the last column,
# because columns after a long one are slow to read.
_MESSAGE = """create table holdfast_queue_message (
    id {key},
    lane bigint not null,
    tenant bigint not null,
    at bigint not null,
    until bigint,
    sent bigint,
    expires bigint,
    party bigint,
    queue {small} not null,
    tries {small} not null default 0,
    leased {small} not null default 0,
    extra bytea,
    body bytea not null
){messages}"""
# Each index has only the messages that need it; most need only the first.
_READY = "create index holdfast_queue_message_ready on holdfast_queue_message (lane, at{id}) where until is null"
_HELD = "create index holdfast_queue_message_held on holdfast_queue_message (queue, until) where until is not null"
_PARTIES = "create index holdfast_queue_message_party on holdfast_queue_message (party, id) where party is not null"
_PARKED = f"create index holdfast_queue_message_parked on holdfast_queue_message (queue, at) where until = {PARKED}"
_SENT = "create index holdfast_queue_message_sent on holdfast_queue_message (queue, sent) where sent is not null"
_EXPIRES = (
    "create index holdfast_queue_message_expires on holdfast_queue_message (queue, expires) where expires is not null"
)
_PARTY = """create table holdfast_queue_party (
    id {number},
    tenant bigint not null,
    name text not null,
    unique (tenant, name)
)"""
_KEY = """create table holdfast_queue_key (
    tenant bigint not null,
    name text not null,
    message bigint not null,
    lane bigint not null,
    expires bigint not null,
    primary key (tenant, name)
)"""
_KEYS = "create index holdfast_queue_key_expires on holdfast_queue_key (expires)"
_DEAD = """create table holdfast_queue_dead (
    id {key},
    queue bigint not null,
    lane bigint not null,
    tenant bigint not null,
    tries bigint not null,
    sent bigint not null,
    buried bigint not null,
    party bigint,
    extra bytea,
    reason text not null,
    detail text not null,
    body bytea not null
)"""
_DEADS = "create index holdfast_queue_dead_queue on holdfast_queue_dead (queue, id)"
_DEADS_OF = "create index holdfast_queue_dead_tenant on holdfast_queue_dead (tenant, id)"
_DEAD_PARTIES = "create index holdfast_queue_dead_party on holdfast_queue_dead (party) where party is not null"
_SUBSCRIPTION = """create table holdfast_queue_subscription (
    topic text not null,
    queue bigint not null,
    primary key (topic, queue)
)"""
_SUBSCRIPTIONS = "create index holdfast_queue_subscription_queue on holdfast_queue_subscription (queue, topic)"
# Messages of topics that no subscriber has leased yet, and the highest id of their copies.
_PUBLICATION = "create table holdfast_queue_publication (id {key}, last bigint not null)"
_SEQUENCE = {
    "sqlite": (
        "create table holdfast_queue_sequence (following integer not null)",
        "insert into holdfast_queue_sequence (following) values (1)",
    ),
    "postgres": ("create sequence holdfast_queue_sequence",),
}
_WORDS = {
    "sqlite": {
        "number": "integer primary key",
        "key": "integer primary key",
        "small": "integer",
        "messages": "",
        "changing": "",
        "id": "",
    },
    "postgres": {
        "number": "bigint generated by default as identity primary key",
        "key": "bigint primary key",
        "small": "integer",
        # Every message makes three row versions: vacuum them long before a fifth of the table is dead.
        "messages": " with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,"
        " autovacuum_vacuum_cost_delay = 0)",
        # Few rows that change all the time: new row versions fit on the same page as the old ones.
        "changing": " with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 500,"
        " autovacuum_vacuum_cost_delay = 0)",
        "id": ", id",
    },
}


def migrations(dialect: Literal["sqlite", "postgres"]) -> tuple[Migration, ...]:
    """Return the migrations that create the tables."""
    statements: tuple[str, ...] = (
        _QUEUE,
        _TENANT,
        _BUSIEST,
        _LANE,
        _TURN,
        _MESSAGE,
        _READY,
        _HELD,
        _PARTIES,
        _PARKED,
        _SENT,
        _EXPIRES,
    )
    statements += (_PARTY, _KEY, _KEYS, _DEAD, _DEADS, _DEADS_OF, _DEAD_PARTIES, _SUBSCRIPTION, _SUBSCRIPTIONS)
    statements += (_PUBLICATION, *_SEQUENCE[dialect])
    return (Migration(1, "messages", tuple(statement.format(**_WORDS[dialect]) for statement in statements)),)
