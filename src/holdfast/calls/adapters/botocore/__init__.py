"""Clients of boto3 and botocore under a dependency's policies: its budget, its deadline, one side that retries.

    pricing_table = Dependency("pricing table", timeouts=Timeouts(attempt=Percentile(99.9, ceiling=2.0)))
    client = govern(boto3.client("dynamodb", config=client_config(pricing_table)), pricing_table)

botocore's own retries are taken off the client; everything else of it stays, pages and waiters too. What is bounded:

- A call that begins after its deadline is refused, and so is a retry that would come too late.
- Setting up a connection takes at most the client's `connect_timeout`, which botocore fixes for each client: a deadline
  may be overrun by as much. It is not measured apart from the attempt.
- Waiting for the answer, and between two parts of it, takes at most what is left of the attempt; with old versions of
  botocore, the client's `read_timeout`. Long polls have up to 70 seconds.
- The body of a streaming answer is read after the call: each read takes at most the client's own `read_timeout`, or 60
  seconds if that is the one of `client_config(dependency)`. No deadline bounds it.
- Not bounded: fetching credentials; the pauses of a waiter; the threads of S3 transfers, which also repeat parts.

A refusal is an error of Holdfast and a BotoCoreError as well; an attempt that took too long ends in ReadTimeoutError.
"""

from holdfast._errors import MissingExtra

try:
    import botocore as _botocore  # noqa: F401
except ImportError as error:
    raise MissingExtra("the adapter to botocore", "aws") from error

from holdfast.calls.adapters.botocore.governor import (
    NOTE_KEY,
    BotocoreDeadlineExceeded,
    BotocoreLimitReached,
    BotocoreRetryAfterTooLong,
    client_config,
    govern,
)

__all__ = [
    "NOTE_KEY",
    "BotocoreDeadlineExceeded",
    "BotocoreLimitReached",
    "BotocoreRetryAfterTooLong",
    "client_config",
    "govern",
]
