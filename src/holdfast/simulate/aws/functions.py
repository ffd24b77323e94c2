"""The Lambda functions of one account and region. An update of their configuration takes time, and may fail.

Every function has the version $LATEST, which updates change. Published versions are not simulated, but aliases and
provisioned concurrency that refer to them are listed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from holdfast._clock import Clock
from holdfast._types import Zone
from holdfast.simulate.aws.arc import Handler
from holdfast.simulate.aws.ecs import Network
from holdfast.simulate.aws.protocols import ServiceError

UPDATE_SECONDS = 60.0
_UPDATED = {"FunctionName", "VpcConfig", "RevisionId", "Description"}
"""The parameters of UpdateFunctionConfiguration that are simulated."""


@dataclass(slots=True, kw_only=True)
class Function:
    """A function. Tests may change every field."""

    arn: str
    name: str
    subnets: list[str]
    security_groups: list[str] = field(default_factory=lambda: ["sg-shop"])
    allows_ipv6: bool = False
    description: str = ""
    state: str = "Active"
    aliases: dict[str, str] = field(default_factory=dict)
    """The version to which each alias points."""
    provisioned: dict[str, int] = field(default_factory=dict)
    """The provisioned concurrency of an alias or a version."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further fields of the configuration, which have no effect, such as `SnapStart`."""
    failure: str = ""
    """The reason code with which updates fail that end from now on; "" if they succeed."""
    reverts_failures: bool = False
    """Whether an update that failed returns to the subnets before it."""
    updates: int = 0
    """Updates that were accepted so far. The revision id has this number."""
    modified_at: float = 0.0
    subnets_before: list[str] | None = None
    """The subnets before the update that is in progress."""
    failed_with: str = ""
    """The reason code of the last update, if it failed."""


class Functions:
    """The functions of one account and region. The caller of the handlers holds a lock."""

    def __init__(self, clock: Clock, prefix: str, network: Network) -> None:
        """`prefix` is the beginning of all ARNs, such as `arn:aws:lambda:us-east-1:123456789012`."""
        self.update_seconds = UPDATE_SECONDS
        self.functions: dict[str, Function] = {}
        self._clock, self._prefix, self._network = clock, prefix, network

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """All operations, by name."""
        return {
            "ListFunctions": self._list,
            "GetFunctionConfiguration": self._get,
            "UpdateFunctionConfiguration": self._update,
            "ListAliases": self._list_aliases,
            "ListProvisionedConcurrencyConfigs": self._list_provisioned,
        }

    def add(
        self, name: str, *zones: Zone, tags: Mapping[str, str] | None = None, aliases: Mapping[str, str] | None = None
    ) -> str:
        """Add a function with a subnet in each of some zones, or in all. Return its ARN."""
        used = zones or tuple(self._network.zones.values())
        arn = f"{self._prefix}:function:{name}"
        subnets = [each for each, zone_name in self._network.subnets.items() if self._network.zones[zone_name] in used]
        now = self._clock.wall()
        added = Function(arn=arn, name=name, subnets=subnets, aliases=dict(aliases or {}), modified_at=now)
        self.functions[arn] = added
        self._network.tags[arn] = dict(tags or {})
        return arn

    def _list(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return all functions. As in AWS, the list does not say in which states they are."""
        states = ("State", "LastUpdateStatus", "LastUpdateStatusReasonCode", "LastUpdateStatusReason")
        found = [self._describe(each) for _, each in sorted(self.functions.items())]
        return {"Functions": [{key: each[key] for key in each if key not in states} for each in found]}

    def _get(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._describe(self._find(values))

    def _update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        function = self._find(values)
        if set(values) - _UPDATED:
            raise ServiceError("InvalidParameterValueException", f"not simulated: {set(values) - _UPDATED}")
        self._advance(function)
        if function.subnets_before is not None or function.state == "Pending":
            text = f"The operation cannot be performed at this time. An update is in progress for {function.arn}"
            raise ServiceError("ResourceConflictException", text)
        if values.get("RevisionId", _get_revision(function)) != _get_revision(function):
            text = "The Revision Id provided does not match the latest Revision Id. Call the GetFunction API"
            raise ServiceError("PreconditionFailedException", text)
        network = values.get("VpcConfig", {})
        unknown = [each for each in network.get("SubnetIds", ()) if each not in self._network.subnets]
        if unknown:
            text = f"Error occurred while DescribeSubnets. The subnet ID '{unknown[0]}' does not exist"
            raise ServiceError("InvalidParameterValueException", text)
        function.subnets_before, function.subnets = function.subnets, network.get("SubnetIds", function.subnets)
        function.security_groups = network.get("SecurityGroupIds", function.security_groups)
        function.allows_ipv6 = network.get("Ipv6AllowedForDualStack", False if network else function.allows_ipv6)
        function.description = values.get("Description", function.description)
        function.updates, function.modified_at = function.updates + 1, self._clock.wall()
        return self._describe(function)

    def _advance(self, function: Function) -> None:
        """End the update of a function if it was in progress for long enough."""
        if function.subnets_before is None or self._clock.wall() < function.modified_at + self.update_seconds:
            return
        function.failed_with = function.failure
        if function.failure and function.reverts_failures:
            function.subnets = function.subnets_before
        function.subnets_before = None

    def _list_aliases(self, values: Mapping[str, Any]) -> dict[str, Any]:
        function = self._find(values)
        found = [
            {"AliasArn": f"{function.arn}:{name}", "Name": name, "FunctionVersion": version}
            for name, version in function.aliases.items()
        ]
        return {"Aliases": found}

    def _list_provisioned(self, values: Mapping[str, Any]) -> dict[str, Any]:
        function = self._find(values)
        found = [
            {
                "FunctionArn": f"{function.arn}:{qualifier}",
                "RequestedProvisionedConcurrentExecutions": number,
                "Status": "READY",
            }
            for qualifier, number in function.provisioned.items()
        ]
        return {"ProvisionedConcurrencyConfigs": found}

    def _find(self, values: Mapping[str, Any]) -> Function:
        wanted = values["FunctionName"]
        for each in self.functions.values():
            if wanted in (each.arn, each.name):
                return each
        raise ServiceError("ResourceNotFoundException", f"Function not found: {wanted}")

    def _describe(self, function: Function) -> dict[str, Any]:
        self._advance(function)
        status = {"LastUpdateStatus": "InProgress" if function.subnets_before is not None else "Successful"}
        if function.subnets_before is None and function.failed_with:
            status = {"LastUpdateStatus": "Failed", "LastUpdateStatusReasonCode": function.failed_with}
            status["LastUpdateStatusReason"] = "The simulated update failed."
        network = {
            "SubnetIds": function.subnets,
            "SecurityGroupIds": function.security_groups,
            "Ipv6AllowedForDualStack": function.allows_ipv6,
        }
        return {
            "FunctionName": function.name,
            "FunctionArn": function.arn,
            "Version": "$LATEST",
            "Description": function.description,
            "RevisionId": _get_revision(function),
            "LastModified": datetime.fromtimestamp(function.modified_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000+0000"),
            "State": function.state,
            **({"VpcConfig": network} if function.subnets else {}),
            **status,
            **function.details,
        }


def _get_revision(function: Function) -> str:
    return f"revision-{function.updates}"
