"""Publishing every recorded change of status, at least once and in order, however long that takes."""

import logging
import random
import threading
from typing import Protocol

from holdfast._errors import EngineError, HoldfastError
from holdfast._types import ZoneStatus
from holdfast.server.status_log import StatusLog
from holdfast.status.sources.rhythm import pauses

logger = logging.getLogger("holdfast.status")

LOOK_SECONDS = 0.25
"""How often the record is looked at for what is still to be published."""


class Publisher(Protocol):
    """Where changes are published."""

    def publish(self, status: ZoneStatus) -> None:
        """Publish one. Raises HoldfastError if that is not certain."""


class Announcer:
    """Publishes what the log says has not been, in a thread of its own.

    A change is marked when it has been published, so one that a crash interrupts is published again.
    """

    def __init__(self, log: StatusLog, publisher: Publisher, randomness: random.Random | None = None) -> None:
        self._log = log
        self._publisher = publisher
        self._randomness = randomness or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-announce", daemon=True)

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def close(self) -> None:
        """Publish no more; what is left is published after the next start. May be repeated."""
        self._stopping.set()

    def announce(self) -> None:
        """Publish what is due. Raises HoldfastError at the first that fails: the next ones wait for it."""
        for entry in self._log.unannounced():
            if self._stopping.is_set():
                return
            try:
                self._publisher.publish(entry.status)
            except EngineError as error:
                if type(error) is not EngineError:  # its kinds pass, or can be mended: this one is there to stay
                    raise
                logger.error("a change of status is not published, because it is refused: %s", error)  # noqa: TRY400
            self._log.announced(entry.number)

    def _run(self) -> None:
        waits, is_held_up = pauses(self._randomness), False
        while not self._stopping.is_set():
            pause = LOOK_SECONDS
            try:
                self.announce()
            except Exception as error:
                if not is_held_up:
                    unforeseen = None if isinstance(error, HoldfastError) else error
                    logger.warning("a change of status cannot be published yet: %s", error, exc_info=unforeseen)
                is_held_up, pause = True, next(waits)
            else:
                waits, is_held_up = pauses(self._randomness), False
            self._stopping.wait(pause)
