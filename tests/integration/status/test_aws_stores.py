"""Statuses in DynamoDB and S3 over real HTTP: what others put there, and what goes wrong on the way."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from holdfast import (
    Conflict,
    EngineError,
    EngineUnavailable,
    NotAllowed,
    OutcomeUnknown,
    SettingsError,
    StatusStore,
    Zone,
    ZoneState,
    ZoneStatus,
)
from holdfast.engines.aws import AwsSession
from holdfast.status.stores.dynamodb import DynamoStatusStore
from holdfast.status.stores.s3 import S3StatusStore
from holdfast.testing import FakeClock
from tests.services.start import free_port
from tests.support.proxy import LossyProxy

ZONE = Zone("use1-az1")
NOW = 4_000_000_000.0
"""Far away: one of the emulators removes what is past its time to live."""

Connect: TypeAlias = Callable[..., AwsSession]
MakeStore: TypeAlias = Callable[[AwsSession], DynamoStatusStore | S3StatusStore]
Reply: TypeAlias = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's pauses between attempts take a second or two, and are not what is tested."""
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))


@pytest.fixture
def name() -> str:
    return f"holdfast-{uuid4()}"


@pytest.fixture
def session(emulator: str, connect: Connect) -> AwsSession:
    return connect(emulator)


@pytest.fixture
def table(session: AwsSession, name: str) -> str:
    DynamoStatusStore(session, name, FakeClock()).create_table()
    return name


@pytest.fixture
def bucket(session: AwsSession, name: str) -> str:
    session.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture(params=["dynamodb", "s3"])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    """Makes more stores on the same table or bucket, whoever connects to it."""
    if request.param == "dynamodb":
        table: str = request.getfixturevalue("table")
        return lambda session: DynamoStatusStore(session, table, FakeClock())
    bucket: str = request.getfixturevalue("bucket")
    return lambda session: S3StatusStore(session, bucket, FakeClock(), "zones/")


@pytest.fixture
def store(make_store: MakeStore, session: AwsSession) -> DynamoStatusStore | S3StatusStore:
    return make_store(session)


@pytest.fixture
def proxy(emulator: str) -> Iterator[LossyProxy]:
    parts = urlsplit(emulator)
    assert parts.hostname is not None
    assert parts.port is not None
    with LossyProxy(parts.hostname, parts.port) as proxy:
        yield proxy


def out(*, workload: str | None = None, expires: float | None = None, reason: str = "slow") -> ZoneStatus:
    return ZoneStatus(
        zone=ZONE, workload=workload, state=ZoneState.OUT, since=NOW - 9, by="operator", reason=reason, expires=expires
    )


def into(workload: str | None = None) -> ZoneStatus:
    return ZoneStatus(
        zone=ZONE, workload=workload, state=ZoneState.IN, since=NOW - 5, by="operator", reason="well again"
    )


def zones_out(store: StatusStore) -> list[ZoneStatus]:
    return [status for status in store.read() if status.state.is_out]


class TestOthers:
    """What others read and write in the same place."""

    def item(self, session: AwsSession, table: str, key: str = "use1-az1") -> dict[str, Any] | None:
        reply = session.client("dynamodb").get_item(TableName=table, Key={"AZ-ID": {"S": key}}, ConsistentRead=True)
        item: dict[str, Any] | None = reply.get("Item")
        return item

    def test_a_reader_of_the_item_sees_what_is_healthy(self, session: AwsSession, table: str) -> None:
        store = DynamoStatusStore(session, table, FakeClock())
        assert self.item(session, table) is None
        written = store.write(out(), 0)
        shop = store.write(out(workload="shop", expires=NOW), 0)
        assert (self.item(session, table) or {})["Healthy"] == {"BOOL": False}
        item = self.item(session, table, "use1-az1/shop") or {}
        assert (item["Healthy"], item["ExpiresAt"]) == ({"BOOL": False}, {"N": "4000000000"})
        assert item["Version"] == {"N": str(shop.version)}
        store.write(into(), written.version)
        assert (self.item(session, table) or {})["Healthy"] == {"BOOL": True}

    def test_a_reader_that_knows_nothing_of_expiry_finds_no_item_after_it(
        self, session: AwsSession, table: str
    ) -> None:
        store = DynamoStatusStore(session, table, FakeClock())
        store.write(out(expires=NOW), 0)
        store.expire(NOW)
        assert self.item(session, table) is None

    def test_an_item_written_by_hand_is_read_and_can_be_brought_in(self, session: AwsSession, table: str) -> None:
        store = DynamoStatusStore(session, table, FakeClock())
        item = {"AZ-ID": {"S": "use1-az1"}, "Healthy": {"BOOL": False}}
        session.client("dynamodb").put_item(TableName=table, Item=item)
        [status] = store.read()
        assert (status.state.is_out, status.by, status.version) == (True, "unknown", 0)
        written = store.write(into(), status.version)
        assert list(store.read()) == [written]

    def test_an_item_written_by_hand_with_an_end_expires(self, session: AwsSession, table: str) -> None:
        item = {"AZ-ID": {"S": "use1-az1"}, "Healthy": {"BOOL": False}, "Expires": {"N": str(NOW)}}
        session.client("dynamodb").put_item(TableName=table, Item=item)
        [changed] = DynamoStatusStore(session, table, FakeClock()).expire(NOW)
        assert not changed.state.is_out
        assert self.item(session, table) is None

    def test_items_that_make_no_sense_are_skipped_with_one_warning_each(
        self, session: AwsSession, table: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = DynamoStatusStore(session, table, FakeClock())
        written = store.write(out(), 0)
        for wrong in (
            {"AZ-ID": {"S": "use1-az2"}},
            {"AZ-ID": {"S": "use1-az3"}, "Healthy": {"S": "no"}},
            {"AZ-ID": {"S": "us-east-1a"}, "Healthy": {"BOOL": False}},
        ):
            session.client("dynamodb").put_item(TableName=table, Item=wrong)
        with caplog.at_level(logging.WARNING, "holdfast.status"):
            assert list(store.read()) == [written]
            assert list(store.read()) == [written]
        assert len(caplog.records) == 3
        for text in ("use1-az2", "use1-az3", "us-east-1a", table):
            assert text in caplog.text

    @pytest.mark.parametrize("content", [b"", b"out for maintenance", b"x" * 200_000])
    def test_an_object_put_by_hand_is_out_and_can_be_renewed_and_brought_in(
        self, session: AwsSession, bucket: str, content: bytes
    ) -> None:
        store = S3StatusStore(session, bucket, FakeClock())
        session.client("s3").put_object(Bucket=bucket, Key="use1-az1.txt", Body=content)
        session.client("s3").put_object(Bucket=bucket, Key="shop/use1-az1.txt", Body=content)
        for status in store.read():
            assert (status.zone, status.state.is_out, status.by, status.version) == (ZONE, True, "unknown", 0)
            assert status.since > 1_700_000_000
        assert {status.workload for status in store.read()} == {None, "shop"}
        store.write(into(), 0)
        renewed = store.write(out(workload="shop"), 0)
        assert list(store.read()) == [renewed]

    def test_the_object_is_there_while_the_zone_is_out(self, session: AwsSession, bucket: str) -> None:
        store = S3StatusStore(session, bucket, FakeClock())

        def keys() -> list[str]:
            return [each["Key"] for each in session.paginate("s3", "list_objects_v2", Bucket=bucket)]

        written = store.write(out(), 0)
        store.write(out(workload="shop", expires=NOW), 0)
        assert keys() == ["shop/use1-az1.txt", "use1-az1.txt"]
        store.write(into(), written.version)
        assert keys() == ["shop/use1-az1.txt"]
        store.expire(NOW)
        assert keys() == []

    def test_other_objects_are_left_alone(
        self, session: AwsSession, bucket: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = S3StatusStore(session, bucket, FakeClock(), "zones/")
        for key in ("use1-az1.txt", "zones/logo.png", "zones/read me.txt", "zones/us-east-1a.txt"):
            session.client("s3").put_object(Bucket=bucket, Key=key, Body=b"")
        with caplog.at_level(logging.WARNING, "holdfast.status"):
            assert list(store.read()) == []
            assert list(store.read()) == []
        assert len(caplog.records) == 2

    def test_an_object_that_vanishes_between_list_and_look_is_in(self, session: AwsSession, bucket: str) -> None:
        store = S3StatusStore(session, bucket, FakeClock())
        store.write(out(), 0)
        still = store.write(out(workload="shop"), 0)
        s3 = session.client("s3")

        def vanish(**_: Any) -> None:
            s3.delete_object(Bucket=bucket, Key="use1-az1.txt")

        s3.meta.events.register("after-call.s3.ListObjectsV2", vanish)
        assert list(store.read()) == [still]

    def test_all_pages_are_read(self, store: StatusStore, session: AwsSession) -> None:
        def small(params: dict[str, Any], model: Any, **_: Any) -> None:
            params["Limit" if model.name == "Scan" else "MaxKeys"] = 2
            pages.append(params.get("ConsistentRead"))

        pages: list[bool | None] = []
        written = [store.write(out(workload=f"shop{number}"), 0) for number in range(5)]
        session.client("dynamodb").meta.events.register("before-parameter-build.dynamodb.Scan", small)
        session.client("s3").meta.events.register("before-parameter-build.s3.ListObjectsV2", small)
        assert sorted(store.read(), key=lambda status: status.workload or "") == written
        assert len(pages) >= 3
        # Lists of S3 are consistent always: https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html
        assert set(pages) == ({True} if isinstance(store, DynamoStatusStore) else {None})


class TestOperators:
    """Two who do not know of each other."""

    def test_the_second_has_to_look_again(self, make_store: MakeStore, emulator: str, connect: Connect) -> None:
        one, other = make_store(connect(emulator)), make_store(connect(emulator))
        first = one.write(out(), 0)
        with pytest.raises(Conflict, match=ZONE):
            other.write(out(reason="mine"), 0)
        [seen] = other.read()
        assert seen == first
        other.write(into(), seen.version)
        with pytest.raises(Conflict):
            one.write(out(reason="renewed"), first.version)
        assert zones_out(one) == []

    def test_a_clock_that_is_behind_does_not_make_a_version_smaller(
        self, make_store: MakeStore, session: AwsSession
    ) -> None:
        """Not even after a removal, if the removed was seen."""
        ahead, behind = make_store(session), make_store(session)
        ahead._versions._clock = FakeClock(wall=NOW + 1000)
        ahead.write(out(expires=NOW), 0)
        [seen] = behind.read()
        ahead.expire(NOW)
        assert behind.write(out(), 0).version > seen.version

    @pytest.mark.parametrize("wanted", [out(reason="mine"), into()], ids=["out", "in"])
    def test_who_is_overtaken_between_look_and_write_of_an_object_gets_a_conflict(
        self, emulator: str, connect: Connect, bucket: str, wanted: ZoneStatus
    ) -> None:
        mine = connect(emulator)
        store, other = S3StatusStore(mine, bucket, FakeClock()), S3StatusStore(connect(emulator), bucket, FakeClock())
        first = store.write(out(), 0)
        winner: list[ZoneStatus] = []

        def overtake(**_: Any) -> None:
            if not winner:
                winner.append(other.write(out(reason="quicker"), first.version))

        mine.client("s3").meta.events.register("after-call.s3.GetObject", overtake)
        with pytest.raises(Conflict, match=ZONE):
            store.write(wanted, first.version)
        assert list(other.read()) == winner

    def test_an_expiry_that_is_overtaken_by_a_renewal_changes_nothing(
        self, make_store: MakeStore, emulator: str, connect: Connect
    ) -> None:
        mine = connect(emulator)
        store, other = make_store(mine), make_store(connect(emulator))
        first = store.write(out(expires=NOW), 0)

        def renew(**_: Any) -> None:
            other.write(out(expires=NOW + 60), first.version)

        mine.client("dynamodb").meta.events.register("before-call.dynamodb.DeleteItem", renew)
        mine.client("s3").meta.events.register("before-call.s3.DeleteObject", renew)
        assert list(store.expire(NOW)) == []
        assert [status.expires for status in zones_out(other)] == [NOW + 60]


PUT = {DynamoStatusStore: b"DynamoDB_20120810.PutItem", S3StatusStore: b'"write": "'}
"""Of a PUT it is the body: before that, S3 has only said that it wants to have it."""
REMOVE = {DynamoStatusStore: b"DynamoDB_20120810.DeleteItem", S3StatusStore: b"DELETE /"}


class TestLostReplies:
    """Between the store and the emulator there is a proxy that breaks the connection in the worst moment."""

    @pytest.fixture(params=[1, 2], ids=["no retry", "retried"])
    def lossy(
        self, request: pytest.FixtureRequest, make_store: MakeStore, proxy: LossyProxy, connect: Connect
    ) -> DynamoStatusStore | S3StatusStore:
        return make_store(connect(f"http://{proxy.host}:{proxy.port}", attempts=request.param))

    def test_a_write_that_was_done_counts_although_its_reply_was_lost(
        self, lossy: DynamoStatusStore | S3StatusStore, store: StatusStore, proxy: LossyProxy
    ) -> None:
        proxy.lose("reply", PUT[type(lossy)])
        first = lossy.write(out(), 0)
        assert list(store.read()) == [first]
        proxy.lose("reply", PUT[type(lossy)])
        second = lossy.write(out(reason="renewed"), first.version)
        assert list(store.read()) == [second]
        assert proxy.losses == 2

    def test_bringing_in_counts_although_its_reply_was_lost(
        self, lossy: DynamoStatusStore | S3StatusStore, store: StatusStore, proxy: LossyProxy
    ) -> None:
        first = lossy.write(out(), 0)
        proxy.lose("reply", REMOVE[type(lossy)] if isinstance(lossy, S3StatusStore) else PUT[type(lossy)])
        assert lossy.write(into(), first.version).version > first.version
        assert zones_out(store) == []
        assert proxy.losses == 1

    def test_an_expiry_is_told_although_its_reply_was_lost(
        self, lossy: DynamoStatusStore | S3StatusStore, store: StatusStore, proxy: LossyProxy
    ) -> None:
        first = lossy.write(out(expires=NOW), 0)
        proxy.lose("reply", REMOVE[type(lossy)])
        [changed] = lossy.expire(NOW)
        assert changed.version > first.version
        assert list(store.read()) == []
        assert proxy.losses == 1

    def test_a_conflict_is_still_a_conflict_when_a_reply_was_lost(
        self, make_store: MakeStore, store: StatusStore, proxy: LossyProxy, connect: Connect
    ) -> None:
        """Somebody else's status, even one that says the same, is not taken for our own."""
        lossy = make_store(connect(f"http://{proxy.host}:{proxy.port}", attempts=2))
        first = store.write(out(), 0)
        proxy.lose("reply", PUT[type(lossy)] if isinstance(lossy, DynamoStatusStore) else b"GET /")
        with pytest.raises(Conflict):
            lossy.write(out(), 0)
        assert list(store.read()) == [first]
        assert proxy.losses == 1

    def test_a_write_that_was_not_done_is_not_taken_for_done(
        self, make_store: MakeStore, store: StatusStore, proxy: LossyProxy, connect: Connect
    ) -> None:
        lossy = make_store(connect(f"http://{proxy.host}:{proxy.port}"))
        proxy.lose("request", PUT[type(lossy)])
        with pytest.raises(OutcomeUnknown):
            lossy.write(out(), 0)
        assert list(store.read()) == []
        first = lossy.write(out(expires=NOW), 0)
        proxy.lose("request", REMOVE[type(lossy)])
        with pytest.raises(OutcomeUnknown):
            lossy.expire(NOW)
        assert list(store.read()) == [first]

    def test_a_place_that_went_away_changes_nothing_and_comes_back(
        self, lossy: DynamoStatusStore | S3StatusStore, store: StatusStore, proxy: LossyProxy
    ) -> None:
        first = lossy.write(out(), 0)
        proxy.refuse()
        with pytest.raises(EngineUnavailable):
            lossy.read()
        with pytest.raises(EngineError):
            lossy.write(into(), first.version)
        proxy.admit()
        assert list(lossy.read()) == list(store.read()) == [first]


@pytest.fixture(params=[DynamoStatusStore, S3StatusStore])
def kind(request: pytest.FixtureRequest) -> type[DynamoStatusStore] | type[S3StatusStore]:
    chosen: type[DynamoStatusStore] | type[S3StatusStore] = request.param
    return chosen


Kind: TypeAlias = type[DynamoStatusStore] | type[S3StatusStore]


def test_an_endpoint_that_nobody_listens_at_is_unavailable(kind: Kind, connect: Connect) -> None:
    store = kind(connect(f"http://127.0.0.1:{free_port()}", attempts=2), "zones", FakeClock())
    for use in (store.read, lambda: store.write(out(), 0), lambda: store.expire(NOW)):
        with pytest.raises(EngineUnavailable, match="cannot be reached"):
            use()


def test_a_missing_table_or_bucket_is_named_with_what_to_do(kind: Kind, session: AwsSession, name: str) -> None:
    store = kind(session, name, FakeClock())
    for use in (store.read, lambda: store.write(out(), 0), lambda: store.expire(NOW)):
        with pytest.raises(SettingsError, match=rf"{name}.*create it"):
            use()


def test_a_table_is_created_once_by_many_and_kept(session: AwsSession, name: str) -> None:
    store = DynamoStatusStore(session, name, FakeClock())
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: store.create_table(), range(4)))
    written = store.write(out(), 0)
    store.create_table()
    assert list(store.read()) == [written]
    dynamodb = session.client("dynamodb")
    table = dynamodb.describe_table(TableName=name)["Table"]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    time_to_live = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert time_to_live == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ExpiresAt"}


def test_a_table_with_another_key_or_time_to_live_is_refused(session: AwsSession, name: str) -> None:
    dynamodb = session.client("dynamodb")
    for table, key, attribute in ((f"{name}-key", "zone", "ExpiresAt"), (f"{name}-time", "AZ-ID", "until")):
        dynamodb.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        specification = {"Enabled": True, "AttributeName": attribute}
        dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=specification)
        with pytest.raises(SettingsError, match=rf"{table}.*use another table"):
            DynamoStatusStore(session, table, FakeClock()).create_table()


def test_a_status_that_an_item_cannot_hold_is_an_error_of_that_table(session: AwsSession, table: str) -> None:
    with pytest.raises(EngineError, match=rf"{table}.*size"):
        DynamoStatusStore(session, table, FakeClock()).write(out(reason="x" * 500_000), 0)


def says(status: int, body: str, *, missing: int = 0, **headers: str) -> Reply:
    """A reply; the last `missing` bytes of it never come."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for header, value in headers.items():
            handler.send_header(header.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body) + missing))
        handler.end_headers()
        handler.wfile.write(body.encode())
        handler.close_connection = bool(missing)

    return reply


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def fails(status: int, code: str) -> Reply:
    """What both services understand as an error: JSON for DynamoDB, and XML for S3."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        if handler.headers["X-Amz-Target"]:
            says(status, f'{{"__type": "{code}", "message": "said so"}}')(handler)
        else:
            says(status, f"<Error><Code>{code}</Code><Message>said so</Message></Error>")(handler)

    return reply


class ScriptedServer:
    """Answers with the next of `script`, and with its last for ever after."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet for each reply: two would wait for each other

            def answer(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                server.requests.append((self.headers["X-Amz-Target"] or self.command).rpartition(".")[2])
                server.script[min(len(server.requests), len(server.script)) - 1](self)

            def handle_expect_100(self) -> bool:
                wanted = super().handle_expect_100()
                self.wfile.flush()
                return wanted

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with closing(ScriptedServer()) as server:
        yield server


@pytest.mark.parametrize("code", ["ThrottlingException", "SlowDown"])
def test_what_is_throttled_is_tried_again_and_then_unavailable(
    kind: Kind, scripted: ScriptedServer, connect: Connect, code: str
) -> None:
    scripted.script = [fails(503, code)]
    store = kind(connect(scripted.url, attempts=3), "zones", FakeClock())
    with pytest.raises(EngineUnavailable, match="throttled"):
        store.read()
    assert len(scripted.requests) == 3
    with pytest.raises(EngineUnavailable):
        store.write(out(), 0)


def test_what_is_not_allowed_says_what_to_allow_and_where(
    kind: Kind, scripted: ScriptedServer, connect: Connect
) -> None:
    scripted.script = [fails(403, "AccessDenied")]
    store = kind(connect(scripted.url), "zones", FakeClock())
    for use in (store.read, lambda: store.write(out(), 0), lambda: store.expire(NOW)):
        with pytest.raises(NotAllowed, match=r"zones allow (s3:ListBucket|dynamodb:Scan)"):
            use()


def test_a_lost_reply_stays_unknown_when_it_cannot_be_looked_up(
    kind: Kind, scripted: ScriptedServer, connect: Connect
) -> None:
    looked = [fails(404, "NoSuchKey")] if kind is S3StatusStore else []
    for answer in (fails(503, "ServiceUnavailable"), fails(403, "AccessDenied"), hangs_up):
        scripted.requests.clear()
        scripted.script = [*looked, hangs_up, answer]
        with pytest.raises(OutcomeUnknown, match="may or may not"):
            kind(connect(scripted.url), "zones", FakeClock()).write(out(), 0)
        assert len(scripted.requests) == len(looked) + 2


def test_a_refused_write_is_a_conflict_without_another_look(
    kind: Kind, scripted: ScriptedServer, connect: Connect
) -> None:
    refused = fails(409, "ConditionalRequestConflict")
    if kind is DynamoStatusStore:
        refused = fails(400, "ConditionalCheckFailedException")
    scripted.script = [fails(404, "NoSuchKey"), refused] if kind is S3StatusStore else [refused]
    with pytest.raises(Conflict):
        kind(connect(scripted.url, attempts=3), "zones", FakeClock()).write(out(), 0)
    assert len(scripted.requests) == len(scripted.script)


def test_an_object_that_comes_in_half_is_unavailable_not_put_by_hand(
    scripted: ScriptedServer, connect: Connect
) -> None:
    listing = "<ListBucketResult><Contents><Key>use1-az1.txt</Key></Contents></ListBucketResult>"
    half = says(200, '{"since"', missing=50, Last_Modified="Fri, 02 Jan 2026 00:00:00 GMT", ETag='"e"')
    scripted.script = [says(200, listing), half]
    with pytest.raises(EngineUnavailable, match="the reply was incomplete"):
        S3StatusStore(connect(scripted.url), "zones", FakeClock()).read()


def test_an_error_that_nobody_foresaw_names_the_place(kind: Kind, scripted: ScriptedServer, connect: Connect) -> None:
    scripted.script = [fails(400, "SomethingNew")]
    with pytest.raises(EngineError, match=r"zones.*SomethingNew"):
        kind(connect(scripted.url), "zones", FakeClock()).read()


def test_creation_waits_until_the_table_can_be_used(scripted: ScriptedServer, connect: Connect) -> None:
    key = '"KeySchema": [{"AttributeName": "AZ-ID", "KeyType": "HASH"}]'
    scripted.script = [
        says(200, "{}"),
        fails(400, "ResourceNotFoundException"),
        says(200, f'{{"Table": {{"TableStatus": "CREATING", {key}}}}}'),
        says(200, f'{{"Table": {{"TableStatus": "ACTIVE", {key}}}}}'),
        says(200, '{"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}'),
        fails(400, "ValidationException"),
        says(200, '{"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLING", "AttributeName": "ExpiresAt"}}'),
    ]
    clock = FakeClock()
    DynamoStatusStore(connect(scripted.url), "zones", clock).create_table()
    assert clock.sleeps == [1.0, 1.0]
    assert scripted.requests == [
        *("CreateTable", "DescribeTable", "DescribeTable", "DescribeTable"),
        *("DescribeTimeToLive", "UpdateTimeToLive", "DescribeTimeToLive"),
    ]


def test_creation_does_not_wait_for_ever(scripted: ScriptedServer, connect: Connect) -> None:
    scripted.script = [says(200, "{}"), says(200, '{"Table": {"TableStatus": "CREATING"}}')]
    clock = FakeClock()
    with pytest.raises(EngineUnavailable, match="zones is still CREATING after 120 s"):
        DynamoStatusStore(connect(scripted.url), "zones", clock).create_table()
    assert sum(clock.sleeps) == 120


def test_a_creation_that_is_not_allowed_says_what_to_allow(scripted: ScriptedServer, connect: Connect) -> None:
    scripted.script = [fails(400, "AccessDeniedException")]
    with pytest.raises(NotAllowed, match="zones allow dynamodb:CreateTable"):
        DynamoStatusStore(connect(scripted.url), "zones", FakeClock()).create_table()


def test_a_time_to_live_that_cannot_be_set_is_an_error(scripted: ScriptedServer, connect: Connect) -> None:
    key = '"KeySchema": [{"AttributeName": "AZ-ID", "KeyType": "HASH"}]'
    off = says(200, '{"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}')
    active = says(200, f'{{"Table": {{"TableStatus": "ACTIVE", {key}}}}}')
    scripted.script = [says(200, "{}"), active, off, fails(400, "ValidationException"), off]
    with pytest.raises(EngineError, match=r"zones.*ValidationException"):
        DynamoStatusStore(connect(scripted.url), "zones", FakeClock()).create_table()


def test_a_closed_session_says_so(kind: Kind, connect: Connect) -> None:
    session = connect("http://127.0.0.1:9")
    store = kind(session, "zones", FakeClock())
    session.close()
    with pytest.raises(EngineError, match="closed"):
        store.read()
