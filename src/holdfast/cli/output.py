"""What commands print: a table or a line for people, one JSON document for machines."""

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
from cyclopts import MissingArgumentError, Parameter

from holdfast._errors import Conflict, HoldfastError, InvalidValue

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from holdfast.config import Settings
    from holdfast.config.paths import SettingPath

Item = TypeVar("Item")

Json: TypeAlias = Annotated[
    bool, Parameter(name="--json", help="Print JSON, for machines, instead of text for people.")
]
SettingsFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--settings",
        help="The settings file. Without it: $HOLDFAST_SETTINGS, else ./holdfast.toml if there is one, else defaults.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOptions:
    """The options of commands that work on the store of the settings."""

    settings: SettingsFile = None
    data_directory: Annotated[
        Path | None, Parameter(name="--data-directory", help="Instead of data_directory of the settings.")
    ] = None

    def load(self, overrides: "Mapping[SettingPath, object]" = MappingProxyType({})) -> "Settings":
        """Return the settings that they name, with the `overrides` of other options that are not None."""
        from holdfast.config import load  # not above: printing needs no settings

        return load(self.settings, options={("data_directory",): self.data_directory, **overrides}).settings


SETTINGS = SettingsOptions()


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), flush=True)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """The options of commands that can draw what they found."""

    svg: Annotated[Path | None, Parameter(help="A new file for a picture.")] = None
    force: Annotated[bool, Parameter(help="Overwrite the file of --svg.")] = False

    def check(self) -> None:
        """Refuse at once, and not after a long run, what could not be written then."""
        if self.svg is None and self.force:
            raise InvalidValue("--force is for the file of --svg")
        if self.svg is not None and self.svg.exists() and not self.force:
            raise Conflict(f"{self.svg} exists already: remove it, or overwrite it with --force")

    def draw(self, picture: Callable[[], str]) -> None:
        """Write the picture, if one is wanted."""
        if self.svg is not None:
            drawn = picture().encode()  # first, so that no empty file stays where it cannot be drawn
            with create_file(self.svg, force=self.force) as file:
                file.write(drawn)


NO_PICTURE = PictureOptions()


def pick_attributes(value: object, *names: str) -> dict[str, Any]:
    """Return the attributes of these names, for `print_json`."""
    return {name: getattr(value, name) for name in names}


def create_progress(*columns: "ProgressColumn") -> "Progress":
    """Return a display of progress on standard error, for as long as it takes, and at a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """Print `value` as one JSON document for machines, or `text` for people."""
    if as_json:
        print_json(value)
    else:
        print(text)


def escape_unprintable(text: str) -> str:
    """Text for people as it is, but for line ends and what a terminal would obey, which are shown and do nothing."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_rows(value: Any, header: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print `value` as one JSON document for machines, or a table for people."""
    if as_json:
        print_json(value)
    else:
        print_table(header, rows)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows for people: a table as wide as the terminal, or as its contents where there is none."""
    from rich.console import Console
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    # What was stored is shown as it is: nothing in it is markup.
    console = Console(width=None if is_terminal else 10_000, soft_wrap=not is_terminal, markup=False, emoji=False)
    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*("" if cell is None else escape_unprintable(str(cell)) for cell in row))
    console.print(table)


STANDARD_INPUT = "-"


def require_file(path: str) -> None:
    """Raise InvalidValue for an option, which was let through because `-` is standard input."""
    if path.startswith("-") and path != STANDARD_INPUT:
        raise InvalidValue(f"{path}: expected a file, and not an option; a file of this name is ./{path}")


def decode_json(source: str, text: str) -> Any:
    """Return what the JSON says. Raise InvalidValue, which names the place, for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{source}: this is not JSON: {error}") from error


def split_into_batches(items: Iterator[Item], count: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `count`, the last one of fewer."""
    while batch := list(islice(items, count)):
        yield batch


def describe_input(path: str) -> str:
    """Return what people call the file at `path`."""
    return "standard input" if path == STANDARD_INPUT else path


@contextmanager
def open_input(path: str, *, errors: str) -> Iterator[Iterable[str]]:
    """Open a file of UTF-8, or standard input for `-`, line ends as they are. Raises InvalidValue if that fails."""
    require_file(path)
    try:
        if path != STANDARD_INPUT:
            with Path(path).open(encoding="utf-8-sig", errors=errors, newline="") as file:
                yield file
            return
        if sys.stdin is None:  # whoever started this closed it
            raise InvalidValue("standard input is closed: hand something in, or name a file")
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8-sig", errors=errors, newline="")
        yield sys.stdin
    except OSError as error:
        raise InvalidValue(f"{describe_input(path)} cannot be read: {error.strerror}") from error


@contextmanager
def create_file(
    path: Path, *, force: bool = False, alternative: str = "overwrite it with --force"
) -> Iterator[BinaryIO]:
    """A file to write to. Raises Conflict if there is one already, unless it is to be overwritten."""
    try:
        with path.open("wb" if force else "xb") as file:
            yield file
    except FileExistsError as error:
        raise Conflict(f"{path} exists already: remove it, or {alternative}") from error
    except OSError as error:
        raise InvalidValue(f"{path} cannot be written: {error.strerror}; name another file") from error


def print_error(error: Exception, *, as_json: bool) -> None:
    """One error on standard error."""
    if as_json:
        slug = error.slug if isinstance(error, HoldfastError) else "usage"
        # A file's name need not be Unicode; JSON must.
        detail = _format_error(error).encode(errors="backslashreplace").decode()
        print(msgspec.json.encode({"error": slug, "detail": detail}).decode(), file=sys.stderr)
    else:
        print(f"holdfast: {_format_error(error)}", file=sys.stderr)


def _format_error(error: Exception) -> str:
    if isinstance(error, MissingArgumentError) and error.argument and not (error.keyword or error.argument.tokens):
        return f"{error.argument.name} is needed"
    return str(error)


def print_note(text: str, *, as_json: bool) -> None:
    """On standard error, after what was printed before it, what somebody should know although all went well."""
    sys.stdout.flush()
    print(msgspec.json.encode({"note": text}).decode() if as_json else f"holdfast: {text}", file=sys.stderr)


def format_time(at: float | None) -> str:
    """A stored time for people: UTC, to the second."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
