"""The message that a handler is at work on, as the handler sees it."""

import threading
from contextvars import ContextVar

from holdfast._errors import InvalidValue, LeaseLost
from holdfast._forks import renew_after_fork
from holdfast.queue.message import Delivery


class Handling:
    """One message being handled. `check` in loops that nothing else interrupts. Thread-safe."""

    __slots__ = ("_ended", "delivery", "is_over", "why")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.is_over = False
        """Whether what is done from here on will not count: another worker has the message, or may have it soon."""
        self.why = ""
        """Why it must stop, if it must."""
        self._ended: threading.Event | None = None  # made for those who wait: few do, and it takes a microsecond

    def check(self) -> None:
        """Raise LeaseLost if what is done from here on will not count."""
        if self.is_over:
            raise LeaseLost(f"message {self.delivery.id} of {self.delivery.queue}: {self.why}")

    def wait(self, seconds: float) -> bool:
        """Sleep, but not beyond the end: true if it must stop."""
        with _MAKING.lock:
            if self._ended is None:
                self._ended = threading.Event()
        if self.is_over:  # perhaps told before there was anything to set
            return True
        return self._ended.wait(seconds)

    def end(self, why: str) -> None:
        """Tell the handler that it must stop."""
        self.why = why
        self.is_over = True
        if self._ended is not None:
            self._ended.set()


class _Making:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_after_fork(self)

    def renew(self) -> None:
        self.lock = threading.Lock()


_MAKING = _Making()
HANDLING: ContextVar[Handling] = ContextVar("holdfast.queue.handling")


def current_message() -> Handling:
    """The message that is being handled here. Raises InvalidValue outside of a handler."""
    try:
        return HANDLING.get()
    except LookupError:
        raise InvalidValue("no message is being handled here: call this from a handler or a job") from None
