"""Find the resources of an account that have the tags of a selection."""

import re
from collections.abc import Callable, Mapping
from functools import cache

from holdfast._errors import HoldfastError
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.selection import Selection

PERMISSIONS = ("autoscaling:DescribeAutoScalingGroups", "tag:GetResources")


def find_tagged(account: Account, selection: Selection) -> Callable[[str], bool]:
    """Return a function that says whether the resource with an ARN has all tags of a selection.

    Both ask AWS only if the selection has tags, and raise the errors of `holdfast.engines.aws`.
    """
    if not selection.tags:
        return lambda _: True
    filters = [{"Key": key, "Values": [value]} for key, value in selection.tags.items()]
    session = account.reader
    with translate_refusals(session):
        tagged = list(session.paginate("resourcegroupstaggingapi", "get_resources", TagFilters=filters))
    found = {each["ResourceARN"] for each in tagged}

    @cache
    def list_groups() -> frozenset[str]:
        """Return the tagged Auto Scaling groups, which the service for tags does not know."""
        with translate_refusals(session):
            listed = list(session.paginate("autoscaling", "describe_auto_scaling_groups"))
        return frozenset(
            each["AutoScalingGroupARN"]
            for each in listed
            if has_tags({tag["Key"]: tag.get("Value", "") for tag in each.get("Tags", ())}, selection)
        )

    return lambda arn: arn in (list_groups() if ":autoscaling:" in arn else found)


def build_tag_filter(accounts: Accounts, selection: Selection) -> Callable[[str], bool]:
    """Return a function that says whether the resource with an ARN, in any account, has all tags of a selection.

    Where AWS cannot say, the resource counts as tagged.
    """
    filters: dict[str, Callable[[str], bool]] = {}

    def is_tagged(resource: str) -> bool:
        # Ids of capacity holds, and of parts of a cluster, begin with an ARN.
        arn = re.sub(r"#.*|(?<=:cluster/)([^/]+)/.*", r"\1", resource)
        try:
            account = accounts.find(arn)
        except HoldfastError:
            return True
        try:
            if account.scope not in filters:
                filters[account.scope] = find_tagged(account, selection)
            return filters[account.scope](arn)
        except HoldfastError:
            filters[account.scope] = lambda _: True  # do not ask again for each resource
            return True

    return is_tagged if selection.tags else lambda _: True


def has_tags(tags: Mapping[str, str], selection: Selection) -> bool:
    """Return whether a resource with these tags has all those of a selection."""
    return all(tags.get(key) == value for key, value in selection.tags.items())
