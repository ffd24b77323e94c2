"""Find the Lambda functions that have subnets in a zone, and the published versions of them, which stay there.

An update changes only the version $LATEST. Aliases and provisioned concurrency mostly refer to published versions,
whose subnets never change.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from holdfast._errors import Conflict, EngineUnavailable, HoldfastError, NotFound
from holdfast.evacuate.accounts import Account
from holdfast.evacuate.action import Discovery, Resource, Target, Unmovable
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.subnets import PERMISSIONS as SUBNET_PERMISSIONS
from holdfast.evacuate.subnets import list_subnet_zones
from holdfast.evacuate.tags import PERMISSIONS as TAG_PERMISSIONS
from holdfast.evacuate.tags import find_tagged

SERVICE = "lambda"
RESOURCE_TYPE = "lambda-function"
PERMISSIONS = (
    "lambda:ListAliases",
    "lambda:ListFunctions",
    "lambda:ListProvisionedConcurrencyConfigs",
    *SUBNET_PERMISSIONS,
    *TAG_PERMISSIONS,
)
LATEST = "$LATEST"
Configuration = Mapping[str, Any]
"""The configuration of a function, as ListFunctions and GetFunctionConfiguration return it."""
PARALLEL_READS = 4
"""Functions whose versions are listed at the same time. Lambda allows 15 calls of its control plane a second."""
REFUSALS: Mapping[str, type[HoldfastError]] = {
    "ResourceConflictException": EngineUnavailable,  # another update is in progress
    "PreconditionFailedException": Conflict,
    "ResourceNotFoundException": NotFound,
}


def find_functions(account: Account, target: Target) -> Discovery:
    """Find the functions of one account that have subnets in the zone."""
    session = account.reader
    with translate_refusals(session, REFUSALS):
        functions = list(session.paginate(SERVICE, "list_functions"))
        networked = [each for each in functions if get_subnets(each) or "CapacityProviderConfig" in each]
        if not networked:
            return Discovery()
        is_tagged = find_tagged(account, target.selection)
        zones = list_subnet_zones(session)
    chosen = [each for each in networked if is_tagged(each["FunctionArn"])]
    provided = [each for each in chosen if "CapacityProviderConfig" in each]
    resources = []
    for each in chosen:
        removed = [subnet for subnet in get_subnets(each) if zones.get(subnet) == target.zone]
        if removed and each not in provided:
            details = {"removed": removed, "network": each["VpcConfig"], "side_effects": _list_side_effects(each)}
            resources.append(_build_resource(each, **details))
    if not target.lists_unmovable:
        return Discovery(resources=resources)
    unmovable = [_explain_provider(each) for each in provided]
    notes: list[str] = []

    def list_versions(resource: Resource) -> list[Unmovable]:
        try:
            return list(_list_versions(account, resource))
        except HoldfastError as error:
            notes.append(f"{account.scope}: versions of {resource.name} that stay in the zone are not known: {error}")
            return []

    with ThreadPoolExecutor(PARALLEL_READS) as pool:
        unmovable += chain.from_iterable(pool.map(list_versions, resources))
    return Discovery(resources=resources, unmovable=unmovable, notes=sorted(notes))


def get_subnets(configuration: Configuration) -> list[str]:
    """Return the subnets of a function; none if it is not in a VPC."""
    return list(configuration.get("VpcConfig", {}).get("SubnetIds", ()))


def _list_versions(account: Account, resource: Resource) -> Iterator[Unmovable]:
    """Yield the aliases and versions of a function that keep their subnets. Those of $LATEST are moved with it."""
    session, reasons = account.reader, dict[str, list[str]]()
    with translate_refusals(session, REFUSALS):
        for each in session.paginate(SERVICE, "list_aliases", FunctionName=resource.id):
            used = {each["FunctionVersion"], *each.get("RoutingConfig", {}).get("AdditionalVersionWeights", {})}
            versions = sorted(used - {LATEST})
            if versions:
                text = f"its alias {each['Name']} uses version {' and '.join(versions)}"
                reasons.setdefault(each["AliasArn"], []).append(text)
        name = "list_provisioned_concurrency_configs"
        for each in session.paginate(SERVICE, name, FunctionName=resource.id):
            qualifier = each["FunctionArn"].rpartition(":")[2]
            reasons.setdefault(each["FunctionArn"], []).append(f"{qualifier} has provisioned concurrency")
    for arn, found in reasons.items():
        yield Unmovable(
            resource=Resource(
                id=arn, type=RESOURCE_TYPE, name=resource.name, account=resource.account, region=resource.region
            ),
            reason=f"only {LATEST} is moved: {', and '.join(found)}, and a published version keeps its subnets",
            remedy=f"after the evacuation, publish a version of {resource.name}, which has the code of {LATEST}, and "
            "let the alias use it",
        )


def _explain_provider(configuration: Configuration) -> Unmovable:
    return Unmovable(
        resource=_build_resource(configuration),
        reason="it runs on the instances of a capacity provider, which may be in the zone",
        remedy="change the subnets of its capacity provider",
    )


def _build_resource(configuration: Configuration, **details: Any) -> Resource:
    name, arn = configuration["FunctionName"], configuration["FunctionArn"]
    _, _, _, region, account, *_ = arn.split(":")
    return Resource(id=arn, type=RESOURCE_TYPE, name=name, account=account, region=region, details=details)


def _list_side_effects(configuration: Configuration) -> list[str]:
    effects = [f"moves only the version {LATEST}; its next requests start cold"]
    if configuration.get("SnapStart", {}).get("ApplyOn") == "PublishedVersions":
        effects.append("SnapStart applies to published versions, which keep their subnets")
    return effects
