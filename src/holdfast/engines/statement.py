"""Which statements a work may run: those that both engines take, and that leave the transaction to the engine. Pure."""

import re
from functools import lru_cache

from holdfast._errors import InvalidValue

_UNREAD = re.compile(r"'[^']*'|\"[^\"]*\"|\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/", re.DOTALL)
_OTHER_PARAMETERS = re.compile(r"\?|(?<![\w:]):[A-Za-z_]")
_SECOND_STATEMENT = re.compile(r";\s*\S")
_TRANSACTION = re.compile(
    r"^\s*(?:begin|start|commit|end|rollback|abort|savepoint|release|prepare)\b|\bor\s+rollback\b", re.IGNORECASE
)


def _blanked(unread: re.Match[str]) -> str:
    """Comments are nothing; a text or a quoted name is still something."""
    return " " if unread[0].startswith(("--", "/*")) else "''"


@lru_cache(maxsize=1024)
def require_portable(sql: str) -> None:
    """Raise InvalidValue for a statement that only one engine takes, or that would end the transaction."""
    read = _UNREAD.sub(_blanked, sql)
    if _SECOND_STATEMENT.search(read) or _OTHER_PARAMETERS.search(read):
        raise InvalidValue(f"expected one statement with parameters $1, $2, ..., as every engine takes them: {sql}")
    if _TRANSACTION.search(read):
        raise InvalidValue(f"a work must not begin, commit or roll back: the engine does that: {sql}")
    # SQLite numbers $1, $2 by where they first appear, PostgreSQL by the digits.
    first_seen = list(dict.fromkeys(re.findall(r"\$(\d+)", read)))
    if first_seen != [str(number + 1) for number in range(len(first_seen))]:
        raise InvalidValue(f"parameters must first appear in the order $1, $2, ...: {sql}")
