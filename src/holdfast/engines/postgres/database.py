"""A PostgreSQL server as a Database: works run on pooled connections, again when a connection is lost under them."""

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
from holdfast.engines.migrations import Migration, apply, pending
from holdfast.engines.postgres.connection import Listener, PostgresConnection, PostgresOptions, connect
from holdfast.engines.postgres.faults import Fault, Remedy, diagnose, next_pause, one_line, refusal
from holdfast.engines.postgres.pool import Pool, PoolBusy
from holdfast.engines.postgres.transaction import Interrupted, run_alone, run_once

CHECK_SECONDS = 5.0
"""Longest that `check` waits for a server that is away: whoever asks about health wants to know it soon."""

MIGRATION_LOCK = 0x686F6C6466617374
"""The advisory lock that migrations hold: "holdfast" in ASCII, so that `pg_locks` can be read."""

_log = logging.getLogger(__name__)


class PostgresDatabase:
    """One database on a PostgreSQL server, safe to use from any number of threads; not across a fork.

    Opening it connects, and raises EngineUnavailable when the server stays away for `options.patience`, SettingsError
    at once when it refuses the user, the password or the database, and EngineMismatch when it is too old.
    """

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, options: PostgresOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._place = options.place
        self._clock = clock or SystemClock()
        self._process = os.getpid()
        self._pool = Pool(
            options.pool_minimum, options.pool_maximum, lambda timeout: connect(options, timeout), self._clock
        )
        self._gate = threading.Condition()
        self._running = 0
        self._open = True
        self._migrated: dict[str, tuple[Migration, ...]] = {}
        self.read(lambda _: None)  # nothing is asked: a connection that could be opened is the answer

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        return self._run(self._in_transaction(work, writing=False), self._options.patience)

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        return self._run(self._in_transaction(work, writing=True), self._options.patience)

    def write_one(self, sql: str, parameters: Sequence[Value] = (), *, can_repeat: bool = False) -> list[Row]:
        def work(connection: PostgresConnection) -> list[Row]:
            return run_alone(connection, self._place, sql, parameters, can_repeat=can_repeat)

        return self._run(work, self._options.patience)

    def listener(self, channel: str) -> Listener:
        return Listener(self._options, channel)

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        now = self._clock.wall()
        lock_timeout = f"{math.ceil(self._options.patience * 1000) or 1}ms"  # 0 would be for ever

        def work(transaction: Transaction) -> list[Migration]:
            # However long another process migrates, it is waited for, and however long building an index takes.
            transaction.execute("set local statement_timeout = 0")
            transaction.execute("select pg_advisory_xact_lock($1)", (MIGRATION_LOCK,))
            # But a table that is in use is not: those who come later would queue up behind its migration.
            transaction.execute("select set_config('lock_timeout', $1, true)", (lock_timeout,))
            return apply(transaction, subsystem, migrations, now)

        applied = self.write(work)
        with self._gate:
            self._migrated[subsystem] = tuple(migrations)
        return applied

    def check(self) -> None:
        with self._gate:
            expected = list(self._migrated.items())

        def work(transaction: Transaction) -> None:
            transaction.execute("select 1")
            for subsystem, migrations in expected:
                rows = transaction.execute(
                    "select number, fingerprint from holdfast_migrations where subsystem = $1", (subsystem,)
                )
                missing = pending(subsystem, migrations, dict(rows))
                if missing:
                    raise EngineMismatch(
                        f"the tables of {subsystem} in {self._place} lack migration {missing[0].number} "
                        f"({missing[0].name}), which was applied before: if an older backup was restored, start again"
                    )

        self._run(self._in_transaction(work, writing=False), min(CHECK_SECONDS, self._options.patience))

    def close(self) -> None:
        if self._process != os.getpid():
            return  # the connections are the parent's: a goodbye from here would end them under its hands
        with self._gate:
            self._open = False
            self._gate.wait_for(lambda: self._running == 0, self._options.patience)
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _in_transaction(
        self, work: Callable[[Transaction], Result], *, writing: bool
    ) -> Callable[[PostgresConnection], Result]:
        return lambda connection: run_once(connection, self._place, work, writing=writing)

    def _run(self, work: Callable[[PostgresConnection], Result], patience: float) -> Result:
        """Run `work` until it ends for good: with a result, its own error, or the end of the patience."""
        with self._admitted():
            counts: Counter[Remedy] = Counter()
            begun: dict[Remedy, float] = {}
            while True:
                remaining = patience
                if Remedy.RECONNECT in begun:
                    remaining -= self._clock.monotonic() - begun[Remedy.RECONNECT]
                try:
                    return self._attempt(work, max(0.0, remaining))
                except Interrupted as interrupted:
                    fault = interrupted.fault
                    if fault.remedy is Remedy.RECONNECT:
                        self._pool.forget_idle()
                    counts[fault.remedy] += 1
                    now = self._clock.monotonic()
                    elapsed = now - begun.setdefault(fault.remedy, now)
                    chance = random.random()  # noqa: S311 - spreads load, hides nothing
                    pause = next_pause(fault.remedy, counts[fault.remedy], elapsed, patience, chance)
                    if pause is None:
                        raise self._given_up(fault, counts[fault.remedy], elapsed) from fault.error
                    _log.info("running a transaction on %s again in %.2f s: %s", self._place, pause, fault.reason)
                    self._clock.sleep(pause)

    def _attempt(self, work: Callable[[PostgresConnection], Result], wait: float) -> Result:
        try:
            connection = self._pool.take(wait)
        except PoolBusy as busy:
            raise self._none_free(wait, str(busy)) from None
        except psycopg.Error as error:
            advice = refusal(str(error))
            if advice is not None:
                raise SettingsError(
                    f"PostgreSQL at {self._place} refused the connection ({one_line(error)}): {advice}"
                ) from error
            raise Interrupted(diagnose(error, self._place, broken=True)) from error
        try:
            return work(connection)
        finally:
            self._pool.give(connection)

    def _none_free(self, wait: float, trouble: str) -> EngineUnavailable:
        why = "raise pool_maximum, or look for transactions that take too long"
        if trouble:
            why = f"and opening them fails ({trouble.partition(chr(10))[0]}); check that the server runs"
        return EngineUnavailable(
            f"all {self._options.pool_maximum} connections to PostgreSQL at {self._place} were in use for {wait:g} s: "
            f"{why}; nothing was written"
        )

    def _given_up(self, fault: Fault, count: int, elapsed: float) -> EngineUnavailable:
        if fault.remedy is Remedy.RERUN:
            return EngineUnavailable(
                f"a transaction on PostgreSQL at {self._place} was run {count} times and collided with another each "
                f"time ({fault.reason}): nothing was written; let works that collide lock their rows in one order"
            )
        return EngineUnavailable(
            f"PostgreSQL at {self._place} was away for {elapsed:.1f} s, {count} tries ({fault.reason}): nothing was "
            "written; check that the server runs, takes writes, and can be reached from this machine"
        )

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """Count a call that was accepted, so that closing can wait for it."""
        if self._process != os.getpid():
            raise EngineError(
                f"the connections to PostgreSQL at {self._place} were opened in process {self._process} and cannot be "
                f"used in its fork {os.getpid()}: open the database again after the fork"
            )
        with self._gate:
            if not self._open:
                raise EngineError(
                    f"the database on PostgreSQL at {self._place} is closed: open it again before using it"
                )
            self._running += 1
        try:
            yield
        finally:
            with self._gate:
                self._running -= 1
                self._gate.notify_all()
