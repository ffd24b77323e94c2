import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from holdfast import (
    Conflict,
    DatabaseCorrupt,
    DatabaseFull,
    EngineError,
    EngineUnavailable,
    HoldfastError,
)
from holdfast.engines.postgres.errors import (
    MAX_RUNS,
    RetryAction,
    diagnose,
    find_refusal_advice,
    next_pause,
    summarize_error,
)
from tests.table import rows

PLACE = "db.example:5432/orders"


def error(state: str, text: str = "as told\nDETAIL: more") -> psycopg.Error:
    return errors.lookup(state)(text)


@rows("state", ["08006", "08P01", "25P03", "53300", "57P01", "57P02", "57P03", "57P04", "57P05"])
def test_a_server_that_is_leaving_or_not_yet_there_counts_as_lost(state: str) -> None:
    diagnosis = diagnose(error(state), PLACE)
    assert diagnosis.action is RetryAction.RECONNECT
    assert type(diagnosis.error) is EngineUnavailable


def test_an_ended_connection_is_lost_whatever_the_error_says() -> None:
    assert diagnose(psycopg.OperationalError("gone"), PLACE, connection_lost=True).action is RetryAction.RECONNECT
    assert diagnose(error("42601"), PLACE, connection_lost=True).action is RetryAction.RECONNECT


def test_an_error_that_the_driver_raises_over_that_of_the_server_counts_as_that_of_the_server() -> None:
    over = psycopg.OperationalError("cannot exit pipeline mode while busy")
    over.__context__ = error("57P01")
    assert diagnose(over, PLACE).action is RetryAction.RECONNECT
    over.__context__ = psycopg.OperationalError("flush request failed")
    over.__context__.__context__ = error("57P01")
    assert diagnose(over, PLACE).action is RetryAction.RECONNECT
    over.__context__ = ValueError("something else")
    assert diagnose(over, PLACE).action is RetryAction.NONE


def test_a_write_refused_as_read_only_looks_for_another_server_and_a_read_does_not() -> None:
    assert diagnose(error("25006"), PLACE, writing=True).action is RetryAction.RECONNECT
    misuse = diagnose(error("25006"), PLACE, writing=False)
    assert misuse.action is RetryAction.NONE
    assert type(misuse.error) is EngineError


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_collisions_are_run_again(state: str) -> None:
    assert diagnose(error(state), PLACE).action is RetryAction.RERUN


@rows(
    ("state", "expected"),
    [
        ("23000", Conflict),
        ("23502", Conflict),
        ("23503", Conflict),
        ("23505", Conflict),
        ("23514", Conflict),
        ("23P01", Conflict),
        ("53100", DatabaseFull),
        ("53200", EngineUnavailable),
        ("55P03", EngineUnavailable),
        ("57014", EngineUnavailable),
        ("XX001", DatabaseCorrupt),
        ("XX002", DatabaseCorrupt),
        ("0A000", EngineError),
        ("22P02", EngineError),
        ("42501", EngineError),
        ("42601", EngineError),
        ("42P01", EngineError),
        ("XX000", EngineError),
    ],
)
def test_every_other_state_becomes_one_error_that_names_the_place(state: str, expected: type[HoldfastError]) -> None:
    diagnosis = diagnose(error(state), PLACE, writing=True)
    assert type(diagnosis.error) is expected
    assert diagnosis.action is RetryAction.NONE
    assert PLACE in str(diagnosis.error)
    assert "as told" in str(diagnosis.error)
    assert "DETAIL" not in str(diagnosis.error)


def test_an_error_of_the_driver_itself_is_an_engine_error() -> None:
    diagnosis = diagnose(psycopg.DataError("text fields cannot contain NUL"), PLACE)
    assert type(diagnosis.error) is EngineError
    assert "SQLSTATE" not in str(diagnosis.error)


def test_an_error_without_words_is_called_by_its_class() -> None:
    assert summarize_error(psycopg.InterfaceError()) == "InterfaceError"


@rows(
    ("message", "advice"),
    [
        ('FATAL:  password authentication failed for user "me"', "user and the password"),
        ("fe_sendauth: no password supplied", "requires a password"),
        ('FATAL:  Peer authentication failed for user "me"', "pg_hba.conf"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "me", database "db", no encryption', "pg_hba.conf"),
        ('FATAL:  database "orders" does not exist', "check the database in the url"),
        ('FATAL:  role "me" does not exist', "check the user in the url"),
        ('FATAL:  role "me" is not permitted to log in', "no LOGIN"),
        ('FATAL:  permission denied for database "orders"', "grant CONNECT"),
        ("server does not support SSL, but SSL was required", "does not offer"),
        ("SSL error: certificate verify failed", "sslrootcert"),
        ('authentication method requirement "scram-sha-256" failed', "pg_hba.conf"),
        ('invalid sslmode value: "foo"', "correct the url"),
        ('invalid integer value "x" for connection option "port"', "correct the url"),
        ('invalid port number: "99999"', "correct the url"),
        ("bad value for connect_timeout: 'x'", "correct the url"),
        ("could not match 2 port numbers to 1 hosts", "correct the url"),
        ('FATAL:  unrecognized configuration parameter "nonsense"', "correct the url"),
        ('FATAL:  invalid value for parameter "search_path": """', "correct the url"),
    ],
)
def test_a_server_that_will_never_agree_says_what_to_check(message: str, advice: str) -> None:
    assert advice in str(find_refusal_advice(f'connection to server at "10.0.0.2", port 5432 failed: {message}'))


@rows(
    "message",
    [
        "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?",
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is shutting down",
        "FATAL:  sorry, too many clients already",
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "server closed the connection unexpectedly",
        "failed to resolve host 'db.example': [Errno -2] Name or service not known",
        "connection timeout expired",
        'could not connect to socket "/run/postgresql/.s.PGSQL.5432" failed: No such file or directory',
        "session is read-only",
        "received invalid response to SSL negotiation: E",
    ],
)
def test_a_server_that_may_come_back_is_waited_for(message: str) -> None:
    assert find_refusal_advice(message) is None


counts = st.integers(1, 10_000)
seconds = st.floats(0, 1e6)
chances = st.floats(0, 1, exclude_max=True)


@given(counts, seconds, seconds, chances)
def test_what_has_no_remedy_is_given_up_at_once(count: int, elapsed: float, timeout: float, chance: float) -> None:
    assert next_pause(RetryAction.NONE, count, elapsed, timeout, chance) is None


@given(seconds, seconds, chances)
def test_the_first_loss_is_mended_at_once_however_short_the_patience(
    elapsed: float, timeout: float, chance: float
) -> None:
    assert next_pause(RetryAction.RECONNECT, 1, elapsed, timeout, chance) == 0.0


@given(st.integers(2, 10_000), seconds, seconds, chances, st.booleans())
def test_a_server_is_waited_for_until_the_patience_is_over(
    count: int, elapsed: float, timeout: float, chance: float, is_connected: bool
) -> None:
    pause = next_pause(RetryAction.RECONNECT, count, elapsed, timeout, chance, is_connected=is_connected)
    if elapsed >= timeout:
        assert pause is None
    else:
        assert pause is not None
        assert min(0.05, timeout - elapsed) <= pause <= min(2.0, timeout - elapsed)


@given(st.floats(0.1, 60), st.lists(chances, min_size=1))
def test_a_server_that_is_away_is_asked_a_few_times_and_last_when_the_patience_is_over(
    timeout: float, some: list[float]
) -> None:
    elapsed, pauses = 0.0, list[float]()
    while (
        pause := next_pause(
            RetryAction.RECONNECT, len(pauses) + 1, elapsed, timeout, some[len(pauses) % len(some)], is_connected=False
        )
    ) is not None:
        pauses.append(pause)
        elapsed += pause
    assert elapsed >= timeout
    assert all(pause >= 0.025 for pause in pauses[:-1])
    assert len(pauses) <= timeout + 7  # the first pauses are shorter than a second


@given(counts, seconds, seconds, chances)
def test_collisions_are_bounded_by_their_number(count: int, elapsed: float, timeout: float, chance: float) -> None:
    pause = next_pause(RetryAction.RERUN, count, elapsed, timeout, chance)
    assert (pause is None) == (count >= MAX_RUNS)
    assert pause is None or 0.0 <= pause < 0.5


def test_pauses_double_up_to_two_seconds() -> None:
    pauses = [next_pause(RetryAction.RECONNECT, count, 0.0, 60.0, 1.0) for count in range(1, 9)]
    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_server_that_refuses_connections_is_not_asked_again_at_once() -> None:
    pauses = [next_pause(RetryAction.RECONNECT, count, 0.0, 60.0, 0.0, is_connected=False) for count in range(1, 4)]
    assert pauses == [0.025, 0.05, 0.1]
