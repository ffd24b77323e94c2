"""The push over SNS, as the agent uses it: subscribe at boot, take what is posted, unsubscribe at the end."""

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

POSTS = 8
"""Messages that are dealt with at a time: each may wait for a certificate, and anybody may post."""
_REFUSALS = ((InvalidValue, 400), (NotAllowed, 403), (EngineError, 503))
"""The HTTP status that SNS gets for each kind of error. SNS posts a message again only after a 503."""


class SnsSubscription:
    """One topic's messages. Raises MissingExtra without what SNS needs, and SettingsError for a wrong topic."""

    def __init__(
        self, settings: Settings, report: Callable[[ZoneStatus], None], fetch: Callable[[str], bytes] | None = None
    ) -> None:
        from holdfast.status import sns  # not at the top: most agents do without, and without its packages

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
        """Subscribe, in a thread, as often as it takes. `failed` is told what no repetition will mend."""
        self._failed = failed
        self._subscribing.start()

    async def receive(self, body: bytes) -> Response:
        """Take one POST; the answer tells SNS whether to try again."""
        if self._posts >= POSTS:
            return build_detail(503, "too many messages at a time", ("Retry-After", "1"))
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Response] = loop.create_future()

        def work() -> None:
            answer = self._take(body)
            with suppress(RuntimeError):  # the loop has ended meanwhile
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
        """Unsubscribe, as far as that is done in time."""
        self._subscribing.stop()
        thread = threading.Thread(target=self._unsubscribe, name="holdfast-unsubscribe", daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            logger.warning("the subscription to %s was not ended in time", self._topic)

    def _take(self, body: bytes) -> Response:
        try:
            self._receiver.receive(body)
        except (InvalidValue, NotAllowed, EngineError) as error:
            logger.warning("a message to /sns was not taken: %s", error)
            return build_detail(next(status for kind, status in _REFUSALS if isinstance(error, kind)), str(error))
        except Exception:
            logger.exception("a message of SNS could not be taken")
            return build_detail(500, "the agent could not do its part; its log says why")
        return build_detail(200, "taken")

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
            logger.warning("the subscription to %s was not ended: %s", self._topic, error)
        finally:
            self._session.close()
