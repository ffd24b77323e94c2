"""Workers: lease messages, run their handlers, settle what became of them.

May import the queue, and `calls` for deadlines. A `Worker` makes a `WorkerRun` whenever it starts. Of its parts,
`fetcher.py` leases messages, `executors.py` and `async_executor.py` run the functions that `handlers.py` finds for
them, and `leases.py` settles, extends leases and ends what takes too long; all share a `WorkerContext`. Start reading
at `worker.py`.
"""

from holdfast.queue.worker.worker import Worker, WorkerOptions

__all__ = ["Worker", "WorkerOptions"]
