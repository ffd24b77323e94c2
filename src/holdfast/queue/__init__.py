"""A multi-tenant work queue whose backlogs can always be caught up.

May import the base, `metrics`, `engines`, `calls`, `shards`, `telemetry` and `status`. What is exported here is for
programs that send messages, handle them and run workers; `backend.py` has what authors of a backend need, `events.py`
what a sink receives. Start reading at `message.py` for the life of a message, at `rules/` for what is decided about it,
and at `worker/worker.py` for how it is handled.
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


if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:
        """Import a name when it is asked for: settings need the policy alone, producers no event loop."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return __all__
