"""The events of calls in a list, for assertions."""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from holdfast._errors import InvalidValue
from holdfast._several import Several
from holdfast._types import Sink
from holdfast.calls.dependency import Dependency
from holdfast.calls.events import CallEvent
from holdfast.calls.world import PROCESS, World

Kind = TypeVar("Kind")


class RecordedEvents(list[CallEvent]):
    """A list that is a sink: `Dependency(sink=events)`. As a context manager it hears all dependencies of the process.

    Inside of the block it hears those made before and inside, next to the sinks that they have. A sink that is set
    inside of it takes its place.
    """

    def __init__(self, world: World = PROCESS) -> None:
        super().__init__()
        self._world = world
        self._watched: WeakKeyDictionary[Dependency, tuple[Sink[CallEvent] | None, Sink[CallEvent]]] | None = None
        self._joined: Callable[[Dependency], object] | None = None

    def emit(self, event: CallEvent) -> None:
        self.append(event)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The events of one class, in order: `events.of(Retrying)`."""
        return [event for event in self if isinstance(event, kind)]

    def __enter__(self) -> Self:
        if self._watched is not None:
            raise InvalidValue("these events are recorded already: make new ones for each `with`")
        self._watched = WeakKeyDictionary()
        self._joined = self._world.joined
        self._world.joined = self._join
        for dependency in list(self._world.dependencies):
            self._watch(dependency)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watched is not None
        self._world.joined = self._joined
        for dependency, (before, installed) in self._watched.items():
            if dependency.sink is installed:
                dependency.sink = before
        self._watched = None

    def _join(self, dependency: Dependency) -> None:
        if self._joined is not None:
            self._joined(dependency)
        self._watch(dependency)

    def _watch(self, dependency: Dependency) -> None:
        assert self._watched is not None
        before = dependency.sink
        installed: Sink[CallEvent] = self if before is None else Several(before, self)
        self._watched[dependency] = before, installed
        dependency.sink = installed


def recorded_events(world: World = PROCESS) -> RecordedEvents:
    """Keep events in a list: those of the dependencies that have it as a sink or, in a `with` block, those of all."""
    return RecordedEvents(world)
