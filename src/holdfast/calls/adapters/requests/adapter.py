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
from holdfast.calls.classify import SINGLE_REQUEST
from holdfast.calls.context import SCOPE, current_attempt
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.engine import set_attribute
from holdfast.calls.state import DependencyState


@dataclass(slots=True, kw_only=True)
class RequestsExchange:
    """One request with its attempts, and the last response."""

    dependency: DependencyState
    request: requests.PreparedRequest
    plan: CallPlan
    propagate: bool
    stream: bool
    timeout: Any
    """The session's timeout: None, seconds, a pair (connect, read), or urllib3's Timeout."""
    send: Callable[[requests.PreparedRequest, Any], requests.Response]
    """Sends a request once, with such a timeout."""
    response: requests.Response | None = None

    def attempt(self) -> requests.Response:
        """Make one attempt. Raise HTTPError for a response of 4xx or 5xx, so that the dependency classifies it."""
        self.close()
        attempt = current_attempt()
        try:
            response = self._send_attempt(attempt)
        except (exceptions.ReadTimeout, exceptions.ConnectionError) as error:
            set_attribute(error, SINGLE_REQUEST, True)
            if attempt.timeout > 0 or isinstance(error, CallError) or not _is_timeout(error):
                raise
            raise to_requests_error(attempt.timeout_error()) from error
        classify_result = self.dependency.retry.classify_result
        if response.status_code < 400 or (classify_result is not None and classify_result(response) is not None):
            return response
        message = f"{self.request.method} returned {response.status_code}"
        raise exceptions.HTTPError(message, request=self.request, response=response)

    def close(self) -> None:
        """Close the last response, which the caller will not read."""
        response, self.response = self.response, None
        if response is not None:
            response.close()

    def _send_attempt(self, attempt: Attempt) -> requests.Response:
        """Send the request and return the response, with its body unless it is streamed."""
        response = self.send(self._build_request(attempt), self._build_timeout(attempt))
        # Hooks that send a follow-up request, such as digest authentication, must start from the original.
        response.request, response.url = self.request, str(self.request.url)
        read_timeout = self._read_timeout()
        if self.stream:
            self.response = response = BoundedResponse.of(response, attempt, read_timeout)
        else:
            self.response = response
            read_body(response, attempt, read_timeout)
        return response

    def _build_request(self, attempt: Attempt) -> requests.PreparedRequest:
        """Return a copy of the request for this attempt. The session continues to use the original."""
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
        """Return the timeouts for connecting and reading. The connection itself shortens those of a urllib3 Timeout."""
        if isinstance(self.timeout, Timeout):
            return self.timeout
        connect, read = self.timeout if isinstance(self.timeout, tuple) else (self.timeout, self.timeout)
        # Not `attempt.timeout`: the attempt's time starts again after the connection set-up.
        return shorter_timeout(connect, attempt.connect_timeout), shorter_timeout(
            read, min(attempt.options.timeout, attempt.call_timeout)
        )

    def _read_timeout(self) -> float | None:
        """Return the session's timeout for a read in seconds, or None for no timeout."""
        if isinstance(self.timeout, Timeout):
            begun = self.timeout.clone()
            begun.start_connect()  # needed to know how much of its total is left for reading
            return begun.read_timeout
        read: float | None
        _connect, read = self.timeout if isinstance(self.timeout, tuple) else (None, self.timeout)
        return read


def _is_timeout(error: exceptions.RequestException) -> bool:
    """Return whether a read or write timed out. urllib3 reports a write timeout as a broken connection."""
    if isinstance(error, exceptions.ReadTimeout):
        return True
    reason = error.args[0] if error.args else None
    return isinstance(reason, ProtocolError) and any(isinstance(it, TimeoutError) for it in reason.args)


_REQUEST_OPTIONS: ContextVar[RequestOptions] = ContextVar("holdfast.calls.adapters.requests", default=DEFAULTS)


@contextmanager
def call_options(*, idempotent: bool | None = None, operation: str | None = None) -> Iterator[None]:
    """Set options for the requests inside the `with` block. requests has no field for them in a request."""
    token = _REQUEST_OPTIONS.set(RequestOptions(idempotent=idempotent, operation=operation))
    try:
        yield
    finally:
        _REQUEST_OPTIONS.reset(token)


class HoldfastAdapter(HTTPAdapter):
    """An adapter that gives the requests of a session a dependency's timeouts, retries and budget.

    GET, HEAD, OPTIONS, TRACE, PUT and DELETE are retried. Other methods are retried only if nothing was sent, unless
    made `with call_options(idempotent=True)`, or if the server honours the header that `idempotency_key=True` sends. An
    iterator as body is sent once; a file is rewound. Each redirect is a separate call.

    The dependency classifies 4xx and 5xx responses as failures; the caller gets the last one as an ordinary response.
    `propagate=False` does not send the deadline and the retry owner: use it for third-party services. Endpoints of the
    dependency replace scheme, host and port of every URL that the adapter is mounted for.

    The attempt's timeout covers sending, waiting for the response, and its body: a body that breaks off is retried.
    With `stream=True`, the caller reads the body later, and only the call's deadline applies. A connection set-up has
    its own timeout. The shorter of the session's and Holdfast's timeouts applies: Holdfast's raise
    `RequestsAttemptTimedOut` or `RequestsDeadlineExceeded`, the session's raise the errors of requests.

    Each read and each write within the attempt takes at most the time left, so that slow headers and bodies end in time
    as well. Not covered: a DNS look-up, which cannot be interrupted. With `stream=True`, the deadline applies to
    `iter_content`; each read of `raw` may take the time that was left when the response began.
    Connections through a SOCKS proxy are not measured. urllib3's retries must be off. As thread-safe as the session.
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
        if max_retries != 0:  # refuses urllib3's Retry(0) as well, which may handle statuses and redirects
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

    def send(  # noqa: PLR0917 - the signature of requests
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
                raise to_requests_error(error)  # noqa: B904 - it copies the cause
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
        """Open connections, including TLS, before there is traffic. Return the number that is ready.

        Each connection sends a request that must have no side effects; any response will do. All of them together take
        at most the connect timeout. Raise the first error if none is ready. `verify`, `cert` and `proxies` must be the
        session's; otherwise its requests do not use these connections. Warm up each endpoint separately.
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
            except Exception as error:  # noqa: BLE001 - count_ready raises it
                return error
            finally:
                SCOPE.reset(token)

        # Keep all responses open until the last has come. Otherwise one connection might serve several of them.
        with ThreadPoolExecutor(connections, thread_name_prefix="holdfast-warm-up") as threads:
            opened = list(threads.map(open_one, range(connections)))
        return rules.count_ready(url, [it if isinstance(it, Exception) else _finish(it) for it in opened])

    def _send_once(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        try:
            return super().send(request, stream=True, **how)
        except EmptyPoolError as error:
            raise exceptions.ConnectTimeout(error, request=request) from error

    def __getstate__(self) -> NoReturn:
        raise InvalidValue("HoldfastAdapter cannot be pickled: make one in each process, with a dependency of its own")


class _WarmUpAttempt(Attempt, eq=False):
    """The warm-up of a connection. The connect timeout applies to all of it, including the response."""

    @property
    def timeout(self) -> float:
        return self.call_timeout


def _finish(response: requests.Response) -> bool | Exception:
    try:
        response.content  # noqa: B018 - reads the body, which frees the connection
    except exceptions.RequestException as error:
        return error
    finally:
        response.close()
    version = "HTTP/1.0" if response.raw.version == 10 else "HTTP/1.1"
    return rules.is_kept_open(version, response.headers)
