"""Types that nothing could violate would pin nothing: here the type checker is seen to refuse."""

import os
import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

HEADER = """\
from holdfast import (
    Carrier, Clock, EngineError, HoldfastError, Operation, Outcome, Side, Sink, SystemClock, Tenant, Zone
)
from holdfast.calls import Dependency
from holdfast.queue import Delivery, Queue, SentMessage, WorkerOptions
from holdfast.telemetry.meter import Meter
from holdfast.testing import FakeClock, seeded


pricing = Dependency("pricing")

@pricing.call(idempotent=True)
def price(sku: str) -> float: return float(len(sku))

queue = Queue("work", "memory:")

@queue.job
def resize(image: str, width: int = 100) -> bool: return len(image) > width

@queue.job(timeout=5.0)
async def mail(to: str) -> float: return float(len(to))

operation, zone, side = Operation("service", "name"), Zone("use1-az1"), Side.SERVER

class Frozen:
    def wall(self) -> float: return 0
    def monotonic(self) -> float: return 0

class Numbers:
    def emit(self, event: int) -> None: ...

class Everything:
    def emit(self, event: object) -> None: ...

meter = Meter("shop", zone=zone, sink=Everything())

@meter.measured(client_errors=KeyError)
def load(name: str, limit: int = 1) -> float: return limit
"""

ACCEPTED = [
    'Outcome(workload="w", operation=operation, zone=zone, instance="i", at=0, side=side)',
    "a: Clock = FakeClock(manual=True)",
    'b: str = Tenant("tenant-1")',
    "c: HoldfastError = EngineError()",
    'h: float = price("a")',
    'j: SentMessage = resize.to("tenant").send("a", width=5)',
    'k: bool = resize("a")',
    'mail.to("tenant", delay=1.5).message(to="a")',
    'm: float = load("a", limit=2)',
    "queue.handle()(lambda delivery: None)",
    "queue.handle(lambda delivery: None)",
]

REFUSED = {
    "text where an operation is wanted": (
        'Outcome(workload="w", operation="service/name", zone=zone, instance="i", at=0, side=side)',
        "arg-type",
    ),
    "text where a zone is wanted": (
        'Outcome(workload="w", operation=operation, zone="use1-az1", instance="i", at=0, side=side)',
        "arg-type",
    ),
    "text where a side is wanted": (
        'Outcome(workload="w", operation=operation, zone=zone, instance="i", at=0, side="server")',
        "arg-type",
    ),
    "an outcome without a zone": (
        'Outcome(workload="w", operation=operation, instance="i", at=0, side=side)',
        "call-arg",
    ),
    "text where a tenant is wanted": ('d: Tenant = "tenant-1"', "assignment"),
    "a carrier by position": ('Carrier("00-a-b-01")', "call-arg"),
    "a change of a value": ('operation.name = "other"', "misc"),
    "half a clock where a clock is wanted": ("e: Clock = Frozen()", "assignment"),
    "a sink of numbers where outcomes go": ("f: Sink[Outcome] = Numbers()", "assignment"),
    "a sleep of text": ('SystemClock().sleep("1")', "arg-type"),
    "an advance of text": ('FakeClock().advance("1")', "arg-type"),
    "a number where a decorated function takes text": ("price(1)", "arg-type"),
    "text from a decorated function that returns a number": ('i: str = price("a")', "assignment"),
    "a call that does not say whether it is idempotent": ("pricing.call()", "call-arg"),
    "arguments that a function does not take": ("pricing.run(price, 1, idempotent=True)", "arg-type"),
    "a number where a measured function takes text": ("load(1)", "arg-type"),
    "an argument that a measured function does not take": ('load("a", color="red")', "call-arg"),
    "text from a measured function that returns a number": ('n: str = load("a")', "assignment"),
    "a sink of numbers for a meter": ('Meter("shop", zone=zone, sink=Numbers())', "arg-type"),
    "a predicate of text as a judge of errors": ("meter.measured(client_errors=str.isdigit)", "arg-type"),
    "a number where a job takes text": ('resize.to("tenant").send(1)', "arg-type"),
    "an argument that a job does not take": ('mail.to("tenant").message("a", color="red")', "call-arg"),
    "a job without its arguments": ('mail.to("tenant").send()', "call-arg"),
    "a call of a job with other arguments": ('resize("a", width="wide")', "arg-type"),
    "an asynchronous job as if it were not": ('l: float = mail("a")', "assignment"),
    "a message without a tenant": ('queue.send(b"x")', "call-arg"),
    "a text as a body": ('queue.send("x", tenant="a")', "arg-type"),
    "a handler that takes no delivery": ("queue.handle()(len)", "type-var"),
    "a handler that takes no delivery, without parentheses": ("queue.handle(len)", "type-var"),
    "a worker's options by position": ("WorkerOptions(8)", "call-arg"),
    "a seed of bytes": ('seeded(b"a")', "arg-type"),
    "the root where one of its errors is wanted": ("g: EngineError = HoldfastError()", "assignment"),
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The lines that the type checker refused, each with the code of its error: one run for all, as a run is slow."""
    lines = [*HEADER.splitlines(), *ACCEPTED, *(line for line, _ in REFUSED.values())]
    snippet = tmp_path_factory.mktemp("typing") / "snippet.py"
    snippet.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", os.devnull, "--no-pretty"]
    printed, broken, _ = api.run([*settings, str(snippet)])
    assert not broken, broken
    found = re.findall(r"snippet\.py:(\d+): error: .*\[([\w-]+)\]$", printed, re.MULTILINE)
    return {lines[int(number) - 1]: code for number, code in found}


@pytest.mark.parametrize("what", REFUSED)
def test_the_type_checker_refuses(what: str, complaints: dict[str, str]) -> None:
    line, code = REFUSED[what]
    assert complaints.get(line) == code


def test_the_type_checker_accepts_everything_else(complaints: dict[str, str]) -> None:
    assert set(complaints) == {line for line, _ in REFUSED.values()}
