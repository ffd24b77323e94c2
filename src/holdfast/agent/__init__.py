"""The agent: knows which zones are out on behalf of a host that is not Python, and tells it. `holdfast agent` runs it.

May import `compose` and everything below it, and nothing that the core install lacks, except for SNS. Start reading at
`run.py`; what the host is told is in `responses.py`, `state.py` and `hook.py`.
"""

from holdfast.agent.run import Agent, run

__all__ = ["Agent", "run"]
