"""Endpoints in a DynamoDB table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast._errors import EngineError, InvalidValue, NotAllowed, SettingsError
from holdfast._names import zone_of
from holdfast._types import Zone
from holdfast.calls.resolvers.resolver import ByZone

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession


@dataclass(frozen=True, slots=True)
class DynamoDbMap:
    """One item for each zone of a service, with a list or a set of addresses. Thread-safe.

    The table's partition key is the service and its sort key the AZ-ID, both text, so that one table serves many. An
    item that makes no sense is an error as a whole, so that a slip of the hand changes nothing.
    """

    session: "AwsSession"
    table: str
    service: str
    service_key: str = field(default="Service", kw_only=True)
    zone_key: str = field(default="AZ-ID", kw_only=True)
    attribute: str = field(default="Endpoints", kw_only=True)

    def resolve(self) -> ByZone:
        known = self.session.client("dynamodb").exceptions
        items = self.session.paginate(
            "dynamodb",
            "query",
            TableName=self.table,
            KeyConditionExpression="#service = :service",
            ExpressionAttributeNames={"#service": self.service_key},
            ExpressionAttributeValues={":service": {"S": self.service}},
        )
        try:
            return dict(self._entry(item) for item in items)
        except known.ResourceNotFoundException as error:
            raise SettingsError(
                f"there is no DynamoDB table {self.table} for these credentials in this region: check the three, or "
                f"create it with the keys {self.service_key} and {self.zone_key} (strings)"
            ) from error
        except NotAllowed as error:
            raise NotAllowed(f"{error}. For table {self.table} allow dynamodb:Query") from error
        except known.ClientError as error:
            raise EngineError(f"DynamoDB refuses to tell of {self.service} in {self.table}: {error}") from error

    def _entry(self, item: Mapping[str, Mapping[str, Any]]) -> tuple[Zone, list[str]]:
        name = item.get(self.zone_key, {}).get("S", "")
        match item.get(self.attribute):
            case {"SS": list(texts)}:
                addresses = sorted(texts)
            case {"L": list(values)} if all("S" in value for value in values):
                addresses = [value["S"] for value in values]
            case other:
                raise InvalidValue(
                    f"{self.attribute} of {self.service} in {name} is {other}: expected a list or a set of texts "
                    f"(table {self.table})"
                )
        return zone_of(name), addresses
