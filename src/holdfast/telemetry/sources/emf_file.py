"""A source that follows files of EMF lines, such as the log of a service on the server's machine."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from holdfast.telemetry.collector import DEFAULT_LATENESS
from holdfast.telemetry.follow import FileFollower
from holdfast.telemetry.source import SOURCES, SourceBatch, SourceContext


class EmfFileOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the source `emf_file`."""

    paths: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
    """Files, or patterns such as `/var/log/shop/*.log`."""


@SOURCES.register("emf_file")
class EmfFileSource:
    """Follows files through their rotation. Reads each line once: after a restart it continues where it ended."""

    options_type: ClassVar[type[EmfFileOptions]] = EmfFileOptions
    lateness = DEFAULT_LATENESS

    def __init__(self, options: EmfFileOptions, context: SourceContext, state: str) -> None:
        self._decoder = context.emf
        self._follower = FileFollower(options.paths, state=state)
        self._overlong = 0

    @property
    def state(self) -> str:
        return self._follower.state

    def poll(self, now: float) -> SourceBatch:
        """Return the measurements in new lines. The batch's `problem` names files that cannot be read."""
        follower = self._follower
        batch = self._decoder.decode(b"\n".join(follower.read()), now)
        for _ in range(follower.overlong_lines - self._overlong):
            batch.refuse("invalid", "a line has more than 1 MiB")
        self._overlong = follower.overlong_lines
        problems = [f"{path} cannot be read: {reason}" for path, reason in follower.problems.items()]
        batch.problem = batch.problem or "; ".join(problems[:3]) or None
        return batch

    def close(self) -> None:
        self._follower.close()
