"""Locks after a fork: in the child, the thread that held one does not exist, and nobody would ever release it."""

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """What has locks, or counts what threads are doing."""

    def renew(self) -> None:
        """Begin anew with what the child of a fork cannot have inherited."""


# State of the module, because what `os.register_at_fork` was given can never be taken back.
_alive: WeakSet[Renewable] = WeakSet()


def renew_after_fork(it: Renewable) -> None:
    """See to it that `it.renew()` is called in every child that is forked while `it` lives."""
    _alive.add(it)


def _renew() -> None:
    for it in list(_alive):
        it.renew()


os.register_at_fork(after_in_child=_renew)
