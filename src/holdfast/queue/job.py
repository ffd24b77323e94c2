"""Jobs: functions whose calls are sent through a queue, with typed arguments that are checked on arrival.

While a `Job` runs, `current_message` returns the message that it handles. It raises `Postpone` to have the message
delivered again later, and `Reject` to have it buried.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Union, get_type_hints

import msgspec

from holdfast._backoff import Backoff
from holdfast._errors import InvalidValue, LeaseLost
from holdfast._forks import register_after_fork
from holdfast.queue.message import DEFAULT_PRIORITY, MAX_DURATION, Delivery, OutgoingMessage, SentMessage
from holdfast.queue.rules.disposition import DEFAULT_BACKOFF

if TYPE_CHECKING:
    from holdfast.queue.queue import Queue

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """The options of a handler."""

    timeout: float | None = None
    """Seconds after which the handler has failed: it is cancelled or, if synchronous, asked to stop and abandoned."""
    max_attempts: int | None = None
    """Maximum attempts before a message is buried. None means the queue's `max_attempts`.

    A message that was delivered this often to workers that crashed is buried without another attempt. Crashes also
    count against the queue's own `max_attempts`: a greater value here helps only against handlers that fail.
    """
    backoff: Backoff = DEFAULT_BACKOFF
    """The waits between attempts."""

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidValue(f"a handler's timeout of {self.timeout} s: expected more than 0, or None for no limit")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidValue(f"max_attempts {self.max_attempts}: expected 1 or more")


class Job(Generic[Parameters, Result]):
    """A function that can be called directly, or sent to the workers of its queue."""

    def __init__(
        self, queue: "Queue", function: Callable[Parameters, Result], name: str, options: HandlerOptions
    ) -> None:
        self.queue = queue
        self.function = function
        self.name = name
        self.options = options
        self.is_async = is_asynchronous(function)
        self._signature = inspect.signature(function)
        functools.update_wrapper(self, function, updated=())
        parameters = self._signature.parameters
        for one in parameters.values():
            if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                raise InvalidValue(f"job {name} takes {one}: expected named parameters only")
        can_be_given_by_order = all(one.kind is not one.KEYWORD_ONLY for one in parameters.values())
        self._positional_names = tuple(parameters) if can_be_given_by_order else ()
        self._requires_all = all(one.default is one.empty for one in parameters.values())
        self._decoder: msgspec.msgpack.Decoder[Any] | None = None
        with suppress(_UnknownType):  # perhaps a class that is defined further below
            self.prepare()

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self.function(*args, **kwargs)

    def to(
        self,
        tenant: str,
        *,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0.0,
        group: str | None = None,
        key: str | None = None,
        ttl: float | None = None,
    ) -> "JobCall[Parameters]":
        """Return a call for one tenant: `resize.to("tenant-a").send(image)`. See `OutgoingMessage` for the options."""
        return JobCall(
            self,
            OutgoingMessage(tenant=tenant, body=b"", priority=priority, delay=delay, group=group, key=key, ttl=ttl),
        )

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        """Return the body of a message that calls the job. Raise InvalidValue for arguments that cannot be sent."""
        if len(args) == len(self._positional_names) and not kwargs:  # ten times faster than `bind`
            return encode_call(self.name, dict(zip(self._positional_names, args, strict=True)))
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidValue(f"a call of {self.name} cannot be sent: {error}") from error
        return encode_call(self.name, arguments)

    def decode_arguments(self, packed: bytes | msgspec.Raw) -> dict[str, Any]:
        """Return the arguments, checked. Raise InvalidValue if the function does not accept them."""
        try:
            found = msgspec.structs.asdict(self.prepare().decode(packed))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidValue(f"{self.name} does not accept these arguments: {error}") from error
        if self._requires_all:
            return found
        return {name: value for name, value in found.items() if value is not msgspec.UNSET}

    def prepare(self) -> "msgspec.msgpack.Decoder[Any]":
        """Return the decoder of the arguments, built once. Raise InvalidValue for types that cannot be resolved."""
        if self._decoder is None:
            self._decoder = _build_decoder(self.name, self.function, self._signature)
        return self._decoder


class JobCall(Generic[Parameters]):
    """A call of a job for one tenant, ready to be sent."""

    def __init__(self, job: Job[Parameters, Any], message: OutgoingMessage) -> None:
        self._job = job
        self._message = message

    def message(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> OutgoingMessage:
        """Return the message, to be sent with others by `Queue.send_many`."""
        return msgspec.structs.replace(self._message, body=self._job.encode(*args, **kwargs))

    def send(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> SentMessage:
        """Send the call. Raise Backpressure if the tenant exceeds a limit."""
        return self._job.queue.send_one(self.message(*args, **kwargs))

    def send_async(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Coroutine[Any, Any, SentMessage]:
        """Send the call as `send` does, without blocking the event loop."""
        return self._job.queue.send_one_async(self.message(*args, **kwargs))


class PackedCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The body of a message that calls a job."""

    job: str
    arguments: msgspec.Raw


unpack_call = msgspec.msgpack.Decoder(PackedCall).decode


def get_function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function. Raise InvalidValue if it has none."""
    name: str | None = getattr(function, "__name__", None)
    if name is None or not name.isidentifier():
        raise InvalidValue(f"{function!r} has no name to identify it in messages: give it one with name=...")
    return name


def _list_callables(function: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the function, and the `__call__` method that runs if it is a callable object."""
    return function, getattr(type(function), "__call__", None)  # noqa: B004


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Return whether the result of a function must be awaited."""
    return any(map(inspect.iscoroutinefunction, _list_callables(function)))


def require_no_generator(function: Callable[..., Any]) -> None:
    """Raise InvalidValue for a generator: calling one runs nothing."""
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in _list_callables(function)):
        raise InvalidValue(
            f"{function!r} is a generator, and calling it would do nothing: expected a function without `yield`; "
            "write one that iterates over the generator"
        )


class _UnknownType(InvalidValue):
    """A type annotation that cannot be resolved, or not yet."""


def _build_decoder(
    job: str, function: Callable[..., Any], signature: inspect.Signature
) -> "msgspec.msgpack.Decoder[Any]":
    """Return a decoder of arguments: a struct with a field for every parameter."""
    fields: list[Any] = []
    for name, parameter in signature.parameters.items():
        kind = _resolve_type(job, function, parameter)
        # If the sender omits an argument, the receiver's default applies, even if it has changed since.
        fields.append(
            (name, kind)
            if parameter.default is parameter.empty
            else (name, Union[kind, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007 - some types do not support `|`
        )
    arguments = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    try:
        return msgspec.msgpack.Decoder(arguments)
    except TypeError as error:
        raise InvalidValue(f"job {job} has parameters that cannot be sent: {error}") from error


def _resolve_type(job: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of one parameter, resolved separately: others may be importable only for the type checker."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    holder = type("Holder", (), {"__annotations__": {parameter.name: annotation}})
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)[parameter.name]
    except NameError as error:
        raise _UnknownType(
            f"job {job}: the type {annotation!r} of {parameter.name} is not known when it runs: {error}; "
            "import it at run time, not only under TYPE_CHECKING"
        ) from error


def encode_call(name: str, arguments: dict[str, Any]) -> bytes:
    """Return the body of a message that calls a job by name. Raise InvalidValue for arguments that cannot be sent."""
    try:
        return msgspec.msgpack.encode((name, arguments))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValue(f"a call of {name} cannot be sent: {error}") from error


class CurrentMessage:
    """The message that a handler is handling. Call `check` in loops that nothing else interrupts. Thread-safe."""

    __slots__ = ("_ended", "delivery", "is_over", "reason")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.is_over = False
        """Whether the handler must stop, because its result will be ignored: its lease was lost, or will be soon."""
        self.reason = ""
        """Why the handler must stop, or empty."""
        self._ended: threading.Event | None = None  # created when needed: it takes a microsecond, and few handlers wait

    def check(self) -> None:
        """Raise LeaseLost if the handler must stop, because its result will be ignored."""
        if self.is_over:
            raise LeaseLost(f"message {self.delivery.id} of {self.delivery.queue}: {self.reason}")

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until the handler must stop. Return whether it must."""
        with _EVENT_LOCK.lock:
            if self._ended is None:
                self._ended = threading.Event()
        if self.is_over:  # `end` may have run before there was an event to set
            return True
        return self._ended.wait(seconds)

    def end(self, reason: str) -> None:
        """Ask the handler to stop. The worker calls this; to acknowledge a message, its handler returns."""
        self.reason = reason
        self.is_over = True
        if self._ended is not None:
            self._ended.set()


class _EventLock:
    def __init__(self) -> None:
        self.reset_after_fork()
        register_after_fork(self)

    def reset_after_fork(self) -> None:
        self.lock = threading.Lock()


_EVENT_LOCK = _EventLock()
CURRENT_MESSAGE: ContextVar[CurrentMessage] = ContextVar("holdfast.queue.job")


def current_message() -> CurrentMessage:
    """Return the message that this handler is handling. Raise InvalidValue outside of a handler."""
    try:
        return CURRENT_MESSAGE.get()
    except LookupError:
        raise InvalidValue("no message is being handled here: call this from a handler or a job") from None


class Postpone(Exception):
    """Raise this to have the message delivered again after `seconds`. It counts neither as a failure nor as an attempt.

    A message can be postponed without end: give it a `ttl` to limit that.
    """

    seconds: float = 1.0
    """Seconds to wait. A subclass may set this attribute instead of calling `__init__`."""

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= MAX_DURATION:
            raise InvalidValue(f"a message postponed by {seconds} s: expected 0 to {MAX_DURATION}, which is a year")
        super().__init__(seconds)
        self.seconds = float(seconds)


class Reject(Exception):
    """Raise this to bury the message now, because no further attempt would help. The text is stored as the reason."""
