"""Simulations of retries, backoff and timeouts, and of Aurora runs, in virtual time, with the code that real ones use.

Imports `calls` and `aurora`. Uses no real clock, no sleep, and seeded random numbers. Each scenario is a module with a
frozen description and `compare`. Start reading at `jitter.py`; `advice.py` applies the same rules to real latencies.
`aurora.py` runs a state machine, on the AWS of `aws/`.
"""

from holdfast.simulate.advice import Advice, advise
from holdfast.simulate.amplification import AmplificationResult, ServiceStack
from holdfast.simulate.jitter import Contention, ContentionResult
from holdfast.simulate.metastability import Stall, StallResult
from holdfast.simulate.timeout import LatencyShift, WindowResult

__all__ = [
    "Advice",
    "AmplificationResult",
    "Contention",
    "ContentionResult",
    "LatencyShift",
    "ServiceStack",
    "Stall",
    "StallResult",
    "WindowResult",
    "advise",
]
