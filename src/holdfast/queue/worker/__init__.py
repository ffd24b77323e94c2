"""What works on a queue: asks for messages, runs their handlers, and says what became of them.

May import the queue, and `calls` for deadlines. A `Worker` makes a `Shift` whenever it starts. Of its parts,
`feeder.py` asks for messages, `crews.py` has them handled, `settler.py` says what became of them, `heartbeat.py` keeps
the leases and `watch.py` ends what takes too long; all share a `Post`. Start reading at `worker.py`, then `shift.py`.
"""

from holdfast.queue.worker.worker import Worker, WorkerOptions

__all__ = ["Worker", "WorkerOptions"]
