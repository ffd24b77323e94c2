"""boto3 under a dependency's policies, over real HTTP: emulators for what works, a server of our own for what fails."""

import gc
import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4
from zlib import crc32

import boto3
import pytest
from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError

from holdfast import InvalidValue
from holdfast._errors import DeadlineExceeded, LimitReached, RetryAfterTooLong
from holdfast.calls import (
    Backoff,
    Dependency,
    Failure,
    FailureKind,
    Jitter,
    Limit,
    Percentile,
    Retry,
    RetryAfter,
    RetryAfterScope,
    RetryBudget,
    RetryOwner,
    Timeouts,
    deadline,
)
from holdfast.calls.adapters.botocore import NO_RETRY_REASON_KEY, client_config, protect
from holdfast.calls.adapters.botocore.governor import MAX_LONG_POLL
from holdfast.calls.context import current_scope
from holdfast.calls.events import AttemptEnded, BudgetExhausted, CallEvent, GaveUp, Retrying
from holdfast.calls.retry import GiveUpReason
from holdfast.calls.runtime import Runtime
from holdfast.testing import FakeClock
from tests.services.start import free_port
from tests.table import sampled

KEY = {"TableName": "t", "Key": {"k": {"S": "v"}}}
ITEM = {"TableName": "t", "Item": {"k": {"S": "v"}}}
STEADY = Backoff(base=0.1, jitter=Jitter.NONE)

Reply = Callable[[BaseHTTPRequestHandler], None]


def says(status: int, body: str, **headers: str) -> Reply:
    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/x-amz-json-1.0")
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body.encode())

    return reply


def fails(status: int, code: str, **headers: str) -> Reply:
    return says(status, json.dumps({"__type": code, "message": "said so"}), **headers)


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


WORKS = says(200, "{}")
DOWN = fails(503, "ServiceUnavailable")
THROTTLED = fails(400, "ThrottlingException")


class Scripted:
    """Answers with the next of `script`, and with its last for ever after; keeps the headers of every request."""

    def __init__(self) -> None:
        self.script: list[Reply] = [WORKS]
        self.requests: list[dict[str, str]] = []
        self.release = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def count(self) -> int:
        return len(self.requests)

    def hangs(self, handler: BaseHTTPRequestHandler) -> None:
        self.release.wait()
        handler.close_connection = True

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                scripted.requests.append({name.lower(): value for name, value in self.headers.items()})
                scripted.script[min(scripted.count, len(scripted.script)) - 1](self)

            do_GET = do_PUT = do_POST  # noqa: N815 - http.server's own names

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[CallEvent] = []

    def emit(self, event: CallEvent) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def server() -> Iterator[Scripted]:
    with closing(Scripted()) as scripted:
        yield scripted


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runtime(clock: FakeClock) -> Runtime:
    return Runtime(clock, lambda: 0.5)


@pytest.fixture
def sink() -> Kept:
    return Kept()


@pytest.fixture
def dependency(runtime: Runtime, sink: Kept) -> Callable[..., Dependency]:
    def make(**options: Any) -> Dependency:
        options.setdefault("retry", Retry(backoff=STEADY))
        return Dependency("table", runtime=runtime, sink=sink, **options)

    return make


@pytest.fixture
def connect() -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def connect(url: str, service: str = "dynamodb", config: Config | None = None) -> Any:
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        opened.append(boto3.client(service, "eu-west-1", endpoint_url=url, config=config, **keys))  # type: ignore[call-overload]
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


Make = Callable[..., Dependency]
Connect = Callable[..., Any]

MODES: list[Any] = [
    pytest.param(None, id="default"),
    pytest.param(Config(retries={"mode": "legacy"}), id="legacy"),
    pytest.param(Config(retries={"mode": "legacy", "max_attempts": 8}), id="legacy-8"),
    pytest.param(Config(retries={"mode": "standard"}), id="standard"),
    pytest.param(Config(retries={"mode": "standard", "total_max_attempts": 7}), id="standard-7"),
]


# One side retries


@pytest.mark.parametrize("mode", MODES)
def test_in_each_of_botocores_modes_there_are_exactly_as_many_requests_as_attempts(
    mode: Config | None, server: Scripted, dependency: Make, connect: Connect, clock: FakeClock
) -> None:
    server.script = [DOWN]
    client = protect(connect(server.url, config=mode), dependency())
    with pytest.raises(boto.ClientError):
        client.get_item(**KEY)
    assert server.count == 3
    assert clock.sleeps == pytest.approx([0.1, 0.2])


def test_without_being_governed_the_same_client_makes_more(server: Scripted, connect: Connect) -> None:
    """What the tests above would see if botocore's handler stayed on."""
    server.script = [DOWN, DOWN, WORKS]
    connect(server.url).get_item(**KEY)
    assert server.count == 3


def test_a_client_made_by_config_does_not_retry_even_before_it_is_governed(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [DOWN]
    with pytest.raises(boto.ClientError):
        connect(server.url, config=client_config(dependency())).get_item(**KEY)
    assert server.count == 1


def test_an_adaptive_client_is_refused(server: Scripted, dependency: Make, connect: Connect) -> None:
    with pytest.raises(InvalidValue, match="adaptive"):
        protect(connect(server.url, config=Config(retries={"mode": "adaptive"})), dependency())


def test_a_client_with_somebody_elses_retries_is_refused(server: Scripted, dependency: Make, connect: Connect) -> None:
    client = connect(server.url)
    client.meta.events.register("needs-retry.dynamodb", lambda **_: 0, unique_id="mine")
    with pytest.raises(InvalidValue, match="retries as well"):
        protect(client, dependency())


def test_a_client_is_governed_once(server: Scripted, dependency: Make, connect: Connect) -> None:
    client = protect(connect(server.url), dependency())
    with pytest.raises(InvalidValue, match="protected already"):
        protect(client, dependency())


def test_a_resource_is_refused_and_told_where_its_client_is(server: Scripted, dependency: Make) -> None:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    resource = boto3.resource("dynamodb", "eu-west-1", endpoint_url=server.url, **keys)  # type: ignore[call-overload]
    with closing(resource.meta.client), pytest.raises(InvalidValue, match=r"resource\.meta\.client"):
        protect(resource, dependency())
    with pytest.raises(InvalidValue, match=r"expected a client of boto3 or botocore$"):
        protect("dynamodb", dependency())


def test_what_is_no_dependency_is_refused(server: Scripted, connect: Connect) -> None:
    with pytest.raises(InvalidValue, match="'table': expected a Dependency"):
        protect(connect(server.url), "table")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="'table': expected a Dependency"):
        client_config("table")  # type: ignore[arg-type]


def test_what_is_idempotent_is_decided_by_a_function(server: Scripted, dependency: Make, connect: Connect) -> None:
    with pytest.raises(InvalidValue, match="idempotent is True: expected a function"):
        protect(connect(server.url), dependency(), idempotent=True)  # type: ignore[arg-type]


def test_other_clients_of_the_same_session_keep_their_own_retries(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    protect(connect(server.url), dependency())
    server.script = [DOWN, WORKS]
    connect(server.url).get_item(**KEY)
    assert server.count == 2


def test_under_a_layer_that_retries_there_is_one_attempt(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept, runtime: Runtime
) -> None:
    server.script = [DOWN]
    client = protect(connect(server.url), dependency())
    above = Dependency("above", runtime=runtime, retry=Retry(max_attempts=2))
    with pytest.raises(boto.ClientError):
        above.run(lambda: client.get_item(**KEY), idempotent=True)
    assert server.count == 2
    assert [(event.reason, event.retry_owner) for event in sink.of(GaveUp)] == [(GiveUpReason.NOT_OWNER, "above")] * 2
    assert "max=1" in server.requests[0]["amz-sdk-request"]


def test_a_call_that_leaves_retries_to_the_layers_below_makes_one_attempt(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [DOWN]
    client = protect(connect(server.url), dependency(retry=Retry(owner=RetryOwner.BELOW)))
    with pytest.raises(boto.ClientError):
        client.get_item(**KEY)
    assert server.count == 1


def test_the_service_is_told_which_attempt_of_how_many_it_is(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [DOWN, WORKS]
    protect(connect(server.url), dependency()).get_item(**KEY)
    assert ["attempt=1; max=3" in server.requests[0]["amz-sdk-request"], server.count] == [True, 2]
    assert "attempt=2; max=3" in server.requests[1]["amz-sdk-request"]


# What is repeated


@pytest.mark.parametrize("reply", [DOWN, fails(500, "InternalServerError"), hangs_up, THROTTLED])
def test_a_read_is_repeated_and_succeeds(reply: Reply, server: Scripted, dependency: Make, connect: Connect) -> None:
    server.script = [reply, reply, says(200, '{"Item": {"k": {"S": "v"}}}')]
    answer = protect(connect(server.url), dependency()).get_item(**KEY)
    assert answer["Item"] == {"k": {"S": "v"}}
    assert answer["ResponseMetadata"]["RetryAttempts"] == 2


@pytest.mark.parametrize("reply", [DOWN, hangs_up])
def test_a_write_that_may_have_been_done_is_not_repeated(
    reply: Reply, server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    server.script = [reply, WORKS]
    with pytest.raises((boto.ClientError, boto.HTTPClientError)):
        protect(connect(server.url), dependency()).put_item(**ITEM)
    assert server.count == 1
    assert [event.reason for event in sink.of(GaveUp)] == [GiveUpReason.NOT_IDEMPOTENT]


def test_a_write_that_was_throttled_was_not_done_and_is_repeated(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [THROTTLED, WORKS]
    protect(connect(server.url), dependency()).put_item(**ITEM)
    assert server.count == 2


def test_a_write_that_fails_after_it_was_throttled_is_not_repeated_again(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [THROTTLED, DOWN, WORKS]
    with pytest.raises(boto.ClientError):
        protect(connect(server.url), dependency()).put_item(**ITEM)
    assert server.count == 2


def test_your_own_judgement_of_what_is_idempotent_wins(server: Scripted, dependency: Make, connect: Connect) -> None:
    server.script = [DOWN, WORKS]
    protect(connect(server.url), dependency(), idempotent=lambda name: name == "PutItem").put_item(**ITEM)
    assert server.count == 2
    client = protect(connect(server.url), dependency(), idempotent=lambda name: False)
    server.script, server.requests = [DOWN, WORKS], []
    with pytest.raises(boto.ClientError):
        client.get_item(**KEY)
    assert server.count == 1


def test_a_write_with_an_idempotency_token_is_repeated_with_the_same_one(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [DOWN, WORKS]
    client = protect(connect(server.url), dependency())
    client.transact_write_items(TransactItems=[{"Put": ITEM}])
    assert server.count == 2
    assert server.requests[0]["content-length"] == server.requests[1]["content-length"]


def test_a_mistake_of_the_caller_is_not_repeated(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    server.script = [fails(400, "ValidationException")]
    client = protect(connect(server.url), dependency())
    with pytest.raises(boto.ClientError, match="said so"):
        client.get_item(**KEY)
    assert server.count == 1
    assert [event.reason for event in sink.of(GaveUp)] == [GiveUpReason.PERMANENT]


def test_an_error_that_the_model_declares_worth_another_attempt_is(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [fails(400, "ReplicatedWriteConflictException"), WORKS]
    protect(connect(server.url), dependency(), idempotent=lambda name: True).put_item(**ITEM)
    assert server.count == 2


def test_your_own_classification_wins_over_the_model(server: Scripted, dependency: Make, connect: Connect) -> None:
    server.script = [fails(400, "ReplicatedWriteConflictException"), WORKS]
    own = Retry(classify=lambda error: Failure(FailureKind.PERMANENT))
    client = protect(connect(server.url), dependency(retry=own), idempotent=lambda name: True)
    with pytest.raises(client.exceptions.ReplicatedWriteConflictException):
        client.put_item(**ITEM)
    assert server.count == 1


def test_an_answer_that_your_judge_rejects_is_repeated_and_the_last_one_is_returned(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    own = Retry(classify_result=lambda answer: None if "Item" in answer else Failure(FailureKind.NOT_VISIBLE_YET))
    client = protect(connect(server.url), dependency(retry=own))
    assert "Item" not in client.get_item(**KEY)
    assert server.count == 3


def test_an_answer_whose_checksum_is_wrong_is_repeated(server: Scripted, dependency: Make, connect: Connect) -> None:
    server.script = [says(200, "{}", x_amz_crc32="1"), says(200, "{}", x_amz_crc32=str(crc32(b"{}")))]
    protect(connect(server.url), dependency()).get_item(**KEY)
    assert server.count == 2


def test_an_answer_whose_checksum_stays_wrong_is_not_returned(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [says(200, "{}", x_amz_crc32="1")]
    with pytest.raises(boto.ChecksumError):
        protect(connect(server.url), dependency()).get_item(**KEY)
    assert server.count == 3


def test_an_answer_that_cannot_be_understood_is_final_and_leaves_nothing_under_way(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    server.script = [says(200, "not xml")]
    one = dependency(limit=Limit(1))
    with pytest.raises(ResponseParserError):
        protect(connect(server.url, "sts"), one).get_caller_identity()
    assert (server.count, one.in_flight) == (1, 0)
    assert [event.error for event in sink.of(AttemptEnded)] == ["ResponseParserError"]
    assert [event.reason for event in sink.of(GaveUp)] == [GiveUpReason.PERMANENT]


def test_missing_credentials_are_final_and_nothing_is_sent(
    server: Scripted, dependency: Make, sink: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dependency(limit=Limit(1))
    with closing(boto3.client("dynamodb", "eu-west-1", endpoint_url=server.url)) as client:
        protect(client, one)
        with pytest.raises(boto.NoCredentialsError):
            client.get_item(TableName="t", Key={"k": {"S": "v"}})
    assert (server.count, one.in_flight, len(sink.of(GaveUp))) == (0, 0, 1)


def test_credentials_that_cannot_be_fetched_cost_no_tokens_because_botocore_does_not_try_again(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    def unreachable(**_: Any) -> None:
        raise boto.EndpointConnectionError(endpoint_url="http://credentials.invalid")

    one = dependency()
    client = protect(connect(server.url), one)
    client.meta.events.register("before-sign", unreachable)
    with pytest.raises(boto.EndpointConnectionError):
        client.get_item(**KEY)
    assert (server.count, one.tokens, sink.of(Retrying)) == (0, 500, [])
    assert [event.reason for event in sink.of(GaveUp)] == [GiveUpReason.PERMANENT]


def test_an_error_of_s3_inside_a_good_answer_is_repeated(server: Scripted, dependency: Make, connect: Connect) -> None:
    error = "<Error><Code>InternalError</Code><Message>again</Message></Error>"
    copied = "<CopyObjectResult><ETag>e</ETag></CopyObjectResult>"
    server.script = [says(200, error), says(200, copied)]
    client = protect(connect(server.url, "s3"), dependency())
    assert client.copy_object(Bucket="b", Key="k", CopySource="b/c")["CopyObjectResult"] == {"ETag": "e"}
    assert server.count == 2


def test_a_redirect_to_another_region_is_the_same_attempt(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    moved = "<Error><Code>PermanentRedirect</Code></Error>"
    server.script = [says(301, moved, x_amz_bucket_region="us-east-1"), DOWN, says(200, "")]
    client = protect(connect(server.url, "s3", Config(s3={"addressing_style": "path"})), dependency())
    client.put_object(Bucket="bucket", Key="k", Body=b"v")
    assert server.count == 3
    assert [(event.number, event.failure) for event in sink.of(AttemptEnded)] == [(1, FailureKind.TRANSIENT), (2, None)]
    assert not sink.of(GaveUp)


# When nobody answers


def test_a_write_to_nobody_is_repeated_because_nothing_was_sent(dependency: Make, connect: Connect, sink: Kept) -> None:
    client = protect(connect(f"http://127.0.0.1:{free_port()}"), dependency())
    with pytest.raises(boto.EndpointConnectionError) as caught:
        client.put_item(**ITEM)
    assert [event.failure for event in sink.of(AttemptEnded)] == [FailureKind.UNSENT] * 3
    assert "3 attempts" in caught.value.__notes__[0]


def test_an_answer_that_does_not_come_is_given_up_at_the_attempts_own_time(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    """The client would wait for a minute; the time limit of the test would be over."""
    server.script = [server.hangs]
    one = dependency(timeouts=Timeouts(attempt=0.05), retry=Retry(max_attempts=2, backoff=STEADY))
    client = protect(connect(server.url, config=Config(read_timeout=600)), one)
    with pytest.raises(boto.ReadTimeoutError):
        client.get_item(**KEY)
    assert [event.failure for event in sink.of(AttemptEnded)] == [FailureKind.TIMEOUT] * 2
    assert one.latency(50) == math.inf


def test_the_clients_own_read_timeout_is_never_made_longer(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [server.hangs]
    one = dependency(timeouts=Timeouts(attempt=None, total=None), retry=Retry(max_attempts=1))
    with pytest.raises(boto.ReadTimeoutError):
        protect(connect(server.url, config=Config(read_timeout=0.05)), one).get_item(**KEY)


class Pausing:
    """Sends the headers and half of a body, and the rest when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "8")
        handler.end_headers()
        handler.wfile.write(b"one ")
        self.go_on.wait(30)
        handler.wfile.write(b"two ")


@pytest.mark.parametrize("own", [None, Config(read_timeout=20)])
def test_a_stream_may_pause_for_longer_than_an_attempt(
    own: Config | None, server: Scripted, dependency: Make, connect: Connect
) -> None:
    pausing = Pausing()
    server.script = [pausing]
    one = dependency(timeouts=Timeouts(attempt=0.1), retry=Retry(max_attempts=1))
    client = protect(connect(server.url, "s3", own or client_config(one)), one)
    body = client.get_object(Bucket="b", Key="k")["Body"]
    threading.Timer(0.3, pausing.go_on.set).start()
    assert body.read() == b"one two "


def test_a_stream_may_pause_no_longer_than_the_client_says(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    pausing = Pausing()
    server.script = [pausing]
    client = protect(connect(server.url, "s3", Config(read_timeout=0.1)), dependency())
    body = client.get_object(Bucket="b", Key="k")["Body"]
    with pytest.raises(boto.ReadTimeoutError):
        body.read()
    pausing.go_on.set()


def test_a_stream_that_begins_too_late_is_given_up_at_the_attempts_own_time(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [server.hangs]
    one = dependency(timeouts=Timeouts(attempt=0.1), retry=Retry(max_attempts=1))
    with pytest.raises(boto.ReadTimeoutError):
        protect(connect(server.url, "s3", Config(read_timeout=600)), one).get_object(Bucket="b", Key="k")


def test_a_stream_without_anything_in_it_is_read(server: Scripted, dependency: Make, connect: Connect) -> None:
    server.script = [says(200, "")]
    one = dependency()
    client = protect(connect(server.url, "s3", client_config(one)), one)
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == b""


# Deadlines


def test_after_the_deadline_nothing_is_sent(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept, runtime: Runtime, clock: FakeClock
) -> None:
    client = protect(connect(server.url), dependency())
    with deadline(1.0, runtime=runtime):
        clock.advance(1.0)
        with pytest.raises(DeadlineExceeded, match="table/GetItem") as caught:
            client.get_item(**KEY)
    assert isinstance(caught.value, boto.BotoCoreError)
    assert server.count == 0
    assert [(event.reason, event.attempts) for event in sink.of(GaveUp)] == [(GiveUpReason.DEADLINE, 0)]


def test_an_answer_after_the_deadline_is_in_the_error(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept, runtime: Runtime, clock: FakeClock
) -> None:
    def works_late(handler: BaseHTTPRequestHandler) -> None:
        clock.advance(1.0)
        WORKS(handler)

    server.script = [works_late]
    client = protect(connect(server.url), dependency())
    with deadline(1.0, runtime=runtime), pytest.raises(DeadlineExceeded, match="table/PutItem: succeeded") as caught:
        client.put_item(**ITEM)
    assert isinstance(caught.value, boto.BotoCoreError)
    assert caught.value.result["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "no time is left before the deadline" in caught.value.__notes__[0]
    assert server.count == 1
    assert [(event.reason, event.attempts) for event in sink.of(GaveUp)] == [(GiveUpReason.DEADLINE, 1)]


def test_a_retry_that_would_come_after_the_deadline_is_not_waited_for(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept, runtime: Runtime, clock: FakeClock
) -> None:
    server.script = [DOWN]
    client = protect(connect(server.url), dependency())
    with deadline(0.25, runtime=runtime), pytest.raises(boto.ClientError) as caught:
        client.get_item(**KEY)
    assert server.count == 2
    assert sum(clock.sleeps) == pytest.approx(0.1)
    assert "no time is left" in caught.value.response["ResponseMetadata"][NO_RETRY_REASON_KEY]  # type: ignore[literal-required]
    assert [event.reason for event in sink.of(GaveUp)] == [GiveUpReason.DEADLINE]


def test_a_wait_that_took_longer_than_it_should_ends_in_the_failure_before_it(
    server: Scripted, connect: Connect, sink: Kept
) -> None:
    class Oversleeping(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 60.0 if seconds else seconds)

    server.script = [fails(500, "InternalServerError")]
    one = Dependency("table", runtime=Runtime(Oversleeping(), lambda: 0.5), sink=sink, limit=Limit(1))
    client = protect(connect(server.url), one)
    with pytest.raises(client.exceptions.InternalServerError):
        client.get_item(**KEY)
    assert (server.count, one.in_flight) == (1, 0)


# Budget, hints, limit


def test_when_the_budget_is_used_up_each_call_is_one_request(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    server.script = [DOWN]
    client = protect(connect(server.url), dependency(budget=RetryBudget(capacity=28, min_retry_rate=0)))
    for _ in range(5):
        with pytest.raises(boto.ClientError):
            client.get_item(**KEY)
    assert server.count == 5 + 2
    assert len(sink.of(BudgetExhausted)) == 1
    assert [event.reason for event in sink.of(GaveUp)] == [GiveUpReason.MAX_ATTEMPTS] + [GiveUpReason.BUDGET] * 4


def test_success_pays_for_retries_again(server: Scripted, dependency: Make, connect: Connect) -> None:
    one = dependency(budget=RetryBudget(capacity=28, min_retry_rate=0))
    client = protect(connect(server.url), one)
    server.script = [DOWN, WORKS]
    client.get_item(**KEY)
    assert one.tokens == 28  # what the retry cost came back
    server.script, server.requests = [DOWN], []
    with pytest.raises(boto.ClientError):
        client.get_item(**KEY)
    server.script = [WORKS]
    client.get_item(**KEY)
    assert one.tokens == 1


def test_clients_under_one_dependency_share_its_budget(server: Scripted, dependency: Make, connect: Connect) -> None:
    server.script = [DOWN]
    one = dependency(budget=RetryBudget(capacity=28, min_retry_rate=0))
    first, second = (protect(connect(server.url), one) for _ in range(2))
    with pytest.raises(boto.ClientError):
        first.get_item(**KEY)
    with pytest.raises(boto.ClientError):
        second.get_item(**KEY)
    assert server.count == 4


def test_the_service_says_when_to_come_back(
    server: Scripted, dependency: Make, connect: Connect, clock: FakeClock
) -> None:
    server.script = [fails(503, "ServiceUnavailable", x_amz_retry_after="4000"), WORKS]
    protect(connect(server.url), dependency()).get_item(**KEY)
    assert clock.sleeps[-1] == pytest.approx(4.0 + 0.5 * 0.25 * 4.0)


def test_a_hint_may_hold_first_attempts_back_as_well(
    server: Scripted, dependency: Make, connect: Connect, clock: FakeClock, runtime: Runtime
) -> None:
    server.script = [fails(503, "ServiceUnavailable", x_amz_retry_after="4000"), WORKS]
    one = dependency(retry_after=RetryAfter(scope=RetryAfterScope.ALL, spread=0), retry=Retry(max_attempts=1))
    client = protect(connect(server.url), one)
    with pytest.raises(boto.ClientError):
        client.get_item(**KEY)
    with deadline(1.0, runtime=runtime), pytest.raises(RetryAfterTooLong) as caught:
        client.get_item(**KEY)
    assert isinstance(caught.value, boto.BotoCoreError)
    client.get_item(**KEY)
    assert server.count == 2
    assert clock.sleeps[-1] == pytest.approx(4.0)


def test_past_the_limit_nothing_is_sent(server: Scripted, dependency: Make, connect: Connect) -> None:
    one = dependency(limit=Limit(1))
    client = protect(connect(server.url), one)
    refused: list[Exception] = []

    def call_again(handler: BaseHTTPRequestHandler) -> None:
        try:
            client.get_item(**KEY)
        except LimitReached as error:
            refused.append(error)
        WORKS(handler)

    server.script = [call_again]
    client.get_item(**KEY)
    assert (len(refused), server.count, one.in_flight) == (1, 1, 0)
    assert isinstance(refused[0], boto.BotoCoreError)


class Interrupted(BaseException):
    """As KeyboardInterrupt is, without ending the tests."""


def test_an_interrupted_call_does_not_count_as_under_way_for_ever(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    def interrupt(**_: Any) -> None:
        raise Interrupted

    one = dependency(limit=Limit(1))
    client = protect(connect(server.url), one)
    client.meta.events.register("before-send", interrupt)
    with pytest.raises(Interrupted):
        client.get_item(**KEY)
    gc.collect()
    client.meta.events.unregister("before-send", interrupt)
    client.get_item(**KEY)
    assert one.in_flight == 0


# What is told


def test_each_attempt_is_told_as_for_other_calls(
    server: Scripted, dependency: Make, connect: Connect, sink: Kept
) -> None:
    server.script = [THROTTLED, WORKS]
    protect(connect(server.url), dependency()).get_item(**KEY)
    first, retrying, last = sink.events
    assert isinstance(first, AttemptEnded)
    assert isinstance(retrying, Retrying)
    assert isinstance(last, AttemptEnded)
    assert (str(first.operation), first.number, first.failure) == ("table/GetItem", 1, FailureKind.THROTTLED)
    assert (first.status, first.code, first.error) == (400, "ThrottlingException", "ThrottlingException")
    assert (retrying.number, retrying.delay, retrying.failure) == (2, 0.5, FailureKind.THROTTLED)
    assert (last.number, last.failure) == (2, None)


def test_why_it_was_the_last_attempt_is_in_the_errors_metadata(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    server.script = [DOWN]
    with pytest.raises(boto.ClientError) as caught:
        protect(connect(server.url), dependency()).get_item(**KEY)
    note = caught.value.response["ResponseMetadata"][NO_RETRY_REASON_KEY]  # type: ignore[literal-required]
    assert note.startswith("holdfast: table/GetItem: gave up after 3 attempts")
    assert "max_attempts is reached" in note


def test_latency_is_learned_and_that_of_a_long_poll_is_not(
    server: Scripted, dependency: Make, connect: Connect
) -> None:
    one = dependency()
    queue = protect(connect(server.url, "sqs"), one)
    queue.receive_message(QueueUrl=f"{server.url}/q")
    assert one.latency(50) is None
    protect(connect(server.url), one).get_item(**KEY)
    assert one.latency(50) is not None


def test_a_long_poll_has_longer_than_other_attempts_within_the_deadline(
    server: Scripted, dependency: Make, connect: Connect, runtime: Runtime
) -> None:
    given: list[float] = []
    one = dependency(timeouts=Timeouts(attempt=2.0, total=None))
    queue = protect(connect(server.url, "sqs", client_config(one)), one)
    queue.meta.events.register("before-send", lambda request, **_: given.append(request.context["read_timeout"]))
    queue.receive_message(QueueUrl=f"{server.url}/q")
    with deadline(5.0, runtime=runtime):
        queue.receive_message(QueueUrl=f"{server.url}/q")
    queue.send_message(QueueUrl=f"{server.url}/q", MessageBody="m")
    assert given == [MAX_LONG_POLL, 5.0, 2.0]


def test_no_scope_of_a_call_is_left_behind(server: Scripted, dependency: Make, connect: Connect) -> None:
    protect(connect(server.url), dependency()).get_item(**KEY)
    assert current_scope() is None


# Settings for clients


@pytest.mark.parametrize(
    ("timeouts", "connecting", "reading"),
    [
        (Timeouts(), 3.0, 10.0),
        (Timeouts(connect=Percentile(start=1.0, ceiling=2.0), attempt=1.5), 2.0, 1.5),
        (Timeouts(attempt=None, total=4.0), 3.0, 4.0),
        (Timeouts(attempt=None, total=None), 3.0, 60.0),
        (Timeouts(total=0.5), 0.5, 0.5),
    ],
)
def test_a_clients_timeouts_follow_from_the_dependencys(timeouts: Timeouts, connecting: float, reading: float) -> None:
    made: Any = client_config(Dependency("table", timeouts=timeouts))
    assert (made.connect_timeout, made.read_timeout) == (connecting, reading)
    assert made.retries == {"mode": "standard", "total_max_attempts": 1}


def test_settings_of_your_own_are_merged() -> None:
    made: Any = client_config(Dependency("table")).merge(Config(max_pool_connections=50))
    assert (made.max_pool_connections, made.read_timeout) == (50, 10.0)


# Emulators


@pytest.fixture(params=sampled(["moto_url", "ministack_url"]))
def emulator(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def test_tables_and_objects_work_as_before_pages_and_waiters_too(emulator: str, connect: Connect, sink: Kept) -> None:
    one = Dependency("store", sink=sink)
    table, bucket = f"t-{uuid4()}", f"b-{uuid4()}"
    dynamodb = protect(connect(emulator, config=client_config(one)), one)
    dynamodb.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.get_waiter("table_exists").wait(TableName=table)
    for number in range(5):
        dynamodb.put_item(TableName=table, Item={"k": {"S": str(number)}})
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, PaginationConfig={"PageSize": 2})
    assert sorted(item["k"]["S"] for page in pages for item in page["Items"]) == list("01234")
    s3 = protect(connect(emulator, "s3", client_config(one)), one)
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket=bucket, Key="k", Body=b"v")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"v"
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket=bucket, Key="none")
    told = {event.operation.name for event in sink.of(AttemptEnded)}
    assert {"CreateTable", "DescribeTable", "PutItem", "Scan", "GetObject"} <= told
    assert [event.reason for event in sink.of(GaveUp)] == [GiveUpReason.PERMANENT]
