"""A process that works on the queue until it is told to stop, or killed.

`python -m tests.soak.consumer URL FOLDER NAME`
"""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.queue.worker import Worker, WorkerOptions
from tests.soak.jobs import Jobs, end_with_parent, open_patiently, persistently
from tests.soak.ledger import Ledger

OPTIONS = WorkerOptions(concurrency=8, shutdown_timeout=5.0)


def main(arguments: Sequence[str]) -> None:
    url, folder, name = arguments
    end_with_parent()
    directory = Path(folder)
    backend = open_patiently(url, directory)
    jobs = Jobs(backend, Ledger(directory / f"{name}.ledger"))
    worker = Worker(jobs.queue, OPTIONS)
    persistently(worker.start)
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    worker.run()
    backend.close()


if __name__ == "__main__":
    main(sys.argv[1:])
