"""The adapter that a session mounts."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import requests
from requests import exceptions
from requests.adapters import HTTPAdapter
from urllib3.exceptions import EmptyPoolError, ProtocolError
from urllib3.util import Timeout

from holdfast._errors import CallError, EngineUnavailable, InvalidValue
from holdfast.calls.adapters import rules
from holdfast.calls.adapters.requests.body import BoundedResponse, is_repeatable, read_body, rewind, to_requests_error
from holdfast.calls.adapters.requests.connection import POOLS
from holdfast.calls.adapters.rules import DEFAULTS, CallPlan, RequestOptions, shorter_timeout
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import SCOPE, current_attempt
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.state import DependencyState


@dataclass(slots=True, kw_only=True)
class RequestsExchange:
    """One request, which may take several attempts, and the answer that came last."""

    dependency: DependencyState
    request: requests.PreparedRequest
    plan: CallPlan
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
            response = self._send_attempt(attempt)
        except (exceptions.ReadTimeout, exceptions.ConnectionError) as error:
            if attempt.timeout > 0 or isinstance(error, CallError) or not _is_timeout(error):
                raise
            raise to_requests_error(attempt.timeout_error()) from error
        classify_result = self.dependency.retry.classify_result
        if response.status_code < 400 or (classify_result is not None and classify_result(response) is not None):
            return response
        words = f"{self.request.method} answered {response.status_code}"
        raise exceptions.HTTPError(words, request=self.request, response=response)

    def close(self) -> None:
        """Close the answer that nobody will read."""
        response, self.response = self.response, None
        if response is not None:
            response.close()

    def _send_attempt(self, attempt: Attempt) -> requests.Response:
        """Send the request, and get the answer: all of it, unless it is streamed."""
        response = self.send(self._build_request(attempt), self._build_timeout(attempt))
        # What asks for more in its name, such as a digest authentication, begins with the original.
        response.request, response.url = self.request, str(self.request.url)
        read_timeout = self._read_timeout()
        if self.stream:
            self.response = response = BoundedResponse.of(response, attempt, read_timeout)
        else:
            self.response = response
            read_body(response, attempt, read_timeout)
        return response

    def _build_request(self, attempt: Attempt) -> requests.PreparedRequest:
        """The request as this attempt sends it: a copy, because the session goes on with the original."""
        request = self.request.copy()
        url = requests.compat.urlsplit(str(request.url))
        if self.dependency.endpoints is not None:
            origin = rules.parse_origin(attempt.endpoint.address, url.scheme)
            request.url = url._replace(scheme=origin.scheme, netloc=origin.netloc).geturl()
        rules.add_headers(request.headers, attempt, propagate=self.propagate, send_key=self.plan.send_key)
        if attempt.number > 1:
            rewind(request)
        return request

    def _build_timeout(self, attempt: Attempt) -> Any:
        """Return the timeouts for connecting and reading; the connection alone bounds those of urllib3's kind."""
        if isinstance(self.timeout, Timeout):
            return self.timeout
        connect, read = self.timeout if isinstance(self.timeout, tuple) else (self.timeout, self.timeout)
        # Not `attempt.timeout`, of which a moment has passed: if there is a connection to be set up, it begins anew.
        return shorter_timeout(connect, attempt.connect_timeout), shorter_timeout(
            read, min(self.dependency.timeout, attempt.call_timeout)
        )

    def _read_timeout(self) -> float | None:
        """Seconds that the session lets a read take; None: as long as it takes."""
        asked = self.timeout
        if isinstance(asked, Timeout):
            begun = asked.clone()
            begun.start_connect()  # else it does not tell what its total leaves for reading
            return begun.read_timeout
        read: float | None = asked[1] if isinstance(asked, tuple) else asked
        return read


def _is_timeout(error: exceptions.RequestException) -> bool:
    """Whether a read or a write took too long; urllib3 says of writes that the connection is broken."""
    if isinstance(error, exceptions.ReadTimeout):
        return True
    reason = error.args[0] if error.args else None
    return isinstance(reason, ProtocolError) and any(isinstance(it, TimeoutError) for it in reason.args)


_REQUEST_OPTIONS: ContextVar[RequestOptions] = ContextVar("holdfast.calls.adapters.requests", default=DEFAULTS)


@contextmanager
def call_options(*, idempotent: bool | None = None, operation: str | None = None) -> Iterator[None]:
    """Set options for the requests inside of the `with` block, because a request has no field for them."""
    token = _REQUEST_OPTIONS.set(RequestOptions(idempotent=idempotent, operation=operation))
    try:
        yield
    finally:
        _REQUEST_OPTIONS.reset(token)


class HoldfastAdapter(HTTPAdapter):
    """Makes a requests session call as a dependency says.

    GET, HEAD, OPTIONS, TRACE, PUT and DELETE are repeated; others only if nothing was sent, unless they are made
    `with call_options(idempotent=True)`, or `idempotency_key` says that the server knows that header. A body that is an
    iterator is sent once; a file is wound back. Each redirect is a call of its own.

    An answer of 4xx or 5xx is judged as the dependency judges failures; the last one is returned as any other answer.
    `propagate=False` does not send the deadline and the retry owner along, for servers of others. Endpoints of the
    dependency replace scheme, host and port of every URL that the adapter is mounted for.

    The attempt's time covers sending, waiting for the answer, and its body: one that breaks off is repeated. With
    `stream=True` the body is handed over as it comes, and only the deadline of the call bounds it. Set-up of a
    connection counts apart. Of the session's timeouts and Holdfast's, the shorter counts: Holdfast's are raised as
    `RequestsAttemptTimedOut` or `RequestsDeadlineExceeded`, the session's as requests raises them.

    Not covered, because it cannot be interrupted: a look-up in DNS; headers, or a large body that is sent, which move
    on by a byte now and then: only each read and write is bounded, and each chunk of the answer. With `stream=True`
    that holds for `iter_content`; each read of `raw` may take what was left of the call when the answer began.
    Connections through a SOCKS proxy are not measured. Retries of urllib3 must be off. As thread-safe as the session.
    """

    def __init__(
        self,
        dependency: Dependency,
        *,
        idempotency_key: bool = False,
        propagate: bool = True,
        pool_connections: int = 10,
        pool_maxsize: int = 10,
        pool_block: bool = False,
        max_retries: int = 0,
    ) -> None:
        self._state = state_of(dependency)
        if max_retries != 0:  # urllib3's Retry(0) as well: it may be told of statuses and redirects
            raise InvalidValue(f"max_retries is {max_retries!r}: expected 0, because the dependency retries")
        self._dependency = dependency
        self._idempotency_key = idempotency_key
        self._propagate = propagate
        self._max_kept = pool_maxsize
        super().__init__(pool_connections, pool_maxsize, max_retries, pool_block)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **pool_kwargs)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, proxy: Any, **proxy_kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **proxy_kwargs)
        if not str(proxy).lower().startswith("socks"):
            manager.pool_classes_by_scheme = POOLS
        return manager

    def send(  # noqa: PLR0917 - as requests calls it
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        accepts_keys, repeatable = self._idempotency_key, is_repeatable(request)
        plan = rules.plan_call(
            request.method or "", _REQUEST_OPTIONS.get(), accepts_keys=accepts_keys, is_repeatable=repeatable
        )
        exchange = RequestsExchange(
            dependency=self._state,
            request=request,
            plan=plan,
            propagate=self._propagate,
            stream=stream,
            timeout=timeout,
            send=lambda sent, within: self._send_once(sent, timeout=within, verify=verify, cert=cert, proxies=proxies),
        )
        try:
            return self._dependency.run(exchange.attempt, idempotent=plan.idempotent, operation=plan.operation)
        except BaseException as error:
            response = exchange.response
            if response is not None and isinstance(error, exceptions.HTTPError) and error.response is response:
                return response
            exchange.close()
            if isinstance(error, CallError | EngineUnavailable):
                raise to_requests_error(error)  # noqa: B904 - it has the cause that the error has
            raise

    def warm_up(
        self,
        url: str,
        connections: int = 1,
        *,
        method: str = "HEAD",
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> int:
        """Open connections, TLS included, before there is traffic; return how many are ready.

        Each sends a request that must have no effects; any answer will do. Together they take no longer than the
        connect timeout. Raise the first error if none is ready. `verify`, `cert` and `proxies` must be those of the
        session, else its requests do not find the connections. Warm up each endpoint by itself.
        """
        rules.check_connections(connections)
        if connections > self._max_kept:
            raise InvalidValue(
                f"warm-up of {connections} connections: expected at most {self._max_kept}, which is pool_maxsize"
            )
        prepared = requests.Request(method, url).prepare()
        until = self._state.runtime.monotonic() + self._state.connect_estimator.value

        def open_one(_: int) -> requests.Response | Exception:
            attempt = _WarmUpAttempt(until, None, None, self._state, until)
            token = SCOPE.set(attempt)
            try:
                timeout = (shorter_timeout(None, attempt.connect_timeout), shorter_timeout(None, attempt.timeout))
                return self._send_once(prepared, timeout=timeout, verify=verify, cert=cert, proxies=proxies)
            except Exception as error:  # noqa: BLE001 - told when all are back
                return error
            finally:
                SCOPE.reset(token)

        # All answers are held until the last has come: else one connection might serve them all.
        with ThreadPoolExecutor(connections, thread_name_prefix="holdfast-warm-up") as threads:
            opened = list(threads.map(open_one, range(connections)))
        return rules.count_ready(url, [it if isinstance(it, Exception) else _finish(it) for it in opened])

    def _send_once(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        try:
            return super().send(request, stream=True, **how)
        except EmptyPoolError as error:
            raise exceptions.ConnectTimeout(error, request=request) from error

    def __getstate__(self) -> NoReturn:
        raise InvalidValue("an adapter of Holdfast cannot be pickled: what its dependency knows is this process's")


class _WarmUpAttempt(Attempt, eq=False):
    """The set-up of a connection before there is traffic: it may take as long as connections may, answer included."""

    @property
    def timeout(self) -> float:
        return self.call_timeout


def _finish(response: requests.Response) -> bool | Exception:
    try:
        response.content  # noqa: B018 - reads it, and frees the connection
    except exceptions.RequestException as error:
        return error
    finally:
        response.close()
    version = "HTTP/1.0" if response.raw.version == 10 else "HTTP/1.1"
    return rules.is_kept_open(version, response.headers)
