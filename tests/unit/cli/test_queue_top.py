"""`holdfast queue top` away from a terminal, and what two looks say."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast.cli.duration import parse_duration
from holdfast.cli.queue.rates import compute_rate, format_age, format_rate, seconds_until_empty
from holdfast.cli.queue.store import QueueStore
from holdfast.cli.queue.sweep import parse_moment
from holdfast.cli.queue.top import MAX_TENANTS, KeyReader, compute_figures
from holdfast.queue.backend import LaneDepth, QueueSnapshot, TenantDepth, Totals, sum_lanes
from holdfast.queue.policy import QueuePolicy
from tests.unit.cli.conftest import Run
from tests.unit.cli.queues import bury, fill, make, of, opened, taken

counts = st.integers(0, 10**6)
lanes = st.lists(
    st.builds(
        LaneDepth,
        lane=st.integers(-5000, 20000),
        ready=counts,
        leased=counts,
        delayed=counts,
        dead=counts,
        oldest_since=st.none() | st.floats(0, 2e9),
    ),
    max_size=8,
)


def look(
    at: float = 100.0, queue: str = "mail", tenants: dict[str, int] | None = None, ready: int = 0
) -> QueueSnapshot:
    lanes = [LaneDepth(lane=2, ready=ready, leased=0, delayed=0, dead=0, oldest_since=None)]
    return QueueSnapshot(
        queue=queue,
        at=at,
        policy=QueuePolicy(),
        lanes=lanes,
        totals=sum_lanes(lanes),
        tenants=[
            TenantDepth(tenant=name, ready=count, spilled=0, leased=0, delayed=0, dead=0)
            for name, count in (tenants or {}).items()
        ],
    )


class TestFigures:
    @given(lanes, st.floats(0, 2e9))
    def test_a_depth_is_that_of_all_lanes(self, all_lanes: list[LaneDepth], at: float) -> None:
        totals = sum_lanes(all_lanes)
        look = QueueSnapshot(queue="q", at=at, policy=QueuePolicy(), lanes=[], tenants=[], totals=totals)
        [found] = compute_figures([look], {}).queues
        assert found.ready == sum(lane.ready for lane in all_lanes if lane.lane >= 0)
        for name in ("leased", "delayed", "dead"):
            assert getattr(found, name) == sum(getattr(lane, name) for lane in all_lanes)
        assert found.spilled == sum(lane.ready for lane in all_lanes if lane.lane < 0)
        assert found.lanes_in_use == len(all_lanes)
        waits = [at - lane.oldest_since for lane in all_lanes if lane.oldest_since is not None]
        assert found.oldest_age == (max(0.0, *waits) if waits else None)

    def test_a_pace_is_what_changed_by_the_time_between(self) -> None:
        assert compute_rate(None, look(ready=5)) is None
        assert compute_rate(look(at=10, ready=5), look(at=12, ready=105)) == 50.0
        assert compute_rate(look(at=10, ready=105), look(at=12, ready=5)) == -50.0
        assert compute_rate(look(at=10, ready=5), look(at=10, ready=6)) is None, "no time went by"

    def test_a_backlog_is_what_is_ready_and_what_is_spilled(self) -> None:
        def spilled(at: float, count: int) -> QueueSnapshot:
            tenants = [TenantDepth(tenant="noisy", ready=10, spilled=count, leased=0, delayed=0, dead=0)]
            return msgspec.structs.replace(look(at=at), tenants=tenants, totals=Totals(ready=10, spilled=count))

        [queue], [noisy] = (
            (found := compute_figures([spilled(20, 90)], {"mail": spilled(10, 190)})).queues,
            found.tenants,
        )
        for one in (queue, noisy):
            assert (one.ready, one.spilled, one.change_rate, one.seconds_until_empty) == (10, 90, -10.0, 10.0)

    def test_it_is_empty_some_time_only_if_it_shrinks(self) -> None:
        assert seconds_until_empty(100, -50.0) == 2.0
        assert [seconds_until_empty(100, rate) for rate in (None, 0.0, 5.0)] == [None] * 3
        assert seconds_until_empty(0, -5.0) is None, "it is"

    def test_tenants_of_all_queues_are_those_with_the_most(self) -> None:
        many = {f"t{number:02}": number for number in range(MAX_TENANTS + 5)}
        found = compute_figures([look(tenants=many), look(queue="reports", tenants={"big": 99})], {})
        assert len(found.tenants) == MAX_TENANTS
        assert [(one.tenant, one.queue) for one in found.tenants[:2]] == [("big", "reports"), ("t14", "mail")]
        assert {one.change_rate for one in found.tenants} == {None}

    def test_a_tenant_has_a_pace_if_both_looks_know_it(self) -> None:
        before = {"mail": look(at=10, tenants={"a": 10, "gone": 3})}
        found = compute_figures([look(at=20, tenants={"a": 5, "new": 7}), look(queue="other", at=20)], before)
        assert [(one.tenant, one.change_rate, one.seconds_until_empty) for one in found.tenants] == [
            ("new", None, None),
            ("a", -0.5, 10.0),
        ]
        assert [one.change_rate for one in found.queues] == [0.0, None]


class TestWords:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (None, ""),
            (0.0, "0.0s"),
            (9.94, "9.9s"),
            (10.0, "10s"),
            (59.4, "59s"),
            (59.6, "1m"),
            (61.0, "1m1s"),
            (3600.0, "1h"),
            (3660.0, "1h1m"),
            (3659.0, "1h"),
            (90_000.0, "1d1h"),
            (86_400.0 * 400, "400d"),
        ],
    )
    def test_an_age_is_told_in_two_units_at_the_most(self, seconds: float | None, text: str) -> None:
        assert format_age(seconds) == text

    @given(st.floats(10, 3e7))
    def test_an_age_is_right_to_its_smaller_unit_and_can_be_read_again(self, seconds: float) -> None:
        told = parse_duration(format_age(seconds))
        assert told <= seconds + 1
        assert told >= seconds - (3600 if seconds >= 86_400 else 60 if seconds >= 3600 else 1)

    @pytest.mark.parametrize(
        ("rate", "text"), [(None, ""), (0.0, "0"), (-0.04, "0"), (0.06, "+0.1"), (-1234.56, "-1,234.6")]
    )
    def test_a_rate_has_a_sign(self, rate: float | None, text: str) -> None:
        assert format_rate(rate) == text

    @pytest.mark.parametrize(
        ("text", "at"),
        [
            ("2026-01-31T12:00Z", 1_769_860_800.0),
            ("2026-01-31T12:00", 1_769_860_800.0),
            ("2026-01-31T13:00+01:00", 1_769_860_800.0),
            ("2026-01-31", 1_769_817_600.0),
            ("90s", 1_799_999_910.0),
            ("2h30m", 1_799_991_000.0),
            ("90", 1_799_999_910.0),
        ],
    )
    def test_a_moment_is_a_time_or_an_age(self, text: str, at: float) -> None:
        assert parse_moment(text, 1_800_000_000.0) == at

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("", "expected a time"),
            ("soon", "expected a time"),
            ("2030-01-01", "2030-01-01 is in the future: expected a past time"),
            ("-2h", "expected a time"),
            ("2026-13-01", "expected a time"),
        ],
    )
    def test_what_is_no_moment_in_the_past_is_refused(self, text: str, told: str) -> None:
        with pytest.raises(InvalidValue, match=told):
            parse_moment(text, 1_800_000_000.0)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What happens between the looks of a watch: as many looks as things to happen, and one more."""

    def set_up(*between: Callable[[], None]) -> None:
        left = list(between)

        def is_quit_within(_: KeyReader, seconds: float) -> bool:
            assert seconds == 5.0
            if not left:
                return True
            left.pop(0)()
            return False

        monkeypatch.setattr(KeyReader, "is_quit_within", is_quit_within)

    return set_up


class TestPlain:
    @pytest.fixture(autouse=True)
    def _queues(self, here: Path) -> None:
        make("mail", "reports")

    def test_one_look_is_a_line_for_each_queue(self, run: Run) -> None:
        bury("mail", *of("a", b"dead"))
        fill("mail", *of("a", b"1"), *of("b", b"2", b"3"))
        taken("mail", 1)
        ran = run("queue", "top", "--once")
        assert (ran.code, ran.err) == (0, "")
        mail, reports = ran.out.splitlines()
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ mail: ready 2, spilled 0, oldest age \d\.\ds, in flight 1, delayed 0, "
            r"dead 1, lanes in use \d, most [ab]",
            mail,
        )
        assert reports.endswith(" reports: ready 0, spilled 0, in flight 0, delayed 0, dead 0, lanes in use 0")
        assert run("queue", "top", "mail", "--once").out.count("\n") == 1

    def test_every_look_after_the_first_says_how_fast_it_changes(self, run: Run, looks: Callable[..., None]) -> None:
        fill("mail", *of("a", *[b"x"] * 10))
        looks(lambda: fill("mail", *of("a", b"y")), lambda: make("new"))
        ran = run("queue", "top", "--interval", "5", "--json")
        assert (ran.code, ran.err) == (0, "")
        first, second, third = map(json.loads, ran.out.splitlines())
        assert [one["queue"] for one in first["queues"]] == ["mail", "reports"]
        assert [one["queue"] for one in third["queues"]] == ["mail", "new", "reports"]
        assert first["queues"][0]["change_rate"] is None
        assert second["queues"][0]["ready"] == 11
        assert second["queues"][0]["change_rate"] == second["tenants"][0]["change_rate"] > 0
        assert third["queues"][0]["change_rate"] == 0.0

    def test_people_see_the_change_and_when_it_will_be_empty(self, run: Run, looks: Callable[..., None]) -> None:
        fill("mail", *of("a", *[b"x"] * 10))
        looks(lambda: taken("mail", 4))
        first, second = run("queue", "top", "mail", "--interval", "5").out.splitlines()
        assert "change/s" not in first
        assert re.search(r"ready 6, spilled 0, change/s -[\d,.]+, empty in [\d.]+\w*, ", second)

    def test_a_store_that_is_away_for_a_while_is_told_and_asked_again(
        self, run: Run, looks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names, answers = QueueStore.names, ["first", "away", "again"]

        def asked(store: QueueStore) -> Sequence[str]:
            if answers.pop(0) == "away":
                raise EngineUnavailable("nobody is there")
            return names(store)

        monkeypatch.setattr(QueueStore, "names", asked)
        looks(lambda: None, lambda: None)
        ran = run("queue", "top", "--interval", "5")
        assert (ran.code, answers) == (0, [])
        assert ran.err == "holdfast: nobody is there; trying again\n"
        assert ran.out.count(" mail: ") == 2

    def test_a_terminal_keeps_the_last_look_while_the_store_is_away(
        self, run: Run, looks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names, answers = QueueStore.names, ["first", "away"]

        def asked(store: QueueStore) -> Sequence[str]:
            if answers.pop(0) == "away":
                raise EngineUnavailable("nobody is there")
            return names(store)

        monkeypatch.setattr(QueueStore, "names", asked)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm")
        looks(lambda: None)
        ran = run("queue", "top", "--interval", "5")
        assert (ran.code, ran.err) == (0, "")
        before, _, after = ran.out.partition("nobody is there")
        assert "mail" in before
        assert "mail" in after

    def test_a_queue_has_to_exist(self, run: Run) -> None:
        assert run("queue", "top", "nix", "--json").error["error"] == "not-found"

    def test_an_interrupt_ends_it(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object) -> bool:
            raise KeyboardInterrupt

        monkeypatch.setattr(KeyReader, "is_quit_within", interrupted)
        ran = run("queue", "top")
        assert (ran.code, ran.err) == (130, "holdfast: interrupted\n")


def test_without_a_terminal_nobody_presses_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with KeyReader() as keys:
        assert keys.is_quit_within(0.01) is False


def test_looking_leaves_no_trace(run: Run, here: Path) -> None:
    make("mail")
    fill("mail", *of("a", b"1"))
    run("queue", "top", "--once")
    with opened() as backend:
        assert sum(lane.ready for lane in backend.inspect("mail").lanes) == 1
