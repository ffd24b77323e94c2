"""Store the states of alarms, their history, and the operations that have alarms."""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from holdfast._errors import InvalidValue
from holdfast.alarms.actions import SuppressedActions
from holdfast.alarms.alarm import AlarmState, StateValue
from holdfast.alarms.configuration import ConfigurationChange, ConfigurationVerb, SavedDefinition
from holdfast.alarms.engine import Evaluation, SavedAlarms, SeenOperation
from holdfast.alarms.history import HistoryEntry, HistoryItem, HistoryItemType, build_history
from holdfast.alarms.step_notes import StepNote
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
    "insert into holdfast_alarm_history "
    "(workload, name, at, position, alarm_type, item_type, summary, content, is_detail) "
    "values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (workload, name, at, position) do nothing"
)
_LIMIT_HISTORY = (
    "delete from holdfast_alarm_history where workload = $1 and name = $2 and at < "
    "(select at from holdfast_alarm_history where workload = $1 and name = $2 order by at desc limit 1 "
    "offset $3)"
)
_SAVE_DEFINITION = (
    "insert into holdfast_alarm_definition (workload, name, alarm_type, digest, about_operation) "
    "values ($1, $2, $3, $4, $5) on conflict (workload, name) do update set alarm_type = excluded.alarm_type, "
    "digest = excluded.digest, about_operation = excluded.about_operation"
)
_DELETE_DEFINITION = "delete from holdfast_alarm_definition where workload = $1 and name = $2"
_DELETE_STATE = "delete from holdfast_alarm_state where workload = $1 and name = $2"
_DELETE_HISTORY = "delete from holdfast_alarm_history where workload = $1 and name = $2"
_SAVE_EVALUATION = (
    "insert into holdfast_alarm_evaluation (workload, evaluated_at, operations, suppressed, notes) "
    "values ($1, $2, $3, $4, $5) on conflict (workload) do update set evaluated_at = excluded.evaluated_at, "
    "operations = excluded.operations, suppressed = excluded.suppressed, notes = excluded.notes"
)
_FIND_ABANDONED = "select workload from holdfast_alarm_evaluation where evaluated_at < $1"
_DELETE_WORKLOAD = tuple(
    f"delete from holdfast_alarm_{table} where workload = $1"  # noqa: S608 - our own names
    for table in ("state", "definition", "history", "evaluation")
)
_LOAD_STATES = "select name, value, reason, reason_data, updated_at from holdfast_alarm_state where workload = $1"
_LOAD_EVALUATION = (
    "select evaluated_at, operations, suppressed, notes from holdfast_alarm_evaluation where workload = $1"
)
_LOAD_DEFINITIONS = (
    "select name, alarm_type, digest, about_operation from holdfast_alarm_definition where workload = $1"
)
_HISTORY_COLUMNS = "name, alarm_type, at, item_type, summary, content"
_LIST_HISTORY = (
    f"select {_HISTORY_COLUMNS} from holdfast_alarm_history where workload = $1 "  # noqa: S608 - our own names
    "and (is_detail = 0 or $2 = 1) order by at desc, name, position desc limit $3"
)
_LIST_HISTORY_OF = (
    f"select {_HISTORY_COLUMNS} from holdfast_alarm_history where workload = $1 and name = $2 "  # noqa: S608
    "and (is_detail = 0 or $3 = 1) order by at desc, position desc limit $4"
)


class AlarmStore:
    """The store of alarms. Thread-safe. Every change may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def load(self, workload: str) -> SavedAlarms:
        """Return the saved alarms of a workload. Raise InvalidValue if they cannot be read."""

        def read(transaction: Transaction) -> list[list[Row]]:
            return [
                transaction.execute(sql, (workload,)) for sql in (_LOAD_STATES, _LOAD_EVALUATION, _LOAD_DEFINITIONS)
            ]

        rows, evaluations, definitions = self._database.read(read)
        try:
            return _decode(rows, evaluations, definitions)
        except (ValueError, msgspec.MsgspecError) as error:
            raise InvalidValue(
                f"saved alarms of workload {workload} cannot be read: {error}: delete its rows in the tables "
                "holdfast_alarm_state, holdfast_alarm_definition and holdfast_alarm_evaluation"
            ) from error

    def save(self, workload: str, evaluation: Evaluation, saved: SavedAlarms) -> None:
        """Save the outcome of evaluations, and the state of the engine after them, in one transaction.

        Only states and definitions that changed are written. An alarm loses its history if it is deleted because an
        operation is no longer measured. Other deleted alarms keep their history.
        """
        newest = {each.alarm_name: each for each in evaluation.configuration}
        deleted = {name for name, each in newest.items() if each.verb is ConfigurationVerb.DELETED}
        forgotten = {
            name for name in deleted if newest[name].definition.is_about_operation or newest[name].is_by_traffic
        }
        states = {each.alarm.alarm_name: each.new for each in evaluation.changes}
        entries = build_history(evaluation, saved.definitions)
        kept = [entry for entry in entries if entry.item.alarm_name not in forgotten]
        # The first items need no room: most alarms never have others.
        limited = {each.alarm.alarm_name for each in evaluation.changes if each.old.state_updated_timestamp}
        limited |= {each.alarm.alarm_name for each in evaluation.actions}
        limited |= {name for name, each in newest.items() if each.verb is not ConfigurationVerb.CREATED}
        engine = [msgspec.json.encode(each).decode() for each in (saved.operations, saved.suppressed, saved.notes)]

        def write(transaction: Transaction) -> None:
            transaction.execute_many(_DELETE_STATE, [(workload, name) for name in sorted(deleted)])
            transaction.execute_many(_DELETE_DEFINITION, [(workload, name) for name in sorted(deleted)])
            transaction.execute_many(_DELETE_HISTORY, [(workload, name) for name in sorted(forgotten)])
            transaction.execute_many(
                _SAVE_STATE, [_encode_state(workload, *each) for each in states.items() if each[0] not in deleted]
            )
            transaction.execute_many(
                _SAVE_DEFINITION,
                [_encode_definition(workload, *each) for each in newest.items() if each[0] not in deleted],
            )
            transaction.execute_many(_SAVE_HISTORY, _encode_entries(workload, kept))
            transaction.execute_many(_LIMIT_HISTORY, [(workload, name, MAX_HISTORY - 1) for name in sorted(limited)])
            transaction.execute(_SAVE_EVALUATION, (workload, evaluation.at, *engine))

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
        self, workload: str, name: str | None = None, limit: int = 100, *, include_details: bool = True
    ) -> Sequence[HistoryItem]:
        """Return the latest history items of a workload's alarms, or of one of them, newest first.

        Without `include_details`, leave out items about single operations, first states of OK, and the creation of
        alarms at the first start.
        """
        with_details = int(include_details)
        sql, values = (
            (_LIST_HISTORY, (workload, with_details, limit))
            if name is None
            else (_LIST_HISTORY_OF, (workload, name, with_details, limit))
        )
        rows = self._database.read(lambda transaction: transaction.execute(sql, values))
        return [
            HistoryItem(alarm, kind, at, HistoryItemType(item), summary, content)
            for alarm, kind, at, item, summary, content in rows
        ]


def _encode_state(workload: str, name: str, state: AlarmState) -> tuple[str | float | None, ...]:
    value, reason, data = state.state_value, state.state_reason, state.state_reason_data
    return workload, name, str(value), reason, data, state.state_updated_timestamp


def _encode_definition(workload: str, name: str, change: ConfigurationChange) -> tuple[str | int, ...]:
    definition = change.definition
    return workload, name, definition.alarm_type, definition.digest, int(definition.is_about_operation)


def _encode_entries(workload: str, entries: Sequence[HistoryEntry]) -> list[tuple[str | float, ...]]:
    """Return rows. Items of one alarm at the same time are numbered, in their order."""
    positions: Counter[tuple[str, float]] = Counter()
    rows: list[tuple[str | float, ...]] = []
    for item, is_detail in entries:
        key = item.alarm_name, item.timestamp
        kinds = item.alarm_type, str(item.history_item_type)
        content = item.history_summary, item.history_data, int(is_detail)
        rows.append((workload, *key, positions[key], *kinds, *content))
        positions[key] += 1
    return rows


def _decode(rows: list[Row], evaluations: list[Row], definitions: list[Row]) -> SavedAlarms:
    states = {name: AlarmState(StateValue(value), *others) for name, value, *others in rows}
    defined = {
        name: SavedDefinition(kind, digest, bool(is_about_operation))
        for name, kind, digest, is_about_operation in definitions
    }
    if not evaluations:
        return SavedAlarms(states, definitions=defined)
    evaluated_at, operations, suppressed, notes = evaluations[0]
    return SavedAlarms(
        states,
        msgspec.json.decode(operations, type=list[SeenOperation]),
        evaluated_at,
        msgspec.json.decode(suppressed, type=dict[str, SuppressedActions]),
        defined,
        msgspec.json.decode(notes, type=list[StepNote]),
    )
