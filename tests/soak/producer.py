"""A process that sends the messages of one segment, and takes up where the one before it was killed.

`python -m tests.soak.producer URL FOLDER NAME SEGMENT FIRST LAST SEED`
"""

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.queue import RefusedMessage, SentMessage
from tests.soak.items import item
from tests.soak.jobs import PASSING, PAUSE, Jobs, end_with_parent, open_patiently
from tests.soak.ledger import Account, Ledger

LARGEST_BATCH = 80
LONGEST_WAIT = 0.2
DAWDLES = 0.05
"""How often it takes its time to write down what was kept."""


def main(arguments: Sequence[str]) -> None:
    url, folder, name = arguments[:3]
    segment, first, last, seed = map(int, arguments[3:])
    end_with_parent()
    directory = Path(folder)
    account = Account(directory)
    account.read()
    jobs = Jobs(open_patiently(url, directory))
    ledger = Ledger(directory / f"{name}.ledger")
    randomness = random.Random(seed)
    numbers = [number for number in range(first, last) if number not in account.kept]
    send_all(jobs, ledger, segment, numbers, randomness)


def send_all(jobs: Jobs, ledger: Ledger, segment: int, numbers: list[int], randomness: random.Random) -> None:
    """Send them in order, some at a time. What was refused goes first the next time: groups keep their order."""
    refused: list[int] = []
    while numbers or refused:
        size = randomness.randint(1, LARGEST_BATCH)
        fresh, numbers = numbers[:size], numbers[size:]
        batch = [*refused, *fresh]
        ledger.write(f"try {' '.join(map(str, batch))}")
        try:
            results = jobs.queue.send_many([jobs.message(item(number, segment)) for number in batch])
        except PASSING as error:
            ledger.write(f"failed {type(error).__name__} {' '.join(map(str, batch))}")
            refused = batch
            time.sleep(PAUSE)
            continue
        if randomness.random() < DAWDLES:
            time.sleep(PAUSE)  # the worst moment to be killed: it is kept, and nobody knows
        kept = [
            f"{number}:{one.id}" for number, one in zip(batch, results, strict=True) if isinstance(one, SentMessage)
        ]
        if kept:
            ledger.write(f"kept {' '.join(kept)}", sync=True)
        waits = [one.retry_after for one in results if isinstance(one, RefusedMessage)]
        refused = [number for number, one in zip(batch, results, strict=True) if isinstance(one, RefusedMessage)]
        if refused:
            ledger.write(f"failed Refused {' '.join(map(str, refused))}")
            if not numbers:
                time.sleep(min(LONGEST_WAIT, *waits, LONGEST_WAIT))


if __name__ == "__main__":
    main(sys.argv[1:])
