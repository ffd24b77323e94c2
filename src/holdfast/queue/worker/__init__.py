"""Workers: lease messages, run their handlers, and settle the messages.

May import the queue, and `calls` for deadlines. A `Worker` creates a `WorkerRun` whenever it starts. Of its parts,
`fetcher.py` leases messages, `executors.py` and `async_executor.py` run the functions that `handlers.py` finds for
them, and `leases.py` settles messages, extends leases and ends handlers that take too long. All parts share a
`WorkerContext`. Start reading at `worker.py`.
"""

from holdfast.queue.worker.worker import Worker, WorkerOptions

__all__ = ["Worker", "WorkerOptions"]
