"""What is logged can be read by machines, line by line, and by people."""

import io
import json
import logging
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import pytest

from holdfast.config import LogSettings
from holdfast.server.logs import configure_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn")
    before = root.handlers[:], root.level, uvicorn.level
    yield
    root.handlers[:], level, uvicorn_level = before
    root.setLevel(level)
    uvicorn.setLevel(uvicorn_level)


def logger_to(
    stream: io.StringIO,
    level: Literal["debug", "info", "warning", "error"] = "info",
    kind: Literal["auto", "json", "text"] = "json",
) -> logging.Logger:
    configure_logging(LogSettings(level=level, format=kind), stream)
    return logging.getLogger("holdfast.test")


def entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_entry_is_one_json_object_with_time_level_logger_and_message() -> None:
    stream = io.StringIO()
    logger_to(stream).warning("%d of %s", 3, "them")
    (entry,) = entries(stream)
    assert entry.pop("time").endswith("Z")
    assert entry == {"level": "warning", "logger": "holdfast.test", "message": "3 of them"}


def test_the_time_is_utc_to_the_millisecond() -> None:
    stream = io.StringIO()
    logger = logger_to(stream)
    record = logger.makeRecord("holdfast.test", logging.INFO, __file__, 1, "message", (), None)
    record.created = 1_750_000_000.1239
    logger.handle(record)
    (entry,) = entries(stream)
    assert entry["time"] == "2025-06-15T15:06:40.123Z"
    assert datetime.fromisoformat(entry["time"]).utcoffset() is not None


def test_extra_fields_are_part_of_the_entry_whatever_they_are() -> None:
    stream = io.StringIO()
    extra = {"trace": "abc", "http.response.status_code": 200, "seconds": 0.5, "who": None, "error": ValueError("x")}
    logger_to(stream).info("message", extra=extra)
    (entry,) = entries(stream)
    assert {name: entry[name] for name in extra} == {**extra, "error": "x"}


def test_an_exception_stays_on_the_line_of_its_entry() -> None:
    stream = io.StringIO()
    logger = logger_to(stream)
    try:
        int("one\ntwo")
    except ValueError:
        logger.exception("it\nfailed")
    assert stream.getvalue().count("\n") == 1
    (entry,) = entries(stream)
    assert entry["message"] == "it\nfailed"
    assert entry["exception"].startswith("Traceback (most recent call last):\n")
    assert entry["exception"].endswith(r"ValueError: invalid literal for int() with base 10: 'one\ntwo'")


def test_text_that_is_not_unicode_does_not_keep_an_entry_from_being_written() -> None:
    stream = io.StringIO()
    logger_to(stream).info("name %s", "\udcff")
    assert entries(stream)[0]["message"] == "name \udcff"
    stream.getvalue().encode()


def test_people_get_a_line_with_the_same_content() -> None:
    stream = io.StringIO()
    logger_to(stream, kind="text").info("message", extra={"trace": "abc", "status": 200})
    line = stream.getvalue()
    assert line.endswith("Z info    holdfast.test: message  trace=abc status=200\n")


def test_people_get_an_exception_below_its_line() -> None:
    stream = io.StringIO()
    logger = logger_to(stream, kind="text")
    try:
        int("why")
    except ValueError:
        logger.exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("error   holdfast.test: failed")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: invalid literal for int() with base 10: 'why'"
    stream.truncate(0)
    logger.warning("failed", extra={"job": "welcome", "exception": "Traceback\nValueError: \x1b[2J\n"})
    first, *rest = stream.getvalue().lstrip("\0").splitlines()
    assert first.endswith("warning holdfast.test: failed  job=welcome")
    assert rest == ["Traceback", r"ValueError: \x1b[2J"]


def test_what_a_caller_sent_can_neither_forge_a_line_nor_steer_a_terminal() -> None:
    stream = io.StringIO()
    logger_to(stream, kind="text").info("GET /%s", "a\nb\x1b[2J", extra={"url.path": "c\r\nd\x9b"})
    assert stream.getvalue().endswith("GET /a\\nb\\x1b[2J  url.path=c\\r\\nd\\x9b\n")


@pytest.mark.parametrize(
    ("kind", "stream", "is_json"),
    [
        ("auto", io.StringIO, True),
        ("auto", Terminal, False),
        ("json", Terminal, True),
        ("text", io.StringIO, False),
    ],
)
def test_auto_writes_text_to_a_terminal_and_json_to_anything_else(
    kind: Literal["auto", "json", "text"], stream: type[io.StringIO], is_json: bool
) -> None:
    output = stream()
    logger_to(output, kind=kind).info("message")
    assert output.getvalue().startswith("{") is is_json


@pytest.mark.parametrize("kind", ["json", "text"])
def test_where_processes_share_a_log_an_entry_says_whose_it_is(kind: Literal["json", "text"]) -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(format=kind), stream, with_pid=True)
    logging.getLogger("holdfast.test").info("message")
    logging.getLogger("holdfast.test").info("message", extra={"pid": 7, "trace": "abc"})
    first, second = stream.getvalue().splitlines()
    if kind == "json":
        assert json.loads(first)["pid"] == os.getpid()
        assert json.loads(second)["pid"] == 7, "what a program says itself is left"
    else:
        assert first.endswith(f"holdfast.test: message  pid={os.getpid()}")
        assert second.endswith("holdfast.test: message  pid=7 trace=abc")


def test_less_than_the_level_is_not_written() -> None:
    stream = io.StringIO()
    logger = logger_to(stream, level="warning")
    logger.info("quiet")
    logger.error("loud")
    assert [entry["message"] for entry in entries(stream)] == ["loud"]


def test_the_web_server_says_only_what_the_server_does_not_say_itself() -> None:
    stream = io.StringIO()
    logger_to(stream, level="debug")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("Exception in ASGI application")
    assert [entry["message"] for entry in entries(stream)] == ["Exception in ASGI application"]


def test_configuring_again_takes_the_place_of_what_was_configured() -> None:
    first, second = io.StringIO(), io.StringIO()
    logger_to(first)
    logger_to(second).info("message")
    assert first.getvalue() == ""
    assert len(entries(second)) == 1


def test_without_a_stream_it_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings())
    logging.getLogger("holdfast.test").info("message")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert json.loads(printed.err)["message"] == "message"
