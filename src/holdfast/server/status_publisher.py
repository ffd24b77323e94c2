"""Publishing every recorded change of status, at least once and in order, however long that takes."""

import logging
import random
from typing import Protocol

from holdfast._background import RECONNECT_BACKOFF, BackgroundLoop
from holdfast._backoff import Chance
from holdfast._errors import EngineError
from holdfast._types import ZoneStatus
from holdfast.server.status_log import StatusLog

logger = logging.getLogger("holdfast.status")

LOOK_SECONDS = 0.25
"""How often the record is looked at for changes that are still to be published."""


class Publisher(Protocol):
    """Where changes are published."""

    def publish(self, status: ZoneStatus) -> None:
        """Publish one. Raises HoldfastError if that is not certain."""


class StatusLogPublisher:
    """Publishes the changes that the log says have not been, in a thread of its own.

    A change is marked when it has been published, so one that a crash interrupts is published again.
    """

    def __init__(self, log: StatusLog, publisher: Publisher, chance: Chance = random.random) -> None:
        self._log = log
        self._publisher = publisher
        self._is_closed = False
        self._loop = BackgroundLoop(
            "holdfast-publish",
            self._look,
            action="publish a change of status",
            logger=logger,
            backoff=RECONNECT_BACKOFF,
            chance=chance,
        )

    def start(self) -> None:
        """Begin to publish."""
        self._loop.start()

    def close(self) -> None:
        """Publish no more; changes that are left are published after the next start. May be repeated."""
        self._is_closed = True
        self._loop.stop()

    def publish_due(self) -> None:
        """Publish what is due. Raises HoldfastError at the first that fails: the next ones wait for it."""
        for entry in self._log.unpublished():
            if self._is_closed:
                return
            try:
                self._publisher.publish(entry.status)
            except EngineError as error:
                if type(error) is not EngineError:  # its kinds pass, or can be mended: this one is there to stay
                    raise
                logger.error("a change of status is not published, because it is refused: %s", error)  # noqa: TRY400
            self._log.mark_published(entry.number)

    def _look(self) -> float:
        self.publish_due()
        return LOOK_SECONDS
