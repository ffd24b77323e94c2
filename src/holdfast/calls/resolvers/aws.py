"""Endpoints from AWS: Cloud Map, a DynamoDB table, or the Parameter Store."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._errors import EngineError, InvalidValue, NotAllowed, SettingsError
from holdfast._names import parse_zone
from holdfast._types import Zone
from holdfast.calls.resolvers.resolver import AddressesByZone, check_template, format_address

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

logger = logging.getLogger("holdfast.calls")

MAX_INSTANCES = 1_000
"""The most that Cloud Map returns for one service, a random choice if there are more. Its default is 100:
https://docs.aws.amazon.com/cloud-map/latest/api/API_DiscoverInstances.html"""
_HOSTS = ("AWS_INSTANCE_IPV4", "AWS_INSTANCE_IPV6", "AWS_INSTANCE_CNAME")
_NOT_FOUND = frozenset({"NamespaceNotFound", "ServiceNotFound", "ResourceNotFoundException"})


@contextmanager
def _explain_errors(client: Any, who: str, about: str, action: str, missing: str = "") -> Iterator[None]:
    """Translate errors of AWS: add the required `action` to NotAllowed; report `missing` if the resource is absent."""
    try:
        yield
    except NotAllowed as error:
        raise NotAllowed(f"{error}. For {about} allow {action}") from error
    except client.exceptions.ClientError as error:
        if missing and error.response["Error"]["Code"] in _NOT_FOUND:
            raise SettingsError(missing) from error
        raise EngineError(f"{who} refused the look-up of {about}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMapResolver:
    """The instances of one Cloud Map service, with the zone from their registered attributes.

    An instance without a valid zone, host or port is left out with a warning. Thread-safe.
    """

    session: "AwsSession"
    namespace: str
    service: str
    zone_attribute: str = "AVAILABILITY_ZONE_ID"
    """Attribute with the AZ-ID. Amazon ECS sets AVAILABILITY_ZONE, which has the zone's name: see `zone_ids`."""
    zone_ids: Mapping[str, str] = field(default_factory=dict)
    """AZ-IDs by zone names of this account (`{"us-east-1a": "use1-az4"}`), if the attribute has names."""
    port: int | None = None
    """Port of instances without AWS_INSTANCE_PORT."""
    address: str = "{host}:{port}"
    health: str = "HEALTHY_OR_ELSE_ALL"
    """Filter by health checks, if the service has any. All if none is healthy: then the checks are probably wrong."""
    _warned: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_template("address", self.address, "host", "port")

    def resolve(self) -> AddressesByZone:
        client = self.session.client("servicediscovery")
        missing = (
            f"Cloud Map has no service {self.service} in a namespace {self.namespace} for these credentials in "
            "this region: check service, namespace, credentials and region, or register it"
        )
        about = f"{self.service} in {self.namespace}"
        with _explain_errors(client, "Cloud Map", about, "servicediscovery:DiscoverInstances", missing):
            answer = client.discover_instances(
                NamespaceName=self.namespace,
                ServiceName=self.service,
                MaxResults=MAX_INSTANCES,
                HealthStatus=self.health,
            )
        self._warned.intersection_update(str(instance["InstanceId"]) for instance in answer["Instances"])
        found: dict[Zone, list[str]] = {}
        for instance in answer["Instances"]:
            try:
                zone, address = self._parse_instance(instance.get("Attributes", {}))
            except InvalidValue as error:
                name = str(instance["InstanceId"])
                if name not in self._warned:
                    self._warned.add(name)
                    logger.warning("instance %s of %s in %s is left out: %s", name, self.service, self.namespace, error)
                continue
            found.setdefault(zone, []).append(address)
        # Sorted, because Cloud Map shuffles its answers, and an unchanged set must compare equal.
        return {zone: sorted(found[zone]) for zone in sorted(found)}

    def _parse_instance(self, attributes: Mapping[str, str]) -> tuple[Zone, str]:
        zone_name = attributes.get(self.zone_attribute)
        if not zone_name:
            raise InvalidValue(f"it has no {self.zone_attribute}: expected an AZ-ID there, or name another attribute")
        host = next((attributes[name] for name in _HOSTS if attributes.get(name)), None)
        if host is None:
            raise InvalidValue(f"it has no host: expected one of {', '.join(_HOSTS)}")
        port = attributes.get("AWS_INSTANCE_PORT") or self.port
        if port is None:
            raise InvalidValue("it has no AWS_INSTANCE_PORT: register it with one, or give a port for all")
        return parse_zone(self.zone_ids.get(zone_name, zone_name)), format_address(self.address, host, port)


@dataclass(frozen=True, slots=True)
class DynamoDbResolver:
    """The endpoints in a DynamoDB table: one item for each zone, with a list or set of addresses. Thread-safe.

    The partition key is the service and the sort key the AZ-ID, both strings, so that services can share a table. One
    invalid item makes `resolve` raise, so that a typing error changes nothing.
    """

    session: "AwsSession"
    table: str
    service: str
    service_key: str = field(default="Service", kw_only=True)
    zone_key: str = field(default="AZ-ID", kw_only=True)
    attribute: str = field(default="Endpoints", kw_only=True)

    def resolve(self) -> AddressesByZone:
        missing = (
            f"there is no DynamoDB table {self.table} for these credentials in this region: check table, credentials "
            f"and region, or create it with the keys {self.service_key} and {self.zone_key} (strings)"
        )
        items = self.session.paginate(
            "dynamodb",
            "query",
            TableName=self.table,
            KeyConditionExpression="#service = :service",
            ExpressionAttributeNames={"#service": self.service_key},
            ExpressionAttributeValues={":service": {"S": self.service}},
        )
        about = f"{self.service} in {self.table}"
        with _explain_errors(self.session.client("dynamodb"), "DynamoDB", about, "dynamodb:Query", missing):
            return dict(self._entry(item) for item in items)

    def _entry(self, item: Mapping[str, Mapping[str, Any]]) -> tuple[Zone, list[str]]:
        name = item.get(self.zone_key, {}).get("S", "")
        match item.get(self.attribute):
            case {"SS": list(texts)}:
                addresses = sorted(texts)
            case {"L": list(values)} if all("S" in value for value in values):
                addresses = [value["S"] for value in values]
            case other:
                raise InvalidValue(
                    f"{self.attribute} of {self.service} in {name} is {other}: expected a list or a set of strings "
                    f"(table {self.table})"
                )
        return parse_zone(name), addresses


class ParameterStoreResolver:
    """The endpoints in parameters below a path, one for each zone, such as `/pricing/endpoints/use1-az1`. Thread-safe.

    A value is a comma-separated list or a JSON list; an empty JSON list removes the zone's endpoints. One invalid
    parameter makes `resolve` raise, so that a typing error changes nothing.
    """

    def __init__(self, session: "AwsSession", path: str) -> None:
        if not path.startswith("/") or len(path.rstrip("/")) == 0:
            raise InvalidValue(f"path is {path!r}: expected a path such as /pricing/endpoints")
        self._session = session
        self._path = path.rstrip("/")

    def resolve(self) -> AddressesByZone:
        found = self._session.paginate("ssm", "get_parameters_by_path", Path=self._path)
        with _explain_errors(self._session.client("ssm"), "Parameter Store", self._path, "ssm:GetParametersByPath"):
            return dict(_entry(parameter) for parameter in found)


def _entry(parameter: Mapping[str, Any]) -> tuple[Zone, list[str]]:
    name, value = parameter["Name"], parameter["Value"]
    if parameter["Type"] == "SecureString":
        raise InvalidValue(f"parameter {name} is encrypted: expected a String or a StringList; addresses are no secret")
    try:
        return parse_zone(name.rpartition("/")[2]), _addresses(value)
    except (InvalidValue, msgspec.MsgspecError) as error:
        raise InvalidValue(f"parameter {name}: {error}") from error


def _addresses(value: str) -> list[str]:
    if value.lstrip().startswith("["):
        return msgspec.json.decode(value, type=list[str])
    return [address.strip() for address in value.split(",") if address.strip()]
