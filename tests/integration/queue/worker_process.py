"""A worker in a process of its own, that says what it does: `python worker_process.py ADDRESS WHAT`.

Every line is a moment in wall-clock seconds, a word and a number, mostly that of a job.
"""

import os
import sys
import threading
import time

from holdfast.queue import Queue, QueuePolicy, Worker, WorkerOptions
from holdfast.queue.events import PollEvent, QueueEvent

ATTEMPTS, LEASE = 3, 1.0


def make(address: str, max_attempts: int = ATTEMPTS) -> Queue:
    """The queue that test and workers share. The test makes it first: its policy is the one that holds."""
    return Queue("work", address, policy=QueuePolicy(lease=LEASE, max_attempts=max_attempts))


def note(word: str, number: int) -> None:
    os.write(1, f"{time.time():.6f} {word} {number}\n".encode())  # one system call: a line is whole or not there


class Burials:
    """A sink that says when messages are given up."""

    def emit(self, event: QueueEvent) -> None:
        if isinstance(event, PollEvent) and event.result.buried:
            note("buried", event.result.buried)


def main(address: str, what: str) -> None:
    queue = make(address)

    @queue.job
    def work(number: int) -> None:
        note("began", number)
        if what == "hang":
            threading.Event().wait()
        if number < 0:
            os._exit(7)
        note("ended", number)

    @queue.job
    async def wait_for_stop(number: int) -> None:
        import asyncio

        note("began", number)
        os.kill(os.getpid(), 15)
        await asyncio.sleep(0.2)  # longer than it takes the worker to notice
        note("ended", number)

    Worker(queue, WorkerOptions(concurrency=4), sink=Burials()).run()
    note("stopped", 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
