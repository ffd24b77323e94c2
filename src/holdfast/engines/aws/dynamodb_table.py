"""A DynamoDB table: its creation, consistent reads and conditional writes, with errors that say what to do.

Importing this module does not import boto3: stores register themselves whether or not it is installed.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast._clock import Clock
from holdfast._errors import EngineError, EngineUnavailable, NotAllowed, SettingsError
from holdfast.engines.aws.conditional_write import ConditionFailed, write_conditionally

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

logger = logging.getLogger("holdfast.aws")

NAME_PATTERN = r"[A-Za-z0-9_.-]{3,255}"
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html"""
_CREATION_SECONDS = 120.0
"""Creating a table takes some seconds; after two minutes something else is wrong."""
_KEY_TYPES = ("HASH", "RANGE")

Item: TypeAlias = Mapping[str, Mapping[str, Any]]
Condition: TypeAlias = Mapping[str, Any]
"""The arguments of a request that describe its condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """The keys of a table, and what its users must be allowed to do."""

    keys: tuple[str, ...]
    """The partition key, then the sort key if there is one. All keys are strings."""
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The keys of each global secondary index, by its name."""
    time_to_live: str | None = None
    """The attribute with the time after which DynamoDB deletes an item."""
    is_protected: bool = False
    """Whether the table cannot be deleted before its deletion protection is switched off."""
    permissions: tuple[str, ...]
    """The IAM actions that reading and writing need, for messages."""
    creator: str
    """The method that creates the table, for messages."""


class DynamoTable:
    """One table of one region. Thread-safe. Reads are strongly consistent."""

    def __init__(self, session: "AwsSession", name: str, layout: TableLayout, clock: Clock) -> None:
        self.name = name
        self._session = session
        self._layout = layout
        self._clock = clock

    def create(self) -> None:
        """Create the table and wait until it is usable, or check the key of an existing one. May be repeated."""
        layout = self._layout
        permissions = ["dynamodb:CreateTable", "dynamodb:DescribeTable"]
        if layout.time_to_live is not None:
            permissions += ["dynamodb:DescribeTimeToLive", "dynamodb:UpdateTimeToLive"]
        with self._translate_errors(permissions):
            try:
                self._client.create_table(TableName=self.name, **_build_definition(layout))
            except self._client.exceptions.ResourceInUseException:
                logger.debug("the DynamoDB table %s exists already", self.name)
            self._wait()
            if layout.time_to_live is not None:
                self._enable_time_to_live(layout.time_to_live)

    def find(self, key: Item) -> Item | None:
        """Return the item with a key."""
        with self._translate_errors():
            reply = self._client.get_item(TableName=self.name, Key=key, ConsistentRead=True)
        found: Item | None = reply.get("Item")
        return found

    def scan(self) -> Iterator[Item]:
        """Yield all items."""
        with self._translate_errors():
            yield from self._session.paginate("dynamodb", "scan", TableName=self.name, ConsistentRead=True)

    def query(self, value: str) -> Iterator[Item]:
        """Yield the items whose partition key is `value`."""
        with self._translate_errors():
            yield from self._session.paginate(
                "dynamodb",
                "query",
                TableName=self.name,
                ConsistentRead=True,
                KeyConditionExpression="#key = :value",
                ExpressionAttributeNames={"#key": self._layout.keys[0]},
                ExpressionAttributeValues={":value": {"S": value}},
            )

    def put(self, item: Item, condition: Condition) -> None:
        """Store an item. Raise ConditionFailed if the stored one does not fulfil the condition."""
        with self._translate_errors():
            self._client.put_item(TableName=self.name, Item=item, **condition)

    def put_once(self, item: Item, condition: Condition, write_attribute: str) -> bool:
        """Store an item; return whether the condition held, even if the first reply was lost.

        `write_attribute` names an attribute of the item that no other write has the same value of.
        """
        return write_conditionally(
            partial(self.put, item, condition),
            partial(self.find, self._get_key(item)),
            lambda found: found is not None and found.get(write_attribute) == item[write_attribute],
            self.describe(item),
        )

    def delete_once(self, key: Item, condition: Condition) -> bool:
        """Delete an item; return whether the condition held, even if the first reply was lost."""

        def delete() -> None:
            with self._translate_errors():
                self._client.delete_item(TableName=self.name, Key=key, **condition)

        return write_conditionally(delete, partial(self.find, key), lambda found: found is None, self.describe(key))

    def describe(self, item: Item) -> str:
        """Return the key of an item and the table, for messages."""
        # A table with another key is recognized by its items.
        values = [item.get(name, {"S": f"(no {name})"}) for name in self._layout.keys]
        return f"{' '.join(str(text) for value in values for text in value.values())} of table {self.name}"

    @property
    def _client(self) -> Any:
        return self._session.client("dynamodb")

    def _get_key(self, item: Item) -> Item:
        return {name: item[name] for name in self._layout.keys}

    def _wait(self) -> None:
        deadline = self._clock.monotonic() + _CREATION_SECONDS
        while True:
            try:
                table = self._client.describe_table(TableName=self.name)["Table"]
            except self._client.exceptions.ResourceNotFoundException:  # creation is not visible everywhere yet
                table = {"TableStatus": "CREATING"}
            if table["TableStatus"] in {"ACTIVE", "UPDATING"}:
                break
            if self._clock.monotonic() >= deadline:
                raise EngineUnavailable(
                    f"DynamoDB table {self.name} is still {table['TableStatus']} after {_CREATION_SECONDS:.0f} s: "
                    "check it in the AWS console, then try again"
                )
            self._clock.sleep(1.0)
        if table["KeySchema"] != _build_schema(self._layout.keys):
            found = [each["AttributeName"] for each in table["KeySchema"]]
            raise SettingsError(
                f"DynamoDB table {self.name} has the key {' and '.join(found)}: expected {self._describe_keys()}; use "
                "another table"
            )

    def _enable_time_to_live(self, attribute: str) -> None:
        if self._has_time_to_live(attribute):
            return
        wanted = {"Enabled": True, "AttributeName": attribute}
        try:
            self._client.update_time_to_live(TableName=self.name, TimeToLiveSpecification=wanted)
        except self._client.exceptions.ClientError:
            if not self._has_time_to_live(attribute):  # otherwise another process is creating the same table
                raise

    def _has_time_to_live(self, attribute: str) -> bool:
        found = self._client.describe_time_to_live(TableName=self.name)["TimeToLiveDescription"]
        if found["TimeToLiveStatus"] not in {"ENABLED", "ENABLING"}:
            return False
        if found["AttributeName"] != attribute:
            raise SettingsError(
                f"DynamoDB table {self.name} expires items by {found['AttributeName']}: expected {attribute}; "
                "use another table, or change its time to live"
            )
        return True

    def _describe_keys(self) -> str:
        return f"{' and '.join(self._layout.keys)} ({'string' if len(self._layout.keys) == 1 else 'strings'})"

    @contextmanager
    def _translate_errors(self, permissions: list[str] | None = None) -> Iterator[None]:
        """Translate DynamoDB's errors into Holdfast's, with the table and what to do."""
        known = self._client.exceptions
        try:
            yield
        except known.ConditionalCheckFailedException as error:
            raise ConditionFailed(error) from error
        except known.ResourceNotFoundException as error:
            raise SettingsError(
                f"DynamoDB table {self.name} does not exist in {self._client.meta.region_name} for these credentials: "
                f"check the name, the region and the credentials; or create it with {self._layout.creator}, or as an "
                f"on-demand table with the key {self._describe_keys()}"
            ) from error
        except NotAllowed as error:
            needed = ", ".join(permissions or self._layout.permissions)
            raise NotAllowed(f"{error}. For table {self.name} allow {needed}") from error
        except known.ClientError as error:
            hint = f". Expected a table with the key {self._describe_keys()}" if "key" in str(error) else ""
            raise EngineError(f"DynamoDB refused a request for table {self.name}: {error}{hint}") from error


def expect_version(attribute: str, version: int) -> Condition:
    """Return the condition that an item still has a version in `attribute`; with 0, that it has none."""
    names = {"#version": attribute}
    if version == 0:
        return {"ConditionExpression": "attribute_not_exists(#version)", "ExpressionAttributeNames": names}
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {":version": {"N": str(version)}},
    }


def _build_schema(keys: tuple[str, ...]) -> list[Mapping[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(keys, _KEY_TYPES, strict=False)]


def _build_definition(layout: TableLayout) -> Mapping[str, Any]:
    """Return the arguments of CreateTable."""
    attributes = dict.fromkeys([*layout.keys, *(key for keys in layout.indexes.values() for key in keys)])
    definition: dict[str, Any] = {
        "KeySchema": _build_schema(layout.keys),
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in attributes],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if layout.is_protected:
        definition["DeletionProtectionEnabled"] = True
    if layout.indexes:
        definition["GlobalSecondaryIndexes"] = [
            {"IndexName": name, "KeySchema": _build_schema(keys), "Projection": {"ProjectionType": "ALL"}}
            for name, keys in layout.indexes.items()
        ]
    return definition
