"""Let an action look at all accounts at the same time, and merge what it finds."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast._errors import HoldfastError
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.action import Discovery, Target, Unreadable

MAX_ACCOUNTS = 16
"""Accounts that are read at the same time: more threads would not make an operator's machine faster."""


def discover_accounts(accounts: Accounts, target: Target, find: Callable[[Account, Target], Discovery]) -> Discovery:
    """Return everything that `find` returns for the accounts, each resource once.

    An account for which it raises an error is reported as unreadable. Two entries of the settings may be the same
    account.
    """

    def look(account: Account) -> Discovery:
        try:
            account.get_id()  # proves the credentials before the first write
            return find(account, target)
        except HoldfastError as error:
            return Discovery(unreadable=[Unreadable(scope=account.scope, reason=str(error))])

    listed = accounts.list_for(target.zone)
    with ThreadPoolExecutor(min(len(listed), MAX_ACCOUNTS) or 1) as pool:
        found = list(pool.map(look, listed))
    return Discovery(
        resources=list({each.id: each for one in found for each in one.resources}.values()),
        unmovable=list({each.resource.id: each for one in found for each in one.unmovable}.values()),
        other_evacuations=[each for one in found for each in one.other_evacuations],
        unreadable=[each for one in found for each in one.unreadable],
        notes=[each for one in found for each in one.notes],
        capacities=list({each.id: each for one in found for each in one.capacities}.values()),
    )
