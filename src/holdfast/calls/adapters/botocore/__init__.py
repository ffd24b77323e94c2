"""Clients of boto3 and botocore with a dependency's timeouts, retries and budget instead of botocore's retries.

    pricing_table = Dependency("pricing table", timeouts=Timeouts(attempt=Percentile(99.9, ceiling=2.0)))
    client = protect(boto3.client("dynamodb", config=client_config(pricing_table)), pricing_table)

The client keeps everything else, including paginators and waiters. What is bounded:

- A call that begins after its deadline is refused, and so is a retry that would begin after it.
- A connection set-up takes at most the client's `connect_timeout`, which botocore fixes for each client: a call may
  exceed its deadline by as much. The set-up counts as part of the attempt's latency.
- Waiting for the response, and between two parts of it, takes at most the time left for the attempt; with old versions
  of botocore, the client's `read_timeout`. Long polls may take up to 70 seconds.
- The body of a streaming response is read after the call. Each read takes at most the client's own `read_timeout`, or
  60 seconds if that comes from `client_config(dependency)`. No deadline applies.
- Not bounded: fetching credentials; the pauses of a waiter; the threads of S3 transfers, which also retry parts.

A refusal is both a Holdfast error and a BotoCoreError. An attempt that times out raises ReadTimeoutError.
"""

from holdfast._errors import MissingExtra

try:
    import botocore as _botocore  # noqa: F401
except ImportError as error:
    raise MissingExtra("the adapter to botocore", "aws") from error

from holdfast.calls.adapters.botocore.governor import (
    NO_RETRY_REASON_KEY,
    BotocoreDeadlineExceeded,
    BotocoreLimitReached,
    BotocoreRetryAfterTooLong,
    client_config,
    protect,
)

__all__ = [
    "NO_RETRY_REASON_KEY",
    "BotocoreDeadlineExceeded",
    "BotocoreLimitReached",
    "BotocoreRetryAfterTooLong",
    "client_config",
    "protect",
]
