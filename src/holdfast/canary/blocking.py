"""Run blocking functions beside an event loop: look-ups of names, and the Python functions of users."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.calls.context import propagate_context

_FAILED = "the function raised {}, which ends a process, and not only a check"


class BlockingCalls:
    """Runs functions in daemon threads, at most one at a time.

    A function that hangs cannot be stopped: its thread is left behind, and ends with the process. While it hangs, no
    second thread is started. So a probe costs one thread at most, and none prevents the process from ending, as those
    of an executor would.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_running = False

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Return the result of `function`. Raise TimeoutError if the function of an earlier call still runs."""
        if self._is_running:
            raise TimeoutError("an earlier call still runs")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, Exception | None]] = loop.create_future()

        def settle(result: Any, error: Exception | None) -> None:
            if not ended.done():  # cancelled by the timeout
                ended.set_result((result, error))

        def work() -> None:
            result, error = None, None
            try:
                result = function(*arguments)
            except Exception as caught:  # noqa: BLE001 - the caller gets it
                error = caught
            except BaseException as caught:  # noqa: BLE001 - such as SystemExit, which must not end the canary
                error = RuntimeError(_FAILED.format(type(caught).__name__))
            self._is_running = False  # before the result is known, so that the next call may follow it at once
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle, result, error)

        self._is_running = True
        try:
            threading.Thread(target=propagate_context(work), name=self._name, daemon=True).start()
        except RuntimeError as error:
            self._is_running = False
            raise MemoryError(f"no thread can be started: {error}") from error
        # A pair, because a future accepts neither StopIteration nor an error whose class is odd.
        result, failure = await ended
        if failure is not None:
            raise failure
        return result


def call_function(function: Callable[[str], object], address: str, timeout: float) -> object:
    """Call a user's function. Run a coroutine that it returns in an event loop of this thread; cancel it in time."""
    result = function(address)
    if not inspect.isawaitable(result):
        return result

    async def wait() -> object:
        async with asyncio.timeout(timeout):
            return await result

    return asyncio.run(wait())
