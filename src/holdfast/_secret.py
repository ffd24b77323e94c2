"""Texts of settings that are never printed, addresses that may contain one, and options that may be one."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast._errors import InvalidValue, SettingsError

_REFERENCES = ("env:", "file:")


class Secret:
    """A text that is never printed. `env:NAME` and `file:PATH` say where it is, and are read when it is used."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def is_reference(self) -> bool:
        """Whether the settings say only where the secret is."""
        return self._text.startswith(_REFERENCES)

    def reveal(self) -> str:
        """Return the secret, to use it. Raise SettingsError if its variable or file is missing."""
        kind, _, name = self._text.partition(":")
        if not self.is_reference:
            return self._text
        if kind == "env":
            found = os.environ.get(name, "").strip()
            problem = "is not set, or empty"
        else:
            found, problem = "", "is empty"
            try:
                found = Path(name).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problem = f"cannot be read: {getattr(error, 'strerror', None) or 'it is no UTF-8 text'}"
        if not found:
            raise SettingsError(f"{'environment variable' if kind == 'env' else 'file'} {name} {problem}")
        return found

    def __str__(self) -> str:
        if self.is_reference:
            return self._text
        host = _find_host(self._text)
        return "****" if host is None else f"{self._text.partition(':')[0]}://{host}/****"

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def _find_host(address: str) -> str | None:
    with suppress(ValueError):
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.port != 0:
            return parts.hostname
    return None


def check_url(url: str) -> str:
    """Return the URL. Raise InvalidValue, without its path, which may be a secret, if it is not HTTP."""
    is_clean = url.isascii() and url.isprintable() and " " not in url
    if _find_host(url) is None or not is_clean or "@" in urlsplit(url).netloc:  # a user name would not be sent
        raise InvalidValue(
            "url: expected an address such as https://host/path, without a user name and password, found another text "
            "(not shown)"
        )
    return url


def require_reference(name: str, secret: Secret | None) -> None:
    """Raise InvalidValue for a secret that is written in the settings."""
    if secret is not None and not secret.is_reference:
        raise InvalidValue(f"{name}: expected env:NAME or file:PATH, so that the settings contain no secret")


def parse_options(kind: type[msgspec.Struct], options: Mapping[str, Any], owner: str) -> Any:
    """Return the options of an implementation as a `kind`. Raise InvalidValue, which names the option, if one is wrong.

    `owner` is the implementation, for messages. Options may be of type Secret.
    """
    known = [field.name for field in msgspec.structs.fields(kind)]
    for option in options:
        if option not in known:
            raise InvalidValue(f"options.{option}: unknown option of {owner}, expected {', '.join(known) or 'none'}")
    try:
        return msgspec.convert(dict(options), kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        # The checks of an options class begin with the name of the option: `url: expected ...`.
        named = problem if re.match(r"\w+: ", problem) else f"{path.rstrip('`')}: {problem}"
        raise InvalidValue(f"options.{named}" if path or named == problem else f"options: {problem}") from error


def _decode(kind: type, value: Any) -> Any:
    if kind is Secret and isinstance(value, str | Secret):
        return Secret(value) if isinstance(value, str) else value
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
