"""What retries, backoff and timeouts do to a service, in virtual time, with the engine that serves real calls.

Uses `calls`, and nothing real: no clock, no sleep, and chance that repeats for a seed. Each scenario is a module: a
frozen description and `compare`. Start reading at `jitter.py`; `advice.py` applies the same rules to real latencies.
"""

from holdfast.simulate.advice import Advice, advise
from holdfast.simulate.amplification import Amplified, Stack
from holdfast.simulate.jitter import Contended, Contention
from holdfast.simulate.metastability import Stall, Stalled
from holdfast.simulate.timeout import Shift, Window

__all__ = ["Advice", "Amplified", "Contended", "Contention", "Shift", "Stack", "Stall", "Stalled", "Window", "advise"]
