"""The agent's state, and the file in which it publishes the state to the host."""

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
    """The zones that are out for the host's workload."""

    zone: Zone
    """The host's own zone."""
    workload: str | None
    zones_out: frozenset[Zone] = frozenset()
    changed_at: float
    """Wall time of the last change of `zones_out`, or of the agent's start before the first one."""

    @property
    def is_out(self) -> bool:
        return self.zone in self.zones_out

    def to_document(self) -> dict[str, Any]:
        """Return the state in its JSON form, without the time."""
        return {"zone": self.zone, "workload": self.workload, "out": self.is_out, "zones_out": sorted(self.zones_out)}


logger = logging.getLogger("holdfast.agent")


class StateFile:
    """A file that always holds one complete state. Raises SettingsError for a path that cannot be a file."""

    def __init__(self, path: Path) -> None:
        if not path.name:
            raise SettingsError(f"agent.file {path} is a folder: name a file")
        self._path = path

    def remove_temporary_files(self) -> None:
        """Remove temporary files of an agent that was killed while writing."""
        with suppress(OSError):
            for left in self._path.parent.iterdir():
                if left.name.startswith(f".{self._path.name}.") and left.suffix == ".tmp":
                    left.unlink(missing_ok=True)

    def write(self, state: AgentState) -> None:
        """Replace the file atomically. Raise OSError if that fails; then the old file stays."""
        document = msgspec.json.encode({**state.to_document(), "changed_at": state.changed_at})
        # A unique name: two agents that share a file by mistake must not write into the same temporary file.
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.tmp")
        try:
            # Readable for other users, as far as the umask allows it: it is written for them.
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
        del stopping  # writing takes no time
        try:
            self.write(state)
        except OSError as error:
            logger.warning("cannot write agent.file %s, trying again: %s", self._path, error)
            return False
        return True
