"""Functions whose calls travel through a queue: typed arguments, checked where they arrive.

`Job` is such a function. While it runs, `current_message` is the message that it handles; `Postpone` and `Reject` are
what it raises to decide what becomes of that message, other than that it failed.
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
    """How a handler is run."""

    timeout: float | None = None
    """Seconds after which it is cancelled, and has failed; a synchronous one is told, and no longer waited for."""
    max_attempts: int | None = None
    """Attempts before its messages are buried; None: as many as the queue says.

    A message that was delivered so often, to workers that died with it, is buried without another attempt. Deaths of
    workers count against the queue's own `max_attempts` as well: more than those help against handlers that fail only.
    """
    backoff: Backoff = DEFAULT_BACKOFF
    """How long to wait between them."""

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidValue(f"a handler's timeout of {self.timeout} s: expected more than 0, or None for no bound")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidValue(f"max_attempts {self.max_attempts}: expected 1 or more")


class Job(Generic[Parameters, Result]):
    """A function that can be called here, or sent to whoever works on its queue."""

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
                raise InvalidValue(f"job {name} takes {one}: expected parameters that have a name each")
        can_be_given_by_order = all(one.kind is not one.KEYWORD_ONLY for one in parameters.values())
        self._positional_names = tuple(parameters) if can_be_given_by_order else ()
        self._requires_all = all(one.default is one.empty for one in parameters.values())
        self._decoder: msgspec.msgpack.Decoder[Any] | None = None
        with suppress(_UnknownType):  # a class that is written further below, perhaps
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
        """For a tenant: `resize.to("tenant-a").send(image)`. What the options mean, `OutgoingMessage` says."""
        return JobCall(
            self,
            OutgoingMessage(tenant=tenant, body=b"", priority=priority, delay=delay, group=group, key=key, ttl=ttl),
        )

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        """The body of a message that calls it. Raises InvalidValue for what cannot be sent."""
        if len(args) == len(self._positional_names) and not kwargs:
            return encode_call(
                self.name, dict(zip(self._positional_names, args, strict=True))
            )  # quicker than `bind`, ten times
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidValue(f"a call of {self.name} cannot be sent: {error}") from error
        return encode_call(self.name, arguments)

    def decode_arguments(self, packed: bytes | msgspec.Raw) -> dict[str, Any]:
        """The arguments, checked. Raises InvalidValue for what the function does not take."""
        try:
            found = msgspec.structs.asdict(self.prepare().decode(packed))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidValue(f"{self.name} does not take these arguments: {error}") from error
        if self._requires_all:
            return found
        return {name: value for name, value in found.items() if value is not msgspec.UNSET}

    def prepare(self) -> "msgspec.msgpack.Decoder[Any]":
        """Learn the types of its arguments, if that is not done. Raises InvalidValue for those that nobody knows."""
        if self._decoder is None:
            self._decoder = _build_decoder(self.name, self.function, self._signature)
        return self._decoder


class JobCall(Generic[Parameters]):
    """A call of a job for one tenant, ready to be sent."""

    def __init__(self, job: Job[Parameters, Any], message: OutgoingMessage) -> None:
        self._job = job
        self._message = message

    def message(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> OutgoingMessage:
        """The message, to be sent together with others by `Queue.send_many`."""
        return msgspec.structs.replace(self._message, body=self._job.encode(*args, **kwargs))

    def send(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> SentMessage:
        """Send it. Raises Backpressure when the tenant has sent too much."""
        return self._job.queue.send_one(self.message(*args, **kwargs))

    def send_async(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Coroutine[Any, Any, SentMessage]:
        """The same, without blocking the event loop."""
        return self._job.queue.send_one_async(self.message(*args, **kwargs))


class PackedCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The body of a message that calls a job."""

    job: str
    arguments: msgspec.Raw


unpack_call = msgspec.msgpack.Decoder(PackedCall).decode


def get_function_name(function: Callable[..., Any]) -> str:
    """What a function is called. Raises InvalidValue for what has no name."""
    name: str | None = getattr(function, "__name__", None)
    if name is None or not name.isidentifier():
        raise InvalidValue(f"{function!r} has no name that its messages could call it by: give it one, name=...")
    return name


def _list_callables(function: Callable[..., Any]) -> tuple[Any, Any]:
    """The function, and what runs if it is an object that is called like one."""
    return function, getattr(type(function), "__call__", None)  # noqa: B004


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether what a function returns is to be awaited."""
    return any(map(inspect.iscoroutinefunction, _list_callables(function)))


def require_no_generator(function: Callable[..., Any]) -> None:
    """Raise InvalidValue for a generator, of which a call runs nothing."""
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in _list_callables(function)):
        raise InvalidValue(
            f"{function!r} is a generator, and calling it would do nothing: expected a function without `yield`; "
            "let one such function go through what the generator yields"
        )


class _UnknownType(InvalidValue):
    """A type that is not known, or not yet."""


def _build_decoder(
    job: str, function: Callable[..., Any], signature: inspect.Signature
) -> "msgspec.msgpack.Decoder[Any]":
    """What makes arguments of bytes: a structure with a field for every parameter."""
    fields: list[Any] = []
    for name, parameter in signature.parameters.items():
        kind = _resolve_type(job, function, parameter)
        # Left out by the sender, it is left out here: the function's own default holds, that of today.
        fields.append(
            (name, kind)
            if parameter.default is parameter.empty
            else (name, Union[kind, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007 - also of what has no `|`
        )
    arguments = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    try:
        return msgspec.msgpack.Decoder(arguments)
    except TypeError as error:
        raise InvalidValue(f"job {job} has parameters that cannot be sent: {error}") from error


def _resolve_type(job: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The type of one parameter: of each alone, because those that need not be known are often not there."""
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
            "import it for good, not for the type checker alone"
        ) from error


def encode_call(name: str, arguments: dict[str, Any]) -> bytes:
    """The body of a message that calls a job by its name. Raises InvalidValue for what cannot be sent."""
    try:
        return msgspec.msgpack.encode((name, arguments))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValue(f"a call of {name} cannot be sent: {error}") from error


class CurrentMessage:
    """One message being handled. `check` in loops that nothing else interrupts. Thread-safe."""

    __slots__ = ("_ended", "delivery", "is_over", "reason")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.is_over = False
        """Whether what is done from here on will not count: another worker has the message, or may have it soon."""
        self.reason = ""
        """Why it must stop, if it must."""
        self._ended: threading.Event | None = None  # made for those who wait: few do, and it takes a microsecond

    def check(self) -> None:
        """Raise LeaseLost if what is done from here on will not count."""
        if self.is_over:
            raise LeaseLost(f"message {self.delivery.id} of {self.delivery.queue}: {self.reason}")

    def wait(self, seconds: float) -> bool:
        """Sleep, but not beyond the end: true if it must stop."""
        with _EVENT_LOCK.lock:
            if self._ended is None:
                self._ended = threading.Event()
        if self.is_over:  # perhaps told before there was anything to set
            return True
        return self._ended.wait(seconds)

    def end(self, reason: str) -> None:
        """Tell the handler that it must stop."""
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
    """The message that is being handled here. Raises InvalidValue outside of a handler."""
    try:
        return CURRENT_MESSAGE.get()
    except LookupError:
        raise InvalidValue("no message is being handled here: call this from a handler or a job") from None


class Postpone(Exception):
    """Deliver the message again after so many seconds. It does not count as a failure, or as an attempt.

    So it may go on for ever: give the message a `ttl` where it must not.
    """

    seconds: float = 1.0
    """Seconds to wait. A class derived from this one may set them as well, instead of calling `__init__`."""

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= MAX_DURATION:
            raise InvalidValue(f"a message postponed by {seconds} s: expected 0 to {MAX_DURATION}, which is a year")
        super().__init__(seconds)
        self.seconds = float(seconds)


class Reject(Exception):
    """Bury the message now: no further attempt would help. The text says why."""
