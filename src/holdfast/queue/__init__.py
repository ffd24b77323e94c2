"""A multi-tenant work queue whose backlogs can always be caught up.

May import the base, `engines`, `calls`, `shards`, `telemetry` and `status`. `Queue` is what producers and handlers use,
`Worker` what runs the handlers, `Backend` the seam to what keeps messages. Start reading at `message.py` for the life
of a message, at `rules/` for what is decided about it, and at `backends/sql/backend.py` for how that is kept.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.queue.backend import (
        Backend,
        Capabilities,
        Change,
        DeadQuery,
        LaneDepth,
        Leased,
        MessageState,
        Snapshot,
        Stage,
        TenantDepth,
        Totals,
        LeaseRequest,
    )
    from holdfast.queue.events import Ending, Handled, Polled, QueueEvent, Trouble
    from holdfast.queue.handling import Handling, current_message
    from holdfast.queue.job import HandlerOptions, Job
    from holdfast.queue.message import (
        RetryLater,
        Release,
        Bury,
        DeadLetter,
        Delivery,
        Ack,
        Drop,
        ExtendLease,
        Outgoing,
        Receipt,
        Refusal,
        Refused,
        Sent,
        Settlement,
    )
    from holdfast.queue.open import open_backend
    from holdfast.queue.policy import Limits, Over, QueuePolicy
    from holdfast.queue.queue import Queue
    from holdfast.queue.signals import Postpone, Reject
    from holdfast.queue.topic import Topic
    from holdfast.queue.worker import Worker, WorkerOptions

__all__ = [
    "RetryLater",
    "Release",
    "Backend",
    "Bury",
    "Capabilities",
    "Change",
    "DeadLetter",
    "DeadQuery",
    "Delivery",
    "Ack",
    "Drop",
    "Ending",
    "Handled",
    "HandlerOptions",
    "Handling",
    "Job",
    "LaneDepth",
    "Leased",
    "Limits",
    "ExtendLease",
    "MessageState",
    "Outgoing",
    "Over",
    "Polled",
    "Postpone",
    "Queue",
    "QueueEvent",
    "QueuePolicy",
    "Receipt",
    "Refusal",
    "Refused",
    "Reject",
    "Sent",
    "Settlement",
    "Snapshot",
    "Stage",
    "TenantDepth",
    "Topic",
    "Totals",
    "Trouble",
    "LeaseRequest",
    "Worker",
    "WorkerOptions",
    "current_message",
    "open_backend",
]

_NAMES = {
    "backend": (
        "Backend",
        "Capabilities",
        "Change",
        "DeadQuery",
        "LaneDepth",
        "Leased",
        "MessageState",
        "Snapshot",
        "Stage",
        "TenantDepth",
        "Totals",
        "LeaseRequest",
    ),
    "events": ("Ending", "Handled", "Polled", "QueueEvent", "Trouble"),
    "handling": ("Handling", "current_message"),
    "job": ("HandlerOptions", "Job"),
    "message": (
        "RetryLater",
        "Release",
        "Bury",
        "DeadLetter",
        "Delivery",
        "Ack",
        "Drop",
        "ExtendLease",
        "Outgoing",
        "Receipt",
        "Refusal",
        "Refused",
        "Sent",
        "Settlement",
    ),
    "open": ("open_backend",),
    "policy": ("Limits", "Over", "QueuePolicy"),
    "queue": ("Queue",),
    "signals": ("Postpone", "Reject"),
    "topic": ("Topic",),
    "worker": ("Worker", "WorkerOptions"),
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Names are imported when they are asked for: settings need the policy alone, producers no event loop."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
