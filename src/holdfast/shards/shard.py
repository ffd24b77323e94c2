"""What one tenant has: some slots of a fleet, and what can be done with them. Pure."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.shards.fleet import Fleet, Slot

if TYPE_CHECKING:
    from holdfast.shards.hashed import Hashed


@dataclass(frozen=True, slots=True)
class Shard:
    """The workers of one tenant."""

    places: tuple[int, ...]
    """Which slots they are in, of the fleet that the shard was made of; a sub-shard is made of its parent's alone."""
    slots: tuple[Slot, ...]

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple([slot.worker for slot in self.slots])

    @property
    def live(self) -> tuple[str, ...]:
        """Those of them that are not drained: who may be given work."""
        return tuple([slot.worker for slot in self.slots if not slot.is_drained])

    @property
    def drained(self) -> tuple[str, ...]:
        """The others."""
        return tuple([slot.worker for slot in self.slots if slot.is_drained])

    def sub(self, size: int, *, key: bytes) -> "Hashed":
        """Shards within this one, `size` workers each, for the tenant's own tenants, by their names.

        A poison request of one of them takes some workers of this shard, and the others have the rest. Nobody outside
        notices either way. The shards it hands out can be divided in their turn. They are spread over the first
        dimension of groups, such as zones: of several, a shard does not have all combinations.
        """
        from holdfast.shards.hashed import Hashed

        slots = tuple(replace(slot, group=slot.group[:1], relieves=None) for slot in self.slots)
        return Hashed(Fleet(slots=slots, shared_hosts="allow"), size, key=key)
