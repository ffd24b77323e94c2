"""Translate errors of PostgreSQL into errors of Holdfast, and decide whether and when to retry. Pure.

The codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

import re
from dataclasses import dataclass
from enum import Enum

from psycopg import Error

from holdfast._errors import (
    Conflict,
    DatabaseCorrupt,
    DatabaseFull,
    EngineError,
    EngineUnavailable,
    HoldfastError,
)


class RetryAction(Enum):
    """How the engine retries after an error, before it raises it to the caller."""

    NONE = "none"
    RERUN = "rerun"
    """Run the transaction again on the same connection: it conflicted with another transaction."""
    RECONNECT = "reconnect"
    """Run the transaction again on another connection: this one is lost, or its server accepts no writes."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The meaning of one error of PostgreSQL."""

    error: HoldfastError
    action: RetryAction
    reason: str
    """The message of the server or of libpq, in one line."""


_UNAVAILABLE_STATES = frozenset(
    {
        "25P03",  # idle_in_transaction_session_timeout: the transaction, or this whole machine, was suspended
        "53300",  # too_many_connections
        "57P01",  # admin_shutdown, also pg_terminate_backend
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now: starting up, shutting down, or in recovery
        "57P04",  # database_dropped: the next connection attempt reports it
        "57P05",  # idle_session_timeout
    }
)
_READ_ONLY = "25006"
_COLLISION_STATES = frozenset({"40001", "40P01"})  # serialization_failure, deadlock_detected


def diagnose(error: Error, location: str, *, writing: bool = False, connection_lost: bool = False) -> Diagnosis:
    """Return the meaning of an error of a statement. `connection_lost`: the connection cannot be used again."""
    error = _find_server_error(error)
    state = error.sqlstate or ""
    reason = summarize_error(error)
    server = f"PostgreSQL at {location}"
    # A server that refuses writes as read-only has become a standby. Its name may soon resolve to the new primary.
    is_demoted = writing and state == _READ_ONLY
    if connection_lost or is_demoted or state in _UNAVAILABLE_STATES or state.startswith("08") or _is_stale_plan(error):
        return Diagnosis(
            EngineUnavailable(f"the connection to {server} was lost ({reason})"), RetryAction.RECONNECT, reason
        )
    if state in _COLLISION_STATES:
        return Diagnosis(EngineUnavailable(f"{server}: {reason} (SQLSTATE {state})"), RetryAction.RERUN, reason)
    return Diagnosis(_build_final_error(state, reason, server), RetryAction.NONE, reason)


def _find_server_error(error: Error) -> Error:
    """Return the error that the server sent, if the driver raised its own errors while it handled that one.

    If a server ends a connection during `executemany`, psycopg fails to read the other results, and then to leave its
    pipeline. Each failure is raised on top of the one before.
    """
    found: BaseException | None = error
    while isinstance(found, Error):  # below others, there may be an error that a caller was already handling
        if found.sqlstate is not None:
            return found
        found = found.__context__
    return error


def _build_final_error(state: str, reason: str, server: str) -> HoldfastError:
    """Return the error for the caller, if an immediate retry would not help. Nothing was written."""
    if state.startswith("23"):  # integrity_constraint_violation: unique, foreign key, check, not null, exclusion
        return Conflict(f"{server}: {reason}")
    match state:
        case "53100":
            return DatabaseFull(f"{server} has no space left ({reason}): free some space there; nothing was written")
        case "XX001" | "XX002":
            return DatabaseCorrupt(f"{server} found damaged data ({reason}): restore it from a backup")
        case "57014" | "55P03":  # query_canceled (mostly by statement_timeout), lock_not_available
            return EngineUnavailable(
                f"{server} cancelled a statement that took too long ({reason}): check in pg_stat_activity what it "
                "waited for; nothing was written"
            )
        case "53200":  # out_of_memory
            return EngineUnavailable(f"{server} is short of memory ({reason}): try again later; nothing was written")
        case _:
            code = f" (SQLSTATE {state})" if state else ""
            return EngineError(f"{server} refused a statement: {reason}{code}")


def _is_stale_plan(error: Error) -> bool:
    """Return whether the tables of a prepared statement have changed, as by the migration of a newer release."""
    return error.sqlstate == "0A000" and error.diag.source_function == "RevalidateCachedQuery"


# While connecting, libpq passes on the server's message, but not the SQLSTATE. Messages in another language are not
# recognized: then the caller waits for the whole timeout, and the error still quotes the message.
_REFUSALS = (
    ("password authentication failed", "check the user and the password in the url"),
    ("no password supplied", "the server requires a password: add it to the url"),
    ("authentication failed|authentication method", "check the user in the url, and its entry in pg_hba.conf"),
    ("no pg_hba.conf entry", "pg_hba.conf of the server does not admit this user from this machine"),
    ('database ".*" does not exist', "check the database in the url, or create it"),
    ('role ".*" does not exist', "check the user in the url, or create the role"),
    ("is not permitted to log in", "check the user in the url: its role has no LOGIN"),
    ("permission denied for database", "grant CONNECT on the database to the user in the url"),
    ("is not currently accepting connections", "check the database in the url: it does not accept connections"),
    ("server does not support SSL", "the url requires SSL, which the server does not offer"),
    ("certificate", "check sslmode and sslrootcert in the url against the server's certificate"),
    (r"invalid \w+ value|invalid port|invalid value for|bad value for|could not match|unrecognized", "correct the url"),
)


def find_refusal_advice(message: str) -> str | None:
    """Return advice if the server will refuse every further attempt, or None if waiting may help."""
    return next((advice for words, advice in _REFUSALS if re.search(words, message)), None)


def summarize_error(error: Error) -> str:
    """Return the first line of the error's message."""
    text = error.diag.message_primary or str(error)
    return text.strip().partition("\n")[0] or type(error).__name__


MAX_RUNS = 10
"""Maximum runs of a transaction that deadlocks or cannot be serialized. PostgreSQL detects a deadlock after a second,
so ten in a row take about ten seconds: by then, transactions lock their rows in different orders."""

_BASE_PAUSE = 0.05
_MAX_PAUSE = 2.0  # the end of a long outage is noticed within two seconds


def next_pause(
    action: RetryAction, count: int, elapsed: float, timeout: float, chance: float, *, is_connected: bool = True
) -> float | None:
    """Return the seconds to wait before the next run, or None to stop retrying.

    `count` is the number of failures with this action, from 1; `elapsed` the seconds since the first of them; `chance`
    a random number from 0 up to 1; `is_connected` whether there was a connection that failed. Half of a pause is
    random, so that the clients of a server do not return at the same moment. A pause may be cut to end at the timeout,
    but is not drawn from the remaining time: such pauses would only approach the timeout, ever shorter.
    """
    if action is RetryAction.NONE:
        return None
    if action is RetryAction.RERUN:
        return None if count >= MAX_RUNS else _BASE_PAUSE * count * chance
    if count == 1 and is_connected:
        return 0.0  # usually one connection was closed, and the server is available
    remaining = timeout - elapsed
    if remaining <= 0:
        return None
    # The exponent is bounded only to keep the power small: the pause has reached its maximum long before.
    longest = min(_BASE_PAUSE * 2.0 ** min(count - 1, 10), _MAX_PAUSE)
    return min(longest * (0.5 + chance / 2), remaining)
