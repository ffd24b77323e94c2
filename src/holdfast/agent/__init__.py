"""The agent: tracks which zones are out, and tells its host by HTTP, a file and a hook. `holdfast agent` runs it.

May import `compose` and everything below it, and nothing that the core install lacks, except for SNS. Start reading at
`run.py`; what the host gets is in `responses.py`, `state.py` and `hook.py`.
"""

from holdfast.agent.run import Agent, run

__all__ = ["Agent", "run"]
