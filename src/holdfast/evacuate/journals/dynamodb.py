"""A journal in a DynamoDB table that several operators share.

Every resource of a run is one item, with the zone as the partition key, and the ARN and the run as the sort key.
`Entry` has the whole entry; the other attributes are for people and for other tools, which find items of one type by
the index `Type`. The runs are one more item, whose key is no zone.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import msgspec

from holdfast._clock import Clock
from holdfast._errors import EngineError, EngineUnavailable, OutcomeUnknown
from holdfast._types import Zone
from holdfast.engines.aws.conditional_write import ConditionFailed
from holdfast.engines.aws.dynamodb_table import NAME_PATTERN, DynamoTable, Item, TableLayout, expect_version
from holdfast.evacuate.journal import Entry, RecordedRuns, Run, build_conflict, build_lease_lost
from holdfast.evacuate.journals import JOURNALS, JournalType

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

__all__ = ["DynamoJournal"]

WRITERS = 8
"""Entries that are written at the same time. One after another, the thousand entries of a large stage would delay an
evacuation by about ten seconds. botocore keeps ten connections open."""
FIRST_PAUSE = 0.5
"""Seconds before an entry is written again. The pause doubles."""
REPEAT_SECONDS = 15.0
"""Seconds for which an entry is written again. All entries of a zone share a partition, which DynamoDB limits to 1,000
KB/s: a large stage may exceed that for a few seconds. A claim lasts a minute, and must not expire meanwhile."""
MAX_ITEM_BYTES = 400 * 1024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""

_ZONE, _RESOURCE, _TYPE = "AZ-ID", "ResourceArn", "Type"
_NUMBER, _ENTRY = "Number", "Entry"
_VERSION, _RUNS = "Version", "Runs"
_WRITE = "Write"
"""Id of the last write of the runs, so that a writer whose reply was lost can see whether its write took effect."""
_RUNS_KEY: Item = {_ZONE: {"S": "#runs"}, _RESOURCE: {"S": "#runs"}}
"""No zone has such a name."""
_LAYOUT = TableLayout(
    keys=(_ZONE, _RESOURCE),
    indexes={_TYPE: (_TYPE, _ZONE)},
    is_protected=True,  # without the journal, nobody knows what to restore
    permissions=("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:Scan"),
    creator="DynamoJournal.create_table()",
)

T = TypeVar("T")


class DynamoJournal:
    """A journal in one table of one region. Thread-safe; see `holdfast.evacuate.journal.Journal`.

    Raises EngineError for an item that it cannot decode: if it skipped one, that resource would never be restored.
    """

    def __init__(self, session: "AwsSession", table: str, clock: Clock) -> None:
        self._table = DynamoTable(session, table, _LAYOUT, clock)
        self._clock = clock

    def create_table(self) -> None:
        """Create the table and wait until it is usable, or check the keys of an existing one. May be repeated."""
        self._table.create()

    def read_runs(self) -> RecordedRuns:
        item = self._table.find(_RUNS_KEY)
        if item is None:
            return RecordedRuns(0, ())
        return RecordedRuns(self._decode(item, _VERSION, int), self._decode(item, _RUNS, tuple[Run, ...]))

    def write_runs(self, runs: Sequence[Run], expected: int) -> RecordedRuns:
        written = RecordedRuns(expected + 1, tuple(runs))
        item = {
            **_RUNS_KEY,
            _VERSION: {"N": str(written.version)},
            _RUNS: {"S": msgspec.json.encode(written.runs).decode()},
            _WRITE: {"S": uuid4().hex},
        }
        self._check_size(item)
        if not self._table.put_once(item, expect_version(_VERSION, expected), _WRITE):
            raise build_conflict(expected)
        return written

    def write_entries(self, entries: Sequence[Entry]) -> None:
        if len(entries) == 1:  # the outcome of one change: the most frequent call
            self._write_entry(entries[0])
            return
        with ThreadPoolExecutor(WRITERS) as pool:
            for _ in pool.map(self._write_entry, entries):  # raises the first error, and cancels the rest
                pass

    def read_entries(self, zone: Zone | None = None, *, type: str | None = None) -> Sequence[Entry]:  # noqa: A002
        # The index by type is not used: its reads are only eventually consistent, so an entry that was written a moment
        # ago could be missing, and its resource would not be restored.
        items = self._table.scan() if zone is None else self._table.query(zone)
        entries = [self._decode(item, _ENTRY, Entry) for item in items if item.get(_ZONE) != _RUNS_KEY[_ZONE]]
        return [each for each in entries if type in (None, each.type)]

    def delete_entries(self, entries: Sequence[Entry]) -> None:
        with ThreadPoolExecutor(WRITERS) as pool:
            for _ in pool.map(self._delete_entry, entries):
                pass

    def _delete_entry(self, entry: Entry) -> None:
        item = _encode_entry(entry)
        self._table.delete_once({_ZONE: item[_ZONE], _RESOURCE: item[_RESOURCE]}, {})

    def _write_entry(self, entry: Entry) -> None:
        """Write one entry. A write may be repeated, because it stores the same entry under the same number."""
        item = _encode_entry(entry)
        self._check_size(item)
        condition = {
            "ConditionExpression": "attribute_not_exists(#number) or #number <= :number",
            "ExpressionAttributeNames": {"#number": _NUMBER},
            "ExpressionAttributeValues": {":number": item[_NUMBER]},
        }
        deadline, pause = self._clock.monotonic() + REPEAT_SECONDS, FIRST_PAUSE
        while True:
            try:
                self._table.put(item, condition)
            except ConditionFailed as error:
                raise build_lease_lost(entry) from error
            except (EngineUnavailable, OutcomeUnknown):
                if self._clock.monotonic() + pause > deadline:
                    raise
            else:
                return
            self._clock.sleep(pause)
            pause *= 2

    def _decode(self, item: Item, attribute: str, type: type[T]) -> T:  # noqa: A002
        """Return the value of an attribute that has JSON, or a number."""
        try:
            (text,) = item[attribute].values()
            return msgspec.json.decode(text, type=type)
        except (KeyError, TypeError, msgspec.DecodeError) as error:
            problem = error if attribute in item else "it is missing"
            raise EngineError(
                f"{attribute} of item {self._table.describe(item)} cannot be read ({problem}): another tool or a newer "
                "version of Holdfast wrote it. Upgrade Holdfast, or correct the item; delete it only if its resource "
                "needs no restoring"
            ) from error

    def _check_size(self, item: Item) -> None:
        size = sum(len(name) + len(text.encode()) for name, value in item.items() for text in value.values())
        if size > MAX_ITEM_BYTES:
            raise EngineError(
                f"item {self._table.describe(item)} would have {size} bytes, but DynamoDB accepts at most "
                f"{MAX_ITEM_BYTES}: use a journal in a database"
            )


def _encode_entry(entry: Entry) -> Item:
    return {
        _ZONE: {"S": entry.zone},
        _RESOURCE: {"S": f"{entry.resource} {entry.run}"},
        _TYPE: {"S": entry.type},
        _NUMBER: {"N": str(entry.number)},
        "State": {"S": entry.state},
        "Run": {"S": entry.run},
        "Name": {"S": entry.name},
        "At": {"S": datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds")},
        "Note": {"S": entry.note},
        _ENTRY: {"S": msgspec.json.encode(entry).decode()},
    }


JOURNALS.register("dynamodb")(
    JournalType(
        "dynamodb:TABLE",
        NAME_PATTERN,
        lambda table, resources: DynamoJournal(resources.aws(), table, resources.clock),
        permissions=_LAYOUT.permissions,
    )
)
