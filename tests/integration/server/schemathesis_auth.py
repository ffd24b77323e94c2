"""Loaded by schemathesis: every request comes from an operator of its own.

It revokes whatever credentials it finds, sooner or later its own. TEST_DATA_DIRECTORY names the data directory.
"""

import os
from pathlib import Path
from typing import Any

import schemathesis

from holdfast._clock import SystemClock
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.credentials import CredentialStore, Role

store = CredentialStore(SqliteDatabase(Path(os.environ["TEST_DATA_DIRECTORY"]) / "server.sqlite"), SystemClock())


@schemathesis.auth(refresh_interval=None)
class NewOperator:
    def get(self, case: Any, context: Any) -> str:
        return store.create(Role.OPERATOR)[1]

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers["Authorization"] = f"Bearer {data}"
