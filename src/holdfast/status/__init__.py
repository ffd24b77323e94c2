"""Which zones are out: where that is kept, and how every process knows it.

May import the base, the engines and `calls`. Start reading at `stores/sql.py` for the writer's side, and at `board.py`
for the reader's.
"""

from holdfast.status.board import Board
from holdfast.status.stores.sql import SqlStatusStore

__all__ = ["Board", "SqlStatusStore"]
