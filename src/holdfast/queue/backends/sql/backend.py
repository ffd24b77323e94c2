"""The backend in a database. Start reading here: each method is one transaction, implemented in its own module."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar

import msgspec

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue, NotFound
from holdfast._names import check_queue_name
from holdfast.engines import Database, Transaction
from holdfast.queue.backend import (
    FULL_CAPABILITIES,
    Capabilities,
    DeadLetterQuery,
    LeaseRequest,
    LeaseResult,
    QueueChange,
    QueueSnapshot,
    check_change,
    check_query,
    check_request,
)
from holdfast.queue.backends.sql import dead as dead_letters
from holdfast.queue.backends.sql import keys, topics
from holdfast.queue.backends.sql.bell import Bell, PostgresBell, SqliteBell
from holdfast.queue.backends.sql.change import change, make
from holdfast.queue.backends.sql.dialect import Dialect
from holdfast.queue.backends.sql.due import Due
from holdfast.queue.backends.sql.lanes import has_something
from holdfast.queue.backends.sql.lease import Lease
from holdfast.queue.backends.sql.look import look
from holdfast.queue.backends.sql.postgres import CHANNEL, PostgresDialect
from holdfast.queue.backends.sql.schema import SUBSYSTEM, migrations
from holdfast.queue.backends.sql.send import Send
from holdfast.queue.backends.sql.settle import settle
from holdfast.queue.backends.sql.single import Single
from holdfast.queue.backends.sql.sqlite import SqliteDialect
from holdfast.queue.backends.sql.step import Step, TenantDeleted
from holdfast.queue.backends.sql.sweep import Sweep, forget_tenants
from holdfast.queue.backends.sql.time import mend_turns
from holdfast.queue.message import (
    DeadLetter,
    OutgoingMessage,
    RefusedMessage,
    SentMessage,
    Settlement,
    check_message,
    check_settlement,
)
from holdfast.queue.policy import QueuePolicy

LOOKS = 10
"""Maximum repetitions of a lease that found only messages to drop or bury, and of a sweep that found nothing to
delete."""
_NAMES = "select name from holdfast_queue"
Result = TypeVar("Result")


class SqlBackend:
    """See `holdfast.queue.backend.Backend`. Closes the database that it was given.

    Without a clock it uses the time of the server, if there is one, so that the clocks of machines need not agree.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._dialect: Dialect = SqliteDialect() if database.dialect == "sqlite" else PostgresDialect()
        if clock is None and not self._dialect.has_clock:
            clock = SystemClock()
        self._clock = clock
        database.migrate(SUBSYSTEM, migrations(database.dialect))
        self._publication = 0
        """The publication after which the next sweep continues to look for unused ones."""
        self._tenants: dict[str, str] = {}
        """The tenant of each queue after which its next sweep continues to look for unused ones."""
        self._bell = self._make_bell()
        self._single = Single(database, self._dialect, clock)

    @property
    def capabilities(self) -> Capabilities:
        return FULL_CAPABILITIES

    def send(
        self, destination: str, messages: Sequence[OutgoingMessage], *, is_topic: bool = False
    ) -> Sequence[SentMessage | RefusedMessage]:
        for message in messages:
            check_message(message)
        if not messages:
            return []
        if is_topic:
            results, queues = self._run(
                lambda transaction: topics.publish(transaction, self._dialect, destination, messages, self._wall())
            )
        else:
            queues = [destination]
            single = self._single.send(destination, messages)
            results = self._write(destination, lambda step: Send(step, messages).run()) if single is None else [single]
        self._bell.ring(queues)
        return results

    def lease(self, request: LeaseRequest) -> LeaseResult:
        check_request(request)
        heard = self._bell.heard(request.queue)
        total = LeaseResult()
        for _ in range(LOOKS):
            leased = self._write(request.queue, lambda step: Lease(step, request).run(), due=True).leased()
            total = _together(total, leased)
            if leased.deliveries or not (leased.dropped or leased.buried):
                break  # otherwise messages behind the dropped ones, or the next of their groups, may be ready now
        if len(total.deliveries) < request.count:
            self._bell.mark(request.queue, heard)
        return total

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        for one in settlements:
            check_settlement(one)
        if not settlements:
            return []
        settled = self._run(lambda transaction: settle(transaction, self._dialect, settlements, self._wall()))
        self._bell.ring(settled.filled)
        return settled.were_held

    def wait(self, queue: str, timeout: float) -> bool:
        return self._bell.wait(queue, timeout)

    def sweep(self, queue: str, before: float | None = None) -> int:
        total = self._repeat(queue, lambda step: Due(step).run())
        total += self._repeat(queue, lambda step: Sweep(step, before).run())
        self._clean(queue)
        self._bell.ring([queue])
        return total

    def inspect(
        self,
        queue: str,
        *,
        tenants: Sequence[str] = (),
        top: int = 20,
        messages: Sequence[int] = (),
        lanes: bool = True,
    ) -> QueueSnapshot:
        if top < 0:
            raise InvalidValue(f"the top {top} tenants: expected 0 or more")
        return self._read(queue, lambda step: look(step, tenants, top, messages, lanes=lanes))

    def list_dead_letters(self, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        check_query(query)
        return self._read(query.queue, lambda step: dead_letters.dead(step, query))

    def redrive(self, query: DeadLetterQuery, *, discard: bool = False) -> int:
        check_query(query)
        count = self._write(query.queue, lambda step: dead_letters.redrive(step, query, discard=discard))
        self._bell.ring([query.queue])
        return count

    def change(self, queue: str, change_: QueueChange, *, create: bool = False) -> QueuePolicy:
        check_change(change_)

        def work(transaction: Transaction) -> QueuePolicy:
            wanted = change_
            if create:
                is_new = make(transaction, check_queue_name(queue), change_.policy or QueuePolicy())
                wanted = msgspec.structs.replace(change_, policy=None) if is_new else QueueChange()
            return change(self._step(transaction, queue), wanted)

        policy = self._run(work)
        self._bell.ring([queue])
        return policy

    def list_queues(self) -> Sequence[str]:
        return sorted(name for (name,) in self._database.read(lambda transaction: transaction.execute(_NAMES)))

    def close(self) -> None:
        self._bell.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _make_bell(self) -> Bell:
        from holdfast.engines.sqlite import SqliteDatabase

        if isinstance(self._database, SqliteDatabase):
            return SqliteBell(self._database.change_counter(), self._has_something)
        from holdfast.engines.postgres import PostgresDatabase  # here, because SQLite needs no PostgreSQL driver

        assert isinstance(self._database, PostgresDatabase)
        return PostgresBell(self._database.open_listener(CHANNEL))

    def _has_something(self, queue: str) -> bool:
        try:
            return self._database.read(
                lambda transaction: has_something(self._step(transaction, queue, due=True, is_read=True))
            )
        except NotFound:
            return False

    def _wall(self) -> float | None:
        return None if self._clock is None else self._clock.wall()

    def _step(self, transaction: Transaction, queue: str, *, due: bool = False, is_read: bool = False) -> Step:
        return Step(transaction, self._dialect, queue, self._wall(), due=due, is_read=is_read)

    def _write(self, queue: str, work: Callable[[Step], Result], *, due: bool = False) -> Result:
        return self._run(lambda transaction: work(self._step(transaction, queue, due=due)))

    def _run(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` in a transaction, and again if a sweep has deleted a tenant that it had read."""
        while True:
            with suppress(TenantDeleted):
                return self._database.write(work)

    def _read(self, queue: str, work: Callable[[Step], Result]) -> Result:
        return self._database.read(lambda transaction: work(self._step(transaction, queue, is_read=True)))

    def _repeat(self, queue: str, work: Callable[[Step], tuple[int, bool]]) -> int:
        """Repeat `work` in separate transactions until nothing is left, so that others need not wait long."""
        total, is_more = 0, True
        while is_more:
            count, is_more = self._write(queue, work, due=True)
            total += count
        return total

    def _clean(self, queue: str) -> None:
        """Delete unused keys, tenants and publications, in separate short transactions."""
        self._write(queue, mend_turns)
        while self._write(queue, lambda step: keys.forget(step.transaction, step.dialect, step.at)):
            pass
        in_vain = 0
        while in_vain < LOOKS:
            work = partial(forget_tenants, after=self._tenants.pop(queue, ""))
            following, has_forgotten = self._write(queue, work)
            if not following:
                break
            self._tenants[queue] = following
            in_vain += not has_forgotten
        in_vain = 0
        while in_vain < LOOKS:
            self._publication, has_forgotten = self._database.write(
                lambda transaction: topics.forget(transaction, self._dialect, self._publication)
            )
            if not self._publication:
                break
            in_vain += not has_forgotten


def _together(before: LeaseResult, leased: LeaseResult) -> LeaseResult:
    return msgspec.structs.replace(
        leased,
        spilled=before.spilled + leased.spilled,
        dropped=before.dropped + leased.dropped,
        buried=before.buried + leased.buried,
        redelivered=before.redelivered + leased.redelivered,
    )
