"""Find implementations of an interface by name: built-in ones in a package, others through entry points."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast._errors import InvalidValue, SettingsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Plugins(Generic[T]):
    """The implementations of one interface, by name.

    A built-in implementation is a module or package in `package` that calls `register` when it is imported. Importing
    it must work without any extra installed. Other distributions register an object under the entry point group
    `group`. Implementations are imported on first use. An entry point cannot replace a built-in name.
    """

    def __init__(self, kind: str, *, package: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._package = package
        self._registered: dict[str, T] = {}
        self._has_imported_all = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an implementation under `name`."""

        def registered(implementation: T) -> T:
            if self._registered.setdefault(name, implementation) is not implementation:
                raise InvalidValue(f"two {self.kind}s register as {name!r}")
            return implementation

        return registered

    def get(self, name: str) -> T:
        """Return the implementation called `name`. Raise SettingsError, which lists all names, if there is none."""
        if name not in self._registered:
            self._import_built_in(name)
        if name not in self._registered:
            found = self._entry_points().get(name)
            if found is None:
                raise SettingsError(f"no {self.kind} is called {name!r}: expected one of {', '.join(self.names())}")
            self._registered[name] = self._load(found)
        return self._registered[name]

    def names(self) -> tuple[str, ...]:
        """Return every name that `get` accepts, sorted."""
        self._import_all()
        return tuple(sorted({*self._registered, *self._entry_points()}))

    def _import_built_in(self, name: str) -> None:
        """Import the module called `name`. If it does not register `name`, import all modules of the package."""
        package = importlib.import_module(self._package)
        if name in {module.name for module in pkgutil.iter_modules(package.__path__)}:
            importlib.import_module(f"{self._package}.{name}")
        if name not in self._registered:
            self._import_all()

    def _import_all(self) -> None:
        if not self._has_imported_all:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self._package}.{module.name}")
            self._has_imported_all = True

    def _entry_points(self) -> "dict[str, EntryPoint]":
        from importlib.metadata import entry_points  # takes 10 ms, which programs with built-in plug-ins do not need

        return {point.name: point for point in entry_points(group=self.group)}

    def _load(self, point: "EntryPoint") -> T:
        source = f" of {point.dist.name}" if point.dist is not None else ""
        try:
            loaded: T = point.load()
        except Exception as error:
            raise SettingsError(
                f"the {self.kind} {point.name!r}{source} cannot be loaded from {point.value}: {error}"
            ) from error
        return loaded
