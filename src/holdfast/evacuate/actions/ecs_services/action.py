"""Move the tasks of ECS services out of a zone, by removing the subnets of the zone from their network configuration.

ECS replaces all tasks of a service when its subnets change. So a change is never repeated without need, and a change
that ECS has rolled back is reported. UpdateService replaces the whole network configuration, and parts that are not
sent get their defaults, so all of it is sent, as it is at that time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast._errors import EngineError, EngineUnavailable, NotFound
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.action import (
    ACTIONS,
    CAPACITY_STAGE,
    PARALLEL_CALLS,
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
from holdfast.evacuate.actions.ecs_services.deployments import (
    Description,
    find_failed_return,
    find_rollback,
    get_failure,
    get_network,
    get_subnets,
    is_deployed,
)
from holdfast.evacuate.actions.ecs_services.discovery import (
    PERMISSIONS,
    REFUSALS,
    SERVICE,
    find_services,
    get_controller,
)
from holdfast.evacuate.discovering import discover_accounts
from holdfast.evacuate.ecs import list_described
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.subnets import add_subnets, find_existing, read_removal, remove_subnets
from holdfast.evacuate.zonal_traffic import require_shifted

CLOCK_SKEW = 60.0
"""Seconds by which the clock of this machine may be ahead of that of AWS."""
_ADVICE = "Find out why tasks stopped, by `aws ecs describe-tasks`"


class EcsServicesOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the action `ecs-services`. There are none."""


class EcsServices:
    """The action `ecs-services`. See `holdfast.evacuate.action.Action`."""

    evacuation_stage, restoration_stage = CAPACITY_STAGE, RESTORE_CAPACITY_STAGE
    parallel_calls = PARALLEL_CALLS
    timeout = 900.0
    """Seconds. A restore waits for a deployment of all tasks."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def discover(self, target: Target) -> Discovery:
        return discover_accounts(self._accounts, target, find_services)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        details = resource.details
        removed, network = details["removed"], details["network"]
        remaining = len(remove_subnets(network["subnets"], removed))
        if not remaining:
            remedy = "add subnets in other zones to its network configuration"
            return Unmovable(resource=resource, reason="it has no subnet in another zone", remedy=remedy)
        if details["rollback"]:
            reason = (
                f"ECS has rolled back a deployment that left out the subnets of {target.zone}: {details['rollback']}"
            )
            return Unmovable(resource=resource, reason=reason, remedy=f"{_ADVICE}, then evacuate again")
        change = {
            "cluster": details["cluster"],
            "removed": removed,
            "network": network,
            "primary_reason": details["primary_reason"],
            "was_deployed": details["was_deployed"],
            "shifted_first": details["shifted_first"],
        }
        text = f"remove {', '.join(removed)} in {target.zone} from its subnets; {remaining} in other zones remain"
        return PlannedChange(resource=resource, description=text, side_effects=details["side_effects"], change=change)

    def read(self, entry: Entry) -> Reading:
        account = self._accounts.find(entry.resource)
        try:
            service = _describe(account, entry)
        except NotFound as error:
            return Reading(state=ChangeState.GONE, note=str(error))
        removed = entry.change["removed"]
        if entry.state is EntryState.RESTORING:
            return _read_restored(service, entry, _find_existing(account, entry, get_subnets(service)))
        reading = read_removal(get_subnets(service), removed, None)
        problem = _find_return(service, entry)
        if problem:
            # While one of the subnets is missing, there is something to restore.
            is_back = set(removed) <= set(get_subnets(service))
            state = ChangeState.DIFFERENT if is_back else ChangeState.APPLIED
            return replace(reading, state=state, note=problem)
        failure = get_failure(service)
        if reading.state is ChangeState.APPLIED and failure:
            note = f"its deployment has failed, so tasks may still be in {entry.zone}: {failure}. {_ADVICE}"
            return replace(reading, note=note)
        return reading

    def apply(self, entry: Entry) -> None:
        """Remove the subnets. Raise EngineError if a balancer that must leave the zone first has not done so."""
        account = self._accounts.find(entry.resource)
        with translate_refusals(account.session, REFUSALS):
            require_shifted(account.session, entry.name, entry.change["shifted_first"], entry.zone)
        current = get_subnets(service := _describe(account, entry))
        left = remove_subnets(current, entry.change["removed"])
        if not left:
            raise EngineError(f"{entry.resource} has no subnet in another zone any more: add one, then resume the run")
        if left == list(current):  # nothing is written, so the next read decides whose change it is
            raise EngineUnavailable(f"others have just removed the subnets of {entry.zone} from {entry.resource}")
        _update(account, entry, {**get_network(service), "subnets": left})

    def restore(self, entry: Entry, reading: Reading) -> None:  # noqa: ARG002 - the subnets are read again
        account = self._accounts.find(entry.resource)
        current = get_subnets(service := _describe(account, entry))
        removed, before = entry.change["removed"], entry.change["network"]["subnets"]
        wanted = add_subnets(current, removed, _find_existing(account, entry, current))
        if wanted == list(current):
            raise EngineUnavailable(f"others have just added the subnets of {entry.zone} to {entry.resource} again")
        if set(wanted) == set(before):
            wanted = before  # in the order of the start
        _update(account, entry, {**get_network(service), "subnets": wanted})

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Do nothing: the change does not expire."""


def _find_return(service: Description, entry: Entry) -> str:
    """Return why subnets that were removed are configured again; "" if they are not."""
    removed = entry.change["removed"]
    rollback = find_rollback(service, removed, entry.change["primary_reason"])
    if rollback:
        return f"ECS has rolled back to the subnets of {entry.zone}: {rollback}. {_ADVICE}"
    if entry.state is EntryState.APPLIED and set(removed) & set(get_subnets(service)):
        # To remove them again replaces all tasks again, which may fail again. So a person decides.
        text = f"others, or a rollback of ECS, have added the subnets of {entry.zone} again. {_ADVICE}"
        return f"{text}. The first `holdfast zone resume` only reports that, and the second one removes them again"
    return ""


def _read_restored(service: Description, entry: Entry, existing: frozenset[str]) -> Reading:
    """Return whether the subnets are configured again, and all tasks were replaced.

    Raise EngineError if the deployment has failed: the entry stays open, and the next restore tries again.
    """
    current, removed = get_subnets(service), entry.change["removed"]
    if not existing:
        return read_removal(current, removed, existing)
    # A service whose tasks did not run before either must not keep traffic away from the zone for ever.
    is_effective = is_deployed(service, existing) or not entry.change["was_deployed"]
    reading = read_removal(current, removed, existing, is_effective=is_effective)
    if not is_effective:
        counts = f"{service.get('runningCount', 0)} of {service.get('desiredCount', 0)} tasks run"
        reading = replace(reading, note="; ".join(each for each in (reading.note, counts) if each))
    if reading.state is ChangeState.APPLIED:
        missing = existing - set(current)
        failure = find_failed_return(service, missing, entry.at - CLOCK_SKEW)
    else:
        failure = get_failure(service)
    if failure:
        raise EngineError(f"the deployment that brings tasks back to {entry.zone} has failed: {failure}. {_ADVICE}")
    return reading


def _describe(account: Account, entry: Entry) -> Description:
    """Return a service. Raise NotFound if it does not exist any more, or can no longer be moved."""
    client = account.session.client(SERVICE)
    with translate_refusals(account.session, REFUSALS):
        reply = client.describe_services(cluster=entry.change["cluster"], services=[entry.resource])
    found = list_described(reply)
    if not found or found[0]["status"] != "ACTIVE":
        state = found[0]["status"] if found else "deleted"
        raise NotFound(f"the service {entry.resource} is {state}")
    (service,) = found
    if not get_subnets(service) or get_controller(service) != "ECS":
        raise NotFound(f"{entry.resource} has another network mode or deployment controller now")
    return service


def _find_existing(account: Account, entry: Entry, current: Sequence[str]) -> frozenset[str]:
    with translate_refusals(account.session, REFUSALS):
        return find_existing(account.session, entry.change["removed"], current)


def _update(account: Account, entry: Entry, network: Mapping[str, Any]) -> None:
    client = account.session.client(SERVICE)
    with translate_refusals(account.session, REFUSALS):
        client.update_service(
            cluster=entry.change["cluster"],
            service=entry.resource,
            networkConfiguration={"awsvpcConfiguration": network},
        )


ACTIONS.register("ecs-services")(
    ActionType(
        open=lambda _, resources: EcsServices(resources.accounts()),
        options_type=EcsServicesOptions,
        permissions=("ecs:UpdateService", *PERMISSIONS),
        terraform="""\
# An evacuation removes the subnets of a zone. Without this, the next run of Terraform would add them again.
resource "aws_ecs_service" "example" {
  lifecycle {
    ignore_changes = [network_configuration[0].subnets]
  }
}
""",
    )
)
