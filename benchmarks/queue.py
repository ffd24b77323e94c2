"""The queue beside others: how fast, how fair, how it comes through an outage, and what it takes.

Everybody has one producer and one worker process, on this machine, with real servers: PostgreSQL as it is by default
(fsync on), Valkey without persistence, SQLite with synchronous FULL. What is acknowledged is durable, except on Valkey.
The time is that of the wall clock: let nothing else run. How each peer is set up, its module says; they are set up as
fast as they can be without promising less.

- `throughput` (`_queue_throughput.py`): no-op jobs of 20 tenants, five of them with limits, in batches of 100.
  Holdfast, Huey and procrastinate, and the loop over the driver that one would write.
- `noise` (`_queue_noise.py`): one tenant, or ten, have sent 20,000 jobs of 5 ms; how long do 50 others wait for theirs?
  Holdfast with its defaults, Dramatiq, procrastinate; and Holdfast with one lane and no protection, as FIFO.
- `outage` (`_queue_outage.py`): an hour's backlog of 3.6 million messages, and 400 fresh ones in a second.
- `size` (`_queue_size.py`): memory of an idle worker, bytes per message, and what it takes to see how deep a queue is.
- `picture` (`_queue_picture.py`): how long the victims of ten noisy tenants wait, with each protection alone.

`--quick` has fewer messages and rounds. `--svg FILE` draws the picture. The last line is JSON.
"""

import sys
from pathlib import Path

# Before anything else is imported: what imports the standard module `queue` must not find this file.
sys.path[0] = str(Path(__file__).parents[1])

import argparse
from collections.abc import Sequence

from benchmarks import _queue_noise as noise
from benchmarks import _queue_outage as outage
from benchmarks import _queue_picture as picture
from benchmarks import _queue_size as size
from benchmarks import _queue_throughput as throughput
from benchmarks._queue_servers import Servers
from benchmarks._report import Report

PARTS = {
    "throughput": throughput.measure,
    "noise": noise.measure,
    "outage": outage.measure,
    "size": size.measure,
    "picture": picture.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/queue.py")
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds, for a look in four minutes")
    parser.add_argument("--part", choices=list(PARTS), action="append", help="this part alone; may be repeated")
    parser.add_argument("--svg", type=Path, help="write the picture to this file")
    chosen = parser.parse_args(arguments)
    report, servers = Report("queue", chosen.svg), Servers()
    try:
        for name in chosen.part or PARTS:
            report.say(f"{name}:")
            PARTS[name](servers, report, quick=chosen.quick)
            report.say("")
    finally:
        servers.close()
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
