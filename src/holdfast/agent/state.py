"""What the agent holds to be true, and the file in which it tells the host."""

import logging
import os
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast._errors import SettingsError
from holdfast._types import Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """Which zones are out for the host's workload."""

    zone: Zone
    """The host's own."""
    workload: str | None
    zones_out: frozenset[Zone] = frozenset()
    changed_at: float
    """When `zones_out` became what it is; before the first change, when the agent started."""

    @property
    def is_out(self) -> bool:
        return self.zone in self.zones_out

    def to_document(self) -> dict[str, Any]:
        """As JSON has it, without the time."""
        return {"zone": self.zone, "workload": self.workload, "out": self.is_out, "zones_out": sorted(self.zones_out)}


logger = logging.getLogger("holdfast.agent")


class StateFile:
    """A file that holds one whole state, old or new. Raises SettingsError for a path that cannot be a file."""

    def __init__(self, path: Path) -> None:
        if not path.name:
            raise SettingsError(f"agent.file {path} is a folder: name a file")
        self._path = path

    def clear(self) -> None:
        """Remove what an agent that was killed in the middle of writing has left."""
        with suppress(OSError):
            for left in self._path.parent.iterdir():
                if left.name.startswith(f".{self._path.name}.") and left.suffix == ".tmp":
                    left.unlink(missing_ok=True)

    def write(self, state: AgentState) -> None:
        """Replace the file. Raises OSError; then it is as it was."""
        document = msgspec.json.encode({**state.to_document(), "changed_at": state.changed_at})
        # A name of its own: two agents that share a file by mistake must not write into each other's.
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.tmp")
        try:
            # For others to read, as far as the umask lets them: it is written for them.
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                file.write(document + b"\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    def receive(self, state: AgentState, stopping: threading.Event) -> bool:
        del stopping  # it takes no time
        try:
            self.write(state)
        except OSError as error:
            logger.warning("agent.file %s cannot be written, and will be tried again: %s", self._path, error)
            return False
        return True
