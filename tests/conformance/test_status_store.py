"""Zone statuses are kept the same way wherever they are kept."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from holdfast import InvalidValue, StatusStore, Zone, ZoneState, ZoneStatus
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.stores.dynamodb import DynamoStatusStore
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.stores.s3 import S3StatusStore
from holdfast.testing import FakeClock
from holdfast.testing.status import NOW, StatusStoreConformance, into, out
from tests.table import sampled


class OurStoreConformance(StatusStoreConformance):
    """What our own stores promise beyond the protocol."""

    def test_what_has_expired_says_so_and_why_it_was_out(self, store: StatusStore) -> None:
        written = store.write(out(expires=NOW - 5, reason="requests of az1 fail"), 0)
        [changed] = store.expire(NOW)
        reason = "the status has expired (its reason was: requests of az1 fail)"
        assert changed == replace(
            written, state=ZoneState.IN, since=NOW, by="expiry", reason=reason, expires=None, version=changed.version
        )

    @pytest.mark.parametrize(
        "wrong",
        [
            replace(out(), zone=Zone("us-east-1a")),
            replace(out(), zone=Zone("use1/az1")),
            replace(out(), workload=""),
            replace(out(), workload="a\0b"),
            replace(out(), reason="\ud800"),
            replace(out(), since=float("nan")),
            replace(into(), expires=float("inf")),
            replace(out(), expires=-1.0),
        ],
        ids=lambda status: f"{status.zone} {status.workload!r} {status.since} {status.expires}",
    )
    def test_what_not_every_store_can_hold_is_refused_by_all(self, store: StatusStore, wrong: ZoneStatus) -> None:
        with pytest.raises(InvalidValue):
            store.write(wrong, 0)
        assert list(store.read()) == []


class TestMemory(OurStoreConformance):
    @pytest.fixture
    def store(self) -> StatusStore:
        return MemoryStatusStore()


class TestSqlite(OurStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[StatusStore]:
        with SqliteDatabase(tmp_path / "status.sqlite") as database:
            yield SqlStatusStore(database)


class TestPostgres(OurStoreConformance):
    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[StatusStore]:
        schema = f"status_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"create schema {schema}".encode())
            with PostgresDatabase(PostgresOptions(url=f"{postgres_url}?options=-csearch_path%3D{schema}")) as opened:
                yield SqlStatusStore(opened)
            connection.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture(scope="module", params=sampled(["moto_url", "ministack_url"]))
def session(request: pytest.FixtureRequest) -> Iterator[AwsSession]:
    url: str = request.getfixturevalue(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        with AwsSession(AwsOptions(region="eu-west-1", endpoint_url=url, attempts=1)) as session:
            yield session


# The clocks of the next two stand still: their versions must grow without its help.


class TestDynamo(OurStoreConformance):
    @pytest.fixture
    def store(self, session: AwsSession) -> StatusStore:
        store = DynamoStatusStore(session, f"status-{uuid.uuid4()}", FakeClock())
        store.create_table()
        return store


class TestS3(OurStoreConformance):
    @pytest.fixture
    def store(self, session: AwsSession) -> StatusStore:
        bucket = f"status-{uuid.uuid4()}"
        session.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        return S3StatusStore(session, bucket, FakeClock(), "zones/")
