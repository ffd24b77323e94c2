"""Zone statuses in a DynamoDB table, which other tools can read as well."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast._clock import Clock
from holdfast._errors import InvalidValue
from holdfast._types import ZoneStatus
from holdfast.engines.aws.dynamodb_table import NAME_PATTERN, DynamoTable, TableLayout, expect_version
from holdfast.status.stores import STATUS_STORES, StatusStoreType
from holdfast.status.stores.aws import AwsStatusStore
from holdfast.status.stores.dynamodb_item import (
    KEY,
    TIME_TO_LIVE,
    VERSION,
    WRITE,
    build_key,
    decode_item,
    encode_item,
)
from holdfast.status.stores.rules import build_conflict, check_status, expire_status

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

_LAYOUT = TableLayout(
    keys=(KEY,),
    time_to_live=TIME_TO_LIVE,
    permissions=("dynamodb:Scan", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:DeleteItem"),
    creator="DynamoStatusStore.create_table()",
)


class DynamoStatusStore(AwsStatusStore):
    """Zone statuses in one table of one region. Thread-safe; see `holdfast.StatusStore`.

    A status that is brought in stays, as healthy. One that expires is deleted, for readers that ignore expiry.
    """

    def __init__(self, session: "AwsSession", table: str, clock: Clock) -> None:
        super().__init__(f"table {table}", clock)
        self._table = DynamoTable(session, table, _LAYOUT, clock)

    def create_table(self) -> None:
        """Create the table and wait until it is usable, or check the key of an existing one. May be repeated."""
        self._table.create()

    def read(self) -> Sequence[ZoneStatus]:
        statuses = []
        for item in self._table.scan():
            try:
                status = decode_item(item)
            except InvalidValue as error:
                self._warn(str(item.get(KEY)), error)
                continue
            self._versions.observe(build_key(status.zone, status.workload), status.version)
            statuses.append(status)
        return statuses

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        key = build_key(check_status(status).zone, status.workload)
        stored = replace(status, version=self._versions.next(key, expected))
        item = encode_item(stored, uuid4().hex)
        if not self._table.put_once(item, expect_version(VERSION, expected), WRITE):
            raise build_conflict(status, expected)
        return stored

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        changed = []
        for status in self.read():
            key = build_key(status.zone, status.workload)
            if status.has_expired(now) and self._remove(key, status.version):
                changed.append(expire_status(status, now, self._versions.next(key, status.version)))
        return changed

    def _remove(self, key: str, version: int) -> bool:
        return self._table.delete_once({KEY: {"S": key}}, expect_version(VERSION, version))


STATUS_STORES.register("dynamodb")(
    StatusStoreType(
        "dynamodb:TABLE",
        NAME_PATTERN,
        lambda table, resources: DynamoStatusStore(resources.aws(), table, resources.clock),
        permissions=_LAYOUT.permissions,
    )
)
