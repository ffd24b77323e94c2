"""Input and output of commands: text and tables for people, one JSON document for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias, TypeVar

import msgspec
from cyclopts import MissingArgumentError, Parameter, UnusedCliTokensError

from holdfast._errors import Conflict, HoldfastError, InvalidValue
from holdfast._names import escape_unprintable

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from holdfast.config import Settings
    from holdfast.config.paths import SettingPath

Item = TypeVar("Item")

Json: TypeAlias = Annotated[bool, Parameter(name="--json", help="Print JSON for programs instead of text for people.")]
SettingsFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--settings",
        help="The settings file. Default: $HOLDFAST_SETTINGS, or else ./holdfast.toml if it exists.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOptions:
    """The options of commands that use the store in the settings."""

    settings: SettingsFile = None
    data_directory: Annotated[
        Path | None, Parameter(name="--data-directory", help="Overrides data_directory of the settings.")
    ] = None

    def load(self, overrides: "Mapping[SettingPath, object]" = MappingProxyType({})) -> "Settings":
        """Return the settings that the options name, with those `overrides` that are not None."""
        from holdfast.config import load  # imported here, because printing needs no settings

        return load(self.settings, options={("data_directory",): self.data_directory, **overrides}).settings


SETTINGS = SettingsOptions()


def print_json(value: Any) -> None:
    """Print one JSON document to standard output."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), flush=True)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """The options of commands that can draw their result."""

    svg: Annotated[Path | None, Parameter(help="A new file for a picture.")] = None
    force: Annotated[bool, Parameter(help="Overwrite the file of --svg.")] = False

    def check(self) -> None:
        """Raise an error before a long run if the picture could not be written after it."""
        if self.svg is None and self.force:
            raise InvalidValue("--force is for the file of --svg")
        if self.svg is None:
            return
        if self.svg.is_dir() or not self.svg.parent.is_dir():
            problem = "is a folder" if self.svg.is_dir() else f"cannot be written: there is no folder {self.svg.parent}"
            raise InvalidValue(f"{self.svg} {problem}; name another file")
        if self.svg.exists() and not self.force:
            raise Conflict(f"{self.svg} exists already: remove it, or overwrite it with --force")

    def draw(self, picture: Callable[[], str]) -> None:
        """Write the picture, if --svg was given."""
        if self.svg is not None:
            drawn = picture().encode()  # before the file is created, which would stay empty if drawing fails
            with create_file(self.svg, force=self.force) as file:
                file.write(drawn)


NO_PICTURE = PictureOptions()


def pick_attributes(value: object, *names: str) -> dict[str, Any]:
    """Return the attributes with these names, for `print_json`."""
    return {name: getattr(value, name) for name in names}


def create_progress(*columns: "ProgressColumn") -> "Progress":
    """Return a progress bar on standard error. It is shown only on a terminal, and removed at the end."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """Print `value` as one JSON document, or `text` for people."""
    if as_json:
        print_json(value)
    else:
        print(text)


def print_rows(value: Any, header: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print `value` as one JSON document, or the rows as a table for people."""
    if as_json:
        print_json(value)
    else:
        print_table(header, rows)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as wide as the terminal, or as its contents if there is no terminal."""
    from rich.console import Console
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    # Stored text is shown unchanged: it must not be interpreted as markup.
    console = Console(width=None if is_terminal else 10_000, soft_wrap=not is_terminal, markup=False, emoji=False)
    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*("" if cell is None else escape_unprintable(str(cell)) for cell in row))
    console.print(table)


STANDARD_INPUT = "-"


def require_file(path: str) -> None:
    """Raise InvalidValue for an option in place of a file. The parser accepts it, because `-` is standard input."""
    if path.startswith("-") and path != STANDARD_INPUT:
        raise InvalidValue(f"{path}: expected a file, and not an option; a file of this name is ./{path}")


def decode_json(source: str, text: str) -> Any:
    """Return the decoded JSON. Raise InvalidValue, which names `source`, if it is not valid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{source}: this is not JSON: {error}") from error


def split_into_batches(items: Iterator[Item], count: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `count`. The last list may be shorter."""
    while batch := list(islice(items, count)):
        yield batch


def describe_input(path: str) -> str:
    """Return the name of the input for messages."""
    return "standard input" if path == STANDARD_INPUT else path


@contextmanager
def open_input(path: str, *, errors: str) -> Iterator[Iterable[str]]:
    """Open a UTF-8 file, or standard input for `-`. Line ends are not converted. Raise InvalidValue if that fails."""
    require_file(path)
    try:
        if path != STANDARD_INPUT:
            with Path(path).open(encoding="utf-8-sig", errors=errors, newline="") as file:
                yield file
            return
        if sys.stdin is None:  # the parent process closed it
            raise InvalidValue("standard input is closed: pipe data into it, or name a file")
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8-sig", errors=errors, newline="")
        yield sys.stdin
    except OSError as error:
        raise InvalidValue(f"{describe_input(path)} cannot be read: {error.strerror}") from error


@contextmanager
def create_file(
    path: Path, *, force: bool = False, alternative: str = "overwrite it with --force"
) -> Iterator[BinaryIO]:
    """Create a file and open it for writing. Raise Conflict if it exists, unless `force` is set."""
    if path.is_dir():
        raise InvalidValue(f"{path} is a folder; name another file")
    try:
        with path.open("wb" if force else "xb") as file:
            yield file
    except FileExistsError as error:
        raise Conflict(f"{path} exists already: remove it, or {alternative}") from error
    except OSError as error:
        raise InvalidValue(f"{path} cannot be written: {error.strerror}; name another file") from error


def print_error(error: Exception, *, as_json: bool) -> None:
    """Print an error to standard error."""
    if as_json:
        slug = error.slug if isinstance(error, HoldfastError) else "usage"
        # The name of a file may not be valid Unicode, but JSON must be.
        detail = _format_error(error).encode(errors="backslashreplace").decode()
        print(msgspec.json.encode({"error": slug, "detail": detail}).decode(), file=sys.stderr)
    else:
        print(f"holdfast: {_format_error(error)}", file=sys.stderr)


def _format_error(error: Exception) -> str:
    if isinstance(error, MissingArgumentError) and error.argument and not (error.keyword or error.argument.tokens):
        return f"{error.argument.name} is needed"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        word = error.unused_tokens[0]
        kind = "option" if word.startswith("-") else "argument"
        return f"unexpected {kind} {word!r}: see `{' '.join(('holdfast', *(error.command_chain or ())))} --help`"
    return str(error)


def print_note(text: str, *, as_json: bool) -> None:
    """Print a note to standard error, for information that is not an error. Flush standard output first."""
    sys.stdout.flush()
    print(msgspec.json.encode({"note": text}).decode() if as_json else f"holdfast: {text}", file=sys.stderr)


def format_time(at: float | None) -> str:
    """Return a stored time as text: UTC, to the second. None gives an empty text."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def require_answer(*, yes: bool) -> None:
    """Raise InvalidValue, before anything is done, if nobody can be asked for confirmation."""
    if not yes and not sys.stdin.isatty():
        raise InvalidValue("this needs your confirmation, and there is no terminal to ask you: add --yes")


def confirm(question: str, *, yes: bool) -> bool:
    """Ask a question on standard error, and return whether the answer is yes."""
    if yes:
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
