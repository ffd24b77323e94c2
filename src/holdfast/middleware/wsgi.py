"""The middleware for WSGI applications: Flask, Django, Bottle and others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, TypeAlias

from holdfast._types import Operation
from holdfast.calls.context import SCOPE
from holdfast.middleware.gate import Middleware, ServedRequest
from holdfast.middleware.rules import REQUEST_HEADERS, MiddlewareResponse, name_operation, parse_status

Environment = dict[str, Any]
ErrorInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None] | None
StartResponse = Callable[..., Callable[[bytes], object]]
Application = Callable[[Environment, StartResponse], Iterable[bytes]]

_HEADERS = {f"HTTP_{name.upper().replace('-', '_')}": name for name in REQUEST_HEADERS}


class WsgiMiddleware(Middleware[Application]):
    """WSGI middleware that applies deadlines, reports outcomes, and refuses requests while the zone is out.

    Make it the outermost middleware, so that it measures the latency that callers see. It re-raises errors of the
    application, except DeadlineExceeded after the request's own deadline, which gets a response. `operation` names a
    request by its WSGI environment; by default, the route of Flask or Bottle does. A body from `wsgi.file_wrapper` is
    sent like any other: servers cannot use their optimisation for files.
    """

    def __call__(self, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        headers = {name: environ[variable] for variable, name in _HEADERS.items() if variable in environ}
        admitted = self._gate.admit(path, headers)
        if admitted is None:
            return self._app(environ, start_response)
        if isinstance(admitted, MiddlewareResponse):
            self._gate.report_refusal(environ, path, admitted)
            start_response(admitted.status_line, list(admitted.headers))
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [admitted.body]
        # The server iterates over the body later. That must run in this context, not in the server's.
        context = copy_context()
        context.run(SCOPE.set, admitted)
        # WSGI decodes the bytes of a path as Latin-1, whatever they are.
        text = path if path.isascii() else path.encode("latin-1", "replace").decode("utf-8", "replace")
        client = environ.get("REMOTE_ADDR", "")
        served = ServedRequest(self._gate, environ, admitted, headers=headers, path=text, client=client)
        start = _watch_start(start_response, served)

        def give_up(error: BaseException) -> list[bytes] | None:
            answer = None if served.has_begun else served.respond_to(error)
            if answer is None:
                served.end(failed=True)
                return None
            start(answer.status_line, list(answer.headers))
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]

        try:
            pieces = context.run(self._app, environ, start)
        except BaseException as error:
            instead = give_up(error)
            if instead is None:
                raise
            pieces = instead
        kind = _SizedBody if isinstance(pieces, Sized) else _Body
        return kind(pieces, context, served, give_up)

    def _route(self, request: Mapping[str, Any]) -> Operation:
        rule = getattr(request.get("werkzeug.request"), "url_rule", None) or request.get("bottle.route")
        return name_operation(self._gate.service.workload, request["REQUEST_METHOD"], getattr(rule, "rule", None))


def _watch_start(start_response: StartResponse, served: ServedRequest) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], exc_info: ErrorInfo = None, /) -> Callable[[bytes], object]:
        try:
            # A server that has sent the headers already re-raises the error in `exc_info`.
            write = start_response(status, headers, exc_info) if exc_info else start_response(status, headers)
        finally:
            exc_info = None  # breaks the reference cycle of traceback and frame
        served.begin(parse_status(status))

        def watched_write(data: bytes) -> object:
            try:
                return write(data)
            except OSError:
                served.mark_client_gone()
                raise

        return watched_write

    return start


class _Body:
    """The body of one response, which the server iterates over and closes."""

    def __init__(
        self,
        pieces: Iterable[bytes],
        context: Context,
        served: ServedRequest,
        give_up: Callable[[BaseException], list[bytes] | None],
    ) -> None:
        self._pieces = pieces
        self._context = context
        self._served = served
        self._give_up = give_up
        self._iterator: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            if self._iterator is None:
                self._iterator = self._context.run(iter, self._pieces)
            return self._context.run(next, self._iterator)
        except StopIteration:
            self._served.end()
            raise
        except BaseException as error:
            instead = self._give_up(error)
            if instead is None:
                raise
            self._iterator = iter(instead)
        return next(self)

    def close(self) -> None:
        """Close the body. Before its end, this means that the client has disconnected."""
        self._served.end_client_gone()
        close = getattr(self._pieces, "close", None)
        if close is not None:
            self._context.run(close)

    def __del__(self) -> None:
        self._served.end_client_gone()  # for servers that do not call `close`


class _SizedBody(_Body):
    """A body with a known number of pieces. From a single piece, servers derive the content length."""

    def __len__(self) -> int:
        assert isinstance(self._pieces, Sized)
        return len(self._pieces)
