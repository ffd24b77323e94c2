"""A multi-tenant work queue in which neither one tenant nor an old backlog delays the others.

May import the base, `metrics`, `engines`, `calls`, `shards`, `telemetry` and `status`. The names exported here are for
programs that send messages, handle them and run workers. Authors of a backend need `backend.py`, authors of a sink
`events.py`. Start reading at `message.py` for the life of a message, at `rules/` for the decisions about it, and at
`worker/worker.py` for how it is handled.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.queue.job import CurrentMessage, HandlerOptions, Job, Postpone, Reject, current_message
    from holdfast.queue.message import Delivery, OutgoingMessage, RefusalReason, RefusedMessage, SentMessage
    from holdfast.queue.open import open_backend
    from holdfast.queue.policy import Limits, OverMaxRate, QueuePolicy
    from holdfast.queue.queue import Queue, Topic
    from holdfast.queue.worker import Worker, WorkerOptions

__all__ = [
    "CurrentMessage",
    "Delivery",
    "HandlerOptions",
    "Job",
    "Limits",
    "OutgoingMessage",
    "OverMaxRate",
    "Postpone",
    "Queue",
    "QueuePolicy",
    "RefusalReason",
    "RefusedMessage",
    "Reject",
    "SentMessage",
    "Topic",
    "Worker",
    "WorkerOptions",
    "current_message",
    "open_backend",
]

_NAMES = {
    "job": ("HandlerOptions", "CurrentMessage", "Job", "Postpone", "Reject", "current_message"),
    "message": ("Delivery", "OutgoingMessage", "RefusalReason", "RefusedMessage", "SentMessage"),
    "open": ("open_backend",),
    "policy": ("Limits", "OverMaxRate", "QueuePolicy"),
    "queue": ("Queue", "Topic"),
    "worker": ("Worker", "WorkerOptions"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import an exported name on first use: settings need only the policy, and producers no event loop."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return __all__
