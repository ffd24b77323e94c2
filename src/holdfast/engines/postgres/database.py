"""A PostgreSQL server as a Database: pooled connections, and transactions that are retried if a connection is lost."""

import logging
import math
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Self

import psycopg

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineError, EngineMismatch, EngineUnavailable, SettingsError
from holdfast.engines.database import Result, Row, Transaction, Value
from holdfast.engines.migrations import Migration, apply_migrations, find_pending
from holdfast.engines.postgres.connection import NotificationListener, PostgresConnection, PostgresOptions, connect
from holdfast.engines.postgres.errors import (
    Diagnosis,
    RetryAction,
    diagnose,
    find_refusal_advice,
    next_pause,
    summarize_error,
)
from holdfast.engines.postgres.pool import Pool, PoolTimeout
from holdfast.engines.postgres.transaction import RetryableFailure, run_statement, run_transaction

CHECK_SECONDS = 5.0
"""Maximum wait of `check` for an unavailable server: health checks need a quick answer."""

MIGRATION_LOCK = 0x686F6C6466617374
"""The advisory lock of migrations: "holdfast" in ASCII, to be recognized in `pg_locks`."""

_log = logging.getLogger(__name__)


class PostgresDatabase:
    """One database on a PostgreSQL server. Safe to use from any number of threads, but not across a fork.

    The constructor connects. It raises EngineUnavailable if the server is unavailable for `options.timeout`,
    SettingsError immediately if the server refuses the user, password or database, and EngineMismatch if it is too old.
    """

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, options: PostgresOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._location = options.location
        self._clock = clock or SystemClock()
        self._process = os.getpid()
        self._pool = Pool(
            options.min_connections, options.max_connections, lambda timeout: connect(options, timeout), self._clock
        )
        self._condition = threading.Condition()
        self._running = 0
        self._is_open = True
        self._migrated: dict[str, tuple[Migration, ...]] = {}
        self.read(lambda _: None)  # runs no statement, but opens a connection

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        return self._run(self._in_transaction(work, writing=False), self._options.timeout)

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        return self._run(self._in_transaction(work, writing=True), self._options.timeout)

    def write_statement(self, sql: str, parameters: Sequence[Value] = (), *, is_idempotent: bool = False) -> list[Row]:
        def work(connection: PostgresConnection) -> list[Row]:
            return run_statement(connection, self._location, sql, parameters, is_idempotent=is_idempotent)

        return self._run(work, self._options.timeout)

    def open_listener(self, channel: str) -> NotificationListener:
        return NotificationListener(self._options, channel)

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        now = self._clock.wall()
        lock_timeout = f"{math.ceil(self._options.timeout * 1000) or 1}ms"  # 0 would mean no limit

        def work(transaction: Transaction) -> list[Migration]:
            # Waiting for another process's migration, or building an index, may take any time.
            transaction.execute("set local statement_timeout = 0")
            transaction.execute("select pg_advisory_xact_lock($1)", (MIGRATION_LOCK,))
            # The wait for a table in use is limited, because later transactions would queue up behind the migration.
            transaction.execute("select set_config('lock_timeout', $1, true)", (lock_timeout,))
            return apply_migrations(transaction, subsystem, migrations, now)

        applied = self.write(work)
        with self._condition:
            self._migrated[subsystem] = tuple(migrations)
        return applied

    def check(self) -> None:
        with self._condition:
            expected = list(self._migrated.items())

        def work(transaction: Transaction) -> None:
            transaction.execute("select 1")
            for subsystem, migrations in expected:
                rows = transaction.execute(
                    "select number, fingerprint from holdfast_migrations where subsystem = $1", (subsystem,)
                )
                missing = find_pending(subsystem, migrations, dict(rows))
                if missing:
                    raise EngineMismatch(
                        f"the tables of {subsystem} in {self._location} lack migration {missing[0].number} "
                        f"({missing[0].name}), which was applied before: restart after restoring an older backup"
                    )

        self._run(self._in_transaction(work, writing=False), min(CHECK_SECONDS, self._options.timeout))

    def close(self) -> None:
        if self._process != os.getpid():
            return  # the connections belong to the parent: closing them here would end them there
        with self._condition:
            self._is_open = False
            self._condition.wait_for(lambda: self._running == 0, self._options.timeout)
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _in_transaction(
        self, work: Callable[[Transaction], Result], *, writing: bool
    ) -> Callable[[PostgresConnection], Result]:
        return lambda connection: run_transaction(connection, self._location, work, writing=writing)

    def _run(self, work: Callable[[PostgresConnection], Result], timeout: float) -> Result:
        """Run `work`, and retry it until it succeeds, raises its own error, or `timeout` seconds have passed."""
        with self._track_call():
            counts: Counter[RetryAction] = Counter()
            first_failed_at: dict[RetryAction, float] = {}
            while True:
                remaining = timeout
                if RetryAction.RECONNECT in first_failed_at:
                    remaining -= self._clock.monotonic() - first_failed_at[RetryAction.RECONNECT]
                try:
                    return self._attempt(work, max(0.0, remaining))
                except RetryableFailure as failure:
                    diagnosis = failure.diagnosis
                    if diagnosis.action is RetryAction.RECONNECT:
                        self._pool.close_idle()
                    counts[diagnosis.action] += 1
                    now = self._clock.monotonic()
                    elapsed = now - first_failed_at.setdefault(diagnosis.action, now)
                    chance = random.random()  # noqa: S311 - not a secret
                    pause = next_pause(
                        diagnosis.action,
                        counts[diagnosis.action],
                        elapsed,
                        timeout,
                        chance,
                        is_connected=failure.is_connected,
                    )
                    if pause is None:
                        raise self._build_give_up_error(
                            diagnosis, counts[diagnosis.action], elapsed
                        ) from diagnosis.error
                    _log.info("retrying a transaction on %s in %.2f s: %s", self._location, pause, diagnosis.reason)
                    self._clock.sleep(pause)

    def _attempt(self, work: Callable[[PostgresConnection], Result], wait: float) -> Result:
        try:
            connection = self._pool.acquire(wait)
        except PoolTimeout as busy:
            raise self._build_pool_timeout_error(wait, str(busy)) from None
        except psycopg.Error as error:
            advice = find_refusal_advice(str(error))
            if advice is not None:
                raise SettingsError(
                    f"PostgreSQL at {self._location} refused the connection ({summarize_error(error)}): {advice}"
                ) from error
            diagnosis = diagnose(error, self._location, connection_lost=True)
            raise RetryableFailure(diagnosis, is_connected=False) from error
        try:
            return work(connection)
        finally:
            self._pool.release(connection)

    def _build_pool_timeout_error(self, wait: float, connect_error: str) -> EngineUnavailable:
        why = "raise max_connections, or look for transactions that take too long"
        if connect_error:
            why = f"and opening new ones fails ({connect_error.partition(chr(10))[0]}); check that the server runs"
        return EngineUnavailable(
            f"all {self._options.max_connections} connections to PostgreSQL at {self._location} were in use for "
            f"{wait:g} s: {why}; nothing was written"
        )

    def _build_give_up_error(self, diagnosis: Diagnosis, count: int, elapsed: float) -> EngineUnavailable:
        if diagnosis.action is RetryAction.RERUN:
            return EngineUnavailable(
                f"a transaction on PostgreSQL at {self._location} ran {count} times and conflicted with another each "
                f"time ({diagnosis.reason}): nothing was written; let all transactions lock their rows in one order"
            )
        return EngineUnavailable(
            f"PostgreSQL at {self._location} was unavailable for {elapsed:.1f} s, {count} attempts "
            f"({diagnosis.reason}): nothing was written; check that the server runs, accepts writes, and can be "
            "reached from this machine"
        )

    @contextmanager
    def _track_call(self) -> Iterator[None]:
        """Count an accepted call, so that `close` can wait for it."""
        if self._process != os.getpid():
            raise EngineError(
                f"the connections to PostgreSQL at {self._location} were opened in process {self._process} and cannot "
                f"be used in its fork {os.getpid()}: open the database again after the fork"
            )
        with self._condition:
            if not self._is_open:
                raise EngineError(
                    f"the database on PostgreSQL at {self._location} is closed: open it again before using it"
                )
            self._running += 1
        try:
            yield
        finally:
            with self._condition:
                self._running -= 1
                self._condition.notify_all()
