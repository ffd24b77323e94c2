"""Structured logs on standard error, by the standard library's logging."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from holdfast.config import LogSettings

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever `extra` was given."""

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
    """The same for people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={value}" for name, value in _get_extra(record).items())
        line = f"{_format_time(record)} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        exception = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{_escape_control_characters(line + ('  ' + extra if extra else ''))}{exception}"


def configure_logging(settings: LogSettings, stream: TextIO | None = None, *, with_pid: bool = False) -> None:
    """Send everything that is logged in this process to standard error. For programs; a library never calls it.

    Where several processes share a log, `with_pid` says in each entry whose it is.
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
    # uvicorn repeats what the server itself says about starting and stopping
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _add_pid(record: logging.LogRecord) -> bool:
    vars(record).setdefault("pid", record.process)  # as if it were one of `extra`, which may have its own
    return True


def _format_time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _escape_control_characters(line: str) -> str:
    """Without line ends, which would forge a second entry, and escape sequences, which a terminal would obey."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)


def _get_extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
