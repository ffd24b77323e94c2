"""From settings to objects."""

import logging
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import DatabaseCorrupt, EngineError, NotFound, SettingsError, Zone, ZoneState, ZoneStatus
from holdfast.compose import (
    Databases,
    advise_on_access,
    ensure_data_directory,
    has_queue_store,
    open_database,
    open_publisher,
    open_queue_backend,
    open_status_store,
    prepare_data_directory,
    require_store,
    seed_queues,
)
from holdfast.config import DatabaseSettings, DatabaseUrl, QueueUrl, Settings
from holdfast.config.queues import LimitSettings, QueueSettings, TenantSettings
from holdfast.config.settings import AwsSettings, StatusSettings
from holdfast.engines import Migration
from holdfast.engines.aws import AwsSession
from holdfast.queue import Limits, OverMaxRate, QueuePolicy, open_backend
from holdfast.queue.backend import Backend, QueueChange
from holdfast.queue.policy import MAX_DIFFERENCES
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.stores.dynamodb import DynamoStatusStore
from holdfast.status.stores.s3 import S3StatusStore
from tests.unit.cli.conftest import NOBODY, closed


def settings(folder: Path, url: str = "sqlite:") -> Settings:
    return Settings(data_directory=folder / "data", database=DatabaseSettings(url=DatabaseUrl(url)))


def test_every_subsystem_has_a_file_of_its_own(tmp_path: Path) -> None:
    with Databases(settings(tmp_path)) as databases:
        assert databases.database("one") is databases.database("one")
        assert databases.database("one") is not databases.database("two")
        assert databases.database("one").dialect == "sqlite"
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"one.sqlite", "two.sqlite"}


def test_all_subsystems_share_one_pool_of_postgresql(tmp_path: Path, postgres_url: str) -> None:
    with Databases(settings(tmp_path, postgres_url)) as databases:
        assert databases.database("one") is databases.database("two")
        assert databases.database("one").dialect == "postgres"
    assert not (tmp_path / "data").exists()


def test_whether_there_are_queues_is_found_out_without_making_any(tmp_path: Path, postgres_url: str) -> None:
    schema = f"compose_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        for url in ("sqlite:", f"{postgres_url}?options=-csearch_path%3D{schema}"):
            of_queues = settings(tmp_path, url)
            with Databases(of_queues) as databases:
                assert not has_queue_store(of_queues, databases)
                assert not has_queue_store(of_queues, databases)
                assert not (tmp_path / "data" / "queue.sqlite").exists() or url != "sqlite:"
                with open_queue_backend(of_queues, databases):
                    assert has_queue_store(of_queues, databases)
        connection.execute(f"drop schema {schema} cascade".encode())


def test_queues_are_kept_where_queue_store_says(tmp_path: Path) -> None:
    elsewhere = Settings(data_directory=tmp_path / "data", queue_backend=QueueUrl(f"sqlite:{tmp_path / 'work.sqlite'}"))
    with Databases(elsewhere) as databases:
        assert not has_queue_store(elsewhere, databases)
        with open_queue_backend(elsewhere, databases) as backend:
            backend.change("mail", QueueChange(), create=True)
        assert has_queue_store(elsewhere, databases)
    assert {path.name for path in tmp_path.iterdir()} == {"work.sqlite"}


class TestSeeds:
    """Queues of the settings are made, and what is not as they say is told."""

    def seeded(self, backend: Backend, caplog: pytest.LogCaptureFixture, *queues: QueueSettings) -> list[str]:
        """What is told."""
        caplog.clear()
        seed_queues(Settings(queue=queues), backend)
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    def test_what_is_as_the_settings_say_is_not_worth_a_word(self, caplog: pytest.LogCaptureFixture) -> None:
        queue = QueueSettings(
            name="mail",
            lanes=8,
            limits=LimitSettings(spill_rate=2.0),
            tenant=(TenantSettings(name="a", limits=LimitSettings(spill_rate=5.0)),),
        )
        with open_backend("memory:") as backend:
            for _ in range(2):
                assert self.seeded(backend, caplog, queue, QueueSettings(name="other")) == []
            backend.change("mail", QueueChange(limits={"b": Limits(spill_rate=1.0)}))
            assert self.seeded(backend, caplog, queue) == [], "of this tenant the settings say nothing"

    def test_what_differs_is_named_once_for_each_queue(self, caplog: pytest.LogCaptureFixture) -> None:
        with open_backend("memory:") as backend:
            policy = QueuePolicy(ttl=60.5, limits=Limits(spill_rate=1.0))
            for name in ("mail", "other"):
                backend.change(
                    name,
                    QueueChange(policy=policy, limits={"a": Limits(spill_rate=1.0, over_max_rate=OverMaxRate.REFUSE)}),
                    create=True,
                )
            changed = QueueSettings(
                name="mail",
                lanes=8,
                limits=LimitSettings(spill_rate=1.0, concurrency=4),
                tenant=(
                    TenantSettings(name="a", limits=LimitSettings(spill_rate=5.0, over_max_rate=OverMaxRate.REFUSE)),
                ),
            )
            named = ["lanes is 128 and not 8", "limits.concurrency is none and not 4", "ttl is 60.5 and not none"]
            named.append("spill_rate of tenant a is 1 and not 5")
            told = self.seeded(backend, caplog, changed, QueueSettings(name="other", ttl=60.5))
            assert [text.partition(". ")[0] for text in told] == [
                "queue mail differs from the settings: " + ", ".join(named),
                "queue other differs from the settings: limits.spill_rate is 1 and not none",
            ]
            assert told[0].endswith(
                "with `holdfast queue limits`, `holdfast queue resize` or over HTTP, or change the settings"
            )
            assert backend.inspect("mail").policy == policy, "it is left as it is"

    def test_of_many_differences_some_are_named(self, caplog: pytest.LogCaptureFixture) -> None:
        tenants = tuple(
            TenantSettings(name=f"t{n:02}", limits=LimitSettings(spill_rate=5.0)) for n in range(MAX_DIFFERENCES + 2)
        )
        with open_backend("memory:") as backend:
            self.seeded(backend, caplog, QueueSettings(name="mail"))
            [told] = self.seeded(backend, caplog, QueueSettings(name="mail", tenant=tenants))
        assert "spill_rate of tenant t09 is none and not 5 and 2 more. Settings" in told


def test_databases_may_be_closed_again(tmp_path: Path) -> None:
    databases = Databases(settings(tmp_path))
    databases.database("one")
    databases.close()
    databases.close()


def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with pytest.raises(NotFound, match=r"there is no store at .*data/server\.sqlite"):
        require_store(values, "server")
    assert not (tmp_path / "data").exists()
    open_database(values, "server").close()
    require_store(values, "server")


def test_a_server_without_its_store_is_no_new_server(tmp_path: Path) -> None:
    values = settings(tmp_path)
    for name in ("server", "watch"):
        with open_database(values, name) as database:
            database.migrate(name, [Migration(1, "items", ("create table item (id bigint)",))])
    for lose in (Path.unlink, Path.touch):
        lose(tmp_path / "data" / "server.sqlite")
        with pytest.raises(DatabaseCorrupt, match=r"server\.sqlite has no data, although watch\.sqlite .*backup"):
            open_database(values, "server")
    (tmp_path / "data" / "watch.sqlite").unlink()
    open_database(values, "server").close()


ITEMS = [Migration(1, "items", ("create table item (id bigint)",))]


def test_a_store_that_is_being_created_has_lost_nothing(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with open_database(values, "server") as database:
        database.migrate("server", ITEMS)
    open_database(values, "queue").close()  # as a process leaves it that is killed before it makes the tables
    with open_database(values, "queue") as first, open_database(values, "queue") as second:
        assert first.migrate("queue", ITEMS) == ITEMS
        assert second.migrate("queue", ITEMS) == []
    with open_database(values, "queue") as database:
        assert database.migrate("queue", ITEMS) == []


def test_a_store_that_had_tables_and_has_none_has_lost_them(tmp_path: Path) -> None:
    values = settings(tmp_path)
    path = tmp_path / "data" / "queue.sqlite"
    open_database(values, "empty").close()
    for lost in (b"", (tmp_path / "data" / "empty.sqlite").read_bytes()):  # a file alone, and one without its log
        with open_database(values, "queue") as database:
            database.migrate("queue", ITEMS)
        path.write_bytes(lost)
        for _ in range(2):
            with (
                open_database(values, "queue") as database,
                pytest.raises(DatabaseCorrupt, match=r"begin without its data, remove queue\.sqlite"),
            ):
                database.migrate("queue", ITEMS)
        path.unlink()


@pytest.mark.parametrize(
    ("owner", "is_read_only", "advice"),
    [
        ("root", True, "is on a read-only filesystem; make that writable"),
        ("root", False, "its mode does not allow that; run `chmod u+rwx data`"),
        ("holdfast", False, "belongs to holdfast; do this as holdfast"),
    ],
)
def test_advice_on_a_closed_directory_is_of_use_to_root(owner: str, is_read_only: bool, advice: str) -> None:
    assert advice in advise_on_access(Path("data"), owner, "root", is_read_only=is_read_only)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, as they may not those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.parametrize("below", ["data", "data/deeper"])
def test_a_store_of_another_user_is_told_with_that_user(open_folder: Path, below: str) -> None:
    values = Settings(data_directory=open_folder / below)
    open_database(values, "server").close()
    with closed(open_folder / "data") as owner, pytest.raises(SettingsError) as refused:
        require_store(values, "server")
    assert f"{open_folder}/data belongs to {owner}; do this as {owner}" in str(refused.value)


def test_a_data_directory_of_another_user_is_told_with_that_user(open_folder: Path) -> None:
    values = settings(open_folder)
    ensure_data_directory(values)
    with closed(open_folder / "data") as owner, pytest.raises(SettingsError, match=f"belongs to {owner}; do this as"):
        ensure_data_directory(values)


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_of_another_user_in_a_folder_that_is_fine_is_told_as_that(open_folder: Path, mode: int) -> None:
    """As root leaves it who runs a command in the folder of another user."""
    values = settings(open_folder)
    open_database(values, "server").close()
    is_root = os.geteuid() == 0
    (open_folder / "data" / "server.sqlite").chmod(mode if is_root else mode & 0o044)
    if is_root:
        os.chown(open_folder / "data", NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        with pytest.raises(EngineError) as refused, open_database(values, "server") as database:
            database.write(lambda transaction: transaction.execute("create table item (id bigint)"))
    finally:
        if is_root:
            os.seteuid(0)
    assert "server.sqlite" in str(refused.value)
    assert ("belongs to root" in str(refused.value)) == is_root


def test_a_store_in_postgresql_is_looked_for_there(tmp_path: Path) -> None:
    require_store(settings(tmp_path, "postgresql://localhost/x"), "server")


def test_the_data_directory_is_made_and_closed_to_others(tmp_path: Path) -> None:
    path = ensure_data_directory(settings(tmp_path / "below"))
    assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("mode", "is_told"), [(0o700, False), (0o755, False), (0o775, True), (0o702, True)])
def test_a_server_warns_of_a_data_directory_that_others_may_write_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, is_told: bool
) -> None:
    directory = ensure_data_directory(settings(tmp_path))
    directory.chmod(mode)
    prepare_data_directory(settings(tmp_path))
    expected = f"data_directory {directory} can be written by other users"
    assert [expected in message and f"chmod go-w {directory}" in message for message in caplog.messages] == (
        [True] if is_told else []
    )


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(SettingsError, match="data cannot be created"):
        ensure_data_directory(settings(tmp_path))


ZONE_OUT = ZoneStatus(zone=Zone("use1-az1"), workload="shop", state=ZoneState.OUT, since=1.0, by="test", reason="test")


def in_aws(folder: Path, url: str, store: str) -> Settings:
    return Settings(
        data_directory=folder / "data",
        aws=AwsSettings(region="eu-west-1", endpoint_url=url),
        status=StatusSettings(store=store),
    )


@pytest.fixture
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


def test_zone_statuses_are_kept_in_the_database_unless_set_otherwise(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with Databases(values) as databases:
        store = open_status_store(values, databases)
        assert isinstance(store, SqlStatusStore)
        written = store.write(ZONE_OUT, 0)
    with open_database(values, "status") as database:
        assert list(SqlStatusStore(database).read()) == [written]


def test_zone_statuses_are_kept_in_the_table_that_is_named(
    tmp_path: Path, moto_url: str, some_credentials: None
) -> None:
    table = f"status-{uuid.uuid4()}"
    values = in_aws(tmp_path, moto_url, f"dynamodb:{table}")
    with Databases(values) as databases:
        store = open_status_store(values, databases)
        assert isinstance(store, DynamoStatusStore)
        store.create_table()
        written = store.write(ZONE_OUT, 0)
        assert databases.aws().client("dynamodb").scan(TableName=table)["Count"] == 1
        assert list(store.read()) == [written]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("place", "key"),
    [("", "shop/use1-az1.txt"), ("/zones", "zones/shop/use1-az1.txt"), ("/a/b/", "a/b/shop/use1-az1.txt")],
)
def test_zone_statuses_are_kept_in_the_bucket_and_below_the_prefix_that_are_named(
    tmp_path: Path, moto_url: str, some_credentials: None, place: str, key: str
) -> None:
    bucket = f"status-{uuid.uuid4()}"
    values = in_aws(tmp_path, moto_url, f"s3:{bucket}{place}")
    with Databases(values) as databases:
        client = databases.aws().client("s3")
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        store = open_status_store(values, databases)
        assert isinstance(store, S3StatusStore)
        store.write(ZONE_OUT, 0)
        [found] = client.list_objects_v2(Bucket=bucket)["Contents"]
        assert found["Key"] == key


def test_everything_in_aws_shares_one_session_which_ends_with_the_databases(
    tmp_path: Path, moto_url: str, some_credentials: None
) -> None:
    databases = Databases(in_aws(tmp_path, moto_url, "database"))
    session = databases.aws()
    assert isinstance(session, AwsSession)
    assert databases.aws() is session
    topic = session.client("sns").create_topic(Name=f"zones-{uuid.uuid4()}")["TopicArn"]
    open_publisher(databases, topic).publish(ZONE_OUT)
    databases.close()
    databases.close()
    with pytest.raises(EngineError):
        session.client("sqs")
