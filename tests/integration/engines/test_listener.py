"""Being told by PostgreSQL that something has happened."""

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.engines import Transaction
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.postgres.connection import NotificationListener
from tests.services.postgres import RestartablePostgres

CHANNEL = 'Odd "channel"; name'


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(PostgresOptions(url=postgres_url)) as database:
        yield database


@pytest.fixture
def listener(database: PostgresDatabase) -> Iterator[NotificationListener]:
    """One that is listening."""
    listener = database.open_listener(CHANNEL)
    assert listener.wait_for_notifications(0.0) is None, "what came before it began it has not heard"
    yield listener
    listener.close()


def notify(url: str, text: str, channel: str = CHANNEL) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_notify(%s, %s)", (channel, text))


def heard(listener: NotificationListener, count: int) -> list[str]:
    """So many notifications, however they come."""
    found: list[str] = []
    while len(found) < count:
        found += listener.wait_for_notifications(30.0) or []
    return found


def test_what_is_notified_is_heard_in_order(listener: NotificationListener, postgres_url: str) -> None:
    for text in ("one", "zwei \N{GRINNING FACE}", ""):
        notify(postgres_url, text)
    assert heard(listener, 3) == ["one", "zwei \N{GRINNING FACE}", ""]
    assert listener.wait_for_notifications(0.0) == []


def test_other_channels_are_not_heard(listener: NotificationListener, postgres_url: str) -> None:
    notify(postgres_url, "other", "odd")
    notify(postgres_url, "mine")
    assert heard(listener, 1) == ["mine"]


def test_what_is_rolled_back_is_not_heard(
    listener: NotificationListener, database: PostgresDatabase, postgres_url: str
) -> None:
    def work(transaction: Transaction) -> None:
        transaction.execute("select pg_notify($1, $2)", (CHANNEL, "never"))
        raise KeyError("undo")

    with pytest.raises(KeyError):
        database.write(work)
    notify(postgres_url, "ever")
    assert heard(listener, 1) == ["ever"]


def test_after_a_lost_connection_it_listens_again_and_says_that_it_did_not(
    listener: NotificationListener, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where query like 'listen%' and pid <> pg_backend_pid()"
        )
    notify(postgres_url, "nobody hears this")
    assert listener.wait_for_notifications(30.0) is None, "the connection is gone"
    assert listener.wait_for_notifications(30.0) is None, "another one is there, and what came between is unknown"
    notify(postgres_url, "again")
    assert heard(listener, 1) == ["again"]


def test_a_server_that_is_away_is_no_error(restartable_postgres: RestartablePostgres) -> None:
    listener = NotificationListener(PostgresOptions(url=restartable_postgres.url), CHANNEL)
    restartable_postgres.stop()
    assert listener.wait_for_notifications(0.0) is None
    assert listener.wait_for_notifications(0.0) is None
    restartable_postgres.start()
    assert listener.wait_for_notifications(0.0) is None
    notify(restartable_postgres.url, "back")
    assert heard(listener, 1) == ["back"]
    listener.close()
    listener.close()
