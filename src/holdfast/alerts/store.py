"""Store verdicts that people are told about, the outbox of messages, acknowledgements and snoozes."""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast._errors import Conflict, InvalidValue, NotFound
from holdfast.alerts.message import AlertedVerdict, AlertEvent
from holdfast.alerts.rules import Delivery, DeliveryState, NextAttempt
from holdfast.engines import Database, Migration, Row, Transaction

SUBSYSTEM = "alerts"

MIGRATIONS = (
    Migration(
        1,
        "verdicts, the outbox of messages, and snoozes of workloads",
        (
            """create table holdfast_alert_verdict (
                id text primary key,
                workload text not null,
                kind text not null,
                since double precision not null,
                summary text not null,
                opened_at double precision not null,
                zone text,
                resource text,
                closed_at double precision,
                acknowledged_at double precision,
                acknowledged_by text,
                snoozed_until double precision,
                snoozed_by text,
                is_finished bigint not null
            )""",
            "create index holdfast_alert_verdict_finished on holdfast_alert_verdict (is_finished, opened_at)",
            """create table holdfast_alert_delivery (
                verdict text not null,
                alert text not null,
                number bigint not null,
                event text not null,
                state text not null,
                created_at double precision not null,
                due_at double precision not null,
                attempts bigint not null,
                may_have_arrived bigint not null,
                delivered_at double precision,
                error text,
                primary key (verdict, alert, number)
            )""",
            "create index holdfast_alert_delivery_due on holdfast_alert_delivery (state, alert, due_at)",
            """create table holdfast_alert_snooze (
                workload text primary key,
                snoozed_until double precision not null,
                snoozed_by text not null
            )""",
        ),
    ),
)

_VERDICT = tuple(AlertedVerdict.__struct_fields__)
_COLUMNS = ", ".join(f"v.{name}" for name in _VERDICT)
_READ = (
    f"select {_COLUMNS}, s.snoozed_until, s.snoozed_by from holdfast_alert_verdict v "  # noqa: S608 - our own names
    "left join holdfast_alert_snooze s on s.workload = v.workload"
)
_ACTIVE = f"{_READ} where v.is_finished = 0 order by v.opened_at"
_LATEST = f"{_READ} order by v.opened_at desc, v.id limit $1"
_BY_ID = f"{_READ} where v.id = $1"
_ADD = (
    f"insert into holdfast_alert_verdict ({', '.join(_VERDICT)}, is_finished) "  # noqa: S608
    f"values ({', '.join(f'${number}' for number in range(1, len(_VERDICT) + 1))}, 0) on conflict (id) do nothing"
)
_CLOSE = "update holdfast_alert_verdict set closed_at = $1 where id = $2 and closed_at is null"
_FINISH = "update holdfast_alert_verdict set is_finished = 1 where id = $1"
_ACKNOWLEDGE = (
    "update holdfast_alert_verdict set acknowledged_at = $1, acknowledged_by = $2 "
    "where id = $3 and acknowledged_at is null and closed_at is null"
)
_SNOOZE = "update holdfast_alert_verdict set snoozed_until = $1, snoozed_by = $2 where id = $3 and closed_at is null"
_SNOOZE_WORKLOAD = (
    "insert into holdfast_alert_snooze (workload, snoozed_until, snoozed_by) values ($1, $2, $3) "
    "on conflict (workload) do update set snoozed_until = excluded.snoozed_until, snoozed_by = excluded.snoozed_by"
)
_DELIVERY = ", ".join(Delivery.__struct_fields__)
_DELIVERIES = f"select {_DELIVERY} from holdfast_alert_delivery where verdict = $1 order by alert, number"  # noqa: S608
_QUEUE = (
    "insert into holdfast_alert_delivery "
    "(verdict, alert, number, event, state, created_at, due_at, attempts, may_have_arrived) "
    "values ($1, $2, $3, $4, 'waiting', $5, $5, 0, 0) on conflict (verdict, alert, number) do nothing"
)
_SAME = "verdict = $2 and alert = $3 and number = $4 and state = 'waiting'"
_DROP = f"update holdfast_alert_delivery set state = $1 where {_SAME} and may_have_arrived = 0"  # noqa: S608
# Of each verdict only the oldest message that waits, so that nobody hears of the end before the beginning.
_DUE = (
    f"select {_DELIVERY} from holdfast_alert_delivery d where state = 'waiting' and alert = $1 and due_at <= $2 "  # noqa: S608
    "and not exists (select 1 from holdfast_alert_delivery e where e.verdict = d.verdict and e.alert = d.alert "
    "and e.state = 'waiting' and e.number < d.number) order by due_at, verdict limit 1"
)
_CLAIM = (
    f"update holdfast_alert_delivery set due_at = $1, attempts = attempts + 1, may_have_arrived = 1 where {_SAME} "  # noqa: S608
    "and attempts = $5 returning attempts"
)
_DELIVERED = f"update holdfast_alert_delivery set delivered_at = $1, state = 'delivered', error = null where {_SAME}"  # noqa: S608
_POSTPONE = (
    "update holdfast_alert_delivery set error = $1, state = $2, due_at = $3, may_have_arrived = $4 "
    "where verdict = $5 and alert = $6 and number = $7 and state = 'waiting' and attempts = $8"
)


MAX_PERSON_CHARACTERS = 200


class Snooze(msgspec.Struct, frozen=True):
    """A time in which nobody is told of a verdict, or of those of a workload."""

    verdict: str | None
    workload: str | None
    until: float
    by: str


class AlertReport(msgspec.Struct, frozen=True):
    """A verdict, and who was told of it when."""

    verdict: AlertedVerdict
    deliveries: Sequence[Delivery]


class AlertStore:
    """The store of alerts. Thread-safe. Several servers may share it. Every change may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def add_verdicts(self, verdicts: Iterable[AlertedVerdict]) -> None:
        """Add new verdicts. Those that are known stay unchanged."""
        rows = [msgspec.structs.astuple(verdict) for verdict in verdicts]
        self._database.write(lambda transaction: transaction.execute_many(_ADD, rows))

    def close_verdict(self, verdict: str, at: float) -> None:
        """Record the end of a verdict."""
        self._database.write_statement(_CLOSE, (at, verdict), is_idempotent=True)

    def finish_verdict(self, verdict: str) -> None:
        """Record that nothing is left to tell about a verdict."""
        self._database.write_statement(_FINISH, (verdict,), is_idempotent=True)

    def list_active(self) -> Sequence[AlertReport]:
        """Return the verdicts about which people may have to be told something, oldest first."""
        return self._read(_ACTIVE)

    def list_latest(self, limit: int = 100) -> Sequence[AlertReport]:
        """Return the latest verdicts with their messages, newest first."""
        return self._read(_LATEST, limit)

    def get(self, verdict: str) -> AlertReport:
        """Return a verdict with its messages. Raise NotFound if there is none with this id."""
        found = [] if "\0" in verdict else self._read(_BY_ID, verdict)
        if not found:
            raise NotFound(f"no alert is about a verdict {verdict!r}: see `holdfast alerts list`")
        return found[0]

    def acknowledge(self, verdict: str, by: str, at: float) -> AlertReport:
        """Record who takes care of a verdict. If somebody does already, change nothing.

        Raise NotFound for an unknown verdict, and Conflict if it has ended.
        """
        _check_person(by)
        self._database.write_statement(_ACKNOWLEDGE, (at, by, verdict), is_idempotent=True)
        report = self.get(verdict)
        if report.verdict.acknowledged_at is None:
            _require_open(report.verdict)
        return report

    def snooze(self, *, verdict: str | None, workload: str | None, by: str, until: float) -> Snooze:
        """Record that nobody is to be told of a verdict, or of those of a workload, until a time.

        It replaces an earlier snooze. Raise NotFound for an unknown verdict, and Conflict if it has ended.
        """
        if (verdict is None) == (workload is None):
            raise InvalidValue("a snooze needs either a verdict or a workload")
        _check_person(by)
        if verdict is not None:
            self._database.write_statement(_SNOOZE, (until, by, verdict), is_idempotent=True)
            _require_open(self.get(verdict).verdict)
        else:
            self._database.write_statement(_SNOOZE_WORKLOAD, (workload, until, by), is_idempotent=True)
        return Snooze(verdict, workload, until, by)

    def queue_message(self, verdict: str, alert: str, number: int, event: AlertEvent, at: float) -> None:
        """Add a message to the outbox, unless another server was faster."""
        self._database.write_statement(_QUEUE, (verdict, alert, number, event, at), is_idempotent=True)

    def drop(self, delivery: Delivery) -> None:
        """Do not send a message, unless it is being sent, or may have arrived."""
        self._database.write_statement(_DROP, (DeliveryState.DROPPED, *_key(delivery)), is_idempotent=True)

    def claim(self, alert: str, now: float, until: float) -> tuple[Delivery, AlertedVerdict] | None:
        """Return the next message to send, as it was before, and reserve it until a time. None if none is due.

        Afterwards it may have arrived, as far as the store knows: this process may die while it sends the message.
        """

        def work(transaction: Transaction) -> tuple[Delivery, AlertedVerdict] | None:
            found = [_decode_delivery(row) for row in transaction.execute(_DUE, (alert, now))]
            if not found or not transaction.execute(_CLAIM, (until, *_key(found[0]), found[0].attempts)):
                return None
            verdicts = transaction.execute(_BY_ID, (found[0].verdict,))
            claimed = msgspec.structs.replace(found[0], attempts=found[0].attempts + 1)
            return claimed, _decode_verdict(verdicts[0])

        # A look without a transaction that writes: mostly there is nothing to send.
        if not self._database.read(lambda transaction: transaction.execute(_DUE, (alert, now))):
            return None
        return self._database.write(work)

    def mark_delivered(self, delivery: Delivery, at: float) -> None:
        """Record that a receiver has confirmed a message."""
        self._database.write_statement(_DELIVERED, (at, *_key(delivery)), is_idempotent=True)

    def mark_failed(self, delivery: Delivery, error: str, following: NextAttempt) -> None:
        """Record a failed attempt, and when the next one follows."""
        values = (error, following.state, following.due_at, int(following.may_have_arrived))
        self._database.write_statement(_POSTPONE, (*values, *_key(delivery), delivery.attempts), is_idempotent=True)

    def _read(self, query: str, *values: int | str) -> Sequence[AlertReport]:
        def work(transaction: Transaction) -> list[AlertReport]:
            verdicts = [_decode_verdict(row) for row in transaction.execute(query, values)]
            return [
                AlertReport(each, [_decode_delivery(row) for row in transaction.execute(_DELIVERIES, (each.id,))])
                for each in verdicts
            ]

        return self._database.read(work)


def _require_open(verdict: AlertedVerdict) -> None:
    if verdict.closed_at is not None:
        raise Conflict(f"verdict {verdict.id} has ended already: there is nothing left to do")


def _check_person(name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= MAX_PERSON_CHARACTERS:
        raise InvalidValue(f"by {name[:40]!r}: expected a name of 1 to {MAX_PERSON_CHARACTERS} printable characters")


def _key(delivery: Delivery) -> tuple[str, str, int]:
    return delivery.verdict, delivery.alert, delivery.number


def _decode_verdict(row: Row) -> AlertedVerdict:
    *own, workload_until, workload_by = row
    fields = dict(zip(_VERDICT, own, strict=True))
    if workload_until is not None and workload_until > (fields["snoozed_until"] or 0.0):
        fields |= {"snoozed_until": workload_until, "snoozed_by": workload_by}
    return msgspec.convert(fields, AlertedVerdict)


def _decode_delivery(row: Row) -> Delivery:
    fields = dict(zip(Delivery.__struct_fields__, row, strict=True))
    return msgspec.convert(fields | {"may_have_arrived": bool(fields["may_have_arrived"])}, Delivery)
