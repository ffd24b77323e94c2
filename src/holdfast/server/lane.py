"""Threads for one kind of work, so that what hangs there holds up nothing else."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from holdfast._errors import EngineUnavailable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Lane:
    """Runs work in a few threads of its own; past `most` works at a time it refuses more, instead of queueing them."""

    def __init__(self, name: str, *, threads: int = 4, most: int = 16) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = most
        self._inside = 0

    async def run(
        self, work: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        """What `work` returns. Raises EngineUnavailable if too many are at it; it goes on if the caller goes away."""
        if self._inside >= self._most:
            raise EngineUnavailable(f"{self._most} of {self._name} are under way and take long: try again later")
        self._inside += 1
        doing = asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*arguments, **named))
        doing.add_done_callback(self._leave)
        return await asyncio.shield(doing)

    def _leave(self, done: "asyncio.Future[Result]") -> None:
        self._inside -= 1
        done.exception()  # also if nobody waits for it any more, it was looked at
