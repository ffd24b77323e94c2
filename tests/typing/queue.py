"""The shapes of jobs and queues that users of the package may rely on. Nothing runs here: the type checker reads it."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, assert_type

from holdfast.queue import (
    CurrentMessage,
    Delivery,
    OutgoingMessage,
    Queue,
    QueuePolicy,
    RefusedMessage,
    SentMessage,
    Topic,
    Worker,
    WorkerOptions,
    current_message,
)


async def a_job_keeps_the_signature_of_its_function(queue: Queue) -> None:
    @queue.job
    def resize(image: str, *, width: int = 100) -> bool:
        return len(image) > width

    @queue.job(name="mail", timeout=5.0, max_attempts=3)
    async def mail(to: str) -> float:
        return len(to) / 2

    assert_type(resize("a", width=5), bool)
    awaited: Coroutine[Any, Any, float] = mail("a")
    assert_type(await awaited, float)
    assert_type(resize.to("tenant", priority=0).send("a", width=5), SentMessage)
    assert_type(resize.to("tenant").message("a"), OutgoingMessage)
    assert_type(await mail.to("tenant").send_async("a"), SentMessage)
    assert_type(resize.name, str)


async def sending_says_what_became_of_it(queue: Queue, topic: Topic) -> None:
    assert_type(queue.send(b"x", tenant="a", key="k"), SentMessage)
    assert_type(await queue.send_async(b"x", tenant="a"), SentMessage)
    assert_type(queue.send_many([OutgoingMessage(tenant="a", body=b"")]), Sequence[SentMessage | RefusedMessage])
    assert_type(topic.publish([]), Sequence[SentMessage | RefusedMessage])
    assert_type(queue.policy, QueuePolicy)


def handlers_get_deliveries(queue: Queue, other: Queue) -> None:
    @queue.handle()
    def handle(delivery: Delivery) -> None:
        assert_type(current_message(), CurrentMessage)
        assert_type(delivery.body, bytes)

    @other.handle(timeout=1.0, max_attempts=3)
    async def handle_later(delivery: Delivery) -> None:
        assert_type(delivery.attempt, int)


async def a_handler_keeps_the_type_of_its_function(queue: Queue, other: Queue, received: Delivery) -> None:
    @queue.handle
    def handle(delivery: Delivery) -> None: ...

    @other.handle
    async def handle_later(delivery: Delivery) -> None: ...

    handle(delivery=received)
    returns_nothing: Callable[[Delivery], None] = handle
    is_awaited: Callable[[Delivery], Coroutine[Any, Any, None]] = handle_later
    returns_nothing(received)
    await is_awaited(received)


def workers_are_context_managers(queue: Queue) -> None:
    with Worker(queue, WorkerOptions(concurrency=4)) as worker:
        assert_type(worker, Worker)
        assert_type(worker.in_flight, int)
