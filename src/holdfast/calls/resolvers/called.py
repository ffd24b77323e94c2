"""Endpoints that a function finds. Pure."""

from collections.abc import Callable

from holdfast.calls.resolvers.resolver import ByZone


class Called:
    """The endpoints that a function returns, for whatever this folder has no resolver for."""

    def __init__(self, function: Callable[[], ByZone]) -> None:
        self._function = function

    def resolve(self) -> ByZone:
        return self._function()
