"""One request of a requests session, and its attempts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests
from requests import exceptions
from urllib3.exceptions import ProtocolError
from urllib3.util import Timeout

from holdfast._errors import CallError
from holdfast.calls.adapters.requests.body import BoundedResponse, late, rewind, take_in
from holdfast.calls.adapters.requests.connection import sooner
from holdfast.calls.adapters.requests.errors import as_requests
from holdfast.calls.adapters.rules import Manner, origin_of
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import current_attempt
from holdfast.calls.scope import IDEMPOTENCY_KEY, TRACEPARENT
from holdfast.calls.state import DependencyState


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request, which may take several attempts, and the answer that came last."""

    core: DependencyState
    request: requests.PreparedRequest
    manner: Manner
    propagate: bool
    stream: bool
    timeout: Any
    """As the session has it: None, seconds, a pair of them, or urllib3's Timeout."""
    send: Callable[[requests.PreparedRequest, Any], requests.Response]
    """Sends one request once, with such a timeout."""
    response: requests.Response | None = None

    def attempt(self) -> requests.Response:
        """Make one attempt. Raises an answer that is a failure, so that the dependency understands it as such."""
        self.close()
        attempt = current_attempt()
        try:
            response = self._answer_to(attempt)
        except (exceptions.ReadTimeout, exceptions.ConnectionError) as error:
            if attempt.timeout > 0 or isinstance(error, CallError) or not _ran_out(error):
                raise
            raise as_requests(late(attempt, "before the answer was whole")) from error
        judge = self.core.retry.judge
        if response.status_code < 400 or (judge is not None and judge(response) is not None):
            return response
        raise exceptions.HTTPError(
            f"{self.request.method} answered {response.status_code}", request=self.request, response=response
        )

    def close(self) -> None:
        """Close the answer that nobody will read."""
        response, self.response = self.response, None
        if response is not None:
            response.close()

    def _answer_to(self, attempt: Attempt) -> requests.Response:
        """Send the request, and get the answer: all of it, unless it is streamed."""
        response = self.send(self._request_of(attempt), self._timeout_of(attempt))
        # What asks for more in its name, such as a digest authentication, begins with the original.
        response.request, response.url = self.request, str(self.request.url)
        most = self._most()
        if self.stream:
            self.response = response = BoundedResponse.of(response, attempt, most)
        else:
            self.response = response
            take_in(response, attempt, most)
        return response

    def _request_of(self, attempt: Attempt) -> requests.PreparedRequest:
        """The request as this attempt sends it: a copy, because the session goes on with the original."""
        request = self.request.copy()
        url = requests.compat.urlsplit(str(request.url))
        if self.core.endpoints is not None:
            origin = origin_of(attempt.endpoint.address, url.scheme)
            request.url = url._replace(scheme=origin.scheme, netloc=origin.netloc).geturl()
        if self.propagate:
            for name, value in attempt.headers().items():
                if name != TRACEPARENT or name not in request.headers:  # instrumentation may have set its own
                    request.headers[name] = value
        if self.manner.key and IDEMPOTENCY_KEY not in request.headers:
            request.headers[IDEMPOTENCY_KEY] = attempt.idempotency_key
        if attempt.number > 1:
            rewind(request)
        return request

    def _timeout_of(self, attempt: Attempt) -> Any:
        """The timeouts for connecting and reading; those of urllib3's own kind are bounded by the connection alone."""
        if isinstance(self.timeout, Timeout):
            return self.timeout
        connect, read = self.timeout if isinstance(self.timeout, tuple) else (self.timeout, self.timeout)
        # Not `attempt.timeout`, of which a moment has passed: if there is a connection to be set up, it begins anew.
        most = min(self.core.timeout, attempt.limit - self.core.runtime.monotonic())
        return sooner(connect, attempt.connect_timeout), sooner(read, most)

    def _most(self) -> float | None:
        """Seconds that the session lets a read take; None: as long as it takes."""
        asked = self.timeout
        if isinstance(asked, Timeout):
            begun = asked.clone()
            begun.start_connect()  # else it does not tell what its total leaves for reading
            return begun.read_timeout
        read: float | None = asked[1] if isinstance(asked, tuple) else asked
        return read


def _ran_out(error: exceptions.RequestException) -> bool:
    """Whether a read or a write took too long; urllib3 says of writes that the connection is broken."""
    if isinstance(error, exceptions.ReadTimeout):
        return True
    reason = error.args[0] if error.args else None
    return isinstance(reason, ProtocolError) and any(isinstance(it, TimeoutError) for it in reason.args)
