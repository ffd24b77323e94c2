"""One of several worker processes, as the supervisor starts it: `python -m holdfast.cli.worker.child TASK FILE`.

Says over the pipe FILE that it is ready, or why it cannot be. Standard input is the supervisor's: when that ends,
nobody looks after this process any more, and it stops.
"""

import logging
import os
import pickle
import sys
import threading

import msgspec

from holdfast._errors import HoldfastError
from holdfast.cli.worker.signals import INTERRUPTED, Signals, Stop
from holdfast.cli.worker.work import Task, work

logger = logging.getLogger("holdfast.worker")


def main() -> int:
    """Work as the arguments say; returns the exit code."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    pipe = os.fdopen(int(sys.argv[2]), "wb")
    stop = Stop()

    def ready(queues: list[str]) -> None:
        with pipe:
            pickle.dump(queues, pipe)

    threading.Thread(target=_follow_parent, args=(stop,), name="holdfast-parent", daemon=True).start()
    with Signals(stop.ask, lambda: os._exit(INTERRUPTED)):
        try:
            work(task, stop, ready)
        except HoldfastError as error:
            if pipe.closed:
                logger.error("%s", error)  # noqa: TRY400 - where it was raised helps nobody
                return 1
            with pipe:
                pickle.dump(error, pipe)
            return 1
    return 0


def _follow_parent(stop: Stop) -> None:
    while os.read(0, 1024):
        pass
    stop.ask()


if __name__ == "__main__":
    sys.exit(main())
