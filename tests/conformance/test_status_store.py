"""Zone statuses are kept the same way wherever they are kept."""

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Conflict, InvalidValue, StatusStore, Zone, ZoneState, ZoneStatus
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.stores.dynamodb import DynamoStatusStore
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.stores.s3 import S3StatusStore
from holdfast.testing import FakeClock
from holdfast.testing.status import NOW, ZONE, StatusStoreConformance, by_key, into, out, version
from tests.depth import nested
from tests.table import sampled

Step: TypeAlias = tuple[int, bool, int | None, bool] | int
"""A write (workload, out, expires, stale), or the time at which what is over expires."""

_EXAMPLES = nested(25)
# Text with NUL is left out: PostgreSQL cannot hold it.
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# Control characters are no part of a name, and not every HTTP server carries them in a path.
_NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
_WRITE = st.tuples(st.integers(0, 2), st.booleans(), st.none() | st.integers(0, 5), st.booleans())
_STEPS = st.lists(_WRITE | st.integers(0, 5), max_size=8)


class OurStoreConformance(StatusStoreConformance):
    """What our own stores promise beyond the protocol; and random steps, compared with a simple model."""

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

    def test_whatever_was_written_is_read(self, store: StatusStore) -> None:
        times = st.floats(1.0, 1e11)

        @_EXAMPLES
        @given(_NAME, _TEXT, _TEXT, times, st.none() | times)
        def comes_back(workload: str, by: str, reason: str, since: float, expires: float | None) -> None:
            wanted = ZoneStatus(
                zone=ZONE, workload=workload, state=ZoneState.OUT, since=since, by=by, reason=reason, expires=expires
            )
            written = store.write(wanted, version(store, workload=workload))
            assert written == replace(wanted, version=written.version)
            assert by_key(store.read())[ZONE, workload] == written

        comes_back()

    def test_any_sequence_of_writes_and_expiries_ends_as_it_should(self, store: StatusStore) -> None:
        """A simple model of a store, and the store, agree after each step."""
        numbers = itertools.count()

        @_EXAMPLES
        @given(_STEPS)
        def agrees(steps: Sequence[Step]) -> None:
            number = next(numbers)
            model = _Model(store, [f"example{number}-{index}" for index in range(3)])
            for step in steps:
                if isinstance(step, int):
                    model.expire(NOW + step)
                else:
                    model.write(*step)
                model.compare()

        agrees()


class _Model:
    """What a store should say about some workloads, from what was done to it."""

    def __init__(self, store: StatusStore, workloads: Sequence[str]) -> None:
        self._store = store
        self._workloads = workloads
        self._latest: dict[str | None, ZoneStatus] = {}

    def write(self, index: int, is_out: bool, expires: int | None, stale: bool) -> None:
        workload = self._workloads[index]
        end = None if expires is None else NOW + expires
        wanted = (out if is_out else into)(workload=workload, expires=end)
        shown = version(self._store, workload=workload)
        if stale:
            with pytest.raises(Conflict):
                self._store.write(wanted, shown + 1)
            return
        written = self._store.write(wanted, shown)
        assert written == replace(wanted, version=written.version)
        self._learn(written)

    def expire(self, now: float) -> None:
        over = {name for name, status in self._latest.items() if status.state.is_out and not status.is_out(now)}
        changed = [status for status in self._store.expire(now) if status.workload in self._workloads]
        assert sorted(str(status.workload) for status in changed) == sorted(map(str, over))
        for status in changed:
            assert not status.state.is_out
            self._learn(status)

    def compare(self) -> None:
        shown = {status.workload: status for status in self._store.read() if status.workload in self._workloads}
        assert {name for name, status in self._latest.items() if status.state.is_out} <= shown.keys()
        assert shown.items() <= self._latest.items()

    def _learn(self, status: ZoneStatus) -> None:
        known = self._latest.get(status.workload)
        assert status.version > (0 if known is None else known.version)
        self._latest[status.workload] = status


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
        with AwsSession(AwsOptions(region="eu-west-1", endpoint_url=url, max_attempts=1)) as session:
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
