"""Store the states of alarms, their history, and the operations that have alarms."""

from collections.abc import Collection, Sequence

import msgspec

from holdfast._errors import InvalidValue
from holdfast.alarms.alarm import AlarmState, HistoryItem, HistoryItemType, StateValue, build_state_update
from holdfast.alarms.engine import AlarmChange, SavedAlarms, SeenOperation
from holdfast.alarms.recent_metrics import PeriodNote
from holdfast.engines import Database, Row, Transaction
from holdfast.watch.store import MIGRATIONS, SUBSYSTEM

MAX_HISTORY = 20
"""History items that are kept of one alarm: there may be thousands of alarms."""

_SAVE_STATE = (
    "insert into holdfast_alarm_state (workload, name, value, reason, reason_data, updated_at) "
    "values ($1, $2, $3, $4, $5, $6) on conflict (workload, name) do update set value = excluded.value, "
    "reason = excluded.reason, reason_data = excluded.reason_data, updated_at = excluded.updated_at"
)
_SAVE_HISTORY = (
    "insert into holdfast_alarm_history (workload, name, at, alarm_type, item_type, summary, content) "
    "values ($1, $2, $3, $4, $5, $6, $7) on conflict (workload, name, at) do nothing"
)
_LIMIT_HISTORY = (
    "delete from holdfast_alarm_history where workload = $1 and name = $2 and at <= "
    "(select at from holdfast_alarm_history where workload = $1 and name = $2 order by at desc limit 1 "
    "offset $3)"
)
_DELETE_STATE = "delete from holdfast_alarm_state where workload = $1 and name = $2"
_DELETE_HISTORY = "delete from holdfast_alarm_history where workload = $1 and name = $2"
_SAVE_EVALUATION = (
    "insert into holdfast_alarm_evaluation (workload, evaluated_at, operations, notes) values ($1, $2, $3, $4) "
    "on conflict (workload) do update set evaluated_at = excluded.evaluated_at, operations = excluded.operations, "
    "notes = excluded.notes"
)
_FIND_ABANDONED = "select workload from holdfast_alarm_evaluation where evaluated_at < $1"
_DELETE_WORKLOAD = tuple(
    f"delete from {table} where workload = $1"  # noqa: S608 - our own names
    for table in ("holdfast_alarm_state", "holdfast_alarm_history", "holdfast_alarm_evaluation")
)
_LOAD_STATES = "select name, value, reason, reason_data, updated_at from holdfast_alarm_state where workload = $1"
_LOAD_EVALUATION = "select evaluated_at, operations, notes from holdfast_alarm_evaluation where workload = $1"
_HISTORY_COLUMNS = "name, alarm_type, at, item_type, summary, content"
_LIST_HISTORY = f"select {_HISTORY_COLUMNS} from holdfast_alarm_history where workload = $1"  # noqa: S608 - our names


class AlarmStore:
    """The store of alarms. Thread-safe. Every change may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def load(self, workload: str) -> SavedAlarms:
        """Return the saved alarms of a workload. Raise InvalidValue if they cannot be read."""

        def read(transaction: Transaction) -> tuple[list[Row], list[Row]]:
            return transaction.execute(_LOAD_STATES, (workload,)), transaction.execute(_LOAD_EVALUATION, (workload,))

        rows, evaluations = self._database.read(read)
        try:
            states = {name: AlarmState(StateValue(value), *others) for name, value, *others in rows}
            if not evaluations:
                return SavedAlarms(states)
            evaluated_at, operations, notes = evaluations[0]
            return SavedAlarms(
                states,
                msgspec.json.decode(operations, type=list[SeenOperation]),
                evaluated_at,
                msgspec.json.decode(notes, type=list[PeriodNote]),
            )
        except (ValueError, msgspec.MsgspecError) as error:
            raise InvalidValue(
                f"saved alarms of workload {workload} cannot be read: {error}: delete its rows in the tables "
                "holdfast_alarm_state and holdfast_alarm_evaluation"
            ) from error

    def save(
        self,
        workload: str,
        at: float,
        operations: Sequence[SeenOperation],
        changes: Sequence[AlarmChange],
        removed: Sequence[str] = (),
        *,
        notes: Sequence[PeriodNote] = (),
    ) -> None:
        """Save the outcome of evaluations up to the time `at` in one transaction."""
        newest = {each.alarm.alarm_name: each.new for each in changes}
        items = [build_state_update(*each) for each in changes]
        # A first state needs no room: most alarms never have another.
        limited = {each.alarm.alarm_name for each in changes if each.old.state_updated_timestamp}
        encoded = [msgspec.json.encode(each).decode() for each in (operations, notes)]

        def write(transaction: Transaction) -> None:
            transaction.execute_many(_DELETE_STATE, [(workload, name) for name in removed])
            transaction.execute_many(_DELETE_HISTORY, [(workload, name) for name in removed])
            transaction.execute_many(_SAVE_STATE, [_encode_state(workload, *each) for each in newest.items()])
            transaction.execute_many(_SAVE_HISTORY, [_encode_item(workload, each) for each in items])
            transaction.execute_many(_LIMIT_HISTORY, [(workload, name, MAX_HISTORY) for name in sorted(limited)])
            transaction.execute(_SAVE_EVALUATION, (workload, at, *encoded))

        self._database.write(write)

    def remove_abandoned(self, kept: Collection[str], before: float) -> list[str]:
        """Remove the workloads whose last evaluation was before a time, apart from those in `kept`. Return their names.

        Another server with the same database may watch other workloads: their last evaluation is recent.
        """

        def write(transaction: Transaction) -> list[str]:
            found = sorted({name for (name,) in transaction.execute(_FIND_ABANDONED, (before,))} - set(kept))
            for sql in _DELETE_WORKLOAD:
                transaction.execute_many(sql, [(name,) for name in found])
            return found

        return self._database.write(write)

    def list_history(
        self,
        workload: str,
        names: Sequence[str] | None = None,
        limit: int = 100,
        *,
        without_summary: str | None = None,
    ) -> Sequence[HistoryItem]:
        """Return the latest history items of a workload's alarms, or of some of them, newest first.

        Leave out those with the summary `without_summary`.
        """
        values: list[str | int] = [workload]

        def add(value: str | int) -> str:
            values.append(value)
            return f"${len(values)}"

        conditions = "" if without_summary is None else f" and summary <> {add(without_summary)}"
        if names is not None:
            conditions += f" and name in ({', '.join(map(add, names))})"
        sql = f"{_LIST_HISTORY}{conditions} order by at desc, name limit {add(limit)}"
        rows = self._database.read(lambda transaction: transaction.execute(sql, values))
        return [
            HistoryItem(alarm, kind, at, HistoryItemType(item), summary, content)
            for alarm, kind, at, item, summary, content in rows
        ]


def _encode_state(workload: str, name: str, state: AlarmState) -> tuple[str | float | None, ...]:
    value, reason, data = state.state_value, state.state_reason, state.state_reason_data
    return workload, name, str(value), reason, data, state.state_updated_timestamp


def _encode_item(workload: str, item: HistoryItem) -> tuple[str | float, ...]:
    kinds = item.alarm_type, str(item.history_item_type)
    return workload, item.alarm_name, item.timestamp, *kinds, item.history_summary, item.history_data
