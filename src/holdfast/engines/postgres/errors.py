"""What PostgreSQL's errors mean to a caller, what the engine can do about them, and how long it keeps trying. Pure.

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
    """What to do about a fault before the caller hears of it."""

    NONE = "none"
    RERUN = "rerun"
    """Run the work again on the same connection: somebody else was in the way."""
    RECONNECT = "reconnect"
    """Run the work again on another connection: this one is gone, or is no longer connected to a usable server."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One error, understood."""

    error: HoldfastError
    action: RetryAction
    reason: str
    """What the server or libpq said, in one line."""


_UNAVAILABLE_STATES = frozenset(
    {
        "25P03",  # idle_in_transaction_session_timeout: the work, or this whole machine, stood still
        "53300",  # too_many_connections
        "57P01",  # admin_shutdown, also pg_terminate_backend
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now: starting up, shutting down, or in recovery
        "57P04",  # database_dropped: connecting anew says what is wrong
        "57P05",  # idle_session_timeout
    }
)
_READ_ONLY = "25006"
_COLLISION_STATES = frozenset({"40001", "40P01"})  # serialization_failure, deadlock_detected


def diagnose(error: Error, location: str, *, writing: bool = False, connection_lost: bool = False) -> Diagnosis:
    """Understand an error of a statement. `connection_lost` says that the connection ended with it."""
    if error.sqlstate is None and isinstance(error.__context__, Error):
        # Where a server ends a connection in the middle of `executemany`, psycopg cannot leave its pipeline and raises
        # an error of its own over that of the server.
        error = error.__context__
    state = error.sqlstate or ""
    reason = summarize_error(error)
    server = f"PostgreSQL at {location}"
    # A write refused as read-only went to a server that is a standby now: its name may soon lead to the new primary.
    is_demoted = writing and state == _READ_ONLY
    if connection_lost or is_demoted or state in _UNAVAILABLE_STATES or state.startswith("08") or _is_stale_plan(error):
        return Diagnosis(
            EngineUnavailable(f"the connection to {server} was lost ({reason})"), RetryAction.RECONNECT, reason
        )
    if state in _COLLISION_STATES:
        return Diagnosis(EngineUnavailable(f"{server}: {reason} (SQLSTATE {state})"), RetryAction.RERUN, reason)
    return Diagnosis(_build_final_error(state, reason, server), RetryAction.NONE, reason)


def _build_final_error(state: str, reason: str, server: str) -> HoldfastError:
    """The error that the caller gets, where trying again at once would not help. Nothing was written."""
    if state.startswith("23"):  # integrity_constraint_violation: unique, foreign key, check, not null, exclusion
        return Conflict(f"{server}: {reason}")
    match state:
        case "53100":
            return DatabaseFull(f"{server} has no room left ({reason}): free some space there; nothing was written")
        case "XX001" | "XX002":
            return DatabaseCorrupt(f"{server} found damaged data ({reason}): restore it from a backup")
        case "57014" | "55P03":  # query_canceled (mostly by statement_timeout), lock_not_available
            return EngineUnavailable(
                f"{server} ended a statement that took too long ({reason}): look in pg_stat_activity for what it "
                "waited for; nothing was written"
            )
        case "53200":  # out_of_memory
            return EngineUnavailable(f"{server} is short of memory ({reason}): try again later; nothing was written")
        case _:
            code = f" (SQLSTATE {state})" if state else ""
            return EngineError(f"{server} did not accept a statement: {reason}{code}")


def _is_stale_plan(error: Error) -> bool:
    """Whether a prepared statement outlived a change of its tables, as by the migration of a newer release."""
    return error.sqlstate == "0A000" and error.diag.source_function == "RevalidateCachedQuery"


# While connecting, libpq hands on the server's words but not the SQLSTATE. A server that speaks another language is
# not recognized here: then its refusal costs the caller the whole timeout, and is still quoted in the message.
_REFUSALS = (
    ("password authentication failed", "check the user and the password in the url"),
    ("no password supplied", "the url has no password, and the server asks for one"),
    ("authentication failed|authentication method", "check the user in the url, and how pg_hba.conf lets it in"),
    ("no pg_hba.conf entry", "pg_hba.conf of the server does not let this user in from this machine"),
    ('database ".*" does not exist', "check the database in the url, or create it"),
    ('role ".*" does not exist', "check the user in the url, or create the role"),
    ("is not permitted to log in", "check the user in the url: its role has no LOGIN"),
    ("permission denied for database", "grant CONNECT on the database to the user in the url"),
    ("is not currently accepting connections", "check the database in the url: it is closed to connections"),
    ("server does not support SSL", "the url asks for SSL, which the server does not offer"),
    ("certificate", "check sslmode and sslrootcert in the url against the server's certificate"),
    (r"invalid \w+ value|invalid port|invalid value for|bad value for|could not match|unrecognized", "mend the url"),
)


def find_refusal_advice(message: str) -> str | None:
    """What to check, if the server will say no however often it is asked; None if waiting may help."""
    return next((advice for words, advice in _REFUSALS if re.search(words, message)), None)


def summarize_error(error: Error) -> str:
    """What went wrong, short enough for a message."""
    text = error.diag.message_primary or str(error)
    return text.strip().partition("\n")[0] or type(error).__name__


MAX_RUNS = 10
"""Most runs of a transaction that deadlocks or cannot be serialized. PostgreSQL takes a second to see a deadlock, so
ten in a row are some ten seconds: by then the works do not collide by chance, they lock in a different order."""

_BASE_PAUSE = 0.05
_MAX_PAUSE = 2.0  # a server that is back is noticed within two seconds, even after a long outage


def next_pause(action: RetryAction, count: int, elapsed: float, timeout: float, chance: float) -> float | None:
    """Seconds to wait before the next run, or None to give up.

    `count` is how often this remedy was needed, from 1; `elapsed` the seconds since it was first needed; `chance` a
    random number from 0 up to 1. Full jitter, so that the clients of a server that went away do not come back in
    step: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    if action is RetryAction.NONE:
        return None
    if action is RetryAction.RERUN:
        return None if count >= MAX_RUNS else _BASE_PAUSE * count * chance
    if count == 1:
        return 0.0  # mostly one idle connection that ended unnoticed: the server is there
    remaining = timeout - elapsed
    if remaining <= 0:
        return None
    # The exponent is bounded only so that the power stays a small number: the pause reached its cap long before.
    return min(_BASE_PAUSE * 2.0 ** min(count - 2, 10), _MAX_PAUSE, remaining) * chance
