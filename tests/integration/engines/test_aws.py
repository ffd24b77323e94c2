"""AWS over real HTTP: two emulators for what works, and a server of our own for what goes wrong."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from holdfast import EngineError, EngineUnavailable, NotAllowed, OutcomeUnknown
from holdfast.engines.aws import AwsOptions, AwsSession
from tests.services.start import free_port

ROLE = "arn:aws:iam::123456789012:role/evacuator"
Open = Callable[..., AwsSession]


@pytest.fixture(autouse=True)
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "SOURCE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's pauses between attempts take a second or two, and are not what is tested."""
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))


@pytest.fixture
def connect() -> Iterator[Open]:
    opened: list[AwsSession] = []

    def connect(url: str, **options: Any) -> AwsSession:
        opened.append(AwsSession(AwsOptions(region="eu-west-1", endpoint_url=url, **options)))
        return opened[-1]

    yield connect
    for session in opened:
        session.close()


@pytest.fixture(params=["moto_url", "ministack_url"])
def emulator(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def says(status: int, body: str, kind: str = "application/x-amz-json-1.0") -> Callable[[BaseHTTPRequestHandler], None]:
    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return reply


def fails(status: int, code: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return says(status, f'{{"__type": "{code}", "message": "said so"}}')


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def credentials(key: str, lasting: timedelta) -> Callable[[BaseHTTPRequestHandler], None]:
    expires = (datetime.now(UTC) + lasting).strftime("%Y-%m-%dT%H:%M:%SZ")
    values = {"AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "t", "Expiration": expires}
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    result = f"<AssumeRoleResult><Credentials>{fields}</Credentials></AssumeRoleResult>"
    return says(200, f"<AssumeRoleResponse>{result}</AssumeRoleResponse>", "text/xml")


WORKS = says(200, "{}")
ITEM = {"TableName": "t", "Item": {"k": {"S": "v"}}}
KEY = {"TableName": "t", "Key": {"k": {"S": "v"}}}


class FaultyServer:
    """Answers with the next of `script`, and with its last for ever after; as STS, lets anybody assume any role."""

    def __init__(self) -> None:
        self.script: list[Callable[[BaseHTTPRequestHandler], None]] = [WORKS]
        self.keys: list[str] = []
        """Whose credentials signed the requests, except those for a role: `SOURCE`, `ROLE1`, `ROLE2`, ..."""
        self.roles = 0
        self.role_lasts = timedelta(hours=1)
        self.release = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> int:
        return len(self.keys)

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if b"Action=AssumeRole" in body:
                    faulty.roles += 1
                    credentials(f"ROLE{faulty.roles}", faulty.role_lasts)(self)
                    return
                key = re.search(r"Credential=(\w+)/", self.headers["Authorization"])
                faulty.keys.append(key[1] if key else "")
                faulty.script[min(faulty.requests, len(faulty.script)) - 1](self)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def faulty() -> Iterator[FaultyServer]:
    with closing(FaultyServer()) as server:
        yield server


def test_objects_are_read_back_as_they_were_written(emulator: str, connect: Open) -> None:
    s3 = connect(emulator).client("s3")
    bucket = f"holdfast-{uuid4()}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket=bucket, Key="health", Body=b"green")
    assert s3.get_object(Bucket=bucket, Key="health")["Body"].read() == b"green"


def test_an_error_of_the_service_itself_stays_what_it_is(emulator: str, connect: Open) -> None:
    s3 = connect(emulator).client("s3")
    with pytest.raises(s3.exceptions.NoSuchBucket):
        s3.list_objects_v2(Bucket=f"holdfast-{uuid4()}")
    with pytest.raises(ClientError, match="404"):
        s3.head_bucket(Bucket=f"holdfast-{uuid4()}")


def test_items_come_from_all_pages(emulator: str, connect: Open) -> None:
    session = connect(emulator)
    dynamodb = session.client("dynamodb")
    table = f"holdfast-{uuid4()}"
    dynamodb.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number in range(7):
        dynamodb.put_item(TableName=table, Item={"k": {"S": str(number)}})
    pages: list[str] = []
    dynamodb.meta.events.register("after-call.dynamodb.Scan", lambda **_: pages.append("page"))
    items = session.paginate("dynamodb", "scan", TableName=table, PaginationConfig={"PageSize": 2})
    assert sorted(item["k"]["S"] for item in items) == list("0123456")
    assert len(pages) >= 4


def test_the_next_page_is_asked_for_when_it_is_needed_and_another_list_may_be_chosen(
    emulator: str, connect: Open
) -> None:
    session = connect(emulator)
    s3 = session.client("s3")
    bucket = f"holdfast-{uuid4()}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    for name in ("a", "b", "c", "deep/d", "deep/e"):
        s3.put_object(Bucket=bucket, Key=name)
    pages: list[str] = []
    s3.meta.events.register("after-call.s3.ListObjectsV2", lambda **_: pages.append("page"))
    keys = session.paginate(s3, "list_objects_v2", Bucket=bucket, PaginationConfig={"PageSize": 2})
    assert not pages
    assert [item["Key"] for item in islice(keys, 2)] == ["a", "b"]
    assert len(pages) == 1
    assert [item["Key"] for item in keys] == ["c", "deep/d", "deep/e"]
    folders = session.paginate(s3, "list_objects_v2", result="CommonPrefixes", Bucket=bucket, Delimiter="/")
    assert list(folders) == [{"Prefix": "deep/"}]


def test_an_answer_without_items_is_no_item(emulator: str, connect: Open) -> None:
    session = connect(emulator)
    assert list(session.paginate("sqs", "list_queues", QueueNamePrefix=f"none-{uuid4()}")) == []


def test_a_role_is_assumed_under_the_name_of_the_session(emulator: str, connect: Open) -> None:
    sts = connect(emulator, role_arn=ROLE, session_name="drill", external_id="between-us").client("sts")
    assert sts.get_caller_identity()["Arn"].endswith("assumed-role/evacuator/drill")


def test_credentials_of_a_role_are_kept_while_they_last(faulty: FaultyServer, connect: Open) -> None:
    session = connect(faulty.url, role_arn=ROLE)
    for _ in range(3):
        session.client("dynamodb").put_item(**ITEM)
    session.client("kinesis").put_record(StreamName="s", Data=b"", PartitionKey="p")
    assert faulty.keys == ["ROLE1"] * 4
    assert faulty.roles == 1


def test_credentials_of_a_role_are_refreshed_before_they_expire(faulty: FaultyServer, connect: Open) -> None:
    faulty.role_lasts = timedelta(minutes=5)
    dynamodb = connect(faulty.url, role_arn=ROLE).client("dynamodb")
    dynamodb.put_item(**ITEM)
    faulty.role_lasts = timedelta(hours=1)
    dynamodb.put_item(**ITEM)
    dynamodb.put_item(**ITEM)
    before, after, still = faulty.keys
    assert before != after
    assert after == still


def test_a_role_that_may_not_be_assumed_is_told_apart_from_the_call_that_needed_it(
    faulty: FaultyServer, connect: Open
) -> None:
    refused = f"http://127.0.0.1:{free_port()}"
    dynamodb = connect(faulty.url, role_arn=ROLE, endpoint_urls={"sts": refused}, max_attempts=1).client("dynamodb")
    with pytest.raises(EngineUnavailable, match=f"AWS sts AssumeRole.*{refused}"):
        dynamodb.put_item(**ITEM)
    assert faulty.requests == 0


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("max_attempts", [1, 2, 3, 5])
@pytest.mark.parametrize(("status", "code"), [(503, "ServiceUnavailable"), (400, "ThrottlingException")])
def test_a_call_makes_exactly_as_many_requests_as_it_may(
    faulty: FaultyServer, connect: Open, max_attempts: int, status: int, code: str
) -> None:
    faulty.script = [fails(status, code)]
    with pytest.raises(EngineUnavailable, match="AWS dynamodb PutItem") as caught:
        connect(faulty.url, max_attempts=max_attempts).client("dynamodb").put_item(**ITEM)
    assert faulty.requests == max_attempts
    assert isinstance(caught.value.__cause__, ClientError)


@pytest.mark.usefixtures("no_pauses")
def test_a_page_is_retried_like_any_call(faulty: FaultyServer, connect: Open) -> None:
    page = says(200, '{"TableNames": ["first"], "LastEvaluatedTableName": "first"}')
    faulty.script = [page, fails(503, "ServiceUnavailable"), says(200, '{"TableNames": ["second"]}')]
    assert list(connect(faulty.url, max_attempts=2).paginate("dynamodb", "list_tables")) == ["first", "second"]
    assert faulty.requests == 3


def test_a_service_that_repeats_its_page_is_found_out(faulty: FaultyServer, connect: Open) -> None:
    faulty.script = [says(200, '{"TableNames": ["first"], "LastEvaluatedTableName": "first"}')]
    with pytest.raises(EngineError, match=r"dynamodb list_tables.*same page"):
        list(connect(faulty.url).paginate("dynamodb", "list_tables"))


@pytest.mark.usefixtures("no_pauses")
def test_a_call_that_succeeds_in_the_end_succeeds(faulty: FaultyServer, connect: Open) -> None:
    faulty.script = [hangs_up, fails(503, "ServiceUnavailable"), WORKS]
    connect(faulty.url, max_attempts=3).client("dynamodb").put_item(**ITEM)
    assert faulty.requests == 3


@pytest.mark.usefixtures("no_pauses")
def test_a_lost_reply_leaves_the_outcome_of_a_write_unknown_and_that_of_a_read_unimportant(
    faulty: FaultyServer, connect: Open
) -> None:
    faulty.script = [hangs_up]
    dynamodb = connect(faulty.url, max_attempts=2).client("dynamodb")
    with pytest.raises(OutcomeUnknown, match="dynamodb PutItem"):
        dynamodb.put_item(**ITEM)
    with pytest.raises(EngineUnavailable, match="dynamodb GetItem"):
        dynamodb.get_item(**KEY)
    assert faulty.requests == 4


@pytest.mark.usefixtures("no_pauses")
def test_a_reply_that_was_lost_before_the_last_attempt_is_not_forgotten(faulty: FaultyServer, connect: Open) -> None:
    faulty.script = [hangs_up, fails(400, "ThrottlingException")]
    dynamodb = connect(faulty.url, max_attempts=2).client("dynamodb")
    with pytest.raises(OutcomeUnknown):
        dynamodb.put_item(**ITEM)
    with pytest.raises(EngineUnavailable):
        dynamodb.put_item(**ITEM)


@pytest.mark.usefixtures("no_pauses")
def test_a_reply_lost_before_the_credentials_were_refreshed_is_not_forgotten(
    faulty: FaultyServer, connect: Open
) -> None:
    faulty.role_lasts = timedelta(minutes=5)
    faulty.script = [hangs_up, fails(503, "ServiceUnavailable")]
    with pytest.raises(OutcomeUnknown, match="dynamodb PutItem"):
        connect(faulty.url, role_arn=ROLE, max_attempts=2).client("dynamodb").put_item(**ITEM)
    assert len(set(faulty.keys)) == 2


def test_a_reply_that_makes_no_sense_is_no_reply(faulty: FaultyServer, connect: Open) -> None:
    faulty.script = [says(200, "<html>Welcome to this hotel's network")]
    with pytest.raises(EngineUnavailable, match="ec2 DescribeRegions"):
        connect(faulty.url).client("ec2").describe_regions()


def test_an_endpoint_that_hangs_is_given_up_after_the_read_timeout(faulty: FaultyServer, connect: Open) -> None:
    faulty.script = [lambda _: hangs_up(_) if faulty.release.wait(30) else None]
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="dynamodb PutItem"):
        connect(faulty.url, max_attempts=1, read_timeout=0.2).client("dynamodb").put_item(**ITEM)
    assert 0.2 <= time.monotonic() - started < 5
    assert faulty.requests == 1


@pytest.mark.usefixtures("no_pauses")
def test_an_endpoint_that_refuses_has_done_nothing(connect: Open) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EngineUnavailable, match=f"dynamodb PutItem.*{url}"):
        connect(url, max_attempts=2).client("dynamodb").put_item(**ITEM)


def test_expired_credentials_are_not_retried(faulty: FaultyServer, connect: Open) -> None:
    faulty.script = [fails(400, "ExpiredTokenException")]
    with pytest.raises(NotAllowed, match=r"dynamodb GetItem.*expired"):
        connect(faulty.url).client("dynamodb").get_item(**KEY)
    assert faulty.requests == 1


def test_a_client_that_was_closed_gives_back_its_connections(faulty: FaultyServer, connect: Open) -> None:
    with connect(faulty.url) as session:
        session.client("dynamodb").put_item(**ITEM)
    with pytest.raises(EngineError, match="closed"):
        session.client("dynamodb")
