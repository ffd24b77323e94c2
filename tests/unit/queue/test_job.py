"""Functions whose calls travel through a queue."""

import functools
import inspect
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional
from uuid import UUID

import msgspec
import pytest

from holdfast._errors import InvalidValue
from holdfast.calls import Backoff
from holdfast.queue import HandlerOptions, Job, OutgoingMessage, Queue
from holdfast.queue.job import encode_call, unpack_call
from tests.table import rows

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass
class Address:
    street: str
    number: int = 1


class Order(msgspec.Struct):
    id: UUID
    at: datetime
    amount: Decimal
    to: Address | None = None


@pytest.fixture
def queue() -> Queue:
    return Queue("work", "memory:")


def _there_and_back(job: Job[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    packed = unpack_call(job.encode(*args, **kwargs))
    assert packed.job == job.name
    return job.decode_arguments(packed.arguments)


def test_typed_arguments_arrive_as_what_they_were(queue: Queue) -> None:
    @queue.job
    def place(
        order: Order,
        when: datetime,
        tags: set[str],
        color: Literal["red", "blue"],
        raw: bytes,
        note: Optional[str] = None,  # noqa: UP045 - written like this, too
        count: Annotated[int, msgspec.Meta(ge=1)] = 1,
    ) -> None: ...

    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    order = Order(id=UUID(int=7), at=at, amount=Decimal("9.99"), to=Address("Main", 5))
    found = _there_and_back(place, order, at, {"a"}, color="blue", raw=b"\0\xff")
    assert found == {"order": order, "when": at, "tags": {"a"}, "color": "blue", "raw": b"\0\xff"}
    assert _there_and_back(place, order, at, set(), "red", b"", note=None, count=3)["count"] == 3


def test_a_default_that_was_left_out_is_that_of_the_receiver(queue: Queue) -> None:
    """The sender may be of another release: what it did not say, it leaves to the function of today."""

    @queue.job
    def mail(to: str, retries: int = 3, note: str | None = "none") -> None: ...

    assert _there_and_back(mail, "a") == {"to": "a"}
    assert _there_and_back(mail, "a", note=None) == {"to": "a", "note": None}


def test_parameters_without_types_take_what_can_be_sent(queue: Queue) -> None:
    @queue.job
    def anything(first, second=None) -> None:  # type: ignore[no-untyped-def]
        ...

    assert _there_and_back(anything, {"a": [1, None]}, second=2.5) == {"first": {"a": [1, None]}, "second": 2.5}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "object"),
        (lambda: None, "function"),
        (2**64, "2\\*\\*64|range|big"),
        ("\ud800", "surrogate"),
    ],
)
def test_what_cannot_be_sent_is_refused_where_it_is_sent(queue: Queue, value: object, words: str) -> None:
    @queue.job
    def take(value: Any) -> None: ...

    with pytest.raises(InvalidValue, match=f"a call of take cannot be sent: .*({words})"):
        take.to("a").message(value)


def test_an_endless_value_is_refused(queue: Queue) -> None:
    @queue.job
    def take(value: Any) -> None: ...

    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidValue, match="a call of take cannot be sent"):
        take.to("a").message(endless)


@pytest.mark.parametrize("arguments", [(), (1, 2, 3)])
def test_arguments_that_the_function_does_not_take_are_refused_where_they_are_sent(
    queue: Queue, arguments: tuple[int, ...]
) -> None:
    @queue.job
    def add(a: int, b: int = 0) -> None: ...

    with pytest.raises(InvalidValue, match="a call of add cannot be sent"):
        add.encode(*arguments)


def test_bad_arguments_are_refused_where_they_arrive(queue: Queue) -> None:
    @queue.job
    def add(count: Annotated[int, msgspec.Meta(ge=1)]) -> None: ...

    with pytest.raises(InvalidValue, match=r"add does not accept these arguments: Expected `int` >= 1 - at `\$.count`"):
        add.decode_arguments(msgspec.msgpack.encode({"count": 0}))
    with pytest.raises(InvalidValue, match="add does not accept these arguments"):
        add.decode_arguments(b"\xc1")


def test_a_job_can_be_called_as_the_function_it_is(queue: Queue) -> None:
    @queue.job
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    assert add(1, b=2) == 3
    assert add.__doc__ == "Add two numbers."
    assert inspect.unwrap(add) is add.function
    assert add.options == HandlerOptions()
    assert queue.jobs == {"add": add}


def test_a_name_can_be_given_and_must_be_one_of_a_kind(queue: Queue) -> None:
    queue.job(name="mail.send")(lambda to: None)
    with pytest.raises(InvalidValue, match=r"queue work already has a job mail\.send"):
        queue.job(name="mail.send")(lambda to: None)


@pytest.mark.parametrize("nameless", [functools.partial(print, 1), lambda: None])
def test_what_has_no_name_needs_one(queue: Queue, nameless: Any) -> None:
    with pytest.raises(InvalidValue, match=r"has no name .*name="):
        queue.job(nameless)


def test_options_are_checked_where_they_are_written(queue: Queue) -> None:
    with pytest.raises(InvalidValue, match=r"timeout of 0 s: expected more than 0"):
        queue.job(timeout=0)
    with pytest.raises(InvalidValue, match=r"timeout of nan s"):
        queue.handle(timeout=float("nan"))
    with pytest.raises(InvalidValue, match="max_attempts 0: expected 1 or more"):
        queue.job(max_attempts=0)


def test_options_are_kept(queue: Queue) -> None:
    backoff = Backoff(base=5, cap=50)

    @queue.job(timeout=1.5, max_attempts=7, backoff=backoff)
    def work() -> None: ...

    assert work.options == HandlerOptions(timeout=1.5, max_attempts=7, backoff=backoff)


def test_every_parameter_must_have_a_name(queue: Queue) -> None:
    def many(*args: int) -> None: ...
    def named(**kwargs: int) -> None: ...
    def by_place(a: int, /) -> None: ...

    for function in (many, named, by_place):
        with pytest.raises(InvalidValue, match=f"job {function.__name__} takes .*: expected named parameters only"):
            queue.job(function)
    assert queue.jobs == {}


def test_types_that_are_there_for_the_type_checker_only_are_told_when_they_are_needed(queue: Queue) -> None:
    def half(value: "Fraction") -> "Fraction":
        return value / 2

    job = queue.job(half)
    with pytest.raises(InvalidValue, match=r"job half: the type 'Fraction' of value is not known .*at run time"):
        job.decode_arguments(job.encode(1))
    with pytest.raises(InvalidValue, match="job half: the type"):
        job.prepare()


def test_a_class_may_be_written_after_the_job_that_takes_it(queue: Queue) -> None:
    @queue.job
    def take(it: "Later") -> None: ...

    assert _there_and_back(take, Later(7)) == {"it": Later(7)}


class Later(msgspec.Struct):
    number: int


def test_what_a_job_returns_need_not_be_known(queue: Queue) -> None:
    @queue.job
    def work(number: int) -> "Fraction":
        raise NotImplementedError

    assert _there_and_back(work, 1) == {"number": 1}


def test_types_that_cannot_be_told_apart_are_refused(queue: Queue) -> None:
    with pytest.raises(InvalidValue, match="job either has parameters that cannot be sent"):

        @queue.job
        def either(it: Address | Later) -> None: ...


def test_a_decorated_function_keeps_its_parameters(queue: Queue) -> None:
    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    @queue.job
    @logged
    def work(at: datetime) -> None: ...

    at = datetime(2026, 3, 1, tzinfo=UTC)
    assert _there_and_back(work, at) == {"at": at}


def test_the_options_of_a_call_are_those_of_its_message(queue: Queue) -> None:
    @queue.job
    def work(number: int) -> None: ...

    message = work.to("a", priority=0, delay=5, group="g", key="k", ttl=60).message(1)
    assert message == OutgoingMessage(tenant="a", body=work.encode(1), priority=0, delay=5, group="g", key="k", ttl=60)


def test_a_call_by_name_has_the_body_that_the_job_itself_makes(queue: Queue) -> None:
    """So whoever has no job at hand, a command or a program elsewhere, can call it."""

    @queue.job(name="mail.welcome")
    def welcome(address: str, copies: int = 1) -> None: ...

    arguments = {"address": "a@example.com", "copies": 2}
    assert encode_call("mail.welcome", arguments) == welcome.encode("a@example.com", 2)
    assert welcome.decode_arguments(unpack_call(encode_call("mail.welcome", {"address": "b"})).arguments) == {
        "address": "b"
    }


@pytest.mark.parametrize("value", [object(), 1 << 64, "\ud800"])
def test_a_call_by_name_that_cannot_be_sent_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="a call of welcome cannot be sent: "):
        encode_call("welcome", {"address": value})


def _from_json(kind: Any, text: str) -> Any:
    """What a parameter of this type becomes when its argument was written in JSON."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = kind
    job = Queue("work", "memory:").job(function)
    body = encode_call("function", msgspec.json.decode(f'{{"value": {text}}}'))
    return job.decode_arguments(unpack_call(body).arguments)["value"]


@rows(
    ("kind", "text", "value"),
    [
        (datetime, '"2026-01-31T12:00:00Z"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (date, '"2026-01-31"', date(2026, 1, 31)),
        (time, '"12:30:00"', time(12, 30)),
        (timedelta, '"PT90S"', timedelta(seconds=90)),
        (UUID, '"00000000-0000-0000-0000-000000000007"', UUID(int=7)),
        (Decimal, '"9.99"', Decimal("9.99")),
        (float, "1", 1.0),
        (set[int], "[1, 2]", {1, 2}),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (Address, '{"street": "Main"}', Address("Main")),
        (str | None, "null", None),
    ],
)
def test_what_json_has_no_word_for_is_written_as_text(kind: Any, text: str, value: Any) -> None:
    assert _from_json(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (bytes, '"aGVsbG8="'),
        (dict[int, str], '{"1": "a"}'),
        (datetime, "1767323040"),
        (timedelta, "90"),
        (int, '"1"'),
        (int, "1.0"),
    ],
)
def test_what_cannot_be_written_in_json_is_refused_where_it_arrives(kind: Any, text: str) -> None:
    with pytest.raises(InvalidValue, match="function does not accept these arguments: Expected "):
        _from_json(kind, text)
