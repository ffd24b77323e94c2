"""The agent's SNS subscription: subscribe at start, process posted messages, unsubscribe at the end."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from holdfast._background import RECONNECT_BACKOFF, BackgroundLoop
from holdfast._errors import EngineError, EngineUnavailable, HoldfastError, InvalidValue, NotAllowed, OutcomeUnknown
from holdfast._types import ZoneStatus
from holdfast.agent.responses import Response, build_detail
from holdfast.compose import open_aws_session
from holdfast.config import Settings

logger = logging.getLogger("holdfast.agent")

MAX_CONCURRENT_POSTS = 8
"""Messages processed at a time: each may wait for a certificate, and anyone may post."""
_REFUSALS = ((InvalidValue, 400), (NotAllowed, 403), (EngineError, 503))
"""The HTTP status that SNS gets for each kind of error. SNS repeats a message after a 5xx, not after a 4xx."""


class SnsSubscription:
    """A subscription to one topic. Raises MissingExtra without the SNS packages, SettingsError for a wrong topic."""

    def __init__(
        self, settings: Settings, report: Callable[[ZoneStatus], None], fetch: Callable[[str], bytes] | None = None
    ) -> None:
        from holdfast.status import sns  # not at the top: most agents do not use SNS, and lack its packages

        self._topic = settings.agent.sns_topic or ""
        self._endpoint = settings.agent.sns_endpoint or ""
        self._session = open_aws_session(settings)
        self._sns = sns
        self._receiver = sns.SnsReceiver(self._topic, report, session=self._session, fetch=fetch)
        self._subscription_arn: str | None = None
        self._posts = 0
        self._failed: Callable[[HoldfastError], None] = lambda _: None
        self._subscribing = BackgroundLoop(
            "holdfast-subscribe",
            self._subscribe,
            action=f"subscribe to {self._topic}",
            logger=logger,
            backoff=RECONNECT_BACKOFF,
        )

    def start(self, failed: Callable[[HoldfastError], None]) -> None:
        """Subscribe, in a thread, until it succeeds. `failed` is called with an error that repeating cannot fix."""
        self._failed = failed
        self._subscribing.start()

    async def receive(self, body: bytes) -> Response:
        """Process one POST; the response tells SNS whether to try again."""
        if self._posts >= MAX_CONCURRENT_POSTS:
            return build_detail(503, "too many concurrent messages", ("Retry-After", "1"))
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Response] = loop.create_future()

        def work() -> None:
            answer = self._receive(body)
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                loop.call_soon_threadsafe(finish, answer)

        def finish(answer: Response) -> None:
            if not done.done():
                done.set_result(answer)

        # Not the loop's own threads: the process would wait for them when it ends.
        self._posts += 1
        try:
            threading.Thread(target=work, name="holdfast-sns", daemon=True).start()
            return await done
        finally:
            self._posts -= 1

    def close(self, timeout: float) -> None:
        """Unsubscribe, for at most `timeout` seconds."""
        self._subscribing.stop()
        thread = threading.Thread(target=self._unsubscribe, name="holdfast-unsubscribe", daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            logger.warning("unsubscribing from %s timed out: remove the subscription by hand", self._topic)

    def _receive(self, body: bytes) -> Response:
        try:
            self._receiver.receive(body)
        except (InvalidValue, NotAllowed, EngineError) as error:
            logger.warning("refused a message to /sns: %s", error)
            return build_detail(next(status for kind, status in _REFUSALS if isinstance(error, kind)), str(error))
        except Exception:
            logger.exception("could not process a message from SNS")
            return build_detail(500, "internal error of the agent: see its log")
        return build_detail(200, "accepted")

    def _subscribe(self) -> float:
        try:
            self._subscription_arn = self._sns.subscribe(self._session, self._topic, self._endpoint)
        except (EngineUnavailable, OutcomeUnknown):
            raise
        except HoldfastError as error:
            if not self._subscribing.is_stopping:
                self._failed(error)
        self._subscribing.stop()
        return 0.0

    def _unsubscribe(self) -> None:
        try:
            if self._subscription_arn is not None:
                self._sns.unsubscribe(self._session, self._subscription_arn)
        except HoldfastError as error:
            logger.warning("could not unsubscribe from %s: %s", self._topic, error)
        finally:
            self._session.close()
