"""Structured logs on standard error, through the standard library's logging."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from holdfast._names import escape_unprintable
from holdfast.config import LogSettings

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonFormatter(logging.Formatter):
    """A formatter for one JSON object per line: time, level, logger, message, and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_get_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """A formatter for one line of text per record, for people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _get_extra(record)
        exception = self.formatException(record.exc_info) if record.exc_info else fields.pop("exception", None)
        extra = " ".join(f"{name}={value}" for name, value in fields.items())
        line = f"{_format_time(record)} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        lines = [line + ("  " + extra if extra else ""), *str(exception or "").splitlines()]
        return "\n".join(map(escape_unprintable, lines))


def configure_logging(settings: LogSettings, stream: TextIO | None = None, *, with_pid: bool = False) -> None:
    """Send all log records of this process to standard error. For programs only, never for a library.

    With `with_pid`, each entry has the process id, for several processes that share a log.
    """
    stream = stream or sys.stderr
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    if with_pid:
        handler.addFilter(_add_pid)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # The server itself logs that it starts and stops.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _add_pid(record: logging.LogRecord) -> bool:
    vars(record).setdefault("pid", record.process)  # like a field of `extra`, which may define its own
    return True


def _format_time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _get_extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
