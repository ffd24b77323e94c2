"""Move Lambda functions out of a zone, by removing the subnets of the zone from their VPC configuration.

Every write has the revision id of a read just before, so that a change of others in between is never overwritten. An
update takes about a minute, in which the function can be invoked. It fails if, for example, a subnet has no free
addresses: the function then keeps the network that it had.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast._errors import EngineError, EngineUnavailable, NotFound
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.action import (
    ACTIONS,
    CAPACITY_STAGE,
    RESTORE_CAPACITY_STAGE,
    ActionType,
    ChangeState,
    Discovery,
    PlannedChange,
    Reading,
    Resource,
    Target,
    Unmovable,
)
from holdfast.evacuate.actions.lambda_functions.discovery import (
    PERMISSIONS,
    REFUSALS,
    SERVICE,
    Configuration,
    find_functions,
    get_subnets,
)
from holdfast.evacuate.discovering import discover_accounts
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.subnets import add_subnets, find_existing, read_removal, remove_subnets

CLOCK_SKEW = 60.0
"""Seconds by which the clock of this machine may be ahead of that of AWS."""
_ADVICE = {
    "EniLimitExceeded": "raise the quota of network interfaces of the VPC, or delete some",
    "InsufficientRolePermissions": "let the role of the function create network interfaces",
    "InvalidSecurityGroup": "correct the security groups of the function",
    "InvalidSubnet": "correct the subnets of the function",
    "SubnetOutOfIPAddresses": "free addresses in its subnets, or add a subnet in another zone",
}
"""What to do, by the reason code of a failure."""


class LambdaFunctionsOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the action `lambda-functions`. There are none."""


class LambdaFunctions:
    """The action `lambda-functions`. See `holdfast.evacuate.action.Action`."""

    evacuation_stage, restoration_stage = CAPACITY_STAGE, RESTORE_CAPACITY_STAGE
    parallel_calls = 2
    """Lambda allows 15 calls per second to all of its control plane, which deployments need as well."""
    timeout = 300.0
    """Seconds. An update takes about a minute."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def discover(self, target: Target) -> Discovery:
        return discover_accounts(self._accounts, target, find_functions)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        removed, network = resource.details["removed"], resource.details["network"]
        remaining = len(remove_subnets(network["SubnetIds"], removed))
        if not remaining:
            remedy = "add subnets in other zones to its VPC configuration"
            return Unmovable(resource=resource, reason="it has no subnet in another zone", remedy=remedy)
        text = f"remove {', '.join(removed)} in {target.zone} from its subnets; {remaining} in other zones remain"
        effects = resource.details["side_effects"]
        change = {"removed": removed, "network": network}
        return PlannedChange(resource=resource, description=text, side_effects=effects, change=change)

    def read(self, entry: Entry) -> Reading:
        """Read whether the subnets are removed, or added again, and the update has ended.

        Raise EngineError if the update has failed since this attempt began. After an older failure, it is made again.
        """
        account, removed = self._accounts.find(entry.resource), entry.change["removed"]
        try:
            function = _get_configuration(account, entry)
        except NotFound as error:
            return Reading(state=ChangeState.GONE, note=str(error))
        is_restore = entry.state is EntryState.RESTORING
        existing = _find_existing(account, entry, get_subnets(function)) if is_restore else None
        status, state = function.get("LastUpdateStatus"), function.get("State")
        is_effective = status != "InProgress" and state != "Pending"
        reading = read_removal(get_subnets(function), removed, existing, is_effective=is_effective)
        if status == "Failed":
            if _get_modified(function) >= entry.at - CLOCK_SKEW:
                raise EngineError(_describe_failure(function, "LastUpdateStatusReason", "its last update failed"))
            return replace(reading, state=ChangeState.APPLIED if is_restore else ChangeState.ABSENT)
        if state == "Failed":
            problem = _describe_failure(function, "StateReason", "it cannot be invoked")
            if is_restore and reading.state is ChangeState.ABSENT:
                raise EngineError(problem)
            return replace(reading, note=problem)
        return reading

    def apply(self, entry: Entry) -> None:
        account = self._accounts.find(entry.resource)
        function = _get_configuration(account, entry)
        left = remove_subnets(get_subnets(function), entry.change["removed"])
        if not left:
            raise EngineError(f"{entry.resource} has no subnet in another zone any more: add one, then resume the run")
        _update(account, entry, function, left)

    def restore(self, entry: Entry, reading: Reading) -> None:  # noqa: ARG002 - the subnets are read again
        account, before = self._accounts.find(entry.resource), entry.change["network"]["SubnetIds"]
        function = _get_configuration(account, entry)
        current = get_subnets(function)
        wanted = add_subnets(current, entry.change["removed"], _find_existing(account, entry, current))
        _update(account, entry, function, before if set(wanted) == set(before) else wanted)

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Do nothing: the change does not expire."""


def _get_configuration(account: Account, entry: Entry) -> Configuration:
    """Return the configuration of a function. Raise NotFound if it was deleted, or is no longer in a VPC."""
    client = account.session.client(SERVICE)
    with translate_refusals(account.session, REFUSALS):
        found: Configuration = client.get_function_configuration(FunctionName=entry.resource)
    if found.get("State") == "Deleting":
        raise NotFound(f"{entry.resource} is being deleted")
    if not get_subnets(found):
        raise NotFound(f"{entry.resource} is not in a VPC any more")
    return found


def _find_existing(account: Account, entry: Entry, current: Sequence[str]) -> frozenset[str]:
    with translate_refusals(account.session, REFUSALS):
        return find_existing(account.session, entry.change["removed"], current)


def _update(account: Account, entry: Entry, function: Configuration, subnets: Sequence[str]) -> None:
    """Replace the subnets, if nobody has changed the function since it was read. The rest stays as it was read."""
    network: Mapping[str, Any] = function["VpcConfig"]
    if not network.get("SecurityGroupIds"):
        # Lambda would take an empty list as an order to leave the VPC.
        raise EngineError(f"{entry.resource} has no security group: add one, then resume the run")
    if list(subnets) == get_subnets(function) and function.get("LastUpdateStatus") != "Failed":
        # Nothing is written, so the next read decides whose change it is.
        raise EngineUnavailable(f"others have just changed the subnets of {entry.resource} in the same way")
    kept = {key: network[key] for key in ("SecurityGroupIds", "Ipv6AllowedForDualStack") if key in network}
    client = account.session.client(SERVICE)
    with translate_refusals(account.session, REFUSALS):
        client.update_function_configuration(
            FunctionName=entry.resource,
            VpcConfig={"SubnetIds": list(subnets), **kept},
            RevisionId=function["RevisionId"],
        )


def _get_modified(function: Configuration) -> float:
    """Return when the last update was accepted."""
    return datetime.fromisoformat(function["LastModified"]).timestamp()


def _describe_failure(function: Configuration, field: str, text: str) -> str:
    """Return a failure in words: its reason code, the reason of AWS, and what to do."""
    code = function.get(f"{field}Code", "unknown")
    advice = _ADVICE.get(code, "correct its configuration")
    return f"{text} ({code}: {function.get(field, 'no reason is given')}): {advice}, then try again"


ACTIONS.register("lambda-functions")(
    ActionType(
        open=lambda _, resources: LambdaFunctions(resources.accounts()),
        options_type=LambdaFunctionsOptions,
        permissions=(
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeVpcs",
            "lambda:GetFunctionConfiguration",
            "lambda:UpdateFunctionConfiguration",
            *PERMISSIONS,
        ),
        terraform="""\
# An evacuation removes the subnets of a zone. Without this, the next run of Terraform would add them again.
resource "aws_lambda_function" "example" {
  lifecycle {
    ignore_changes = [vpc_config[0].subnet_ids]
  }
}
""",
    )
)
