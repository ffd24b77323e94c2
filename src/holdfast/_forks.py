"""Restore objects in the child of a fork, where the threads that held their locks do not exist."""

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """An object with locks, threads or counts of running work, none of which survive a fork."""

    def renew(self) -> None:
        """Replace whatever the child of a fork cannot have inherited."""


# Module state, because a function given to `os.register_at_fork` can never be removed.
_alive: WeakSet[Renewable] = WeakSet()


def renew_after_fork(instance: Renewable) -> None:
    """Call `instance.renew()` in every child that is forked while `instance` lives."""
    _alive.add(instance)


def _renew() -> None:
    for instance in list(_alive):
        instance.renew()


os.register_at_fork(after_in_child=_renew)
