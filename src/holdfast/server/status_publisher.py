"""Publish every logged change of a zone status, at least once and in order, with retries."""

import logging
import random
from typing import Protocol

from holdfast._background import RECONNECT_BACKOFF, BackgroundLoop
from holdfast._backoff import Chance
from holdfast._errors import EngineError
from holdfast._types import ZoneStatus
from holdfast.server.status_log import StatusLog

logger = logging.getLogger("holdfast.status")

POLL_SECONDS = 0.25
"""How often the log is checked for unpublished changes."""


class Publisher(Protocol):
    """A channel for changes, such as SNS."""

    def publish(self, status: ZoneStatus) -> None:
        """Publish `status`. Raise HoldfastError if that was not confirmed."""


class StatusLogPublisher:
    """A background thread that publishes the unpublished changes of the log.

    A change is marked after it was published, so a change interrupted by a crash is published again.
    """

    def __init__(self, log: StatusLog, publisher: Publisher, chance: Chance = random.random) -> None:
        self._log = log
        self._publisher = publisher
        self._is_closed = False
        self._loop = BackgroundLoop(
            "holdfast-publish",
            self._step,
            action="publish a change of a zone status",
            logger=logger,
            backoff=RECONNECT_BACKOFF,
            chance=chance,
        )

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        """Stop publishing; remaining changes are published after the next start. May be repeated."""
        self._is_closed = True
        self._loop.stop()

    def publish_due(self) -> None:
        """Publish all unpublished changes in order. Raise HoldfastError at the first failure; later ones wait."""
        for entry in self._log.unpublished():
            if self._is_closed:
                return
            try:
                self._publisher.publish(entry.status)
            except EngineError as error:
                if type(error) is not EngineError:  # subclasses are retried; a plain EngineError is permanent
                    raise
                logger.error("not publishing a change of zone %s: %s", entry.status.zone, error)  # noqa: TRY400
            self._log.mark_published(entry.number)

    def _step(self) -> float:
        self.publish_due()
        return POLL_SECONDS
