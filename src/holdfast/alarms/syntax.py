"""Tokens of the languages of alarms, and errors that point at a position. Pure."""

import re
from collections.abc import Collection
from typing import NamedTuple, NoReturn

from holdfast._errors import InvalidValue

END = "end"
"""The kind of the token after the last one."""
MAX_DEPTH = 100
"""Maximum nesting of parentheses, NOT and minus signs. AWS publishes none; nobody reads a deeper expression."""
_EXCERPT = 40
"""Characters of the text that an error shows before and after the position."""


class Token(NamedTuple):
    """A word, number, sign or quoted text of an expression."""

    kind: str
    text: str
    position: int


def build_error(text: str, position: int, problem: str) -> InvalidValue:
    """Return an error with an excerpt of `text`, and a caret below `position`."""
    start = max(0, position - _EXCERPT)
    excerpt = re.sub(r"[^ -~]", "?", re.sub(r"\s", " ", text[start : position + _EXCERPT]))
    before, after = ("..." if start else ""), ("..." if position + _EXCERPT < len(text) else "")
    caret = " " * (len(before) + position - start) + "^"
    return InvalidValue(f"{problem}, at character {position + 1}\n  {before}{excerpt}{after}\n  {caret}")


class TokenReader:
    """The tokens of one text, read from left to right."""

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        """Split `text` by `pattern`, whose named groups are the kinds of tokens; text of the group `space` is skipped.

        Raise InvalidValue at the first character that begins no token.
        """
        self._text = text
        self._tokens: list[Token] = []
        self._depth = 0
        position = 0
        while position < len(text):
            match = pattern.match(text, position)
            if match is None or match.lastgroup is None:
                problem = "this text has no closing quote" if text[position] in "\"'" else "unexpected character"
                raise build_error(text, position, problem)
            if match.lastgroup != "space":
                self._tokens.append(Token(match.lastgroup, match.group(), position))
            position = match.end()
        self._tokens.append(Token(END, "", len(text)))
        self._next = 0

    @property
    def next(self) -> Token:
        """The token that `take` returns."""
        return self._tokens[self._next]

    def take(self) -> Token:
        """Return the next token, and advance. The last one is returned again and again."""
        token = self.next
        if token.kind != END:
            self._next += 1
        return token

    def take_if(self, texts: Collection[str]) -> Token | None:
        """Return the next token and advance if it is one of `texts` and not quoted; otherwise return None."""
        return self.take() if self.next.text in texts else None

    def expect(self, text: str, where: str) -> Token:
        """Return the next token, or raise InvalidValue if it is not `text`."""
        return self.take_if((text,)) or self.fail(f"expected {text!r} {where}, found {self.describe_next()}")

    def describe_next(self) -> str:
        """Return the next token as error messages name it."""
        return repr(self.next.text) if self.next.kind != END else "the end"

    def fail(self, problem: str, at: Token | None = None) -> NoReturn:
        """Raise InvalidValue at a token, by default the next one."""
        raise build_error(self._text, (at or self.next).position, problem)

    def enter(self, token: Token) -> None:
        """Note that an expression inside another one begins. Raise InvalidValue if they are nested too deeply."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} deep", token)

    def leave(self) -> None:
        """Note that an inner expression ends."""
        self._depth -= 1
