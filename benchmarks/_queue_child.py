"""A process of the queue benchmark, the producer or the worker of one system, and how to talk to it.

`Child` starts it and tells it what to do: a line of JSON for each command, and one for each answer. It ends when its
input does. Commands run in a thread that is not the main one, as in a server; for everybody alike.
"""

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from benchmarks._queue_roles import BATCH, Options, Runner, Sender, Tally

ROOT = Path(__file__).parents[1]
LOAD = 1000
"""Jobs of the noise that are sent in one step: it is not measured how long that takes."""
ENOUGH = 60.0
"""Seconds for a child to end by itself."""


class Child:
    """A child process. End it by leaving its context."""

    def __init__(self, system: str, role: str, **options: Any) -> None:
        words = [sys.executable, "-m", "benchmarks._queue_child", system, role, json.dumps(options)]
        self._name = f"the {role} of {system}"
        self._process = subprocess.Popen(
            words,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C at the terminal is for whoever started it, who then ends it
        )

    def __enter__(self) -> Self:
        self.hear()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if error is not None:
            self.kill()
        try:
            self._process.stdin.close()
            self._process.wait(ENOUGH)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
        self._process.stdout.close()

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def tell(self, command: str, **values: Any) -> None:
        """Let it do something; `hear` waits for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, values]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self._name}: {answer['error']}")
        return answer["value"]

    def ask(self, command: str, **values: Any) -> Any:
        self.tell(command, **values)
        return self.hear()


class Producing:
    """The commands of a producer."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.close = sender.close

    def send(self, count: int, tenants: list[str], first: int = 0) -> float:
        """No-op jobs, a hundred at a time; seconds that it took."""
        began = time.monotonic()
        for start in range(first, first + count, BATCH):
            self._sender.send("nothing", range(start, min(start + BATCH, first + count)), tenants)
        return time.monotonic() - began

    def singles(self, count: int, tenants: list[str]) -> float:
        """No-op jobs, one at a time."""
        began = time.monotonic()
        for number in range(count):
            self._sender.send_one("nothing", number, tenants[number % len(tenants)])
        return time.monotonic() - began

    def load(self, job: str, count: int, tenants: list[str], at_once: int = LOAD) -> None:
        for start in range(0, count, at_once):
            self._sender.send(job, range(start, min(start + at_once, count)), tenants)

    def victims(self, tenants: list[str], pause: float) -> None:
        """One job of each."""
        for tenant in tenants:
            self._sender.send_one("victim", time.monotonic(), tenant)
            time.sleep(pause)

    def fresh(self, rate: float, seconds: float, tenants: list[str]) -> int:
        """So many jobs in a second, for so long, whatever becomes of them; how many it could send."""
        began = time.monotonic()
        sent = 0
        while True:
            due = began + sent / rate
            now = time.monotonic()
            if now >= began + seconds:
                return sent
            if due > now:
                time.sleep(due - now)
            self._sender.send_one("fresh", time.monotonic(), tenants[sent % len(tenants)])
            sent += 1

    def change(self, policy: Mapping[str, Any]) -> None:
        self._sender.change(policy)  # type: ignore[attr-defined]  # Holdfast alone can do that

    def inspect(self, times: int) -> float:
        """Seconds that it takes to see how deep the queue is."""
        return self._sender.inspect(times)  # type: ignore[attr-defined, no-any-return]


class Working:
    """The commands of a worker."""

    def __init__(self, runner: Runner, tally: Tally) -> None:
        self._runner = runner
        self._tally = tally
        self.close = runner.stop

    def start(self, target: int = 1 << 62, numbers: int = 0) -> float:
        """Begin, and expect so many jobs; when it began."""
        self._tally.expect(target, numbers)
        began = time.monotonic()
        self._runner.start()
        return began

    def expect(self, target: int) -> None:
        """Count anew, while it works."""
        self._tally.expect(target, 0)

    def wait(self, patience: float) -> dict[str, Any]:
        """Wait for what is expected, until all is acknowledged."""
        is_done = self._tally.wait(patience)
        while is_done and not self._runner.is_settled():
            time.sleep(0.0005)
        now = time.monotonic()
        handled, distinct, ended = self._tally.handled, self._tally.distinct, self._tally.ended
        return {"done": is_done, "handled": handled, "distinct": distinct, "ended": ended, "settled": now}

    def seen(self) -> dict[str, Any]:
        """How many were handled so far, and how long those waited whose waiting is measured."""
        return {"handled": self._tally.handled, "latencies": list(self._tally.latencies), "at": time.monotonic()}

    def memory(self) -> float:
        return megabytes(os.getpid())


def megabytes(process: int) -> float:
    """The memory of a process that is its own or shared, and present."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def make(system: str, role: str, options: Options) -> Producing | Working:
    module = importlib.import_module(f"benchmarks.{system}")  # one alone: it is looked at how much memory a worker has
    if role == "producer":
        return Producing(module.Sender(options))
    tally = Tally()
    return Working(module.Runner(options, tally), tally)


def serve(system: str, role: str, options: Options, answer: Callable[[Mapping[str, Any]], None]) -> None:
    try:
        made = make(system, role, options)
    except Exception as error:  # noqa: BLE001 - told to whoever started this
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    answer({"value": None})
    for line in sys.stdin:
        command, values = json.loads(line)
        try:
            answer({"value": getattr(made, command)(**values)})
        except Exception as error:  # noqa: BLE001
            answer({"error": f"{command}: {type(error).__name__}: {error}"})
    made.close()


def main() -> None:
    system, role, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    # What others print goes elsewhere: answers alone are heard.
    channel, sys.stdout = sys.stdout, sys.stderr

    def answer(value: Mapping[str, Any]) -> None:
        print(json.dumps(value), file=channel, flush=True)

    thread = threading.Thread(target=serve, args=(system, role, options, answer))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
