"""A conformance suite for implementations of StatusStore, as tests to inherit.

    class TestMyStore(StatusStoreConformance):
        @pytest.fixture
        def store(self) -> StatusStore:
            return MyStore()

Needs pytest. For readable failures, call `pytest.register_assert_rewrite("holdfast.testing.status")` in
`conftest.py`. All times are far in the future, so that a server that deletes expired items by its own clock does not
interfere.
"""

import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest

from holdfast._errors import Conflict, EngineUnavailable
from holdfast._types import StatusStore, Zone, ZoneState, ZoneStatus
from holdfast.status.stores.rules import ABSENT_VERSION

__all__ = ["StatusStoreConformance"]

Item = TypeVar("Item")
WRITERS = 8
"""Concurrent writer threads: enough to collide, few enough for a small machine."""

STUCK = 30.0
"""Real seconds after which a thread of a test counts as stuck."""

ZONE = Zone("use1-az1")
NOW = 4_000_000_000.0


class StatusStoreConformance:
    """Tests of the contract of `holdfast.StatusStore`. Override the fixture `store`."""

    @pytest.fixture
    def store(self) -> StatusStore:
        """Return a fresh, empty store."""
        raise NotImplementedError("override the fixture `store` to return a fresh, empty StatusStore")

    def test_nothing_is_out_at_first(self, store: StatusStore) -> None:
        assert list(store.read()) == []
        assert list(store.expire(NOW)) == []

    def test_what_was_written_is_read(self, store: StatusStore) -> None:
        wanted = out(expires=NOW + 60.25, reason="requests of az1 fail")
        written = store.write(wanted, ABSENT_VERSION)
        assert written == replace(wanted, version=written.version)
        assert written.version > ABSENT_VERSION
        assert list(store.read()) == [written]

    def test_a_draining_zone_is_kept_and_a_returning_one_is_kept_or_in(self, store: StatusStore) -> None:
        """A store that keeps only zones that are out returns IN when a returning zone is written."""
        draining = store.write(replace(out(), state=ZoneState.DRAINING), ABSENT_VERSION)
        assert (draining.state, list(store.read())) == (ZoneState.DRAINING, [draining])
        returning = store.write(replace(out(), state=ZoneState.RETURNING, share=0.25), draining.version)
        if returning.state is ZoneState.RETURNING:
            assert (returning.share, list(store.read())) == (0.25, [returning])
        else:
            assert (returning.state, returning.share, list(store.read())) == (ZoneState.IN, None, [])
        expired = replace(out(workload="shop", expires=NOW - 1), state=ZoneState.RETURNING, share=0.25)
        if store.write(expired, ABSENT_VERSION).state is ZoneState.RETURNING:
            assert [(status.workload, status.state, status.share) for status in store.expire(NOW)] == [
                ("shop", ZoneState.IN, None)
            ]

    def test_all_workloads_and_each_workload_and_zone_are_different_keys(self, store: StatusStore) -> None:
        keys = [(zone, workload) for zone in (ZONE, Zone("use1-az2")) for workload in (None, "shop", "shop2")]
        written = [store.write(out(zone=zone, workload=workload), ABSENT_VERSION) for zone, workload in keys]
        assert by_key(store.read()) == by_key(written)
        assert len(written) == len(by_key(written))

    def test_the_version_grows_with_each_write(self, store: StatusStore) -> None:
        """Also when the zone is brought in meanwhile, and whether or not the store keeps zones that are in."""
        before = ABSENT_VERSION
        for wanted in (out(), out(reason="renewed"), into(), out(), into(), out()):
            written = store.write(wanted, version(store))
            assert written.version > before
            before = written.version

    def test_the_version_grows_when_what_has_expired_is_taken_out_again(self, store: StatusStore) -> None:
        first = store.write(out(expires=NOW), ABSENT_VERSION)
        [gone] = store.expire(NOW)
        again = store.write(out(), version(store))
        assert first.version < gone.version < again.version

    @pytest.mark.parametrize("stale", ["absent", "first", "future"])
    def test_a_writer_without_the_latest_version_gets_a_conflict(self, store: StatusStore, stale: str) -> None:
        first = store.write(out(), ABSENT_VERSION)
        latest = store.write(out(reason="renewed"), first.version)
        expected = {"absent": ABSENT_VERSION, "first": first.version, "future": latest.version + 1}[stale]
        for wanted in (out(reason="too late"), into()):
            with pytest.raises(Conflict, match=ZONE):
                store.write(wanted, expected)
        assert list(store.read()) == [latest]

    def test_a_version_of_what_was_never_written_is_a_conflict(self, store: StatusStore) -> None:
        """An absent status has ABSENT_VERSION, and no other."""
        for wanted in (out(), into()):
            with pytest.raises(Conflict):
                store.write(wanted, 3)
        assert list(store.read()) == []

    @pytest.mark.parametrize("known", [False, True], ids=["absent", "known"])
    def test_of_concurrent_writers_exactly_one_succeeds(self, store: StatusStore, known: bool) -> None:
        expected = store.write(out(), ABSENT_VERSION).version if known else ABSENT_VERSION
        written = together(lambda number: attempt(store, out(reason=f"writer {number}"), expected))
        [winner] = [status for status in written if status is not None]
        assert list(store.read()) == [winner]

    def test_of_concurrent_writers_that_take_out_and_bring_in_exactly_one_succeeds(self, store: StatusStore) -> None:
        expected = store.write(out(), ABSENT_VERSION).version
        wanted = [out(reason="renewed"), into()]
        written = together(lambda number: attempt(store, wanted[number % 2], expected))
        [winner] = [status for status in written if status is not None]
        assert [status for status in store.read() if status.state.is_out] == ([winner] if winner.state.is_out else [])

    def test_what_was_brought_in_is_in_and_can_be_taken_out_again(self, store: StatusStore) -> None:
        """With the version that is read, which is ABSENT_VERSION if the store does not keep zones that are in."""
        first = store.write(out(workload="shop"), ABSENT_VERSION)
        back = store.write(into(workload="shop"), first.version)
        assert back == replace(into(workload="shop"), version=back.version)
        assert not any(status.state.is_out for status in store.read())
        again = store.write(out(workload="shop"), version(store, workload="shop"))
        assert [status for status in store.read() if status.state.is_out] == [again]

    def test_what_is_absent_can_be_brought_in(self, store: StatusStore) -> None:
        assert store.write(into(), ABSENT_VERSION).version > ABSENT_VERSION
        assert not any(status.state.is_out for status in store.read())
        assert store.write(out(), version(store)).state.is_out

    def test_only_statuses_past_their_end_expire(self, store: StatusStore) -> None:
        """Not those without an end or with a later one, and not zones that are in; the end itself counts as past."""
        ends = {"before": NOW - 1, "edge": NOW, "after": NOW + 0.001, "never": None}
        written = {name: store.write(out(workload=name, expires=end), ABSENT_VERSION) for name, end in ends.items()}
        store.write(into(workload="in", expires=NOW - 1), ABSENT_VERSION)
        changed = {status.workload: status for status in store.expire(NOW)}
        assert set(changed) == {"before", "edge"}
        for name, status in changed.items():
            assert (status.zone, status.state.is_out, status.expires) == (ZONE, False, None)
            assert status.version > written[str(name)].version
        still_out = {status.workload: status for status in store.read() if status.state.is_out}
        assert still_out == {name: written[name] for name in ("after", "never")}

    def test_an_expired_status_is_read_as_expire_returned_it(self, store: StatusStore) -> None:
        store.write(out(expires=NOW), ABSENT_VERSION)
        changed = list(store.expire(NOW))
        assert list(store.read()) in ([], changed)

    def test_what_has_expired_does_not_expire_again(self, store: StatusStore) -> None:
        store.write(out(expires=NOW), ABSENT_VERSION)
        assert len(store.expire(NOW)) == 1
        assert list(store.expire(NOW)) == []
        assert list(store.expire(NOW + 60)) == []

    def test_a_renewed_status_survives(self, store: StatusStore) -> None:
        first = store.write(out(expires=NOW), ABSENT_VERSION)
        renewed = store.write(out(expires=NOW + 60), first.version)
        assert list(store.expire(NOW)) == []
        assert list(store.read()) == [renewed]
        [changed] = store.expire(NOW + 60)
        assert changed.version > renewed.version

    def test_of_concurrent_calls_of_expire_exactly_one_returns_a_change(self, store: StatusStore) -> None:
        """Each change is reported once, even if several servers share a store."""
        names = [f"shop{number}" for number in range(4)]
        for name in names:
            store.write(out(workload=name, expires=NOW), ABSENT_VERSION)
        changed = itertools.chain.from_iterable(together(lambda _: store.expire(NOW)))
        assert sorted(str(status.workload) for status in changed) == names

    def test_a_concurrent_renewal_and_expiry_do_not_both_happen(self, store: StatusStore) -> None:
        """Either the status was renewed and is out, or it has expired and the renewing writer gets a Conflict."""
        expected = store.write(out(expires=NOW), ABSENT_VERSION).version

        def compete(number: int) -> tuple[int, int]:
            if number % 2:
                return 0, len(store.expire(NOW))
            return int(attempt(store, out(expires=NOW + 60), expected) is not None), 0

        results = together(compete)
        renewed, expired = (sum(column) for column in zip(*results, strict=True))
        assert renewed + expired == 1
        assert sum(status.state.is_out for status in store.read()) == renewed

    @pytest.mark.parametrize(
        "text", ["", "'; drop table x; --", '"\\\n\t%s $1 {}', "Ä\u0301\N{GRINNING FACE}\u202e", "x" * 10_000]
    )
    def test_any_text_comes_back(self, store: StatusStore, text: str) -> None:
        written = store.write(replace(out(expires=NOW), by=text, reason=text), ABSENT_VERSION)
        assert (written.by, written.reason) == (text, text)
        assert list(store.read()) == [written]
        assert len(store.expire(NOW)) == 1

    @pytest.mark.parametrize(
        "workload", ["a/b", "/", "shop/", "a b+c%2F&d=?#", "'\"<>\\", "\N{GRINNING FACE}", "..", "x" * 128]
    )
    def test_workloads_may_have_any_name(self, store: StatusStore, workload: str) -> None:
        store.write(out(), ABSENT_VERSION)
        written = store.write(out(workload=workload), ABSENT_VERSION)
        assert by_key(store.read())[ZONE, workload] == written
        store.write(into(workload=workload), written.version)
        assert [status.workload for status in store.read() if status.state.is_out] == [None]


def out(
    *, zone: Zone = ZONE, workload: str | None = None, expires: float | None = None, reason: str = "test"
) -> ZoneStatus:
    """Return a status to write, of a zone that is out."""
    return ZoneStatus(
        zone=zone,
        workload=workload,
        state=ZoneState.OUT,
        since=NOW - 100.5,
        by="operator",
        reason=reason,
        expires=expires,
    )


def into(*, workload: str | None = None, expires: float | None = None) -> ZoneStatus:
    """Return a status to write, of a zone that is in."""
    return replace(out(workload=workload, expires=expires), state=ZoneState.IN)


def by_key(statuses: Iterable[ZoneStatus]) -> dict[tuple[Zone, str | None], ZoneStatus]:
    """Return the statuses by zone and workload."""
    return {(status.zone, status.workload): status for status in statuses}


def version(store: StatusStore, workload: str | None = None) -> int:
    """Return the version to expect for a write, as read from the store."""
    known = by_key(store.read()).get((ZONE, workload))
    return ABSENT_VERSION if known is None else known.version


def attempt(store: StatusStore, status: ZoneStatus, expected: int) -> ZoneStatus | None:
    """Return the written status, or None if another writer was faster. Try again while the store is unavailable."""
    for _ in range(5):
        try:
            return store.write(status, expected)
        except Conflict:
            return None
        except EngineUnavailable:  # nothing was written: emulators answer 500 to some concurrent requests
            continue
    return store.write(status, expected)


def together(call: Callable[[int], Item]) -> list[Item]:
    """Return what `call` returns for each of `WRITERS` numbers, called concurrently."""
    start = threading.Barrier(WRITERS)

    def begin(number: int) -> Item:
        start.wait(STUCK)
        return call(number)

    with ThreadPoolExecutor(WRITERS) as threads:
        return list(threads.map(begin, range(WRITERS), timeout=STUCK))
