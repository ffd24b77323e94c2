"""`holdfast queue send` keeps what it says it keeps."""

import io
import sys
from pathlib import Path

import pytest

from holdfast._errors import Backpressure
from holdfast.cli.queue.send import Sender
from holdfast.queue import Limits, OverMaxRate, Queue
from holdfast.queue.backend import LeaseRequest, QueueChange
from holdfast.queue.policy import QueuePolicy
from holdfast.testing import FakeClock
from tests.unit.cli.conftest import Run
from tests.unit.cli.queues import make, of, opened, taken


@pytest.fixture(autouse=True)
def _a_queue(here: Path) -> None:
    make("mail")


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> "TypeIn":
    return TypeIn(monkeypatch)


class TypeIn:
    """Standard input."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, text: bytes) -> None:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_a_file_is_sent_byte_by_byte_with_all_its_options(run: Run, here: Path) -> None:
    (here / "body").write_bytes(b"\x00\xffno line end\r\n\r\n")
    sent = run("queue", "send", "mail", "body", "--tenant", "t", "--priority", "0", "--group", "g", "--json").result
    assert sent.keys() == {"id", "queue", "lane", "trace", "pressure", "is_duplicate", "is_spilled"}
    assert (sent["queue"], sent["is_duplicate"], sent["is_spilled"]) == ("mail", False, False)
    (delivery,) = taken("mail")
    assert (delivery.id, delivery.lane, delivery.trace) == (sent["id"], sent["lane"], sent["trace"])
    assert (delivery.tenant, delivery.body, delivery.group) == ("t", b"\x00\xffno line end\r\n\r\n", "g")
    assert delivery.lane % 4 == 0, "the lane of the most urgent"


@pytest.mark.parametrize("words", [[], ["-"]])
def test_without_a_file_standard_input_is_sent(run: Run, type_in: TypeIn, words: list[str]) -> None:
    type_in(b"hello\n")
    ran = run("queue", "send", "mail", *words, "--tenant", "t")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("message 1 accepted, in lane ")
    assert [delivery.body for delivery in taken("mail")] == [b"hello\n"]


def test_a_message_with_a_key_that_is_sent_twice_is_kept_once(run: Run, type_in: TypeIn) -> None:
    words = ("queue", "send", "mail", "--tenant", "t", "--key", "welcome-17")
    type_in(b"one")
    first = run(*words, "--json").result
    type_in(b"two")
    ran = run(*words)
    assert ran.out.startswith(f"message {first['id']} was sent before, with the same key, in lane")
    assert [delivery.body for delivery in taken("mail")] == [b"one"]


def test_a_message_can_be_for_later_and_for_a_while_only(run: Run, type_in: TypeIn) -> None:
    type_in(b"later")
    assert run("queue", "send", "mail", "--tenant", "t", "--delay", "2h").code == 0
    assert taken("mail") == []
    with opened() as backend:
        (lane,) = backend.inspect("mail").lanes
    assert (lane.ready, lane.delayed) == (0, 1)


def test_every_line_that_is_not_empty_is_a_message_in_order(run: Run, type_in: TypeIn, here: Path) -> None:
    (here / "lines").write_bytes(b"\n".join(b"%d" % number for number in range(1234)) + b"\n\n\r\nlast \t\r\n")
    sent = run("queue", "send", "mail", "lines", "--tenant", "t", "--lines", "--json").result
    spilled = sent.pop("spilled")
    assert 0 < spilled <= 235  # fewer than all beyond the burst of 1,000 when the machine takes its time
    assert sent == {"queue": "mail", "sent": 1235, "duplicates": 0}
    bodies = [delivery.body for delivery in sorted(taken("mail", 2000), key=lambda delivery: delivery.id)]
    assert bodies == [b"%d" % number for number in range(1234)] + [b"last \t"]


def test_lines_that_were_sent_before_are_not_sent_again(run: Run, here: Path) -> None:
    (here / "lines").write_bytes(b"a\n\nb\n")
    words = ("queue", "send", "mail", "lines", "--tenant", "t", "--lines", "--key", "friday")
    assert run(*words).out == "2 sent to mail\n"
    (here / "lines").write_bytes(b"a\n\nb\nc\n")
    assert run(*words).out == "3 sent to mail, 2 of them had been sent before\n"
    assert sorted(delivery.body for delivery in taken("mail")) == [b"a", b"b", b"c"]


def test_other_lines_under_a_key_that_was_used_are_kept(run: Run, here: Path) -> None:
    words = ("queue", "send", "mail", "lines", "--tenant", "t", "--lines", "--key", "friday")
    (here / "lines").write_bytes(b"a\nb\n")
    run(*words)
    (here / "lines").write_bytes(b"c\nd\nb\n")
    assert run(*words).out == "3 sent to mail, 1 of them had been sent before\n"
    assert sorted(delivery.body for delivery in taken("mail")) == [b"a", b"b", b"c", b"d"]


def test_equal_lines_are_as_many_messages(run: Run, here: Path) -> None:
    """Also those that are not sent in the same step."""
    words = ("queue", "send", "mail", "lines", "--tenant", "t", "--lines", "--key", "friday")
    (here / "lines").write_bytes(b"a\n" * 501)
    assert run(*words).out == "501 sent to mail\n"
    assert run(*words).out == "501 sent to mail, 501 of them had been sent before\n"


def test_a_key_that_cannot_be_one_is_refused_before_a_line_is_sent(run: Run, here: Path) -> None:
    (here / "lines").write_bytes(b"a\n")
    ran = run("queue", "send", "mail", "lines", "--tenant", "t", "--lines", "--key", "k" * 257, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert not taken("mail")


def test_people_are_told_what_waits_apart(run: Run, type_in: TypeIn) -> None:
    with opened() as backend:
        backend.change("mail", QueueChange(limits={"t": Limits(spill_rate=1.0, spill_burst=1.0)}))
    type_in(b"a\nb\nc\n")
    ran = run("queue", "send", "mail", "--lines", "--tenant", "t")
    assert ran.out == "3 sent to mail, 2 spilled\n"
    type_in(b"d")
    assert "(spilled)" in run("queue", "send", "mail", "--tenant", "t").out


class TestCalls:
    """Messages that call a job, whose arguments are written in JSON."""

    @pytest.fixture
    def queue(self) -> Queue:
        queue = Queue("mail", "memory:")

        @queue.job
        def welcome(address: str, copies: int = 1) -> None: ...

        return queue

    def test_arguments_on_the_command_line_make_the_body_that_the_job_makes(self, run: Run, queue: Queue) -> None:
        words = ("--job", "welcome", "--arguments", '{"address": "a@example.com", "copies": 2}')
        ran = run("queue", "send", "mail", "--tenant", "t", "--group", "g", *words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("message 1 accepted, in lane ")
        (delivery,) = taken("mail")
        assert (delivery.tenant, delivery.group) == ("t", "g")
        assert delivery.body == queue.jobs["welcome"].encode("a@example.com", 2)

    def test_arguments_come_from_a_file_or_standard_input_too(
        self, run: Run, type_in: TypeIn, here: Path, queue: Queue
    ) -> None:
        (here / "one.json").write_text('{\n  "address": "ä"\n}\n', encoding="utf-8")
        assert run("queue", "send", "mail", "one.json", "--tenant", "t", "--job", "welcome").code == 0
        type_in(b'{"address": "b"}')
        assert run("queue", "send", "mail", "--tenant", "t", "--job", "welcome").code == 0
        assert {delivery.body for delivery in taken("mail")} == {
            queue.jobs["welcome"].encode("ä"),
            queue.jobs["welcome"].encode("b"),
        }

    def test_every_line_is_a_call_and_is_kept_once_under_a_key(self, run: Run, type_in: TypeIn, queue: Queue) -> None:
        words = ("queue", "send", "mail", "--tenant", "t", "--job", "welcome", "--lines", "--key", "friday")
        type_in(b'{"address": "a"}\n\n{"address": "b"}\r\n')
        assert run(*words).out == "2 sent to mail\n"
        type_in(b'{"address":"b"}\n{"address":"c"}\n')
        assert run(*words).out == "2 sent to mail, 1 of them had been sent before\n"
        assert sorted(delivery.body for delivery in taken("mail")) == [
            queue.jobs["welcome"].encode(address) for address in "abc"
        ]

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--arguments", "{}"], "--arguments without --job: give both"),
            (["--job", "j", "--arguments", "{}", "--lines"], "--arguments and --lines: give only one of them"),
            (["body", "--job", "j", "--arguments", "{}"], "--arguments and body: give only one of them"),
            (["--job", "", "--arguments", "{}"], "--job '': expected the name of a job"),
            (["--job", "j", "--arguments", "[1]"], "arguments of j: Expected `object`, got `array`: expected a JSON"),
            (["--job", "j", "--arguments", "{"], "arguments of j: Input data was truncated: expected a JSON object"),
            (["--job", "j", "--arguments", '{"a": "\udcff"}'], "arguments of j: 'utf-8' codec can't encode"),
            (["--job", "j", "--arguments", '{"a": 18446744073709551616}'], "a call of j cannot be sent: "),
            (["--job", "j"], "arguments of j: JSON is malformed: "),
        ],
    )
    def test_what_is_no_call_is_told_and_nothing_is_sent(
        self, run: Run, type_in: TypeIn, words: list[str], told: str
    ) -> None:
        type_in(b"hello")
        ran = run("queue", "send", "mail", *words, "--tenant", "t", "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert ran.error["detail"].startswith(told)
        assert taken("mail") == []

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            (b"address", "arguments of welcome: JSON is malformed"),
            (b'{"address": "\xff"}', "arguments of welcome: 'utf-8' codec can't decode"),
            (b'{"a": 18446744073709551616}', "a call of welcome cannot be sent"),
        ],
    )
    def test_a_line_that_is_wrong_is_told_by_its_number_with_how_many_were_sent(
        self, run: Run, type_in: TypeIn, line: bytes, told: str
    ) -> None:
        type_in(b'{"address": "a"}\n' * 500 + b"\n" + line + b"\n")
        ran = run("queue", "send", "mail", "--tenant", "t", "--job", "welcome", "--lines")
        assert (ran.code, ran.out) == (2, "")
        note, error = ran.err.splitlines()
        assert note == "holdfast: 500 sent to mail"
        assert error.startswith(f"holdfast: line 502: {told}")

    def test_a_call_that_is_too_large_is_refused(self, run: Run, here: Path) -> None:
        (here / "large").write_text('{"address": "%s"}' % ("x" * (1 << 20)))
        ran = run("queue", "send", "mail", "large", "--tenant", "t", "--job", "welcome", "--json")
        assert ran.error["detail"].startswith("a body of ")
        (here / "wide").write_text(" " * (1 << 20) + '{"address": "x"}')
        assert run("queue", "send", "mail", "wide", "--tenant", "t", "--job", "welcome").code == 0


class TestTooMuch:
    """A tenant that has sent more than it may."""

    @pytest.fixture(autouse=True)
    def _limited(self) -> None:
        with opened() as backend:
            backend.change("mail", QueueChange(limits={"t": Limits(max_rate=0.001, max_burst=2.0)}))

    def test_one_message_is_refused_with_code_3_and_when_to_try_again(self, run: Run, type_in: TypeIn) -> None:
        for _ in range(2):
            type_in(b"x")
            assert run("queue", "send", "mail", "--tenant", "t").code == 0
        type_in(b"x")
        ran = run("queue", "send", "mail", "--tenant", "t", "--json")
        assert (ran.code, ran.error["error"]) == (3, "backpressure")
        assert "tenant t exceeds its max_rate; try again in " in ran.error["detail"]
        type_in(b"x")
        assert run("queue", "send", "mail", "--tenant", "other").code == 0

    def test_lines_are_given_up_after_a_while_and_how_many_were_sent_is_told(self, run: Run, type_in: TypeIn) -> None:
        type_in(b"a\nb\nc\nd\n")
        ran = run("queue", "send", "mail", "--lines", "--tenant", "t", "--timeout", "1s")
        assert (ran.code, ran.out) == (3, "")
        note, error = ran.err.splitlines()
        assert note == "holdfast: 2 sent to mail"
        assert error.startswith("holdfast: queue mail: tenant t exceeds its max_rate")
        assert len(taken("mail")) == 2

    def test_what_is_refused_is_sent_again_in_time_and_before_what_comes_after_it(self, here: Path) -> None:
        clock, waits = FakeClock(), list[float]()
        with opened(here / "other.sqlite", clock) as backend:
            limits = Limits(max_rate=10.0, max_burst=5.0, over_max_rate=OverMaxRate.REFUSE)
            backend.change("mail", QueueChange(policy=QueuePolicy(limits=limits)), create=True)
            sender = Sender(backend, "mail", clock, timeout=60.0)
            for numbers in (range(20), range(20, 30)):
                sender.send(of("t", *(b"%d" % number for number in numbers)), waits.append)
            assert sender.summary.sent == 30
            want = LeaseRequest(queue="mail", count=100, lease=600.0)
            sent = [(delivery.id, int(delivery.body)) for delivery in backend.lease(want).deliveries]
        assert [body for _, body in sorted(sent)] == list(range(30))
        assert clock.sleeps == waits
        assert 2.4 <= sum(waits) <= 3.0, "25 beyond the burst, at 10 each second"

    def test_patience_is_for_a_time_in_which_nothing_was_kept(self, here: Path) -> None:
        clock = FakeClock()
        with opened(here / "other.sqlite", clock) as backend:
            limits = Limits(max_rate=1.0, max_burst=1.0)
            backend.change("mail", QueueChange(policy=QueuePolicy(limits=limits)), create=True)
            slow = Sender(backend, "mail", clock, timeout=2.0)
            slow.send(of("t", *[b"x"] * 10), lambda _: None)
            assert slow.summary.sent == 10
            with pytest.raises(Backpressure):
                Sender(backend, "mail", clock, timeout=0.5).send(of("t", b"x"), lambda _: None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mail", "nowhere", "--tenant", "t"], "nowhere cannot be read: No such file or directory"),
        (["mail", "--tenant", ""], "tenant ''"),
        (["mail", "--tenant", "t", "--priority", "4"], "priority 4: expected 0, the most urgent, to 3"),
        (["mail", "--tenant", "t", "--delay", "soon"], "duration 'soon': expected a duration such as 90s"),
        (["mail", "--tenant", "t", "--ttl", "0"], "duration '0'"),
        (["mail", "-x", "--tenant", "t"], "-x: expected a file, and not an option"),
        (["a b", "--tenant", "t"], "queue 'a b': expected 1 to 128 letters"),
    ],
)
def test_what_cannot_be_sent_is_told_and_nothing_is(run: Run, type_in: TypeIn, words: list[str], told: str) -> None:
    type_in(b"x")
    ran = run("queue", "send", *words, "--json")
    assert ran.code == 2
    assert ran.error["detail"].startswith(told)
    assert taken("mail") == []


def test_a_body_that_is_too_large_is_refused(run: Run, here: Path) -> None:
    (here / "large").write_bytes(b"x" * ((1 << 20) + 1))
    ran = run("queue", "send", "mail", "large", "--tenant", "t", "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    (here / "large").write_bytes(b"x" * (1 << 20))
    assert run("queue", "send", "mail", "large", "--tenant", "t").code == 0


def test_an_unknown_queue_is_told_with_those_there_are(run: Run, type_in: TypeIn) -> None:
    make("reports")
    type_in(b"x")
    ran = run("queue", "send", "mial", "--tenant", "t", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"].startswith(
        "there is no queue mial in holdfast-data/queue.sqlite: existing queues: mail, reports; a queue is created when"
    )
