"""The journal in DynamoDB over real HTTP: several operators, items of other tools, lost replies, refused requests."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from msgspec.structs import replace

from holdfast import Conflict, EngineError, EngineUnavailable, LeaseLost, NotAllowed, OutcomeUnknown, SettingsError
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.evacuate.action import Target
from holdfast.evacuate.journal import EntryState, RecordedRuns
from holdfast.evacuate.journals import JOURNALS
from holdfast.evacuate.journals.dynamodb import DynamoJournal
from holdfast.evacuate.runner import Runner
from holdfast.testing import FakeClock
from holdfast.testing.evacuation import OTHER, ZONE, build_entry, build_run
from tests.support.proxy import LossyProxy
from tests.table import rows, sampled
from tests.unit.evacuate.fleet import ControlPlane, RemoveZone

PUT = b"DynamoDB_20120810.PutItem"

Connect: TypeAlias = Callable[..., AwsSession]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's pauses between attempts take a second or two, and are not what is tested."""
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))


@pytest.fixture(params=sampled(["moto_url", "ministack_url"]))
def emulator(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def connect(emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with ExitStack() as opened:

        def connect(url: str = emulator, attempts: int = 1) -> AwsSession:
            options = AwsOptions(region="us-east-1", endpoint_url=url, max_attempts=attempts)
            return opened.enter_context(AwsSession(options))

        yield connect


@pytest.fixture
def session(connect: Connect) -> AwsSession:
    return connect()


@pytest.fixture
def name() -> str:
    return f"journal-{uuid4()}"


@pytest.fixture
def journal(session: AwsSession, name: str) -> DynamoJournal:
    journal = DynamoJournal(session, name, FakeClock())
    journal.create_table()
    return journal


@pytest.fixture
def proxy(emulator: str) -> Iterator[LossyProxy]:
    parts = urlsplit(emulator)
    assert parts.hostname is not None
    assert parts.port is not None
    with LossyProxy(parts.hostname, parts.port) as proxy:
        yield proxy


@pytest.fixture
def through_proxy(proxy: LossyProxy, connect: Connect) -> Connect:
    return lambda attempts: connect(f"http://{proxy.host}:{proxy.port}", attempts)


def answer(session: AwsSession, code: str, *, times: int = 1_000) -> list[str]:
    """Let the next requests fail with a code before they are sent. Return the list that they are added to."""
    refused: list[str] = []

    def refuse(request: Any, event_name: str, **_: Any) -> AWSResponse | None:
        if len(refused) == times:
            return None
        refused.append(event_name.rpartition(".")[2])
        body = io.BytesIO(f'{{"__type": "{code}", "message": "said so"}}'.encode())
        body.stream = lambda **_: iter([body.getvalue()])  # type: ignore[attr-defined]
        return AWSResponse(request.url, 400, HTTPHeaders(), body)

    session.client("dynamodb").meta.events.register("before-send.dynamodb", refuse)
    return refused


class TestTable:
    """The table, and what people find in it."""

    def test_it_is_created_once_with_an_index_by_type_and_cannot_be_deleted(
        self, session: AwsSession, journal: DynamoJournal, name: str
    ) -> None:
        written = journal.write_runs([build_run()], 0)
        journal.create_table()
        assert journal.read_runs() == written
        table = session.client("dynamodb").describe_table(TableName=name)["Table"]
        assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        assert table["DeletionProtectionEnabled"] is True
        [index] = table["GlobalSecondaryIndexes"]
        assert [each["AttributeName"] for each in index["KeySchema"]] == ["Type", "AZ-ID"]
        assert index["Projection"] == {"ProjectionType": "ALL"}

    def test_people_and_other_tools_list_items_by_type(
        self, session: AwsSession, journal: DynamoJournal, name: str
    ) -> None:
        journal.write_runs([build_run()], 0)
        journal.write_entries([build_entry("arn:a"), build_entry("arn:b", type="balancer")])
        found = session.client("dynamodb").query(
            TableName=name,
            IndexName="Type",
            KeyConditionExpression="#type = :type",
            ExpressionAttributeNames={"#type": "Type"},
            ExpressionAttributeValues={":type": {"S": "group"}},
        )
        [item] = found["Items"]
        del item["Entry"]
        assert item == {
            "AZ-ID": {"S": "use1-az1"},
            "ResourceArn": {"S": "arn:a hf-1"},
            "Type": {"S": "group"},
            "Number": {"N": "1"},
            "State": {"S": "intended"},
            "Run": {"S": "hf-1"},
            "Name": {"S": "Größe 'a'"},
            "At": {"S": "2096-10-02T07:06:40+00:00"},
            "Note": {"S": "a note; with 'quotes'"},
        }

    def test_all_pages_are_read_consistently(self, session: AwsSession, journal: DynamoJournal) -> None:
        entries = [build_entry(f"arn:{number}", type="ab"[number % 2]) for number in range(5)]
        journal.write_entries(entries)
        journal.write_runs([build_run()], 0)
        requests: list[tuple[str, bool | None]] = []

        def limit(params: dict[str, Any], model: Any, **_: Any) -> None:
            requests.append((model.name, params.get("ConsistentRead")))
            if model.name != "GetItem":
                params["Limit"] = 2

        session.client("dynamodb").meta.events.register("before-parameter-build.dynamodb", limit)
        journal.read_runs()
        for zone in (None, ZONE):
            assert sorted(journal.read_entries(zone), key=lambda each: each.resource) == entries
            assert {each.type for each in journal.read_entries(zone, type="a")} == {"a"}
        assert set(requests) == {("GetItem", True), ("Scan", True), ("Query", True)}
        assert len(requests) > 12

    def test_a_table_that_does_not_exist_is_named_with_what_to_do(self, session: AwsSession, name: str) -> None:
        missing = DynamoJournal(session, name, FakeClock())
        uses: list[Callable[[], object]] = [
            missing.read_runs,
            missing.read_entries,
            lambda: missing.read_entries(ZONE),
            lambda: missing.write_runs([], 0),
            lambda: missing.write_entries([build_entry("arn:a"), build_entry("arn:b")]),
        ]
        for use in uses:
            with pytest.raises(SettingsError, match=rf"{name} .* us-east-1 .*DynamoJournal.create_table\(\)"):
                use()

    def test_a_table_with_another_key_is_refused(self, session: AwsSession, name: str) -> None:
        session.client("dynamodb").create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "AZ-ID", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "AZ-ID", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        session.client("dynamodb").put_item(TableName=name, Item={"AZ-ID": {"S": ZONE}})
        journal = DynamoJournal(session, name, FakeClock())
        keys = r"AZ-ID and ResourceArn \(strings\)"
        with pytest.raises(SettingsError, match=rf"{name} has the key AZ-ID: expected {keys}; use another table"):
            journal.create_table()
        with pytest.raises(EngineError, match=rf"{name}: .* Expected a table with the key {keys}"):
            journal.read_runs()
        with pytest.raises(EngineError, match=rf"Entry of item {ZONE} \(no ResourceArn\) of table {name}"):
            journal.read_entries()

    @rows(
        "attributes, problem",
        [
            ({}, "Entry of item {} cannot be read .it is missing."),
            ({"Entry": {"BOOL": True}}, "Entry of item {} cannot be read"),
            ({"Entry": {"S": "none"}}, "Entry of item {} cannot be read .JSON is malformed"),
            ({"Entry": {"S": '{"zone": "use1-az1"}'}}, "Entry of item {} cannot be read .*resource"),
        ],
    )
    def test_an_item_that_cannot_be_read_is_an_error_and_is_not_skipped(
        self, session: AwsSession, journal: DynamoJournal, name: str, attributes: dict[str, Any], problem: str
    ) -> None:
        item = {"AZ-ID": {"S": ZONE}, "ResourceArn": {"S": "arn:odd"}, "Type": {"S": "odd"}, **attributes}
        session.client("dynamodb").put_item(TableName=name, Item=item)
        reads: list[Callable[[], object]] = [journal.read_entries, lambda: journal.read_entries(ZONE, type="group")]
        for read in reads:
            with pytest.raises(EngineError, match=problem.format(f"{ZONE} arn:odd of table {name}")):
                read()
        assert list(journal.read_entries(OTHER)) == []

    def test_runs_of_a_newer_version_are_an_error_and_not_overwritten(
        self, session: AwsSession, journal: DynamoJournal, name: str
    ) -> None:
        key = {"AZ-ID": {"S": "#runs"}, "ResourceArn": {"S": "#runs"}}
        newer = {**key, "Version": {"N": "3"}, "Runs": {"S": '[{"id": "hf-1", "state": "paused"}]'}}
        session.client("dynamodb").put_item(TableName=name, Item=newer)
        with pytest.raises(EngineError, match=rf"Runs of item #runs #runs of table {name} .*newer version"):
            journal.read_runs()
        with pytest.raises(Conflict):
            journal.write_runs([], 0)

    def test_an_entry_that_no_item_can_hold_is_named(self, journal: DynamoJournal, name: str) -> None:
        with pytest.raises(EngineError, match=rf"arn:large hf-1 of table {name} would have 4\d{{5}} bytes"):
            journal.write_entries([replace(build_entry("arn:large"), record={"policy": "x" * 409_600})])
        largest = replace(build_entry("arn:large"), record={"policy": "x" * 400_000})
        journal.write_entries([largest])
        assert list(journal.read_entries()) == [largest]


class TestOperators:
    """Several processes that do not know of each other."""

    def test_of_two_that_start_at_the_same_time_one_evacuates_and_the_other_is_told_who_does(
        self, connect: Connect, journal: DynamoJournal, name: str
    ) -> None:
        plane, mine = ControlPlane(2), connect()

        def evacuate(operator: str, session: AwsSession) -> None:
            runner = Runner({"remove": RemoveZone(plane)}, DynamoJournal(session, name, FakeClock()), FakeClock())
            target = Target(zone=ZONE, workload="shop", run=f"hf-{operator}", reason="test")
            plan = runner.plan(target)
            runner.evacuate(runner.begin(plan, by=f"{operator}@laptop"), plan)

        quicker: list[AwsSession] = []

        def overtake(**_: Any) -> None:
            if not quicker:
                quicker.append(connect())
                evacuate("ben", quicker[0])

        mine.client("dynamodb").meta.events.register("before-call.dynamodb.PutItem", overtake)
        with pytest.raises(Conflict, match=r"run hf-ben, which ben@laptop started .* has evacuated use1-az1 for shop"):
            evacuate("ann", mine)
        assert [each.id for each in journal.read_runs().runs] == ["hf-ben"]
        assert {each.run for each in journal.read_entries()} == {"hf-ben"}
        assert plane.writes == 2

    def test_a_former_holder_cannot_overwrite_any_entry_while_its_successor_writes(
        self, connect: Connect, name: str, journal: DynamoJournal
    ) -> None:
        resources = [f"arn:{number}" for number in range(20)]
        writers = [DynamoJournal(connect(), name, FakeClock()) for _ in range(2)]

        def write(number: int) -> None:
            with suppress(LeaseLost):
                writers[number - 1].write_entries([build_entry(each, number=number) for each in resources])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, (1, 2)))
        assert {each.resource: each.number for each in journal.read_entries()} == dict.fromkeys(resources, 2)
        with pytest.raises(LeaseLost, match=r"run hf-1, and has changed the entry of arn:0"):
            writers[0].write_entries([build_entry(each, number=1) for each in resources])


class TestFailures:
    """Lost replies, by a proxy that breaks connections in the worst moment, and refused requests."""

    @rows("attempts", [1, 2])
    def test_a_write_of_runs_counts_although_its_reply_was_lost(
        self, through_proxy: Connect, proxy: LossyProxy, journal: DynamoJournal, name: str, attempts: int
    ) -> None:
        lossy = DynamoJournal(through_proxy(attempts), name, FakeClock())
        before, losses = journal.read_runs(), proxy.losses
        proxy.lose("reply", PUT)
        written = lossy.write_runs([build_run(f"hf-{attempts}")], before.version)
        assert written.version == before.version + 1
        assert journal.read_runs() == written
        assert proxy.losses == losses + 1

    def test_a_write_of_another_operator_is_a_conflict_even_if_a_reply_was_lost(
        self, through_proxy: Connect, proxy: LossyProxy, journal: DynamoJournal, name: str
    ) -> None:
        """Not even the same runs are taken for our own."""
        theirs = journal.write_runs([build_run()], 0)
        proxy.lose("reply", PUT)
        with pytest.raises(Conflict):
            DynamoJournal(through_proxy(2), name, FakeClock()).write_runs([build_run()], 0)
        assert (proxy.losses, journal.read_runs()) == (1, theirs)

    def test_a_write_of_runs_that_did_not_arrive_is_not_taken_for_done(
        self, through_proxy: Connect, proxy: LossyProxy, journal: DynamoJournal, name: str
    ) -> None:
        proxy.lose("request", PUT)
        with pytest.raises(OutcomeUnknown):
            DynamoJournal(through_proxy(1), name, FakeClock()).write_runs([build_run()], 0)
        assert journal.read_runs() == RecordedRuns(0, ())

    @rows("loss, attempts, pauses", [("reply", 1, [0.5]), ("reply", 2, []), ("request", 1, [0.5])])
    def test_entries_are_stored_although_a_request_or_reply_was_lost(
        self,
        through_proxy: Connect,
        proxy: LossyProxy,
        journal: DynamoJournal,
        name: str,
        loss: Any,
        attempts: int,
        pauses: list[float],
    ) -> None:
        note = f"{loss} {attempts}"
        clock, entries = FakeClock(), [replace(build_entry(f"arn:{number}"), note=note) for number in range(4)]
        lossy, losses = DynamoJournal(through_proxy(attempts), name, clock), proxy.losses
        proxy.lose(loss, PUT)
        lossy.write_entries(entries)
        assert sorted(journal.read_entries(), key=lambda each: each.resource) == entries
        assert (proxy.losses, clock.sleeps) == (losses + 1, pauses)

    def test_entries_are_written_again_while_dynamodb_throttles_but_not_for_ever(
        self, connect: Connect, journal: DynamoJournal, name: str
    ) -> None:
        clock, session = FakeClock(), connect(attempts=2)
        throttled, entry = DynamoJournal(session, name, clock), build_entry()
        refused = answer(session, "ThrottlingException", times=5)
        throttled.write_entries([entry])
        assert (refused, clock.sleeps) == (["PutItem"] * 5, [0.5, 1.0])
        assert list(journal.read_entries()) == [entry]
        clock.sleeps.clear()
        answer(session, "ThrottlingException")
        with pytest.raises(EngineUnavailable, match="throttled"):
            throttled.write_entries([replace(entry, state=EntryState.APPLIED)])
        assert clock.sleeps == [0.5, 1.0, 2.0, 4.0]
        with pytest.raises(EngineUnavailable, match="throttled"):
            throttled.read_entries(ZONE)
        assert list(journal.read_entries()) == [entry]

    def test_a_request_that_is_not_allowed_says_what_to_allow(self, connect: Connect, name: str) -> None:
        session, clock = connect(), FakeClock()
        refused, journal = answer(session, "AccessDeniedException"), DynamoJournal(session, name, clock)
        needed = "dynamodb:DeleteItem, dynamodb:GetItem, dynamodb:PutItem, dynamodb:Query, dynamodb:Scan"
        uses: list[tuple[Callable[[], object], str]] = [
            (journal.read_runs, needed),
            (lambda: journal.write_entries([build_entry()]), needed),
            (journal.create_table, "dynamodb:CreateTable, dynamodb:DescribeTable"),
        ]
        for use, permissions in uses:
            with pytest.raises(NotAllowed, match=rf"{name} allow {permissions}$"):
                use()
        assert (refused, clock.sleeps) == (["GetItem", "PutItem", "CreateTable"], [])


def test_it_is_opened_by_its_address(session: AwsSession, journal: DynamoJournal, name: str) -> None:
    journal.write_entries([build_entry()])
    resources: Any = SimpleNamespace(aws=lambda: session, clock=FakeClock())
    assert list(JOURNALS.open(f"dynamodb:{name}", resources).read_entries()) == [build_entry()]


def test_journals_are_registered_without_boto3() -> None:
    code = """
import sys
sys.modules["boto3"] = sys.modules["botocore"] = None
from holdfast.evacuate.journals import JOURNALS
print(*JOURNALS.names())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["database", "dynamodb"]
