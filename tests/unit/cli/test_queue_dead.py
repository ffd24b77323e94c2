"""`holdfast queue dead-letters|redrive|discard`: dead letters are shown, put back, or deleted."""

import time
from pathlib import Path

import msgspec
import pytest

from holdfast.cli.queue.dead import Redrive
from holdfast.queue import Queue
from holdfast.queue.backend import Bury, DeadLetterQuery, LeaseRequest, QueueChange, Settlement
from holdfast.testing import FakeClock
from tests.unit.cli.conftest import Run
from tests.unit.cli.queues import bury, make, of, opened, taken


@pytest.fixture(autouse=True)
def _a_queue(here: Path) -> None:
    make("mail")


class TestDead:
    def test_letters_are_shown_with_why_they_are_dead(self, run: Run) -> None:
        (first,) = bury("mail", *of("a", b"body of a"), reason="ValueError: [bold]no[/]")
        (second,) = bury("mail", *of("b", b"\xff\x00"), reason="KeyError: 'x'")
        ran = run("queue", "dead-letters", "mail")
        assert (ran.code, ran.err) == (0, "")
        header, *rows = ran.out.splitlines()
        assert header.split() == ["id", "tenant", "attempts", "sent", "buried", "reason"]
        assert [row.split()[:3] for row in rows] == [[str(first), "a", "1"], [str(second), "b", "1"]]
        assert rows[0].rstrip().endswith("ValueError: [bold]no[/]")
        assert "body of a" not in ran.out

    def test_machines_get_all_of_a_letter_and_what_is_long_only_on_request(self, run: Run) -> None:
        (number,) = bury("mail", *of("a", b"\xff\x00"), detail="Traceback: line")
        (letter,) = run("queue", "dead-letters", "mail", "--json").result
        assert letter.keys() == {
            *("id", "queue", "tenant", "priority", "group", "attempts", "sent_at", "buried_at", "reason", "trace")
        }
        assert (letter["id"], letter["tenant"], letter["attempts"]) == (number, "a", 1)
        (letter,) = run("queue", "dead-letters", "mail", "--body", "--detail", "--json").result
        assert (letter["body"], letter["detail"]) == ("/wA=", "Traceback: line")

    def test_people_see_calls_text_and_bytes_as_such(self, run: Run) -> None:
        queue = Queue("mail", "memory:")

        @queue.job
        def welcome(address: str, *, language: str = "en") -> None: ...

        call = welcome.to("a").message("a@example.com", language="fr").body
        bury("mail", *of("a", call, b"plain \xc3\xa4", b"\xff", b"two\nlines \x1b[31m"), detail="Traceback\n  in f")
        out = run("queue", "dead-letters", "mail", "--body", "--detail").out
        assert 'body: welcome {"address":"a@example.com","language":"fr"}\n' in out
        assert "body: plain ä\n" in out
        assert "body: b'\\xff'\n" in out
        assert "body: 'two\\nlines \\x1b[31m'\n" in out
        assert out.count("  | Traceback\n  |   in f\n") == 4
        assert "\x1b" not in out

    def test_what_a_terminal_would_obey_is_shown_and_does_nothing(self, run: Run) -> None:
        evil = "\x1b]0;owned\x07\r\x9b2J\u202e"
        bury("mail", *of(f"a{evil}", b"1"), reason=f"ValueError: {evil}\nforged", detail="Traceback\n  in \x1b[2J f\rg")
        shown = r"\x1b]0;owned\x07\r\x9b2J\u202e"
        for words in ([], ["--detail"], ["--body"]):
            out = run("queue", "dead-letters", "mail", *words).out
            assert all(char.isprintable() or char == "\n" for char in out)
            assert f"a{shown}" in out
            assert rf"ValueError: {shown}\nforged" in out
        assert "  |   in \\x1b[2J f\n  | g\n" in run("queue", "dead-letters", "mail", "--detail").out
        (letter,) = run("queue", "dead-letters", "mail", "--json").result
        assert letter["tenant"] == f"a{evil}", "a machine gets it as it is"

    def test_letters_can_be_chosen_by_tenant_reason_number_and_time(self, run: Run) -> None:
        a, b = bury("mail", *of("a", b"1"), *of("b", b"2"), reason="ValueError: no")
        (c,) = bury("mail", *of("a", b"3"), reason="KeyError: x")

        def found(*words: str) -> list[int]:
            return [letter["id"] for letter in run("queue", "dead-letters", "mail", *words, "--json").result]

        assert found() == [a, b, c]
        assert found("--tenant", "a") == [a, c]
        assert found("--reason", "KeyError") == [c]
        assert found("--tenant", "a", "--reason", "ValueError") == [a]
        assert found("--id", str(b), "--id", str(c)) == [b, c]
        assert found("--before", "1h") == []
        assert found("--tenant", "nobody") == []
        assert run("queue", "dead-letters", "mail", "--tenant", "nobody").out == "mail has no such dead letters\n"

    def test_a_page_says_how_to_go_on(self, run: Run) -> None:
        numbers = bury("mail", *of("a", *[b"x"] * 250))
        ran = run("queue", "dead-letters", "mail", "--limit", "120", "--json")
        assert ran.err == f'{{"note":"there are more: continue with --after {numbers[119]}, or raise --limit"}}\n'
        assert [letter["id"] for letter in msgspec.json.decode(ran.out)] == numbers[:120]
        rest = run("queue", "dead-letters", "mail", "--limit", "130", "--after", str(numbers[119]), "--json").result
        assert [letter["id"] for letter in rest] == numbers[120:]


class TestRedrive:
    def test_which_ones_has_to_be_said(self, run: Run) -> None:
        bury("mail", *of("a", b"1"))
        for words in ([], ["--rate", "3"], ["--dry-run"]):
            ran = run("queue", "redrive", "mail", *words, "--json")
            assert (ran.code, ran.error["error"]) == (2, "invalid-value")
            assert ran.error["detail"] == "no filter: give --tenant, --reason, --id or --before, or --all"
        assert taken("mail") == []

    def test_all_are_put_back(self, run: Run) -> None:
        numbers = bury("mail", *of("a", *[b"x"] * 250))
        assert run("queue", "redrive", "mail", "--all", "--dry-run").out == "250 would be put back into mail\n"
        assert taken("mail") == []
        assert run("queue", "redrive", "mail", "--all").out == "250 put back into mail\n"
        assert sorted(delivery.id for delivery in taken("mail")) == numbers
        assert run("queue", "redrive", "mail", "--all").out == "0 put back into mail\n"

    def test_only_those_that_are_meant_are_put_back(self, run: Run) -> None:
        a, b = bury("mail", *of("a", b"1"), *of("b", b"2"))
        (c,) = bury("mail", *of("a", b"3"), reason="KeyError: x")
        assert run("queue", "redrive", "mail", "--tenant", "a", "--reason", "KeyError", "--json").result == {
            "queue": "mail",
            "count": 1,
            "discarded": False,
            "dry_run": False,
        }
        assert [delivery.id for delivery in taken("mail")] == [c]
        assert run("queue", "redrive", "mail", "--id", str(b), "--json").result["count"] == 1
        assert [delivery.id for delivery in taken("mail")] == [b]
        assert run("queue", "redrive", "mail", "--before", "1h", "--json").result["count"] == 0
        assert [letter["id"] for letter in run("queue", "dead-letters", "mail", "--json").result] == [a]

    def test_those_that_are_worth_nothing_are_deleted(self, run: Run) -> None:
        bury("mail", *of("a", b"1", b"2"))
        assert run("queue", "discard", "mail").code == 2, "which ones has to be said"
        words = ("queue", "discard", "mail", "--tenant", "a")
        assert run(*words, "--dry-run").out == "2 would be deleted\n"
        assert run(*words).out == "2 deleted\n"
        assert taken("mail") == []
        assert run("queue", "dead-letters", "mail", "--json").result == []

    @pytest.mark.parametrize("rate", ["0", "-1", "nan", "1e9"])
    def test_a_rate_is_a_number_above_0(self, run: Run, rate: str) -> None:
        ran = run("queue", "redrive", "mail", "--all", "--rate", rate, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert "expected messages per second" in ran.error["detail"]

    @pytest.mark.parametrize(("rate", "steps"), [(0.5, 10), (4.0, 5), (10.0, 2), (1000.0, 1)])
    def test_a_rate_is_kept(self, here: Path, rate: float, steps: int) -> None:
        bury("mail", *of("a", *[b"x"] * 10))
        clock = FakeClock()
        with opened() as backend:
            work = Redrive(backend, DeadLetterQuery(queue="mail"), rate, discard=False, clock=clock)
            begun, done = clock.monotonic(), [0]
            while work.step():
                done.append(work.done)
                assert work.done <= rate * (clock.monotonic() - begun) + max(1.0, rate / 2), "never more at once"
        assert len(done) == steps + 1
        assert work.done == 10
        assert sum(clock.sleeps) == pytest.approx(10 / rate)

    def test_what_fails_again_meanwhile_is_not_put_back_for_ever(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        numbers = bury("mail", *of("a", *[b"x"] * 5))
        put_back = Redrive.step

        def step_beside_a_worker_that_fails(work: Redrive) -> bool:
            is_more = put_back(work)
            with opened(clock=FakeClock(wall=time.time() + 10)) as backend:
                for held in backend.lease(LeaseRequest(queue="mail", count=100, lease=600.0)).deliveries:
                    backend.settle([Settlement(held.receipt, Bury("again"))])
            return is_more

        monkeypatch.setattr(Redrive, "step", step_beside_a_worker_that_fails)
        assert run("queue", "redrive", "mail", "--all", "--json").result["count"] == 5
        assert [letter["id"] for letter in run("queue", "dead-letters", "mail", "--json").result] == numbers

    def test_what_was_done_is_told_also_when_it_ends_in_the_middle(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bury("mail", *of("a", *[b"x"] * 250))
        put_back = Redrive.step

        def interrupted(work: Redrive) -> bool:
            if work.done:
                raise KeyboardInterrupt
            return put_back(work)

        monkeypatch.setattr(Redrive, "step", interrupted)
        ran = run("queue", "redrive", "mail", "--all")
        assert (ran.code, ran.out, ran.err) == (130, "", "holdfast: 100 put back into mail\nholdfast: interrupted\n")
        assert len(taken("mail")) == 100


class TestSweep:
    @pytest.mark.parametrize(("before", "left"), [("2h", 1), ("2026-01-31", 1), ("1s", 0)])
    def test_what_is_older_is_dropped(self, run: Run, before: str, left: int) -> None:
        with opened(clock=FakeClock(wall=1_000_000.0)) as backend:
            backend.change("mail", QueueChange(), create=True)
            backend.send("mail", of("a", b"old"))
        with opened(clock=FakeClock(wall=time.time() - 60)) as backend:
            backend.send("mail", of("a", b"new"))
        ran = run("queue", "sweep", "mail", "--before", before, "--json").result
        assert (ran["queue"], ran["dropped"]) == ("mail", 2 - left)
        assert [delivery.body for delivery in taken("mail")] == [b"new"] * left

    def test_people_are_told_how_many_and_when(self, run: Run) -> None:
        ran = run("queue", "sweep", "mail", "--before", "2026-01-31T12:00Z")
        assert ran.out == "0 messages of mail dropped: sent before 2026-01-31 12:00:00Z\n"

    @pytest.mark.parametrize(
        ("before", "told"),
        [
            ("yesterday", "'yesterday': expected a time such as 2026-01-31T12:00Z, or an age such as 90s"),
            ("-5m", "'-5m': expected a time"),
            ("2999-01-01", "2999-01-01 is in the future: expected a past time"),
        ],
    )
    def test_a_time_that_cannot_be_right_drops_nothing(self, run: Run, before: str, told: str) -> None:
        ran = run("queue", "sweep", "mail", "--before", before, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert ran.error["detail"].startswith(told)
