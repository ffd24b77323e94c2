"""Errors that point at a position."""

import re

import pytest

from holdfast import InvalidValue
from holdfast.alarms.syntax import END, MAX_DEPTH, Token, TokenReader, build_error

WORDS = re.compile(r'(?P<space>\s+)|(?P<word>\w+)|(?P<quoted>"[^"]*")')


def test_the_caret_is_below_the_position_in_short_and_long_texts() -> None:
    for text, position in (("abc", 1), ("abc", 3), ("x" * 200, 100), ("a\tb\nc\x07\u00e9", 5), ("y" * 41, 0)):
        _, excerpt, caret = str(build_error(text, position, "wrong")).split("\n")
        shown = excerpt[len(caret) - 1 : len(caret)]
        assert shown in ("", "?", text[position : position + 1])
        assert len(excerpt) < 90
    assert str(build_error("a b", 2, "wrong")) == "wrong, at character 3\n  a b\n    ^"


def test_tokens_are_read_from_left_to_right_and_the_end_stays() -> None:
    reader = TokenReader(' one "two" ', WORDS)
    assert reader.take() == Token("word", "one", 1)
    assert reader.take_if(("one",)) is None
    assert reader.take() == Token("quoted", '"two"', 5)
    assert reader.describe_next() == "the end"
    assert [reader.take().kind, reader.take().kind] == [END, END]


def test_errors_say_what_was_expected_and_found() -> None:
    reader = TokenReader("one", WORDS)
    with pytest.raises(InvalidValue, match=r"expected '\)' at the end, found 'one', at character 1"):
        reader.expect(")", "at the end")
    assert reader.expect("one", "first").text == "one"
    with pytest.raises(InvalidValue, match="this text has no closing quote, at character 3"):
        TokenReader('a "b', WORDS)
    with pytest.raises(InvalidValue, match="unexpected character, at character 3"):
        TokenReader("a !b", WORDS)


def test_nesting_has_a_limit() -> None:
    reader = TokenReader("one", WORDS)
    for _ in range(MAX_DEPTH):
        reader.enter(reader.next)
    reader.leave()
    reader.enter(reader.next)
    with pytest.raises(InvalidValue, match="nested more than 100 deep"):
        reader.enter(reader.next)
