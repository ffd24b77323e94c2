"""Choose the resources of an evacuation by type, name and tag. Pure."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from holdfast._errors import InvalidValue


class Selection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The resources that are evacuated; by default all of them. A resource must match all three."""

    types: tuple[str, ...] = ()
    """Types such as `load-balancer`; none means all. Status stores are always taken: they are the lock between
    operators."""
    names: tuple[str, ...] = ()
    """Patterns such as `shop-*`, of which a name must match one. Status stores are not chosen by name."""
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Tags that a resource of AWS must have, with exactly these values. Status stores are not chosen by tag."""

    def matches(self, type: str | None, name: str, *, is_in_aws: bool = True) -> bool:  # noqa: A002 - as in `types`
        """Return whether a resource has a type and a name that are chosen. Tags are not looked at.

        None is a type that is always chosen. Of a name such as `cluster/pool`, the part before the slash may match.
        """
        if not is_in_aws:
            return True
        if self.types and type is not None and type not in self.types:
            return False
        names = {name, name.partition("/")[0]}
        return not self.names or any(fnmatchcase(name, each) for each in self.names for name in names)

    def may_overlap(self, other: "Selection") -> bool:
        """Return whether a resource may be in both selections, by its tags."""
        return all(other.tags.get(key, value) == value for key, value in self.tags.items())

    def merge(self, other: "Selection") -> "Selection":
        """Return the selection of resources that both take. Raise InvalidValue if there can be none."""
        tags = {**self.tags, **other.tags}
        if any(tags[key] != value for key, value in self.tags.items()):
            wanted = ", ".join(f"{key}={value}" for key, value in self.tags.items())
            raise InvalidValue(f"the workload has the tags {wanted}: no resource can have another value as well")
        if self.names and other.names and self.names != other.names:
            raise InvalidValue(
                f"the settings already give the workload names ({', '.join(self.names)}): choose by type or tag instead"
            )
        types = tuple(each for each in other.types if not self.types or each in self.types) or self.types
        if other.types and not set(types) & set(other.types):
            raise InvalidValue(f"the workload has only the types {', '.join(self.types)}")
        return Selection(types=types, names=self.names or other.names, tags=tags)

    def describe(self) -> str:
        """Return the selection in words; "" if everything is chosen."""
        parts = [f"types {', '.join(self.types)}"] if self.types else []
        parts += [f"names {', '.join(self.names)}"] if self.names else []
        parts += [f"tags {', '.join(f'{key}={value}' for key, value in self.tags.items())}"] if self.tags else []
        return "; ".join(parts)
