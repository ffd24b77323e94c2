"""Reset objects in the child of a fork, where the threads that held their locks do not exist."""

import os
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary


class ForkAware(Protocol):
    """An object with locks, threads or counts of running work, none of which survive a fork."""

    def reset_after_fork(self) -> None:
        """Replace the locks, threads and counts, which are not valid in the child of a fork."""


# Module state, because a function given to `os.register_at_fork` can never be removed.
_alive: WeakValueDictionary[int, ForkAware] = WeakValueDictionary()
_numbers = count()


def register_after_fork(instance: ForkAware) -> None:
    """Call `instance.reset_after_fork()` in every child that is forked while `instance` lives.

    Instances are reset in the order of registration. Register an owner before the objects that it owns, so that it is
    reset before they use it.
    """
    _alive[next(_numbers)] = instance


def _reset_all() -> None:
    for instance in list(_alive.values()):
        instance.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all)
