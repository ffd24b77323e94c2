"""Sends messages of two tenants and handles them, in one process: `python one_process.py`."""

import threading

from holdfast.queue import Queue, Worker

mail = Queue("mail", "memory:")
addresses = ["a@example.com", "b@example.com", "c@example.com"]
done = threading.Semaphore(0)


@mail.job
def welcome(address: str) -> None:
    """Stands for sending a mail."""
    print("welcome,", address, flush=True)
    done.release()


with mail, Worker(mail):
    for number, address in enumerate(addresses):
        welcome.to(f"tenant-{number % 2}").send(address)
    for _ in addresses:
        done.acquire()
