"""Work in the child of a fork."""

import os
import signal
import warnings
from collections.abc import Callable

STUCK = 10
"""Real seconds until a child is taken to be stuck."""


def fork() -> int:
    """`os.fork`, without the warning of later Pythons that the test runner has threads: that is what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], bool]) -> None:
    """Run `work` in a forked child; it must return True there, and not hang."""
    child = fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(STUCK)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
