"""What a handler returned, where it shows that the work is not done."""

import inspect
from concurrent.futures import Future
from typing import Any


def require_that_it_has_run(result: Any) -> None:
    """Raise TypeError for what a handler returned, if somebody would still have to await it, or to go through it.

    The message would be taken for handled, and nothing, or not all of it, would have happened.
    """
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
        raise TypeError("the handler returned a coroutine that nobody awaits: make it `async def`, and await it there")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the handler returned a generator that nobody goes through: go through it in the handler")
    if isinstance(result, Future) or inspect.isawaitable(result):
        raise TypeError(
            f"the handler returned a {type(result).__name__} that nobody awaits: await it in an `async def`, "
            "or wait for its result"
        )
