"""The names of dependencies and operations as labels of metrics: a bounded number of them, whatever callers do. Pure.

A series of a metric is kept for each combination of labels. An operation whose name has an identifier in it would make
a new one for every call, until the memory is full or the bill is.
"""

from holdfast._errors import InvalidValue
from holdfast._types import Operation

OTHER = "other"
"""What stands for every name that came too late."""


class Names:
    """Remembers the first so many names; the others become `other`. Not thread-safe."""

    __slots__ = ("_dependencies", "_most", "_operations")

    def __init__(self, most: int) -> None:
        if most < 1:
            raise InvalidValue(f"at most {most} operations with series of their own: expected 1 or more")
        self._most = most
        self._dependencies: set[str] = set()
        self._operations: set[Operation] = set()

    def dependency(self, name: str) -> str:
        """The dependency's own name, or `other`."""
        if name not in self._dependencies:
            if len(self._dependencies) >= self._most:
                return OTHER
            self._dependencies.add(name)
        return name

    def operation(self, operation: Operation) -> tuple[str, str]:
        """Dependency and operation by their own names, or with `other` for one of them or both."""
        dependency = self.dependency(operation.service)
        if operation in self._operations:
            return dependency, operation.name
        if dependency == OTHER or len(self._operations) >= self._most:
            return dependency, OTHER
        self._operations.add(operation)
        return dependency, operation.name
