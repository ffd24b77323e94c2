"""Zone statuses in a DynamoDB table, which other tools can read as well."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from holdfast._clock import Clock
from holdfast._errors import EngineError, EngineUnavailable, InvalidValue, NotAllowed, SettingsError
from holdfast._types import ZoneStatus
from holdfast.engines.aws import AwsSession
from holdfast.status.stores import STATUS_STORES, StatusStoreType
from holdfast.status.stores.aws import AwsStatusStore, ConditionFailed
from holdfast.status.stores.dynamodb_item import (
    KEY,
    TIME_TO_LIVE,
    VERSION,
    WRITE,
    Item,
    build_key,
    decode_item,
    encode_item,
)
from holdfast.status.stores.rules import ABSENT_VERSION, build_conflict, check_status, expire_status

logger = logging.getLogger("holdfast.status")

_CREATION_SECONDS = 120.0
"""Creating a table takes some seconds; after two minutes something else is wrong."""
_SCHEMA = [{"AttributeName": KEY, "KeyType": "HASH"}]


class DynamoStatusStore(AwsStatusStore):
    """Zone statuses in one table of one region. Thread-safe; see `holdfast.StatusStore`.

    A status that is brought in stays, as healthy. One that expires is deleted, for readers that ignore expiry.
    """

    def __init__(self, session: AwsSession, table: str, clock: Clock) -> None:
        super().__init__(session, "dynamodb", f"table {table}", clock)
        self._table = table
        self._clock = clock

    def create_table(self) -> None:
        """Create the table and wait until it is usable, or check the key of an existing one. May be repeated."""
        with self._translate_errors("CreateTable, DescribeTable, DescribeTimeToLive and UpdateTimeToLive"):
            try:
                self._client.create_table(
                    TableName=self._table,
                    KeySchema=_SCHEMA,
                    AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
                    BillingMode="PAY_PER_REQUEST",
                )
            except self._client.exceptions.ResourceInUseException:
                logger.debug("the DynamoDB table %s exists already", self._table)
            self._wait_for_table()
            self._enable_time_to_live()

    def read(self) -> Sequence[ZoneStatus]:
        statuses = []
        with self._translate_errors():
            for item in self._session.paginate("dynamodb", "scan", TableName=self._table, ConsistentRead=True):
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
        write = uuid4().hex
        item = encode_item(stored, write)
        request = partial(self._client.put_item, TableName=self._table, Item=item, **_build_condition(expected))
        if not self._write_conditionally(
            request, lambda found: found is not None and found.get(WRITE) == {"S": write}, key
        ):
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
        request = partial(
            self._client.delete_item, TableName=self._table, Key={KEY: {"S": key}}, **_build_condition(version)
        )
        return self._write_conditionally(request, lambda found: found is None, key)

    def _find(self, key: str) -> Item | None:
        with self._translate_errors():
            reply = self._client.get_item(TableName=self._table, Key={KEY: {"S": key}}, ConsistentRead=True)
        found: Item | None = reply.get("Item")
        return found

    def _wait_for_table(self) -> None:
        deadline = self._clock.monotonic() + _CREATION_SECONDS
        while True:
            try:
                table = self._client.describe_table(TableName=self._table)["Table"]
            except self._client.exceptions.ResourceNotFoundException:  # creation is not visible everywhere yet
                table = {"TableStatus": "CREATING"}
            if table["TableStatus"] in {"ACTIVE", "UPDATING"}:
                break
            if self._clock.monotonic() >= deadline:
                raise EngineUnavailable(
                    f"DynamoDB table {self._table} is still {table['TableStatus']} after {_CREATION_SECONDS:.0f} s: "
                    "check it in the AWS console, then try again"
                )
            self._clock.sleep(1.0)
        if table["KeySchema"] != _SCHEMA:
            raise SettingsError(
                f"DynamoDB table {self._table} has the key {table['KeySchema']}: expected {KEY!r}; use another table"
            )

    def _enable_time_to_live(self) -> None:
        if self._has_time_to_live():
            return
        wanted = {"Enabled": True, "AttributeName": TIME_TO_LIVE}
        try:
            self._client.update_time_to_live(TableName=self._table, TimeToLiveSpecification=wanted)
        except self._client.exceptions.ClientError:
            if not self._has_time_to_live():  # otherwise another process is creating the same table
                raise

    def _has_time_to_live(self) -> bool:
        found = self._client.describe_time_to_live(TableName=self._table)["TimeToLiveDescription"]
        if found["TimeToLiveStatus"] not in {"ENABLED", "ENABLING"}:
            return False
        if found["AttributeName"] != TIME_TO_LIVE:
            raise SettingsError(
                f"DynamoDB table {self._table} expires items by {found['AttributeName']}: expected {TIME_TO_LIVE}; "
                "use another table, or change its time to live"
            )
        return True

    @contextmanager
    def _translate_errors(self, needed: str = "Scan, GetItem, PutItem and DeleteItem") -> Iterator[None]:
        """Translate DynamoDB's errors into Holdfast's, with the table and what to do."""
        known = self._client.exceptions
        try:
            yield
        except known.ConditionalCheckFailedException as error:
            raise ConditionFailed(error) from error
        except known.ResourceNotFoundException as error:
            raise SettingsError(
                f"DynamoDB table {self._table} does not exist for these credentials and region: check all three, or "
                f"create it with DynamoStatusStore.create_table(), or as an on-demand table with the key {KEY} (string)"
            ) from error
        except NotAllowed as error:
            raise NotAllowed(f"{error}. For table {self._table} allow dynamodb:{needed}") from error
        except known.ClientError as error:
            raise EngineError(f"DynamoDB refused a request for table {self._table}: {error}") from error


def _build_condition(version: int) -> dict[str, Any]:
    """Return the condition that an item still has this version. Absent items and those written by hand have none."""
    names = {"#version": VERSION}
    if version == ABSENT_VERSION:
        return {"ConditionExpression": "attribute_not_exists(#version)", "ExpressionAttributeNames": names}
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {":version": {"N": str(version)}},
    }


STATUS_STORES.register("dynamodb")(
    StatusStoreType(
        "dynamodb:TABLE",
        # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
        r"[A-Za-z0-9_.-]{3,255}",
        lambda table, resources: DynamoStatusStore(resources.aws(), table, resources.clock),
        permissions=("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Scan"),
    )
)
