"""`holdfast calls` shows what the simulations say, and reads latencies from whatever file has them."""

import json
import math
import sys
from collections.abc import Sequence
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from holdfast.calls import Percentile
from holdfast.cli.calls.latencies import read_latencies
from holdfast.simulate import (
    Contention,
    LatencyShift,
    ServiceStack,
    Stall,
    advise,
    amplification,
    jitter,
    metastability,
    timeout,
)
from tests.unit.cli.conftest import Run

JITTER = ("calls", "simulate", "jitter", "--clients", "10", "--runs", "3", "--base", "0.01", "--cap", "1")
STACK = ("calls", "simulate", "amplification", "--layers", "2", "--max-attempts", "2", "--failure-rate", "0.5")
FEW = ("--requests", "200", "--rate", "50")
STALL = ("calls", "simulate", "metastability", "--rate", "40", "--capacity", "50", "--stall", "5", "--seconds", "40")
SHIFT = ("calls", "simulate", "timeout", "--percent", "95", "--windows", "4", "--sigma", "1", "--median", "0.05")
COMMANDS = pytest.mark.parametrize("words", [JITTER, (*STACK, *FEW), STALL, SHIFT], ids=lambda words: words[2])


def as_json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def test_jitter_is_that_of_the_library(run: Run) -> None:
    results = list(jitter.compare(Contention(clients=10, runs=3, base=0.01, cap=1.0, seed=4)))
    found = run(*JITTER, "--seed", "4", "--json").result
    assert found == [{"strategy": one.strategy, "calls": one.calls, "seconds": one.seconds} for one in results]


def test_amplification_is_that_of_the_library(run: Run) -> None:
    options = ServiceStack(layers=2, max_attempts=2, failure_rate=0.5, requests=200, rate=50.0)
    found = run(*STACK, *FEW, "--json").result
    assert [(one["policy"], one["requests"], one["calls"]) for one in found] == [
        (one.policy, one.requests, one.calls) for one in amplification.compare(options)
    ]
    assert all(one["calls_per_request"] == one["calls"] / one["requests"] for one in found)
    assert all(0 < one["success_rate"] <= 1 for one in found)


def test_metastability_is_that_of_the_library(run: Run) -> None:
    options = Stall(rate=40.0, capacity=50.0, stall=5.0, seconds=40.0, timeout=0.5, clients=3)
    found = run(*STALL, "--timeout", "0.5", "--clients", "3", "--json").result
    assert found == as_json(list(metastability.compare(options)))


def test_timeout_is_that_of_the_library(run: Run) -> None:
    options = LatencyShift(percent=95.0, windows=4, sigma=1.0, median=0.05, factor=3.0, rate=100.0)
    found = run(*SHIFT, "--factor", "3", "--rate", "100", "--json").result
    assert found["windows"] == as_json(list(timeout.compare(options)))
    assert (found["window_requests"], found["accepted_false_timeouts"]) == (1000, 0.05)


@COMMANDS
def test_a_simulation_is_a_table_with_a_line_for_each_and_says_nothing_else(run: Run, words: Sequence[str]) -> None:
    ran = run(*words)
    assert (ran.code, ran.err) == (0, "")
    named = {
        "jitter": Contention().strategies(),
        "amplification": [policy.name for policy in amplification.POLICIES],
        "metastability": [callers.name for callers in metastability.CALLERS],
        "timeout": timeout.RULES,
    }[words[2]]
    assert all(name in ran.out for name in named)


def test_who_does_not_recover_is_told_for_how_long_it_was_watched(run: Run) -> None:
    out = run(*STALL).out
    assert "not in 25 s" in out


@COMMANDS
def test_a_picture_is_written_once_unless_forced(run: Run, here: Path, words: Sequence[str]) -> None:
    assert run(*words, "--svg", "picture.svg").code == 0
    drawn = (here / "picture.svg").read_bytes()
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    (here / "picture.svg").write_text("mine")
    refused = run(*words, "--svg", "picture.svg", "--json")
    assert (refused.code, refused.error["error"]) == (1, "conflict")
    assert "--force" in refused.error["detail"]
    assert (here / "picture.svg").read_text() == "mine"
    assert run(*words, "--svg", "picture.svg", "--force").code == 0
    assert (here / "picture.svg").read_bytes() == drawn


@COMMANDS
def test_force_without_a_picture_is_refused(run: Run, words: Sequence[str]) -> None:
    assert "--force is for the file of --svg" in run(*words, "--force").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("jitter", "--clients", "0"), "0 clients"),
        (("amplification", "--failure-rate", "2"), "failure_rate 2.0"),
        (("metastability", "--rate", "200"), "rate 200.0"),
        (("timeout", "--percent", "100"), "percentile 100.0"),
    ],
)
def test_what_cannot_be_simulated_exits_with_2(run: Run, words: Sequence[str], told: str) -> None:
    ran = run("calls", "simulate", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert told in ran.error["detail"]


def test_progress_is_shown_at_a_terminal_and_on_standard_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ran = run(*JITTER)
    assert ran.code == 0
    assert "backoff strategies" in terminal.getvalue()
    assert "full jitter" in ran.out
    assert "backoff strategies" not in ran.out.partition("\n")[2]


NUMBERS = [0.1, 0.25, 0.2, 0.5]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("plain.txt", "0.1\n\n0.25\n 0.2 \n0.5", []),
        ("plain.txt", "\ufeff0.1\r\n0.25\r\n0.2\r\n0.5\r\n", []),
        ("one.csv", "seconds\n0.1\n0.25\n0.2\n0.5\n", []),
        ("two.csv", "at, took\n1, 0.1\n2,0.25\n3, 0.2\n4,0.5\n", ["--column", "took"]),
        ("quoted.csv", '"what","took"\n"a, b","0.1"\nc,0.25\nd,0.2\ne,0.5\n', ["--column", "took"]),
        ("numbers.csv", "1,2\n0.1,9\n0.25,9\n0.2,9\n0.5,9\n", ["--column", "1"]),
        ("one.jsonl", '{"seconds": 0.1}\n{"seconds": 0.25}\n\n{"seconds": 0.2}\n{"seconds": "0.5"}\n', []),
        ("two.jsonl", "".join(f'{{"at": 1, "took": {number}}}\n' for number in NUMBERS), ["--column", "took"]),
        ("ms.txt", "100\n250\n200\n500\n", ["--unit", "ms"]),
        ("us.txt", "1e5\n250000\n200000\n500000\n", ["--unit", "us"]),
    ],
)
def test_latencies_are_read_from_what_there_is(run: Run, here: Path, name: str, text: str, words: list[str]) -> None:
    (here / name).write_bytes(text.encode())
    options = dict(zip(words[::2], words[1::2], strict=True))
    read = read_latencies(name, unit=options.get("--unit", "s"), column=options.get("--column"))  # type: ignore[arg-type]
    assert list(read) == pytest.approx(NUMBERS)
    ran = run("calls", "advise", name, *words, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["count"] == 4


def test_requests_that_were_cut_off_are_infinite(here: Path) -> None:
    (here / "cut.csv").write_text("seconds\n0.1\ninf\n")
    assert list(read_latencies("cut.csv")) == [0.1, math.inf]
    (here / "cut.jsonl").write_text('{"seconds": 0.1}\n{"seconds": Infinity}\n{"seconds": "inf"}\n')
    assert list(read_latencies("cut.jsonl", unit="ms")) == pytest.approx([0.0001, math.inf, math.inf])


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("0.1\nfast\n", [], "bad.txt, line 2: 'fast' is not a latency; expected a number, 0 or more"),
        ("0.1\n-0.2\n", [], "bad.txt, line 2: '-0.2' is not a latency"),
        ("0.1\nnan\n", [], "bad.txt, line 2: 'nan' is not a latency"),
        ("0.1\n" + "x" * 100, [], f"'{'x' * 40}' is not a latency"),
        ("", [], "bad.txt: no latencies"),
        ("\n \n", [], "bad.txt: no latencies"),
        ("seconds\n", [], "bad.txt: no latencies"),
        ("at,took\n1,2\n", [], "bad.txt, line 1: columns at, took; choose one with --column"),
        ("at,took\n1,2\n", ["--column", "seconds"], "expected one column seconds; columns: at, took"),
        ("took,took\n1,2\n", ["--column", "took"], "expected one column took; columns: took, took"),
        ("at,took\n1,2\n3\n", ["--column", "took"], "bad.txt, line 3: 1 field; expected 2, as in line 1"),
        ("\nat,took\n1,2\n\n3,slow\n", ["--column", "took"], "bad.txt, line 5: 'slow' is not a latency"),
        ('at,took\n1,"2\n', ["--column", "took"], "bad.txt, line 2: this is not CSV"),
        ('{"took": 1}\n{"took": \n', [], "bad.txt, line 2: this is not JSON"),
        ("[1, 2]\n", [], "bad.txt, line 1: expected a JSON object on each line"),
        ('{"took": 1}\n{"at": 1, "took": 2}\n', [], "bad.txt, line 2: fields at, took; choose one with --column"),
        ("{}\n", [], "bad.txt, line 1: fields none"),
        ('{"took": 1}\n', ["--column", "at"], "bad.txt, line 1: no field at; fields: took"),
        ('{"took": true}\n', [], "bad.txt, line 1: 'True' is not a latency"),
        ('{"took": null}\n', [], "bad.txt, line 1: 'None' is not a latency"),
        (f'{{"took": 1{"0" * 400}}}\n', [], "is not a latency"),
    ],
)
def test_a_line_that_is_no_latency_is_named(run: Run, here: Path, text: str, words: list[str], told: str) -> None:
    (here / "bad.txt").write_text(text)
    ran = run("calls", "advise", "bad.txt", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert told in ran.error["detail"]


def test_a_file_that_cannot_be_read_is_told(run: Run, here: Path) -> None:
    assert "nothing.csv cannot be read: No such file or directory" in run("calls", "advise", "nothing.csv").err
    assert "cannot be read" in run("calls", "advise", str(here)).err
    assert "expected a file, and not an option" in run("calls", "advise", "-x").err


def test_latencies_may_come_on_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"\xef\xbb\xbf0.1\n0.2\n")))
    assert json.loads(run("calls", "advise", "-", "--json").out)["count"] == 2
    monkeypatch.setattr(sys, "stdin", StringIO("0.1\nslow\n"))
    assert "standard input, line 2: 'slow'" in run("calls", "advise", "-").err
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in run("calls", "advise", "-").err


@pytest.fixture
def many(here: Path) -> list[float]:
    """As many latencies as are needed, in a file."""
    numbers = [0.02 + 0.00002 * number for number in range(6000)]
    (here / "many.txt").write_text("".join(f"{number!r}\n" for number in numbers))
    return numbers


def test_the_advice_is_that_of_the_library(run: Run, many: list[float]) -> None:
    policy = Percentile(99.5, floor=0.02, ceiling=8.0, median_margin=0.5, network_latency=0.1)
    said = advise(many, policy, rate=30.0)
    words = (
        "--percent",
        "99.5",
        "--floor",
        "0.02",
        "--ceiling",
        "8",
        "--median-margin",
        "0.5",
        "--network-latency",
        "0.1",
    )
    found = run("calls", "advise", "many.txt", *words, "--rate", "30", "--json").result
    assert found == as_json(said) | {"has_enough_samples": True}
    assert found["limit"] == said.limit
    written = eval(found["code"], {"Percentile": Percentile})
    assert (written.percent, written.network_latency, written.floor) == (
        policy.percent,
        policy.network_latency,
        policy.floor,
    )


def test_the_advice_is_told_with_its_reasons_and_what_to_write(run: Run, many: list[float]) -> None:
    ran = run("calls", "advise", "many.txt", "--rate", "30")
    assert (ran.code, ran.err) == (0, "")
    for word in ("timeout", "because", "p99.9", "6,000; 5,000 are needed", "Percentile(99.9, start=", "Limit("):
        assert word in ran.out
    assert "Limit(" not in run("calls", "advise", "many.txt").out


def test_too_few_latencies_are_a_warning_and_no_failure(run: Run, here: Path) -> None:
    (here / "few.txt").write_text("0.1\n0.2\n")
    ran = run("calls", "advise", "few.txt")
    assert ran.code == 0
    assert ran.err == ("holdfast: only 2 latencies: 5,000 are needed for a reliable 99.9th percentile\n")
    assert "unknown (too few)" in ran.out
    in_json = run("calls", "advise", "few.txt", "--json")
    assert json.loads(in_json.out)["has_enough_samples"] is False
    assert "only 2 latencies: 5,000 are needed" in json.loads(in_json.err)["note"]


def test_how_many_were_cut_off_is_told(run: Run, here: Path) -> None:
    (here / "cut.txt").write_text("0.1\n" * 9995 + "inf\n" * 5)
    assert "10,000, 5 of them timed out" in run("calls", "advise", "cut.txt").out
    (here / "cut.txt").write_text("0.1\n" * 9900 + "inf\n" * 100)
    ran = run("calls", "advise", "cut.txt")
    assert ran.code == 2
    assert "100 of 10,000 timed out" in ran.err


@pytest.mark.parametrize(
    ("name", "value"), [("--percent", "40"), ("--floor", "0"), ("--median-margin", "-1"), ("--rate", "0")]
)
def test_a_wrong_setting_exits_with_2(run: Run, many: list[float], name: str, value: str) -> None:
    assert run("calls", "advise", "many.txt", name, value).code == 2


def test_latencies_are_drawn_with_the_timeout(run: Run, here: Path, many: list[float]) -> None:
    assert run("calls", "advise", "many.txt", "--svg", "latencies.svg").code == 0
    words = [found.text or "" for found in ElementTree.parse(here / "latencies.svg").iter()]
    assert any(word.startswith("timeout ") for word in words)


def test_latencies_that_look_like_milliseconds_are_a_warning(run: Run, here: Path) -> None:
    (here / "milliseconds.txt").write_text("\n".join(str(20 + number % 40) for number in range(6000)))
    ran = run("calls", "advise", "milliseconds.txt")
    assert ran.code == 0
    assert "100% of these requests would time out, because of the ceiling of 10 s" in ran.err
    assert "--unit ms" in ran.err
    assert run("calls", "advise", "milliseconds.txt", "--unit", "ms").err == ""
