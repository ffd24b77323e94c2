"""LoadedSettings by schemathesis: every request comes from an operator of its own, and is about a queue that there is.

It revokes whatever credentials it finds, sooner or later its own. TEST_DATA_DIRECTORY names the data directory.
"""

import os
import re
from pathlib import Path
from typing import Any

import schemathesis

from holdfast._clock import SystemClock
from holdfast._names import WORKLOAD_PATTERN, ZONE_PATTERN
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue import OutgoingMessage, SentMessage, open_backend
from holdfast.queue.backend import QueueChange
from holdfast.server.credentials import CredentialStore, Role

DATA = Path(os.environ["TEST_DATA_DIRECTORY"])
QUEUE = "work"
store = CredentialStore(SqliteDatabase(DATA / "server.sqlite"), SystemClock())
with open_backend(f"sqlite:{DATA / 'queue.sqlite'}") as backend:
    backend.change(QUEUE, QueueChange(), create=True)
    [sent] = backend.send(QUEUE, [OutgoingMessage(tenant="anna", body=b"", delay=86400)])  # which no sweep reaches
assert isinstance(sent, SentMessage)
MESSAGE = sent.id


@schemathesis.auth(refresh_interval=None)
class NewOperator:
    def get(self, case: Any, context: Any) -> str:
        return store.create(Role.OPERATOR)[1]

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.hook
def map_path_parameters(context: Any, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Good names of queues and zones become those of one, and numbers a message's; what is meant wrong stays so."""
    if parameters is not None and re.fullmatch(ZONE_PATTERN, str(parameters.get("zone", ""))):
        parameters["zone"] = "use1-az1"
    if parameters is not None and re.fullmatch(WORKLOAD_PATTERN, str(parameters.get("queue", ""))):
        parameters["queue"] = QUEUE
        if isinstance(parameters.get("message"), int):
            parameters["message"] = MESSAGE
    return parameters
